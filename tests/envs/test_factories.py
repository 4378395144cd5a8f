"""Environments created by user-defined functions or classes."""

import gymnasium
import numpy as np
import pytest

from rl_teacher.clips.renderer import check_renderable
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.config.experiment import PPOConfig, RunOptions, TeachConfig
from rl_teacher.envs.factories import time_limit_of
from rl_teacher.envs.registry import (
    get_env_info,
    make_rendered_env,
    make_vector,
    mujoco_model,
)
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach
from tests.envs.custom_environments import MODULE

CONFIG = TeachConfig(
    env_id=f"{MODULE}:point",
    predictor="synth",
    name="point",
    n_labels=12,
    clip_length=0.5,
    num_timesteps=512,
    pretrain_iters=40,
    ppo=PPOConfig(num_envs=8, rollout_steps=32),
)


def own(name):
    return f"{MODULE}:{name}"


def test_factory_environment_has_its_time_limit_and_frame_rate():
    point = get_env_info(own("point"))
    assert (point.id, point.max_episode_steps, point.fps) == (own("point"), 40, 20.0)
    assert point.backend == "gymnasium"


def test_shortest_of_several_time_limits_counts():
    assert get_env_info(own("twice_limited")).max_episode_steps == 40
    limited = gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 900)
    assert time_limit_of(limited) == 500


def test_staggered_episodes_end_at_the_shortest_time_limit():
    venv = make_vector(own("twice_limited"), 1)
    with pytest.raises(BadConfig, match="1 integers from 0 to 39"):
        venv.reset(seed=0, options={"elapsed_steps": [40]})
    venv.reset(seed=0, options={"elapsed_steps": [37]})
    ends = [bool(venv.step(np.array([0]))[3][0]) for _ in range(3)]
    assert ends == [False, False, True]


def test_run_with_factory_environment_finishes_and_continues():
    for _ in range(2):
        assert teach(CONFIG, RunOptions(no_tensorboard=True)).is_finished
    assert Experiment.find("point").config["env_id"] == own("point")


def test_factory_environment_needs_rgb_array_to_be_rendered():
    check_renderable(own("point"))
    env = make_rendered_env(own("point"))
    env.reset(seed=0)
    assert np.asarray(env.render()).shape == (32, 64, 3)
    # Videos and `play` need it with every source of rewards.
    with pytest.raises(BadInput, match="and without --videos"):
        check_renderable(own("NoPictures"))


def test_mujoco_factory_environment_has_positions_as_scene_states():
    model = mujoco_model(own("hopper"))
    assert model is not None
    venv = make_vector(own("hopper"), 2)
    venv.reset(seed=0)
    assert venv.scene_states.shape == (2, model.nq)
    check_renderable(own("hopper"))


def test_model_attribute_of_other_type_is_not_mujoco():
    assert mujoco_model(own("HasANetwork")) is None
    assert make_vector(own("HasANetwork"), 2).scene_states.shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "returned builtins.NoneType; a gymnasium.Env is needed"),
        ("Spaceless", "observation_space is missing"),
        ("Actionless", "action_space is missing"),
        ("fails", "raised FileNotFoundError: robot.urdf"),
        ("qqqqqq", r"no environment or function in .* called 'qqqqqq'. It must be module:id"),
        ("Actionles", "called 'Actionles'. Did you mean Actionless"),
        ("MsPackman-v0", "called 'MsPackman-v0'. Did you mean MsPacman-v0"),
    ],
)
def test_factory_without_usable_environment_is_refused(name, message):
    with pytest.raises(BadInput, match=message):
        get_env_info(own(name))
