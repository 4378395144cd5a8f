import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rl_teacher import PreferenceVectorWrapper
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput, BadObservation
from rl_teacher.envs.atari.rules import GAME_RULES, GameRules
from rl_teacher.envs.registry import get_env_info, make_vector
from rl_teacher.wrappers.environments import describe_vector
from rl_teacher.wrappers.settings import settings_of
from tests.wrappers.environments import (
    QUICK,
    Counter,
    InPlace,
    OneMove,
    Parts,
    PictureAndParts,
    quick_with,
    wrapped,
)

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def vector(mode=AutoresetMode.SAME_STEP, kind=Counter, lengths=(5, 7, 9), **keywords):
    venv = SyncVectorEnv(
        [lambda length=length: kind(length=length) for length in lengths], autoreset_mode=mode
    )
    return PreferenceVectorWrapper(venv, **quick_with(keywords))


def actions_for(observations):
    """Return actions that depend only on the observations, not on the autoreset mode."""
    return ((observations[:, 0] + observations[:, 1]) % 3).astype(int)


def take_steps(venv, num_steps):
    """Return observations, actions, rewards and infos of each step."""
    return list(steps_of(venv, num_steps))


def steps_of(venv, num_steps):
    observations, _ = venv.reset(seed=0)
    for _ in range(num_steps):
        actions = actions_for(observations)
        next_observations, rewards, terminated, truncated, infos = venv.step(actions)
        yield observations, actions, rewards, infos
        observations = next_observations
        ended = terminated | truncated
        if venv.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            observations, _ = venv.reset(options={"reset_mask": ended})


def test_step_and_reset_after_close_are_refused():
    venv = vector()
    take_steps(venv, 3)
    venv.close()
    with pytest.raises(BadInput, match="step was called after close"):
        venv.step(venv.action_space.sample())
    with pytest.raises(BadInput, match="reset was called after close"):
        venv.reset()


def segments_of(venv):
    """Return hashes of segments sampled from episodes 3 to 29 of each environment."""
    learner = venv.session.learning.learner
    venv.session._observe_steps()
    cuts = learner.recorder.cut(6_000, np.random.default_rng(0))
    segments = learner.recorder.segments(cuts)
    return {each.content_hash for each in segments if each.observations[0, 0] in range(3, 30)}


def test_all_autoreset_modes_record_same_segments():
    found = []
    for mode in MODES:
        venv = vector(mode, lengths=(5, 7), collect_only=True)
        take_steps(venv, 420)
        found.append(segments_of(venv))
        venv.close()
    assert len(found[0]) > 100
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("mode", MODES)
def test_segment_lies_within_one_episode(mode):
    seen: list[Segment] = []

    def watch(left, right):
        seen.extend([left, right])
        return left.true_return - right.true_return

    venv = vector(mode, teacher=watch)
    take_steps(venv, 300)
    assert len(seen) >= 20
    for segment in seen:
        assert len(set(segment.observations[:, 0])) == 1
        np.testing.assert_array_equal(np.diff(segment.observations[:, 1]), 1)
        expected = (segment.observations[:, 0] + segment.observations[:, 1]) % 3
        np.testing.assert_array_equal(segment.actions, expected)
        np.testing.assert_array_equal(segment.rewards, segment.actions)
    venv.close()


@pytest.mark.parametrize("mode", MODES)
def test_rewards_are_predicted_in_one_call_per_step(mode):
    venv = vector(mode)
    venv.pretrain()
    assert venv.using_predicted_reward
    predictor, calls = venv.predictor, []
    original = predictor.member_rewards
    predictor.member_rewards = lambda rows: calls.append(rows.shape) or original(rows)
    for observations, actions, rewards, infos in steps_of(venv, 20):
        expected = predictor.normalised(original(predictor.space.rows(observations, actions)))
        is_transition = infos["_true_reward"]
        np.testing.assert_allclose(rewards[is_transition], expected[is_transition], atol=1e-6)
        np.testing.assert_array_equal(rewards[~is_transition], 0)
    assert calls.count((3, 5)) == 20
    venv.close()


def test_infos_contain_true_rewards_except_of_reset_steps():
    venv = vector(AutoresetMode.NEXT_STEP, lengths=(2, 100), true_reward_until_fit=True)
    steps = take_steps(venv, 6)
    is_transition = np.array([infos["_true_reward"] for *_, infos in steps])
    np.testing.assert_array_equal(is_transition[:, 0], [True, True, False, True, True, False])
    assert is_transition[:, 1].all()
    for _, actions, rewards, infos in steps:
        expected = np.where(infos["_true_reward"], actions, 0)
        np.testing.assert_array_equal(infos["true_reward"], expected)
        np.testing.assert_array_equal(rewards, expected)
    venv.close()


@pytest.mark.parametrize(("kind", "vector_size"), [(Parts, None), (PictureAndParts, 4)])
def test_dict_observations_are_flattened_but_for_an_image(kind, vector_size):
    venv = vector(kind=kind)
    venv.pretrain()
    image = venv.predictor.space.image
    assert vector_size == (None if image is None else image.vector_size)
    venv.close()


def test_batch_environment_can_be_wrapped():
    keywords = {**QUICK, "segment_length": 10}
    venv = PreferenceVectorWrapper(make_vector("ShortReacher-v1", 4), **keywords)
    venv.pretrain()
    _, rewards, *_ = venv.step(venv.action_space.sample())
    assert rewards.shape == (4,)
    venv.close()


def test_steps_to_a_start_point_are_not_recorded(monkeypatch):
    rules = GameRules(start_points=((2,) * 3,), max_episode_steps=8)
    monkeypatch.setitem(GAME_RULES, "Pong", rules)
    venv = PreferenceVectorWrapper(make_vector("Pong-v0", 2), **QUICK)
    venv.reset(seed=0)
    acts = []
    for _ in range(22):
        *_, infos = venv.step(np.zeros(2, np.int64))
        acts.append(infos["_true_reward"])
    rollout = venv.session._take_rollout()
    venv.close()
    # Each episode: three steps to its start point, then eight of the agent.
    episode = [False] * 3 + [True] * 8
    np.testing.assert_array_equal(acts, np.transpose([episode * 2] * 2))
    assert rollout is not None
    np.testing.assert_array_equal(rollout.is_valid, acts)


@pytest.mark.parametrize("env_id", ["ShortHopper-v1", "Hopper-v5", "Pong-v0", "Pendulum-v1"])
def test_fast_vector_environment_has_id_rate_and_time_limit_of_its_environment(env_id):
    venv, expected = make_vector(env_id, 2), get_env_info(env_id)
    described = describe_vector(venv, settings_of({})).env_info
    assert described.id == expected.id
    assert described.fps == expected.fps
    assert described.max_episode_steps == expected.max_episode_steps
    venv.close()


@pytest.mark.parametrize("wrap", [wrapped, vector])
def test_pretraining_of_adjacent_seeds_shares_no_random_stream(wrap):
    streams = []
    for seed in range(3):
        env = wrap(seed=seed)
        env.pretrain()
        rngs = env.unwrapped.np_random
        rngs = list(rngs) if isinstance(rngs, tuple) else [rngs]
        # Random actions are drawn from a generator with the seed itself.
        streams += [each.bit_generator.state["state"]["inc"] for each in rngs]
        streams += [np.random.default_rng(seed).bit_generator.state["state"]["inc"]]
        env.close()
    assert len(set(streams)) == len(streams)


@pytest.mark.parametrize("mode", [None, *MODES])
def test_pretraining_takes_actions_that_masks_allow(mode):
    env = wrapped(OneMove) if mode is None else vector(mode, OneMove)
    env.pretrain()
    assert env.using_predicted_reward
    env.close()


def test_nan_reward_is_refused_with_index_of_environment():
    class Broken(Counter):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            reward = np.nan if self.length == 7 else reward
            return observation, reward, terminated, truncated, info

    venv = vector(kind=Broken)
    with pytest.raises(BadObservation, match="number 1 returned rewards"):
        take_steps(venv, 1)
    venv.close()


def test_infos_as_a_list_are_refused_as_by_the_check():
    class Lists(SyncVectorEnv):
        def step(self, actions) -> Any:
            return *super().step(actions)[:4], [{}, {}]

    env = PreferenceVectorWrapper(Lists([Counter] * 2), **QUICK)
    env.reset(seed=0)
    with pytest.raises(BadObservation, match=r"returned builtins.list for its last value: a dict"):
        env.step(env.action_space.sample())
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_nan_observation_of_a_later_reset_is_refused(mode):
    class Broken(Counter):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            return observation * (np.nan if self.episode == 1 else 1), info

    venv = vector(mode, Broken)
    with pytest.raises(BadObservation, match="number 0 returned observations"):
        take_steps(venv, 7)
    venv.close()


@pytest.mark.parametrize("wrap", [wrapped, vector])
def test_actions_changed_in_place_by_environments_are_recorded_as_given(wrap):
    seen: list[Segment] = []

    def watch(left, right):
        seen.extend([left, right])
        return left.true_return - right.true_return

    env = wrap(kind=InPlace, teacher=watch)
    env.pretrain()
    assert len(seen) >= 20
    for segment in seen:
        np.testing.assert_allclose(segment.rewards, segment.actions[:, 0], rtol=1e-6)
        assert np.abs(segment.actions).max() <= 1
    env.close()


@pytest.mark.parametrize(
    ("make", "env_id", "limit"),
    [
        (lambda: gym.make("Pendulum-v1"), "Pendulum-v1", 200),
        (lambda: gym.wrappers.TimeLimit(Counter(), 30), "Counter", 30),
    ],
    ids=["registered", "unregistered"],
)
def test_environments_in_other_processes_have_their_id_and_time_limit(make, env_id, limit):
    venv = AsyncVectorEnv([make] * 2, context="spawn")
    described = describe_vector(venv, settings_of({})).env_info
    venv.close()
    assert (described.id, described.max_episode_steps) == (env_id, limit)


@pytest.mark.parametrize("wrap", [wrapped, vector])
def test_second_close_does_nothing(wrap):
    env = wrap()
    env.close()
    env.close()
    assert env.session.is_closed


def test_async_vector_environment_can_be_wrapped():
    venv = PreferenceVectorWrapper(
        AsyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, context="spawn"), **QUICK
    )
    venv.pretrain()
    _, rewards, *_, infos = venv.step(np.zeros(2, int))
    assert rewards.shape == (2,)
    np.testing.assert_array_equal(infos["true_reward"], [1, 1])
    venv.close()


SPAWNED = """
import gymnasium as gym
import numpy as np
from rl_teacher import PreferenceWrapper
from tests.wrappers.environments import QUICK, Counter


def make():
    env = PreferenceWrapper(Counter(), **QUICK)
    env.pretrain()
    return env


if __name__ == "__main__":
    venv = gym.vector.AsyncVectorEnv([make, make], context="spawn")
    venv.reset(seed=0)
    print(venv.get_attr("using_predicted_reward"))
    *_, infos = venv.step(np.array([1, 2]))
    print(infos["true_reward"].tolist())
    venv.close()
"""


@pytest.mark.slow
def test_wrappers_in_spawned_processes_learn_separately(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    root = Path(__file__).parents[2]
    python_path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": python_path},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(True, True)", "[1.0, 2.0]"]
