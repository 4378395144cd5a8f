import json

import numpy as np
import pytest

import rl_teacher
from rl_teacher.cli import main
from rl_teacher.play.actors import load_actor


class TestPlay:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["snyth"], "synth"),
            (["a/b"], "slash"),
            (["synth", "--step", "newest"], "--step newest"),
            (["synth", "--compare", "cart"], "CartPole-v1"),
            (["synth", "--compare", "crat"], "cart"),
            (["synth", "--episodes", "0"], "--episodes 0"),
            (["synth", "--episodes", "101"], "--episodes 101"),
            (["synth", "--seed", "-1"], "--seed -1"),
            (["synth", "--predictor-path", "rl"], "'rl' was given"),
            (["cart", "--predictor-path", "synth"], "observations"),
            (["synth", "--port", "70000"], "--port 70000"),
        ],
    )
    def test_bad_input_is_refused_with_exit_code_2(self, home, capsys, arguments, says):
        assert main(["play", *arguments, "--no-browser"]) == 2
        printed = capsys.readouterr().err
        assert says in printed
        assert "Traceback" not in printed

    def test_playing_does_not_change_experiment(self, home, tmp_path, capsys):
        folder = home / "experiments" / "cart"
        before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
        video = str(tmp_path / "film.mp4")
        assert main(["play", "cart", "--video", video, "--episodes", "1"]) == 0
        assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
        capsys.readouterr()


EXPORT_CART = ["export", "cart", "--format", "safetensors", "--out"]

CUSTOM_AGENT = """\
from rl_teacher.agents.custom import CustomAgent


class Own(CustomAgent):
    def act(self, observations, masks=None):
        raise NotImplementedError

    def learn(self, rollout, rewards):
        raise NotImplementedError

    def load_state(self, state):
        pass
"""


class TestExportAgent:
    def test_export_without_folder_is_named_after_the_experiment(self, home, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(EXPORT_CART[:-1]) == 0
        assert rl_teacher.load_agent("cart-agent").made_from["experiment"] == "cart"

    def test_step_without_agent_is_refused(self, home, capsys):
        assert main(["export", "cart", "--step", "0"]) == 2
        assert "--format" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["synth", "cart"])
    def test_exported_policy_acts_as_agent(self, home, tmp_path, capsys, name):
        folder = tmp_path / "agents" / name
        assert main(["export", name, "--format", "safetensors", "--out", str(folder)]) == 0
        assert str(folder) in capsys.readouterr().out
        loaded = rl_teacher.load_agent(folder)
        actor = load_actor(name, "latest")
        actor.venv.close()
        observations = np.random.default_rng(0).normal(size=(7, *loaded.encoder.shape))
        observations = observations.astype(np.float32)
        best = actor.policy(explore=False)(observations)
        np.testing.assert_allclose(loaded(observations), best, rtol=1e-6, atol=1e-6)
        assert loaded.made_from["step"] == 1024
        assert loaded.made_from["env_id"] == actor.env_info.id

    def test_export_refuses_folder_with_other_files(self, home, tmp_path, capsys):
        (tmp_path / "thesis.txt").write_text("mine")
        assert main([*EXPORT_CART, str(tmp_path)]) == 2
        assert "has other files in it" in capsys.readouterr().err

    def test_error_for_custom_agent_names_the_missing_method(
        self, home, tmp_path, capsys, write_module
    ):
        write_module("own_agent", CUSTOM_AGENT)
        path = home / "experiments" / "cart" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"agent": "own_agent:Own"}))
        assert main([*EXPORT_CART, str(tmp_path / "agent")]) == 2
        assert "it has no method numpy_policy" in capsys.readouterr().err
        assert not (tmp_path / "agent").exists()
