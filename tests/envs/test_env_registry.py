"""Environment names, environment information and creation through Gymnasium."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from rl_teacher.common.errors import BadInput, MissingExtra, UnknownName
from rl_teacher.envs import get_env_info, list_env_infos, make_vector, registry
from rl_teacher.envs.mujoco import task
from rl_teacher.envs.registry import mujoco_model
from tests.envs import custom_environments


@pytest.mark.parametrize(
    ("typed", "full_id"),
    [
        ("ShortHopper-v1", "ShortHopper-v1"),
        ("shorthopper", "ShortHopper-v1"),
        ("walker2d", "Walker-v1"),
        ("Walker2d-v1", "Walker-v1"),
        ("ShortHalfCheetah-v1", "ShortCheetah-v1"),
        ("DoublePendulum", "InvertedDoublePendulum-v1"),
        ("Pendulum", "InvertedPendulum-v1"),
        ("ShortPendulum-v1", "ShortInvertedPendulum-v1"),
        ("Pendulum-v1", "Pendulum-v1"),
        ("hopper-v5", "Hopper-v5"),
        ("Walker-v5", "Walker2d-v5"),
        ("rl_teacher/Hopper-v5", "Hopper-v5"),
        ("cartpole", "CartPole-v1"),
        ("dm_control/Walker-walk", "DMWalkerWalk-v1"),
    ],
)
def test_typed_name_resolves_to_full_id(typed, full_id):
    assert get_env_info(typed).id == full_id


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [("Hoper-v1", "Hopper-v1"), ("ShortChetah", "ShortCheetah-v1"), ("cartpol-v1", "CartPole-v1")],
)
def test_unknown_name_is_refused_with_nearest_names(typed, nearest):
    with pytest.raises(UnknownName, match="Did you mean") as raised:
        get_env_info(typed)
    assert nearest in raised.value.nearest


@pytest.mark.parametrize("env_id", ["Hopper-v1", "Hopper-v5", "dm_control/walker-walk-v0"])
def test_task_is_refused_below_mujoco_4(env_id, monkeypatch):
    for module in (task, registry):
        monkeypatch.setattr(module, "mujoco_version", lambda: "3.3.0")
    with pytest.raises(BadInput, match=r"needs MuJoCo 4.0 or newer, and 3.3.0 is installed"):
        get_env_info(env_id)
    with pytest.raises(BadInput, match=r"needs MuJoCo 4.0"):
        gymnasium.make("ShortHopper-v1")
    assert "Hopper-v1" not in [env_info.id for env_info in list_env_infos()]


@pytest.mark.parametrize(
    ("env_id", "command"),
    [
        ("dm_control/hopper-hop-v0", r"pip install 'shimmy\[dm-control\]' 'mujoco<4'"),
        ("Meta-World/button-press-v3", "pip install metaworld"),
    ],
)
def test_missing_package_is_refused_with_install_command(env_id, command, monkeypatch):
    for module in ("shimmy", "metaworld"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=command):
        get_env_info(env_id)


OWN_MODULE = """
import gymnasium as gym
import numpy as np

class Point(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, False, False, {}

gym.register("OwnPoint-v0", entry_point=Point, max_episode_steps=60)
"""


@pytest.fixture
def own_module(write_module):
    """Module that registers an environment on import."""
    write_module("own_points", OWN_MODULE)


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize("typed", ["own_points:OwnPoint-v0", "own_points:ownpoint"])
def test_environment_is_found_by_registering_module(typed):
    env_info = get_env_info(typed)
    assert (env_info.id, env_info.max_episode_steps) == ("own_points:OwnPoint-v0", 60)
    envs = make_vector(env_info.id, 2)
    envs.reset(seed=0)
    assert envs.step(np.zeros(2, int))[1].tolist() == [1.0, 1.0]
    envs.close()


def test_environment_of_box2d_without_it_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in ("lunar_lander", "bipedal_walker", "car_racing"):
        monkeypatch.delitem(sys.modules, f"gymnasium.envs.box2d.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    with pytest.raises(MissingExtra, match=r"rl-teacher\[box2d\]"):
        make_vector("LunarLander-v3", 1)


@pytest.mark.usefixtures("own_module")
def test_unregistered_name_of_module_is_refused_with_nearest_names():
    with pytest.raises(UnknownName, match="Did you mean OwnPoint-v0"):
        get_env_info("own_points:OwnPoit-v0")


@pytest.mark.parametrize("typed", ["no_such_module:Point-v0", "os.:Point-v0", ".x:Point-v0"])
def test_module_that_fails_to_import_is_refused(typed):
    with pytest.raises(BadInput, match=r"importing .* failed.*PYTHONPATH"):
        get_env_info(typed)


class Unusual(gymnasium.Env):
    """An environment with observations of any space."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space
        space.seed(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


def sequence_env():
    return Unusual(gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3)))


def composed_env():
    parts = {"side": gymnasium.spaces.Discrete(3), "where": gymnasium.spaces.Box(-1, 1, (2, 2))}
    return Unusual(gymnasium.spaces.Dict(parts))


def test_observations_that_cannot_be_flattened_are_refused():
    with pytest.raises(BadInput, match=r"Sequence.* cannot be flattened to vectors of one size"):
        make_vector(f"{__name__}:sequence_env", 2)


@pytest.mark.parametrize(
    ("env_id", "size"),
    [
        ("FrozenLake-v1", 16),  # Discrete(16)
        ("Blackjack-v1", 32 + 11 + 2),  # a Tuple of three Discrete
        (f"{__name__}:composed_env", 3 + 4),
    ],
)
def test_discrete_and_composed_observations_are_flattened(env_id, size):
    envs = make_vector(env_id, 2)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (2, size)
    assert envs.single_observation_space.shape == (size,)
    envs.close()


def test_env_info_of_suite_matches_original_rl_teacher():
    walker = get_env_info("ShortWalker-v1")
    assert (walker.fps, walker.max_episode_steps) == (30.0, 300)
    assert not walker.can_terminate
    assert walker.backend == "batch"


def test_env_info_of_gymnasium_environment_has_its_frame_rate():
    cartpole = get_env_info("CartPole-v1")
    assert (cartpole.fps, cartpole.max_episode_steps) == (50.0, 500)
    assert cartpole.can_terminate
    assert cartpole.backend == "gymnasium"


def test_environment_of_user_with_name_of_gymnasium_can_terminate(monkeypatch):
    own = EnvSpec("my/Pendulum-v0", entry_point=f"{custom_environments.MODULE}:Lamp")
    monkeypatch.setitem(gymnasium.registry, own.id, own)
    assert get_env_info("my/Pendulum-v0").can_terminate
    assert not get_env_info("Pendulum-v1").can_terminate


def test_listed_env_infos_are_unique_and_complete():
    ids = [each.id for each in list_env_infos()]
    assert len(ids) == len(set(ids))
    assert {"ShortHopper-v1", "Hopper-v5", "CartPole-v1", "LunarLander-v3", "Pusher-v5"} <= set(ids)
    assert {"CarRacing-v3", "MovingDot-v0"} <= set(ids)


@pytest.mark.parametrize("env_id", ["hopper", "Hopper-v5", "Pusher-v5", "Reacher-v4"])
def test_scene_states_have_positions_of_model(env_id):
    try:
        envs = make_vector(env_id, 1)
    except BadInput:
        pytest.skip(f"{env_id} cannot be made here")
    envs.reset(seed=0)
    model = mujoco_model(env_id)
    assert model is not None
    assert model.nq == envs.scene_states.shape[1]


# The checker warns of unbounded observations, which Gymnasium's own environments have too.
@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*-?infinity")
@pytest.mark.parametrize("env_id", ["ShortHopper-v1", "ShortReacher-v1", "rl_teacher/Hopper-v5"])
def test_single_environment_passes_gymnasium_checker(env_id):
    env = gymnasium.make(env_id)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_single_environment_equals_first_of_vector():
    env, envs = gymnasium.make("ShortReacher-v1"), make_vector("ShortReacher-v1", 1)
    np.testing.assert_array_equal(env.reset(seed=2)[0], envs.reset(seed=2)[0][0])
    for _ in range(19):
        action = envs.action_space.sample()
        obs, reward, *_ = env.step(action[0])
        many_obs, rewards, *_ = envs.step(action)
        np.testing.assert_array_equal(obs, many_obs[0])
        assert reward == rewards[0]


def test_single_environment_is_truncated_by_time_limit():
    env = gymnasium.make("ShortInvertedPendulum-v1")
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(20)]
    assert ends[:-1] == [(False, False)] * 19
    assert ends[-1] == (False, True)


def test_make_vec_creates_batch_environment():
    envs = gymnasium.make_vec("ShortHopper-v1", num_envs=4, vectorization_mode="vector_entry_point")
    ours = make_vector("ShortHopper-v1", 4)
    np.testing.assert_array_equal(envs.reset(seed=0)[0], ours.reset(seed=0)[0])
    assert envs.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP


def run_python(code, **variables):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def test_import_loads_neither_jax_nor_mujoco():
    code = "import sys, rl_teacher.envs; print([m for m in ('jax', 'mujoco') if m in sys.modules])"
    assert run_python(code).stdout == "[]\n"


@pytest.mark.parametrize("env_id", ["ShortReacher-v1", "Pong-v0", "CartPole-v1", "MovingDot-v0"])
def test_later_steps_do_not_overwrite_observations(env_id):
    envs = make_vector(env_id, 2)
    envs.reset(seed=0)
    kept, copies = [], []
    for _ in range(4):
        kept.append(envs.observations)
        copies.append(envs.observations.copy())
        envs.step(envs.action_space.sample())
    envs.close()
    np.testing.assert_array_equal(kept, copies)
    assert (copies[0] != copies[-1]).any()
