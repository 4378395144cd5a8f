import json
from contextlib import closing

import numpy as np
import pytest

from rl_teacher.common.errors import BadInput, CorruptCheckpoint, UnknownName
from rl_teacher.config.experiment import PPOConfig, TeachConfig
from rl_teacher.config.fields import restored
from rl_teacher.play.actors import load_actor, load_config
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.folder import Experiment


def loaded(name, **more):
    actor = load_actor(name, "latest", **more)
    actor.venv.close()
    return actor


def change_config(home, name, **changed):
    path = home / "experiments" / name / "config.json"
    config = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: each for key, each in config.items() if each != "gone"}))


def test_loaded_predictor_equals_saved_predictor(home):
    actor = loaded("synth")
    with closing(actor.venv):
        size = int(np.prod(actor.venv.single_observation_space.shape or ()))
    observations = np.linspace(-1, 1, 2 * size, dtype=np.float32).reshape(2, size)
    actions = np.ones((2, 2), np.float32)
    saved = RewardPredictor.load(home / "experiments" / "synth" / "predictor")
    assert actor.predictor is not None
    np.testing.assert_allclose(actor.predictor(observations, actions), saved(observations, actions))


def test_description_names_experiment_and_step(home):
    actor = loaded("synth")
    assert actor.description == "synth: ppo in ShortReacher-v1, step 1,024 (latest checkpoint)"
    assert actor.notes == ()


def test_description_mentions_running_training(home):
    config = Experiment.find("synth").config
    with Experiment.open("synth", config):
        assert "still training" in loaded("synth").description


def test_agent_of_true_reward_has_note_and_no_predictor(home):
    actor = loaded("rl")
    assert actor.predictor is None
    assert "--predictor-path" in actor.notes[0]


def test_other_predictor_replaces_own(home):
    assert loaded("rl", predictor_path="synth").predictor is not None


def test_predictor_of_other_environment_is_refused(home):
    with pytest.raises(BadInput, match="predictor synth was made for observations"):
        loaded("cart", predictor_path="synth")


def test_unknown_experiment_suggests_nearest_names(home):
    with pytest.raises(BadInput, match="synth"):
        loaded("snyth")


def test_experiment_with_labels_only_has_no_agent(home):
    change_config(home, "synth", agent="gone")
    with pytest.raises(BadInput, match="has no agent"):
        loaded("synth")
    change_config(home, "rl", collect_only=True)
    with pytest.raises(BadInput, match="has no agent"):
        loaded("rl")


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": "1"},
        {"reward": 0.5},
        {"reward": {"hidden": ["a"]}},
        {"reward": {"ensemble_size": -1}},
        {"ppo": {"hidden": [None]}},
    ],
)
def test_settings_of_other_types_are_refused_as_corrupt(home, changed):
    change_config(home, "synth", **changed)
    with pytest.raises(CorruptCheckpoint, match="settings of synth cannot be read"):
        loaded("synth")


def test_agent_of_wrong_size_is_refused_as_corrupt(home):
    change_config(home, "rl", env_id="ShortHopper-v1")
    actor = loaded("synth")
    assert actor.step == 1024
    change_config(home, "synth", agent="of-tomorrow")
    with pytest.raises(UnknownName):
        loaded("synth")


def test_settings_survive_json(home):
    config = load_config(Experiment.find("synth"))
    assert config.saved() == TeachConfig(**vars(config)).saved()
    assert isinstance(config.ppo, PPOConfig)
    assert config.ppo.hidden == (64, 64)
    assert config.ppo.num_envs == 8
    assert config.n_labels == 12


def test_missing_settings_have_defaults():
    config = restored(TeachConfig, {"env_id": "x", "name": "n", "ppo": {"num_envs": 3}})
    assert config.ppo == PPOConfig(num_envs=3)
    assert config.agent_reset == TeachConfig("x", name="n").agent_reset
