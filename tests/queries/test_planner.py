"""Tests of query planning."""

import json
from dataclasses import asdict, replace
from unittest.mock import create_autospec

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.clips.recorder import Recorder, SegmentSpans
from rl_teacher.common.state_dict import text_to_array
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import gather_steps
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.queries.planner import PlannerSettings, QueryPlanner
from rl_teacher.queries.queue import QueryQueue
from rl_teacher.queries.schedules import Budget, Progress, schedule
from rl_teacher.queries.selectors import selector

NUM_ENVS, NUM_STEPS, LENGTH = 4, 100, 10
SPACE = InputSpace.from_spaces(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,)))
NO_REWARD = np.zeros((NUM_STEPS, NUM_ENVS), np.float32)
NEVER = np.zeros((NUM_STEPS, NUM_ENVS), bool)


def planner_of(observations, *, total=60, length=LENGTH, discount=1.0, **settings):
    """Return a planner that has recorded these observations."""
    recorder = Recorder("Test-v0", segment_steps=length, capacity=NUM_STEPS)
    actions = np.zeros((NUM_STEPS, NUM_ENVS, 1), np.float32)
    recorder.observe(
        Rollout(
            observations,
            actions,
            NO_REWARD,
            observations,
            NEVER,
            NEVER,
            ~NEVER,
            np.zeros((NUM_STEPS, NUM_ENVS, 1)),
        )
    )
    budget = Budget(total=total, pretraining=15, num_steps=1000)
    return QueryPlanner(
        PlannerSettings(selector("disagreement"), schedule("annealed"), budget, 10, **settings),
        recorder,
        RewardPredictor(SPACE, PredictorConfig(hidden=(8,), segment_discount=discount), seed=1),
        length,
        np.random.default_rng(1),
    )


def queue_with(num_asked):
    """Return a queue of which every comparison is answered."""
    return create_autospec(QueryQueue, instance=True, num_asked=num_asked, num_waiting=0)


@pytest.fixture
def noise():
    shape = (NUM_STEPS, NUM_ENVS, 3)
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("is_person", [False, True])
@pytest.mark.parametrize("is_fitted", [False, True])
def test_sides_of_a_pair_never_share_steps(noise, is_fitted, is_person):
    # Every observation is unique, so that a shared step is found by its value.
    pairs = planner_of(noise, is_person=is_person).choose(200, is_fitted=is_fitted)
    assert len(pairs) > 100
    for left, right in pairs:
        assert not np.isin(left.observations[:, 0], right.observations[:, 0]).any()


def test_identical_segments_are_never_compared():
    constant = np.ones((NUM_STEPS, NUM_ENVS, 3), np.float32)
    assert planner_of(constant).choose(20, is_fitted=False) == []


def test_segment_of_another_experiment_is_never_compared_with_itself(noise):
    num = 9
    planner = planner_of(noise)
    lefts = [left for left, _ in planner.choose(num, is_fitted=False)]
    # The same comparisons, of which the first would get its own left segment on the right.
    pairs = planner_of(noise, shared_segments=lefts[:1]).choose(num, is_fitted=False)
    assert [left.content_hash for left, _ in pairs] == [left.content_hash for left in lefts]
    assert pairs[4][1] is lefts[0]
    assert all(left.content_hash != right.content_hash for left, right in pairs)


def test_segments_of_another_layout_are_left_out(noise):
    """Images of another size, or segments without scene states."""
    own, _ = planner_of(noise).choose(9, is_fitted=False)[-1]
    others = [
        replace(own, observations=own.observations[:, :2]),
        replace(own, scene_states=np.zeros((len(own), 7))),
    ]
    fitting = replace(own, rewards=own.rewards + 1)
    pairs = planner_of(noise, shared_segments=[*others, fitting]).choose(9, is_fitted=False)
    assert {right.layout for _, right in pairs} == {own.layout}
    assert fitting.content_hash in {right.content_hash for _, right in pairs}


def test_pairs_of_a_person_leave_out_similar_segments():
    # One environment in four behaves differently, by one unit in the first feature.
    observations = np.zeros((NUM_STEPS, NUM_ENVS, 3), np.float32)
    observations[:, 3, 0] = 1.0
    observations += 0.01 * np.random.default_rng(3).standard_normal(observations.shape)

    def share_of_differing(pairs):
        means = [[side.observations[:, 0].mean() for side in pair] for pair in pairs]
        return np.mean([abs(left - right) > 0.5 for left, right in means])

    observations = observations.astype(np.float32)
    # Exactly one side is the different environment with probability 2 * 1/4 * 3/4 = 0.375; these
    # remain when the most similar quarter of all pairs is left out: 0.375 / 0.75.
    random = planner_of(observations).choose(300, is_fitted=False)
    assert share_of_differing(random) == pytest.approx(0.375, abs=0.08)
    distinct = planner_of(observations, is_person=True).choose(300, is_fitted=False)
    assert share_of_differing(distinct) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("discount", [1.0, 0.5])
@pytest.mark.parametrize(("length", "ended_after"), [(10, 10), (10, 4), (90, 90), (90, 1)])
def test_candidates_have_the_log_odds_of_a_fit(noise, length, ended_after, discount):
    planner = planner_of(noise, length=length, discount=discount)
    left = SegmentSpans(np.array([0, 5]), np.array([0, 1]), np.array([length, length]))
    right = SegmentSpans(np.array([9, 3]), np.array([2, 3]), np.array([length, ended_after]))
    labels = LabelSet(length, SPACE, 3, 0, discount)
    for sides in zip(*(planner._recorder.segments(each) for each in (left, right)), strict=True):
        one, other = (SPACE.rows(each.observations, each.actions) for each in sides)
        labels.add(LabelledPair(one, other, 1.0))
    batch = gather_steps(labels, np.arange(2), 0)
    rewards = planner._predictor.member_rewards(batch["rows"])
    returns = (rewards * batch["weights"]).sum(-1)
    candidates = planner._candidates(left, right, is_fitted=True)
    np.testing.assert_allclose(candidates.logits, returns[..., 0] - returns[..., 1], atol=1e-4)


def test_features_of_a_pair_leave_out_the_padding_of_an_ended_segment(noise):
    """The padding repeats the last step, which may be a fall."""
    whole = SegmentSpans(np.array([0]), np.array([0]), np.array([LENGTH]))
    ended = SegmentSpans(np.array([5]), np.array([1]), np.array([3]))
    features = planner_of(noise)._candidates(whole, ended, is_fitted=False).features
    expected = noise[:LENGTH, 0].mean(0) - noise[5 : 5 + 3, 1].mean(0)
    np.testing.assert_allclose(features[0, :3], expected, atol=1e-6)


def test_clip_of_a_single_step_counts_one_step_for_selection(noise, monkeypatch):
    """Every third of 90 steps is evaluated, so that the others count three steps each."""
    planner = planner_of(noise, length=90)
    monkeypatch.setattr(
        planner._predictor,
        "member_rewards",
        lambda rows: np.ones((3, *rows.shape[:-1]), np.float32),
    )
    whole = SegmentSpans(np.array([0]), np.array([0]), np.array([90]))
    ended = SegmentSpans(np.array([0]), np.array([1]), np.array([1]))
    logits = planner._candidates(whole, ended, is_fitted=True).logits
    np.testing.assert_array_equal(logits, np.full((3, 1), 90 - 1))


@pytest.mark.parametrize(("asked", "num"), [(15, 5), (20, 0), (58, -38)])
def test_lead_asks_ahead_of_the_schedule(noise, asked, num):
    planner = planner_of(noise, lead=5)
    queue = queue_with(asked)
    assert planner.num_to_ask(Progress(0, 0.0), queue, is_fitted=True) == num
    assert planner.num_due == 15


def test_lead_never_exceeds_the_budget(noise):
    planner = planner_of(noise, lead=5)
    queue = queue_with(58)
    assert planner.num_to_ask(Progress(1000, 0.0), queue, is_fitted=True) == 2


@pytest.mark.parametrize(("asked", "num_for_fit", "num"), [(15, 9, 0), (15, 4, 4), (15, 1, 4)])
def test_synthetic_teacher_is_asked_when_a_fit_is_due(noise, asked, num_for_fit, num):
    planner, progress = planner_of(noise), Progress(19, 0.0)
    queue = queue_with(asked)
    assert planner.num_to_ask(progress, queue, is_fitted=True, num_for_fit=num_for_fit) == num


def test_last_comparisons_are_asked_though_they_are_too_few_for_a_fit(noise):
    planner, queue = planner_of(noise), queue_with(58)
    assert planner.num_to_ask(Progress(1000, 0.0), queue, is_fitted=True, num_for_fit=9) == 2


def test_settings_that_the_owner_has_cleared_are_the_runs_own_after_a_restart(noise):
    changed, resumed = planner_of(noise), planner_of(noise)
    progress = Progress(500, 20.0)
    changed.change_plan(progress, 10.0, 40)
    resumed.load_state(changed.state())
    resumed.restore_plan(progress, rate=False, total=False)
    assert (resumed.budget.seconds_between, resumed.budget.total) == (10.0, 40)
    resumed.restore_plan(progress, rate=True, total=True)
    assert (resumed.budget.seconds_between, resumed.budget.total) == (3.0, 60)


@pytest.mark.parametrize("damaged", [{"total": [60]}, {"fraction": None}, {"rate": 1.0}])
def test_saved_budget_of_other_types_is_refused(noise, damaged):
    planner = planner_of(noise)
    budget = json.dumps({**asdict(planner.budget), **damaged})
    with pytest.raises(TypeError, match=next(iter(damaged))):
        planner.load_state({**planner.state(), "budget": text_to_array(budget)})


def test_extension_without_more_steps_changes_nothing(noise):
    planner = planner_of(noise)
    planner.extend(100, 1000, 60, Progress(500, 0.0))
    assert planner.budget == Budget(total=60, pretraining=15, num_steps=1000)
