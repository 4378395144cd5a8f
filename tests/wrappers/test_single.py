import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher import PreferenceWrapper
from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import (
    BadConfig,
    BadInput,
    BadObservation,
    ConfigMismatch,
    CorruptCheckpoint,
    ExperimentInUse,
    NoPredictor,
    SegmentTooLong,
    TeacherFailed,
)
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.datasets import load
from rl_teacher.envs.registry import get_env_info
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.database import default_url
from rl_teacher.store.records import Control
from rl_teacher.store.store import Store
from rl_teacher.wrappers.settings import resolve_wrapper, settings_of
from tests.store.comparisons import answered_comparisons
from tests.wrappers.environments import (
    QUICK,
    Continuous,
    Counter,
    ManyActions,
    Parts,
    PictureAndParts,
    Pictures,
    Switches,
    take_steps,
    wrapped,
)

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")


def answers_of(name):
    with Store.open(default_url(home())) as store:
        return answered_comparisons(store, store.experiments.get(name).id)


# --- choice of the reward ---


def test_rewards_are_zero_until_first_fit():
    env = wrapped()
    returned, true = np.array(take_steps(env, 100)).T
    assert returned.tolist() == [0] * 100
    assert true.any()
    assert not env.using_predicted_reward
    env.close()


@pytest.mark.parametrize("keyword", ["true_reward_until_fit", "collect_only"])
def test_true_reward_is_returned_until_first_fit_if_requested(keyword):
    env = wrapped(Counter, **{keyword: True})
    rewards = take_steps(env, 100)
    assert all(returned == true for returned, true in rewards)
    assert not env.using_predicted_reward
    env.close()


def test_step_and_reset_after_close_are_refused():
    env = wrapped()
    take_steps(env, 3)
    env.close()
    with pytest.raises(BadInput, match="step was called after close"):
        env.step(env.action_space.sample())
    with pytest.raises(BadInput, match="reset was called after close"):
        env.reset()


def test_first_comparisons_wait_for_enough_steps():
    env = wrapped(pretrain_labels=20, name="spread")
    take_steps(env, 2 * 20 * 4)
    with Store.open(default_url(home())) as store:
        assert store.experiments.get("spread").asked == 0
        # A pair whose segments overlap is replaced after the next rollout of 128 steps.
        take_steps(env, 260)
        assert store.experiments.get("spread").asked == 20
    env.close()


def test_predicted_reward_follows_first_fit_and_correlates_with_true_one():
    env = wrapped(n_labels=60, pretrain_labels=40)
    take_steps(env, 600)
    assert env.using_predicted_reward
    returned, true = np.array(take_steps(env, 300, seed=1)).T
    assert np.corrcoef(returned, true)[0, 1] > 0.8
    env.close()


def test_default_settings_learn_predictor():
    env = PreferenceWrapper(gym.make("CartPole-v1"))
    env.pretrain()
    assert env.using_predicted_reward
    assert env.session.num_labels == 50
    env.close()


@pytest.mark.parametrize(
    "kind",
    [
        *(Counter, Continuous, ManyActions, Switches, Parts, PictureAndParts),
        pytest.param(Pictures, marks=pytest.mark.slow),
    ],
)
def test_returned_rewards_equal_predictor_outputs(kind):
    env = wrapped(kind)
    env.pretrain()
    observation, _ = env.reset(seed=3)
    converter = env._converter
    for _ in range(5):
        action = env.action_space.sample()
        converted = converter.one(observation)
        observation, reward, *_ = env.step(action)
        expected = env.predictor(converted[None], np.asarray(action)[None])[0]
        assert reward == pytest.approx(expected, abs=1e-6)
    env.close()


def test_reward_can_be_switched_both_ways():
    env = wrapped()
    env.pretrain()
    env.switch_to_true_reward()
    assert not env.using_predicted_reward
    assert all(returned == true for returned, true in take_steps(env, 20))
    env.switch_to_predicted_reward()
    assert env.using_predicted_reward
    assert any(returned != true for returned, true in take_steps(env, 20))
    env.close()


def test_switching_to_missing_predictor_is_refused(tmp_path):
    env = wrapped()
    with pytest.raises(NoPredictor, match="yet, after 0 labels"):
        env.switch_to_predicted_reward()
    with pytest.raises(NoPredictor, match="to save yet"):
        env.save_predictor(tmp_path)
    assert not env.using_predicted_reward
    env.close()


def test_pretraining_without_labels_raises_no_predictor():
    env = wrapped(teacher=lambda left, right: "cannot_tell")
    with pytest.raises(NoPredictor, match=r"0 labels after .* random steps"):
        env.pretrain(max_steps=600)
    env.close()


def test_pretraining_without_fits_is_refused():
    env = wrapped(collect_only=True)
    with pytest.raises(BadConfig, match="with collect_only=True there is none"):
        env.pretrain()
    env.close()


def test_pretraining_ends_with_first_fit_after_switch_to_true_reward():
    env = wrapped()
    env.switch_to_true_reward()
    env.pretrain(max_steps=3_000)
    assert not env.using_predicted_reward
    env.switch_to_predicted_reward()
    env.close()


def test_pretraining_ends_when_owner_stops_it():
    env = wrapped(teacher=lambda left, right: "cannot_tell")
    with Store.open(default_url(home())) as store:
        assert env.session.name is not None
        experiment_id = store.experiments.get(env.session.name).id
        store.experiments.set_control(experiment_id, Control(state="stop"))
    env.pretrain()
    assert env.is_stop_wanted
    env.close()


def test_same_seed_repeats_rewards():
    def rewards():
        env = wrapped(seed=5)
        env.pretrain()
        returned = take_steps(env, 200)
        env.close()
        return returned

    assert rewards() == rewards()


def test_background_fitting_answers_all_comparisons():
    env = wrapped(fit="async", n_labels=40)
    env.pretrain()
    take_steps(env, 2000)
    env.close()
    assert len(answers_of(env.session.name)) == 40


# --- segments and comparisons ---


def test_terminated_segment_is_worth_less():
    """With a reward of 1 per step only terminations distinguish segments, as in CartPole."""
    env = PreferenceWrapper(
        gym.wrappers.TransformReward(Counter(length=9), lambda reward: 1.0),
        **{**QUICK, "pretrain_labels": 60, "n_labels": 60},
    )
    env.pretrain()
    answers = answers_of(env.session.name)
    assert any(each.answer is not Answer.EQUAL for each in answers)
    returned = [reward for reward, _ in take_steps(env, 100)]
    assert env.predictor.keeps_zero
    assert np.mean(returned) == pytest.approx(0.9, abs=0.3)
    assert np.mean(np.array(returned) > 0) > 0.9
    env.close()


def test_episode_ends_can_be_hidden():
    env = wrapped(hide_episode_ends=True)
    env.pretrain()
    assert not env.predictor.keeps_zero
    env.close()


def test_reset_within_episode_ends_segments():
    seen: list[Segment] = []

    def watch(left, right):
        seen.extend([left, right])
        return left.true_return - right.true_return

    env = wrapped(length=1000, teacher=watch)
    env.reset(seed=0)
    for step in range(700):
        env.step(0)
        if step % 9 == 8:
            env.reset()
    assert len(seen) >= 20
    for segment in seen:
        assert len(set(segment.observations[:, 0])) == 1
        np.testing.assert_array_equal(np.diff(segment.observations[:, 1]), 1)
    env.close()


def test_steps_after_an_inner_autoreset_belong_to_the_next_episode():
    env = PreferenceWrapper(gym.wrappers.Autoreset(Counter()), **QUICK)
    env.reset(seed=0)
    # The 8th step only resets.
    is_over = []
    for _ in range(16):
        env.step(0)
        is_over.append(bool(env.session.is_over[0]))
    assert np.flatnonzero(is_over).tolist() == [6, 14]
    env.close()


def test_observation_transform_applies_to_predictor():
    env = wrapped(Parts, observation_transform=lambda observation: observation["place"] * 2)
    env.pretrain()
    assert env.predictor.space.observation_shape == (1,)
    observation, _ = env.reset(seed=0)
    reward = env.step(2)[1]
    expected = env.predictor(2 * observation["place"][None], np.array([2]))[0]
    assert reward == pytest.approx(expected, abs=1e-6)
    env.close()


def test_stopped_collection_records_no_segments():
    env = wrapped()
    env.stop_segment_collection()
    take_steps(env, 500)
    assert env.session.num_labels == 0
    env.start_segment_collection()
    take_steps(env, 500)
    assert env.session.num_labels > 0
    env.close()


# --- workflows ---


def test_collect_only_stores_labels_without_fitting():
    env = wrapped(collect_only=True, name="collected")
    take_steps(env, 600)
    assert not env.using_predicted_reward
    with pytest.raises(NoPredictor):
        env.switch_to_predicted_reward()
    env.close()
    assert len(answers_of("collected")) >= 10


def test_collect_only_returns_the_true_reward_beside_a_predictor(tmp_path):
    first = wrapped(Counter)
    take_steps(first, 300)
    first.save_predictor(tmp_path)
    first.close()
    env = wrapped(Counter, predictor_path=tmp_path, teacher="oracle", collect_only=True)
    assert all(returned == true for returned, true in take_steps(env, 50))
    env.close()


class Labelled:
    """Labelled comparison as in a label data set."""

    def __init__(self, left, right, target):
        self.left, self.right, self.target = left, right, target


def segment_of(actions, episode, age):
    ages = age + np.arange(len(actions))
    observations = np.stack([0 * ages + episode, ages], axis=1).astype(np.float32)
    rewards = np.array(actions, np.float32)
    return Segment("Counter", observations, np.array(actions), rewards, np.empty((len(actions), 0)))


def labels_that_prefer_2():
    rng = np.random.default_rng(0)
    pairs = [
        [segment_of(rng.integers(0, 3, 4), *rng.integers((0, 0), (40, 4))) for _ in range(2)]
        for _ in range(40)
    ]
    return [
        Labelled(left, right, (1 + np.sign(left.true_return - right.true_return)) / 2)
        for left, right in pairs
    ]


def test_given_labels_are_fitted_and_nothing_is_asked():
    env = wrapped(labels=labels_that_prefer_2(), name="trained")
    assert env.using_predicted_reward
    returned, true = np.array(take_steps(env, 200)).T
    assert np.corrcoef(returned, true)[0, 1] > 0.8
    env.close()
    assert answers_of("trained") == []


def test_given_labels_fine_tune_a_saved_predictor():
    predictor = RewardPredictor(InputSpace((2,), (), (3,), (0,)), PredictorConfig(hidden=(16,)))
    env = wrapped(
        predictor_path=predictor,
        teacher="oracle",
        labels=labels_that_prefer_2(),
    )
    returned, true = np.array(take_steps(env, 200)).T
    assert np.corrcoef(returned, true)[0, 1] > 0.8
    env.close()


def test_given_labels_are_fitted_before_the_first_step_in_the_background_too():
    env = wrapped(labels=labels_that_prefer_2(), fit="async")
    assert env.using_predicted_reward
    env.close()


def test_labels_are_asked_beside_given_ones_if_wanted():
    env = wrapped(labels=labels_that_prefer_2(), n_labels=35, name="more")
    assert env.using_predicted_reward
    take_steps(env, 500)
    assert env.session.num_labels > 40
    env.close()
    assert 0 < len(answers_of("more")) <= 35


@pytest.mark.parametrize(
    ("queries", "reuse_clips"), [("pairs", False), ("pairs", True), ("sort", True)]
)
def test_clips_of_given_labels_are_not_compared_again(queries, reuse_clips):
    first = wrapped(n_labels=20, pretrain_labels=20, queries=queries)
    take_steps(first, 400)
    assert first.session.learning is not None
    given = first.session.learning.labels().hold_out(0.5)
    first.close()
    # It records the same steps.
    again = wrapped(
        labels=given,
        n_labels=40,
        pretrain_labels=20,
        queries=queries,
        reuse_clips=reuse_clips,
    )
    take_steps(again, 600)
    assert again.session.learning is not None
    now = again.session.learning.labels().segments.keys()
    again.close()
    held_out, training = given.held_out.segments.keys(), given.training.segments.keys()
    assert held_out.isdisjoint(now)
    assert reuse_clips or training.isdisjoint(now)


@pytest.mark.parametrize("read", [Path, load])
def test_saved_labels_train_another_wrapper(tmp_path, read):
    first = wrapped(collect_only=True, n_labels=40)
    take_steps(first, 900)
    assert first.session.num_labels == 40
    first.save_labels(tmp_path / "labels")
    first.close()
    second = wrapped(labels=read(tmp_path / "labels"))
    returned, true = np.array(take_steps(second, 200)).T
    assert np.corrcoef(returned, true)[0, 1] > 0.7
    second.close()


@pytest.mark.parametrize(
    ("kind", "keywords", "shapes"),
    [
        (Counter, {"observation_transform": lambda seen: seen[:1]}, ((1,), ())),
        (Parts, {}, ((4,), ())),
        (PictureAndParts, {}, ((12 * 12 + 4 * 4,), ())),
        (ManyActions, {}, ((2,), (2,))),
    ],
)
def test_command_exports_labels_with_spaces_of_their_segments(tmp_path, kind, keywords, shapes):
    """The environments are not registered, or have other observations than registered ones."""
    env = wrapped(kind, collect_only=True, n_labels=10, name="collected", **keywords)
    take_steps(env, 400)
    env.save_labels(tmp_path / "own")
    env.close()
    assert main(["export", "collected", "--out", str(tmp_path / "exported")]) == 0
    exported = load(tmp_path / "exported")
    assert len(exported) > 0
    assert (exported.space.observation_shape, exported.space.action_shape) == shapes
    assert exported.content_hash == load(tmp_path / "own").content_hash


def test_labels_of_longer_segments_are_refused():
    with pytest.raises(BadInput, match="segment_length=4"):
        wrapped(labels=labels_that_prefer_2(), segment_length=3)


def test_saved_predictor_is_frozen_and_asks_nothing(tmp_path):
    first = wrapped()
    first.pretrain()
    first.save_predictor(tmp_path / "predictor")
    first.close()
    second = wrapped(predictor_path=tmp_path / "predictor")
    saved = RewardPredictor.load(tmp_path / "predictor")
    assert second.using_predicted_reward
    observation, _ = second.reset(seed=0)
    for action in [0, 1, 2] * 30:
        expected = saved(observation[None], np.array([action]))[0]
        observation, reward, terminated, *_ = second.step(action)
        assert reward == pytest.approx(expected, abs=1e-6)
        if terminated:
            observation, _ = second.reset()
    assert second.session.name is None
    with pytest.raises(BadInput, match="asks for no labels"):
        second.save_labels(tmp_path / "labels")
    second.close()


def test_saved_predictor_can_be_fine_tuned(tmp_path):
    first = wrapped()
    first.pretrain()
    first.save_predictor(tmp_path)
    first.close()
    second = wrapped(predictor_path=tmp_path, teacher="oracle")
    assert second.using_predicted_reward
    observation = np.zeros((1, 2), np.float32)
    before = second.predictor(observation, np.array([2]))
    np.testing.assert_allclose(before, RewardPredictor.load(tmp_path)(observation, np.array([2])))
    take_steps(second, 500)
    assert second.session.num_labels > 0
    second.close()


def test_first_comparisons_of_a_saved_predictor_wait_for_enough_segments():
    predictor = RewardPredictor(InputSpace((2,), (), (3,), (0,)), PredictorConfig(hidden=(16,)))
    env = wrapped(predictor_path=predictor, teacher="oracle", pretrain_labels=40, n_labels=40)
    # Two segments of 4 steps for each of 40 comparisons.
    take_steps(env, 300)
    assert env.session.num_labels == 0
    take_steps(env, 200)
    assert env.session.num_labels == 40
    env.close()


def test_predictor_for_other_spaces_is_refused(tmp_path):
    env = wrapped()
    env.pretrain()
    env.save_predictor(tmp_path)
    env.close()
    with pytest.raises(BadConfig, match=r"actions of \(3,\).*actions of \(3, 2\)"):
        wrapped(ManyActions, predictor_path=tmp_path)


# --- saving and resuming ---


def test_predictor_is_saved_in_experiment():
    env = wrapped(name="kept", checkpoint_interval=200)
    env.pretrain()
    take_steps(env, 500)
    folder = Experiment.find("kept").folder
    assert RewardPredictor.load(folder / "predictor").space == env.predictor.space
    env.close()


def test_episode_of_a_resumed_experiment_begins_with_its_environment():
    """Checkpoints do not contain the environments of a wrapper."""
    first = wrapped(length=50, name="again")
    take_steps(first, 130)
    first.close()
    second = wrapped(length=50, name="again")
    take_steps(second, 130)
    second.close()
    learning = second.session.learning
    assert learning is not None
    assert list(learning.session._true_returns.lengths) == [50] * 4
    recorder = learning.learner.recorder
    for segment in recorder.segments(recorder.cut(300, np.random.default_rng(0))):
        np.testing.assert_array_equal(np.diff(segment.observations[:, 1]), 1)


def test_same_name_resumes_experiment():
    first = wrapped(name="again")
    first.pretrain()
    before = first.session.num_labels
    observation, action = np.zeros((1, 2), np.float32), np.array([2])
    first.close()
    expected = first.predictor(observation, action)
    second = wrapped(name="again")
    assert second.using_predicted_reward
    assert second.session.num_labels == before
    np.testing.assert_allclose(second.predictor(observation, action), expected, atol=1e-6)
    second.close()


def test_labels_survive_killed_process():
    script = (
        "import os\n"
        "from tests.wrappers.environments import take_steps, wrapped\n"
        "env = wrapped(name='killed')\n"
        "env.pretrain()\n"
        "print(env.session.num_labels, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    env = wrapped(name="killed")
    assert env.session.num_labels == int(done.stdout)
    assert env.using_predicted_reward
    env.close()


def test_same_name_without_its_given_labels_is_refused():
    labels = labels_that_prefer_2()
    wrapped(name="given", labels=labels).close()
    with pytest.raises(ConfigMismatch, match=r"given_labels\.number: was 40, now 0"):
        wrapped(name="given")
    changed = Labelled(labels[0].left, labels[0].right, 0.25)
    with pytest.raises(ConfigMismatch, match=r"given_labels\.digest: was"):
        wrapped(name="given", labels=[changed, *labels[1:]])
    env = wrapped(name="given", labels=labels)
    assert env.session.num_labels >= len(labels)
    env.close()


@pytest.mark.parametrize(
    ("keywords", "differs"),
    [
        ({"segment_length": 5}, "segment_steps"),
        ({"hide_episode_ends": True}, "shows_ends: was true, now false"),
    ],
)
def test_same_name_with_other_settings_is_refused(keywords, differs):
    env = wrapped(name="same")
    env.pretrain()
    env.close()
    with pytest.raises(ConfigMismatch, match=differs):
        wrapped(name="same", **keywords)


def test_same_name_without_its_saved_predictor_is_refused():
    predictor = RewardPredictor(InputSpace((2,), (), (3,), (0,)), PredictorConfig(hidden=(16,)))
    keywords = {"predictor_path": predictor, "teacher": "oracle", "name": "tuned", "n_labels": 20}
    PreferenceWrapper(Counter(), **keywords).close()
    with pytest.raises(ConfigMismatch, match="is_warm: was true, now false"):
        PreferenceWrapper(Counter(), name="tuned", reward=predictor.config, n_labels=20)
    env = PreferenceWrapper(Counter(), **keywords)
    assert env.using_predicted_reward
    env.close()


def test_second_wrapper_with_same_name_is_refused():
    env = wrapped(name="mine")
    with pytest.raises(ExperimentInUse, match=r"or choose another name\."):
        wrapped(name="mine")
    env.close()


@pytest.mark.parametrize("damaged", [None, "config.json", "checkpoints/*", "../../segments/*/*"])
def test_refusals_name_no_options_of_the_command_line(damaged):
    env = wrapped(name="same")
    env.pretrain()
    env.close()
    length = 5 if damaged is None else 4
    for path in Experiment.find("same").folder.glob(damaged or "nothing"):
        path.write_bytes(b"damaged")
    with pytest.raises((ConfigMismatch, CorruptCheckpoint), match="`rl-teacher delete`") as caught:
        wrapped(name="same", segment_length=length)
    assert not {"-n", "--force-new"} & {*re.split(r"[^\w-]", str(caught.value))}


def test_speed_is_that_of_training(monkeypatch):
    monkeypatch.setattr("rl_teacher.session.MIN_PACE_S", 1e-9)
    env = wrapped(name="shown")
    assert env.session.learning is not None
    session = env.session.learning.session
    take_steps(env, 260)
    session.report()
    assert session.step > 0
    untrained = session.steps_per_second
    env.pretrain()
    take_steps(env, 128)
    session.report()
    before, before_s = session.step, session.timer.training_this_run_s
    take_steps(env, 256)
    session.report()
    rate = (session.step - before) / (session.timer.training_this_run_s - before_s)
    assert untrained is None
    assert session.steps_per_second == pytest.approx(rate, rel=0.3)
    env.close()


def test_training_with_given_labels_begins_at_once():
    """The constant schedule of a person counts the time from then on."""
    first = wrapped(n_labels=30)
    first.pretrain()
    assert first.session.learning is not None
    second = wrapped(labels=first.session.learning.labels())
    assert second.session.learning is not None
    assert second.session.learning.session.timer.training_s > 0
    first.close()
    second.close()


def test_last_steps_are_counted_and_logged_before_the_wrapper_is_closed():
    env = wrapped(name="short")
    take_steps(env, 1000)
    env.close()
    experiment = Experiment.find("short")
    checkpoint = experiment.checkpoints.load()
    assert checkpoint is not None
    assert checkpoint.step == experiment.metrics_file.last()["step"] == 1000
    assert experiment.metrics_file.last()["labels_answered"] == QUICK["n_labels"]


# --- bad input ---


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"segment_length": 0}, "segment_length=0"),
        ({"pretrain_labels": 30, "n_labels": 20}, "pretrain_labels=30"),
        ({"schedule": "annealed"}, "num_timesteps"),
        ({"schedule": "annealed", "n_labels": None}, "n_labels"),
        ({"collect_only": 1}, "collect_only=1"),
        ({"teacher": 5}, "teacher=5"),
    ],
)
def test_wrong_or_inconsistent_settings_are_refused(keywords, named):
    with pytest.raises(BadConfig, match=named):
        wrapped(**keywords)


@pytest.mark.parametrize(
    "keywords",
    [
        {"labels": [], "schedule_fraction": 0.4},
        {"teacher": "human", "teacher_strength": 0.5},
        {"schedule_fraction": 0.5},
        {"collect_only": True, "selector": "uniform"},
        {"schedule": "upfront", "n_labels": 9, "pretrain_labels": 5},
        {"segment_length": 5, "clip_length": 2.0},
    ],
)
def test_keyword_without_effect_is_named_in_a_warning(keywords, caplog):
    resolve_wrapper(settings_of(keywords), get_env_info("CartPole-v1"))
    *_, name = keywords
    assert f"ignored: {name}=" in caplog.text


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_is_refused_with_what_to_do(copied):
    env = wrapped()
    with pytest.raises(BadInput, match=r"cannot be pickled or copied.*save_predictor"):
        copied(env)
    env.close()


@pytest.mark.parametrize(("limit", "steps"), [(30, 31), (300, 201)])
def test_segment_longer_than_the_shortest_time_limit_is_refused(limit, steps):
    env = gym.wrappers.TimeLimit(gym.make("Pendulum-v1"), limit)
    with pytest.raises(SegmentTooLong, match=f"segment_length={steps}"):
        PreferenceWrapper(env, segment_length=steps)


@pytest.mark.parametrize("metadata", ["fast", {"render_fps": "fast"}])
def test_metadata_without_a_usable_frame_rate_is_refused(metadata):
    env = gym.make("Pendulum-v1")
    env.metadata = metadata
    with pytest.raises(BadInput, match=r"Pendulum-v1 .*fast"):
        PreferenceWrapper(env)


def test_clip_length_longer_than_episode_is_refused():
    with pytest.raises(SegmentTooLong, match=r"clip_length=6\.7"):
        PreferenceWrapper(gym.make("Pendulum-v1"), clip_length=6.7)
    PreferenceWrapper(gym.make("Pendulum-v1"), clip_length=6.66667).close()


def test_clip_length_uses_declared_frame_rate():
    env = PreferenceWrapper(gym.make("Pendulum-v1"), clip_length=1.0)
    assert env.session.learning is not None
    assert env.session.learning._segment_steps == env.metadata["render_fps"]
    env.close()


def test_failing_teacher_stops_training_with_its_error():
    def broken(left, right):
        raise ZeroDivisionError("no")

    env = wrapped(teacher=broken)
    with pytest.raises(TeacherFailed, match="ZeroDivisionError: no"):
        take_steps(env, 500)
    env.close()


class OldReset(Counter):
    def reset(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.seen(), {}


class ThreeRewards(Counter):
    def step(self, action) -> Any:
        observation, _, *others = super().step(action)
        return observation, np.zeros(3), *others


class NoInfo(Counter):
    def step(self, action) -> Any:
        return *super().step(action)[:4], None


class FourValues(Counter):
    def step(self, action) -> Any:
        observation, reward, is_over, _, info = super().step(action)
        return observation, reward, is_over, info


FORM_FAULTS = [
    (OldReset, "`def reset(self, *, seed=None, options=None)`"),
    (ThreeRewards, "returned numpy.ndarray as the reward: a number is needed"),
    (NoInfo, "returned builtins.NoneType for its last value: a dict is needed"),
    (FourValues, "returned 4 values: observation, reward, terminated, truncated and a dict"),
]


@pytest.mark.parametrize("inside", [lambda env: env, lambda env: gym.wrappers.TimeLimit(env, 9)])
@pytest.mark.parametrize(("kind", "text"), FORM_FAULTS)
def test_results_of_another_form_are_refused_as_by_the_check(kind, text, inside):
    env = PreferenceWrapper(inside(kind()), **QUICK)
    with pytest.raises(BadObservation, match=re.escape(text)):
        take_steps(env, 2)
    env.close()


def test_error_of_an_environment_is_raised_as_it_is():
    class Fails(Counter):
        num_calls = 0

        def step(self, action):
            self.num_calls += 1
            raise KeyError("wheel")

    world = Fails()
    env = PreferenceWrapper(world, **QUICK)
    with pytest.raises(KeyError, match="wheel"):
        take_steps(env, 1)
    assert world.num_calls == 1
    env.close()


class Broken(Counter):
    """Environment that returns numbers that cannot be used where `broken` names it."""

    broken = ""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return (observation * np.nan if self.broken == "reset" else observation), info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.broken == "observation":
            observation = observation + np.inf
        reward = {"reward": np.nan, "huge reward": 1e200}.get(self.broken, reward)
        if self.broken == "huge observation":
            observation = np.array([0, 2.0**62])
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("reset", "observations that are not finite"),
        ("observation", "observations that are not finite"),
        ("reward", "rewards that are not finite"),
        ("huge observation", r"observations that are not finite, or beyond 1e\+15: 4\.6"),
        ("huge reward", r"rewards that are not finite, or beyond 1e\+15: 1e\+200"),
    ],
)
def test_values_that_are_not_finite_or_too_large_are_refused(broken, message):
    world = Broken()
    world.broken = broken
    env = PreferenceWrapper(world, **QUICK)
    with pytest.raises(BadObservation, match=f"returned {message}"):
        take_steps(env, 2)
    env.close()


def test_non_finite_action_is_refused_before_it_is_recorded():
    class Clips(Continuous):
        def step(self, action):
            return super().step(np.nan_to_num(action))

    env = wrapped(Clips)
    env.reset(seed=0)
    with pytest.raises(BadInput, match=r"was given the action .*nan.*, which is not finite"):
        env.step(np.array([0.5, np.nan]))
    env.close()


def test_reward_may_be_an_array_of_one_number():
    class Arrays(Counter):
        def step(self, action) -> Any:
            observation, reward, *others = super().step(action)
            return observation, np.array([reward]), *others

    env = wrapped(Arrays)
    rewards = take_steps(env, 200)
    assert {true for _, true in rewards} == {0.0, 1.0, 2.0}
    env.close()


def test_step_before_reset_is_refused():
    env = wrapped()
    env.env.reset()
    with pytest.raises(BadInput, match="Call reset first"):
        env.step(0)
    env.close()


def test_script_that_never_closes_its_wrapper_ends_without_error():
    code = """
import gymnasium as gym
from rl_teacher import PreferenceWrapper
from rl_teacher.cli import main
env = PreferenceWrapper(gym.make("CartPole-v1"), n_labels=4, pretrain_labels=2)
env.pretrain()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
