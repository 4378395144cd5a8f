"""Tests of wrappers whose comparisons are answered by a person through the store."""

import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from rl_teacher import PreferenceVectorWrapper, PreferenceWrapper
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import Control
from rl_teacher.store.store import Store
from tests.wrappers.environments import QUICK, Counter

HUMAN = {**QUICK, "teacher": "human", "pretrain_labels": 3, "n_labels": 3, "segment_length": 8}


def asked(store, name):
    return store.comparisons.asked(store.experiments.get(name).id)


def step_until(env, is_enough, actions, most_steps=2_000):
    """Take random steps until a condition holds."""
    for _ in range(most_steps):
        if is_enough():
            return
        *_, terminated, truncated, _ = env.step(actions.sample())
        if not hasattr(env, "num_envs") and (terminated or truncated):
            env.reset()
    raise AssertionError(f"not within {most_steps} steps")


def step_until_phase(store, name, *phases, patience_s=60.0):
    """Wait until the experiment is in one of the phases."""
    deadline_s = time.monotonic() + patience_s
    while (phase := (store.experiments.get(name).status or {}).get("phase")) not in phases:
        assert time.monotonic() < deadline_s, phase
        time.sleep(0.05)


def label_all(env, kind):
    """Step until all comparisons are rendered, answer them and return their left clips."""
    with Store.open(default_url(home())) as store:
        name = env.session.name
        env.reset(seed=0)
        env.action_space.seed(0)
        step_until(env, lambda: len(asked(store, name)) == 3, env.action_space)
        env.session.learning.session.renderer.submit(int).result()
        comparisons = asked(store, name)
        assert all(each.is_rendered for each in comparisons)
        clips = [store.clips.get(each.left_hash) for each in comparisons]
        assert not env.using_predicted_reward
        for each in comparisons:
            store.labels.add(each.id, Answer.LEFT, "labeler")
        step_until(env, lambda: env.using_predicted_reward, env.action_space)
    assert {clip.kind for clip in clips} == {kind}
    return clips


@pytest.mark.parametrize(
    ("env_id", "kind", "transform"),
    [
        ("InvertedPendulum-v5", "poses", None),
        ("CartPole-v1", "video", None),
        ("CartPole-v1", "video", lambda observation: observation[:2]),
        ("Blackjack-v1", "video", None),  # Tuple observations
    ],
)
def test_person_is_shown_clips_and_answers_are_learned(env_id, kind, transform):
    env = PreferenceWrapper(gym.make(env_id), observation_transform=transform, **HUMAN)
    clips = label_all(env, kind)
    media = MediaFiles(home() / "media")
    for clip in clips:
        assert clip.media_key is not None
        assert media.exists(clip.media_key)
    assert env.session.num_labels == 3
    env.close()


def test_person_is_shown_clips_of_vector_environment():
    venv = SyncVectorEnv([lambda: gym.make("InvertedPendulum-v5")] * 2)
    env = PreferenceVectorWrapper(venv, **HUMAN)
    label_all(env, "poses")
    env.close()


@pytest.mark.parametrize(
    ("env_id", "kind"),
    [
        ("InvertedPendulum-v5", "poses"),
        pytest.param("Pong-v0", "video", marks=pytest.mark.slow),
        ("MovingDot-v0", "video"),
    ],
)
def test_person_is_shown_clips_of_fast_vector_environment(env_id, kind):
    env = PreferenceVectorWrapper(make_vector(env_id, 2), **HUMAN)
    label_all(env, kind)
    env.close()


def test_person_is_shown_clips_of_vector_with_converted_observations():
    venv = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    env = PreferenceVectorWrapper(gym.wrappers.vector.NormalizeObservation(venv), **HUMAN)
    label_all(env, "video")
    env.close()


@pytest.mark.parametrize("is_collecting", [True, False])
def test_owner_pauses_resumes_and_stops_wrapper(is_collecting):
    env = PreferenceWrapper(gym.make("InvertedPendulum-v5"), **QUICK)
    if not is_collecting:
        env.stop_segment_collection()
    env.reset(seed=0)
    with Store.open(default_url(home())) as store:
        name = env.session.name
        assert name is not None
        experiment_id = store.experiments.get(name).id
        store.experiments.set_control(experiment_id, Control(state="pause"))
        with ThreadPoolExecutor(1) as stepper:
            # Enough steps to last until this thread has read the phase.
            stepping = stepper.submit(
                step_until, env, lambda: env.is_stop_wanted, env.action_space, 300_000
            )
            step_until_phase(store, name, "paused")
            assert not stepping.done()
            store.experiments.set_control(experiment_id, Control(state="run"))
            step_until_phase(store, name, "random", "training")
            assert not env.is_stop_wanted
            store.experiments.set_control(experiment_id, Control(state="stop"))
            stepping.result(timeout=60)
    env.close()


@pytest.mark.parametrize("num_timesteps", [None, 5_000])
def test_status_has_the_total_of_steps_only_if_it_is_known(num_timesteps):
    env = PreferenceWrapper(gym.make("InvertedPendulum-v5"), num_timesteps=num_timesteps, **QUICK)
    env.reset(seed=0)
    step_until(env, lambda: env.using_predicted_reward, env.action_space)
    name = env.session.name
    assert name is not None
    env.close()
    with Store.open(default_url(home())) as store:
        status = store.experiments.get(name).status
    assert status is not None
    assert status["step"] > 0
    assert status["num_steps"] == (num_timesteps or 0)


def test_unregistered_environment_is_refused():
    with pytest.raises(BadInput, match=r"gymnasium\.register"):
        PreferenceWrapper(Counter(), **HUMAN)


def test_environment_without_rendering_is_refused():
    with pytest.raises(BadInput, match="neither MuJoCo bodies nor the render mode rgb_array"):
        PreferenceWrapper(gym.make("wrapped/Counter-v0"), **HUMAN)


def test_inner_wrappers_are_refused():
    inside = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: -float(reward))
    with pytest.raises(BadInput, match="TransformReward"):
        PreferenceWrapper(inside, **HUMAN)


def test_arguments_of_a_replayed_environment_are_refused():
    message = r"copy, made by its id without is_slippery=False.*gymnasium\.register"
    with pytest.raises(BadInput, match=message):
        PreferenceWrapper(gym.make("FrozenLake-v1", is_slippery=False), **HUMAN)
    venv = gym.make_vec("FrozenLake-v1", 2, vectorization_mode="sync", is_slippery=False)
    with pytest.raises(BadInput, match=message):
        PreferenceVectorWrapper(venv, **HUMAN)


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("FrozenLake-v1", {"render_mode": "rgb_array", "map_name": "4x4"}),
        ("InvertedPendulum-v5", {"reset_noise_scale": 0.1}),
    ],
)
def test_arguments_that_leave_clips_unchanged_are_accepted(env_id, arguments):
    PreferenceWrapper(gym.make(env_id, **arguments), **HUMAN).close()


@pytest.mark.parametrize("refused", [{"name": "a/b"}, {"segment_length": 10_000}])
def test_vector_can_be_wrapped_after_a_refusal(refused):
    venv = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    with pytest.raises(BadInput):
        PreferenceVectorWrapper(venv, **{**HUMAN, **refused})
    PreferenceVectorWrapper(venv, **HUMAN).close()


def test_environments_in_other_processes_are_refused():
    venv = AsyncVectorEnv([lambda: gym.make("CartPole-v1")], context="spawn")
    with pytest.raises(BadInput, match="in other processes"):
        PreferenceVectorWrapper(venv, **HUMAN)
    venv.close()
