import json
import re
from pathlib import Path

import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.play import circus
from rl_teacher.play.circus import ACTS, CircusOptions
from rl_teacher.runs.folder import Experiment, experiment_names

TINY = ["--steps", "8192", "--labels", "8"]


@pytest.fixture
def built_page(tmp_path, monkeypatch):
    path = tmp_path / "built" / "circus.html"
    path.parent.mkdir()
    path.write_text(f"<!doctype html><title>circus</title>{circus.DATA}")
    monkeypatch.setattr(circus, "PAGE", path)
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--steps", "0"], "--steps 0"),
        (["--labels", "0"], "--labels 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--out", "taken"], "--out"),
    ],
)
def test_bad_input_is_refused_before_training(
    arguments, says, built_page, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    assert main(["circus", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert experiment_names() == []


def test_agents_of_an_act_differ_only_in_their_reward():
    options = CircusOptions(Path(), steps=8, labels=3, seed=7, video=False)
    for act in ACTS:
        taught, peer = act.configs(options)
        assert (taught.predictor, peer.predictor) == ("synth", "rl")
        assert taught.teacher == act.task
        for config in (taught, peer):
            assert (config.env_id, config.seed) == (act.env_id, 7)
        assert taught.num_timesteps == peer.num_timesteps == 8
        assert taught.agent == peer.agent == "sac"
        act.teacher.check_environment(act.env_id)


def test_data_in_page_cannot_end_its_element():
    filled = circus.fill_page(f"<p>{circus.DATA}</p>", {"title": "</script><b>"})
    found = re.fullmatch(r"<p><script [^>]*>(.*)</script></p>", filled)
    assert found is not None
    assert "<" not in found[1]
    assert json.loads(found[1]) == {"title": "</script><b>"}


@pytest.mark.slow
def test_command_trains_measures_and_continues(built_page, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["circus", "--out", str(out), *TINY, "--video"]) == 0
    printed = capsys.readouterr().out
    report = json.loads((out / "circus.json").read_text())
    assert [act["task"] for act in report["acts"]] == [act.task for act in ACTS]
    for act in report["acts"]:
        assert act["title"] in printed
        for side in ("taught", "true_reward"):
            assert act[side]["step"] >= 2048
            assert len(act[side]["per_episode"]) == circus.EPISODES
            assert act[side]["mean"] == pytest.approx(np.mean(act[side]["per_episode"]), abs=1e-3)
        for ending in (".gif", ".mp4"):
            assert (out / f"{act['task']}{ending}").stat().st_size > 10_000
        assert Experiment.find(act["taught"]["experiment"]).summary().labels.answered == 8
    assert "data:application/octet-stream" in (out / "circus.html").read_text()

    # Finished agents are not trained again, so that the measures stay the same.
    assert main(["circus", "--out", str(out), *TINY]) == 0
    assert json.loads((out / "circus.json").read_text()) == report
    capsys.readouterr()
