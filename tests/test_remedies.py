"""Remedies that error messages suggest: each is applied, and the input is accepted."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import (
    Autoreset,
    FlattenObservation,
    TimeLimit,
    TransformAction,
    TransformObservation,
    TransformReward,
)
from stable_baselines3 import DQN, SAC, HerReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

from rl_teacher import PreferenceVectorWrapper, PreferenceWrapper, to_sb3
from rl_teacher.agents.sac import check_action_space
from rl_teacher.common.errors import RlTeacherError
from rl_teacher.envs.check import check_environment, inspect_environment
from rl_teacher.envs.registry import get_env_info
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.wrappers.environments import check_renderable
from rl_teacher.wrappers.sb3 import RelabelReplay
from tests.envs import custom_environments as custom
from tests.wrappers.environments import Continuous, Counter, ManyActions, Parts
from tests.wrappers.test_sb3 import Goals

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")


class Unbounded(Continuous):
    action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Rich(Counter):
    def step(self, action) -> Any:
        observation, _, *others = super().step(action)
        return observation, 1e200, *others


def bounded():
    return TransformAction(Unbounded(), lambda action: action, gym.spaces.Box(-1, 1, (2,)))


def one_choice():
    return TransformAction(
        ManyActions(),
        lambda action: np.array(np.unravel_index(action, [3, 2])),
        gym.spaces.Discrete(6),
    )


def take_every_choice() -> None:
    assert get_env_info(f"{__name__}:one_choice").has_image_observations is False
    env = one_choice()
    env.reset()
    for action in range(6):
        env.step(np.int64(action))


def front_camera_alone():
    space = custom.Cameras.observation_space["front"]  # pyright: ignore[reportIndexIssue]
    return TransformObservation(custom.Cameras(), lambda seen: seen["front"], space)


def counted_states():
    space = gym.spaces.Box(0, 2**31, (1,), np.float32)
    return TransformObservation(
        custom.ManyStates(), lambda seen: np.array([seen], np.float32), space
    )


def limited():
    return TimeLimit(custom.Endless(), 40)


def one_size():
    lamp = custom.GrowingLamp()
    return TimeLimit(
        TransformObservation(lamp, lambda image: image[:, :20], lamp.observation_space), 40
    )


def unlike(env_id: str) -> str:
    """Register FrozenLake with other arguments, and return its id."""
    entry = "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv"
    gym.register(env_id, entry, kwargs={"is_slippery": False}, max_episode_steps=9)
    return env_id


def step_once(env: gym.Env) -> None:
    wrapper = PreferenceWrapper(env, collect_only=True)
    wrapper.reset()
    try:
        wrapper.step(wrapper.action_space.sample())
    finally:
        wrapper.close()


def warned(name: str) -> None:
    """Raise the faults of an environment."""
    module = custom.MODULE if hasattr(custom, name) else __name__
    for fault in inspect_environment(f"{module}:{name}", is_shown=False)[1]:
        raise RlTeacherError(fault.text)


def learn(env: Any, agent: Any = DQN, policy: str = "MlpPolicy", relabels: Any = None, **more: Any):
    settings = {"buffer_size": 100, "learning_starts": 20, "device": "cpu", **more}
    try:
        agent(policy, env, **settings).learn(30, callback=relabels and RelabelReplay(relabels))
    finally:
        env.close()


def learn_from(inside: Callable[[gym.Env], gym.Env], outside: Callable[[gym.Env], gym.Env]) -> None:
    env = PreferenceWrapper(inside(Counter()), collect_only=True)
    learn(outside(env), relabels=env)


def doubled(env: gym.Env) -> gym.Env:
    return TransformReward(env, lambda reward: 2 * float(reward))


def learn_in_vector(how: str) -> None:
    venv = to_sb3(gym.make_vec("CartPole-v1", 2, vectorization_mode=how))
    venv.seed(0)
    venv.reset()
    for step in range(20):
        venv.step(np.array([0, step % 2]))


def learn_in_two(*, is_vector: bool) -> None:
    if is_vector:
        wrapper = PreferenceVectorWrapper(SyncVectorEnv([Counter] * 2), collect_only=True)
        learn(to_sb3(wrapper), relabels=wrapper)
    else:
        each = [PreferenceWrapper(Counter(), collect_only=True) for _ in range(2)]
        learn(DummyVecEnv([lambda env=env: env for env in each]), relabels=each[0])


def wrap(env: Any = None, **keywords: Any) -> None:
    PreferenceWrapper(env or Counter(), **keywords).close()


def goals(**more: Any) -> None:
    learn(PreferenceWrapper(Goals(), collect_only=True), SAC, "MultiInputPolicy", **more)


PENDULUM = "Pendulum-v1"
REMEDIES: dict[str, tuple[Callable[[], object], str, Callable[[], object]]] = {
    "bounded actions": (
        lambda: check_action_space(Unbounded.action_space),
        r"TransformAction\(env, lambda action: action, gymnasium.spaces.Box\(-1, 1, \(2,\)\)\)",
        lambda: check_action_space(bounded().action_space),
    ),
    "one choice instead of several": (
        lambda: get_env_info(f"{Counter.__module__}:ManyActions"),
        r"TransformAction\(env, lambda action: numpy.array\(numpy.unravel_index\(action, "
        r"\[3, 2\]\)\), gymnasium.spaces.Discrete\(6\)\)",
        take_every_choice,
    ),
    "one part in a wrapper": (
        lambda: wrap(custom.Cameras()),
        r"observation\['front'\].*Give observation_transform",
        lambda: wrap(custom.Cameras(), observation_transform=lambda seen: seen["front"]),
    ),
    "another part in a wrapper": (
        lambda: wrap(custom.Mission()),
        r"observation\['place'\].*Give observation_transform",
        lambda: wrap(custom.Mission(), observation_transform=lambda seen: seen["place"]),
    ),
    "one part in training": (
        lambda: get_env_info(f"{custom.MODULE}:Cameras"),
        r"gymnasium.wrappers.TransformObservation",
        lambda: get_env_info(f"{__name__}:front_camera_alone"),
    ),
    "a number for many states": (
        lambda: get_env_info(f"{custom.MODULE}:ManyStates"),
        "gymnasium.wrappers.TransformObservation",
        lambda: get_env_info(f"{__name__}:counted_states"),
    ),
    "time limit": (
        lambda: warned("Endless"),
        "Wrap it in gymnasium.wrappers.TimeLimit",
        lambda: warned("limited"),
    ),
    "one size of images": (
        lambda: check_environment(get_env_info(f"{custom.MODULE}:GrowingLamp"), is_shown=False),
        "gymnasium.wrappers.TransformObservation",
        lambda: check_environment(get_env_info(f"{__name__}:one_size"), is_shown=False),
    ),
    "flattened observations": (
        lambda: InputSpace.from_spaces(Parts.observation_space, gym.spaces.Discrete(2)),
        "gymnasium.wrappers.FlattenObservation",
        lambda: InputSpace.from_spaces(
            FlattenObservation(Parts()).observation_space, gym.spaces.Discrete(2)
        ),
    ),
    "smaller rewards": (
        lambda: step_once(Rich()),
        "wrap it so that its numbers are finite and not so large",
        lambda: step_once(TransformReward(Rich(), lambda reward: 1e-200 * float(reward))),
    ),
    "changed rewards inside": (
        lambda: learn_from(lambda env: env, doubled),
        "or apply it inside",
        lambda: learn_from(doubled, lambda env: env),
    ),
    "one vector wrapper": (
        lambda: learn_in_two(is_vector=False),
        "PreferenceVectorWrapper, and adapt it with to_sb3",
        lambda: learn_in_two(is_vector=True),
    ),
    "vector with reset_mask": (
        lambda: learn_in_vector("vector_entry_point"),
        "vectorization_mode='sync'",
        lambda: learn_in_vector("sync"),
    ),
    "no hindsight": (
        lambda: goals(replay_buffer_class=HerReplayBuffer),
        "leave out replay_buffer_class",
        goals,
    ),
    "shorter segments": (
        lambda: wrap(gym.make(PENDULUM), segment_length=201),
        "200",
        lambda: wrap(gym.make(PENDULUM), segment_length=200),
    ),
    "number of steps": (
        lambda: wrap(schedule="annealed", n_labels=9, segment_length=4),
        "as num_timesteps",
        lambda: wrap(schedule="annealed", n_labels=9, segment_length=4, num_timesteps=99),
    ),
    "registered arguments": (
        lambda: check_renderable(gym.make("FrozenLake-v1", is_slippery=False)),
        "Register it with these arguments under another id",
        lambda: check_renderable(gym.make(unlike("Unlike-v0"))),
    ),
    "wrapper around the preference wrapper": (
        lambda: check_renderable(Autoreset(gym.make("FrozenLake-v1"))),
        "Apply the preference wrapper directly to what gymnasium.make returns",
        lambda: check_renderable(gym.make("FrozenLake-v1")),
    ),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_remedy_of_an_error_helps(name):
    refused, advice, accepted = REMEDIES[name]
    with pytest.raises(RlTeacherError, match=advice):
        refused()
    accepted()
