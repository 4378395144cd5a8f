"""Environments that a function, or a class, of one's own makes."""

import sys

import numpy as np
import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import PPOConfig, RunOptions, TeachConfig
from rl_teacher.envs.registry import (
    env_spaces,
    get_env_info,
    make_rendered_env,
    make_vector,
    mujoco_model,
)
from rl_teacher.runs.clip_renderer import check_renderable
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


def test_a_function_makes_an_environment_with_its_time_limit_and_pace():
    point = get_env_info(own("point"))
    assert (point.id, point.max_episode_steps, point.fps) == (own("point"), 40, 20.0)
    assert point.backend == "gymnasium"


def test_a_class_is_as_good_as_a_function():
    assert get_env_info(own("Point")).max_episode_steps is None
    venv = make_vector(own("Point"), 3)
    assert venv.reset(seed=0)[0].shape == (3, 1)


def test_what_a_function_wraps_keeps_its_limit():
    assert get_env_info(own("cartpole")).max_episode_steps == 500


def test_it_is_taught_and_continued():
    for _ in range(2):
        assert teach(CONFIG, RunOptions(no_tensorboard=True)).is_finished
    assert Experiment.find("point").config["env_id"] == own("point")


def test_its_clips_are_videos_where_it_takes_a_render_mode():
    check_renderable(own("point"))
    env = make_rendered_env(own("point"))
    env.reset(seed=0)
    assert np.asarray(env.render()).shape == (32, 64, 3)
    with pytest.raises(BadInput, match="rgb_array"):
        check_renderable(own("NoPictures"))


def test_mujoco_behind_a_function_gets_3d_clips():
    model = mujoco_model(own("hopper"))
    assert model is not None
    venv = make_vector(own("hopper"), 2)
    venv.reset(seed=0)
    assert venv.scene_states.shape == (2, model.nq)
    check_renderable(own("hopper"))


def test_a_network_that_is_called_model_is_not_taken_for_mujocos():
    assert mujoco_model(own("HasANetwork")) is None
    assert make_vector(own("HasANetwork"), 2).scene_states.shape == (2, 2)


def test_the_spaces_of_an_environment_are_known():
    observation, action = env_spaces("CartPole-v1")
    assert (observation.shape, getattr(action, "n", None)) == ((4,), 2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "returned builtins.NoneType; a gymnasium.Env is needed"),
        ("fails", "raised FileNotFoundError .*: robot.urdf"),
        ("missing", "There is no environment called 'missing'"),
    ],
)
def test_a_function_that_makes_no_environment_is_named(name, says):
    with pytest.raises(BadInput, match=says):
        get_env_info(own(name))


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(BadInput, match="importing no_such_module failed"):
        get_env_info("no_such_module:env")


@pytest.mark.parametrize(
    ("env_id", "requirement"),
    [
        ("dm_control/cheetah-run-v0", r"pip install 'shimmy\[dm-control\]'"),
        ("Meta-World/MT1", "pip install 'metaworld'"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_what_to_install(
    env_id, requirement, monkeypatch
):
    for module in ("shimmy", "metaworld"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=requirement):
        get_env_info(env_id)
