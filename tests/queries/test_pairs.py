"""Choice of the pairs of recorded segments to compare."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.clips.recorder import Recorder, SegmentSpans
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.plan import LabelPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import gather_steps
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.queries.pairs import PairChooser, input_rows

NUM_ENVS, NUM_STEPS, LENGTH = 4, 100, 10
SPACE = InputSpace.from_spaces(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,)))
NO_REWARD = np.zeros((NUM_STEPS, NUM_ENVS), np.float32)
NEVER = np.zeros((NUM_STEPS, NUM_ENVS), bool)


def chooser_of(observations, *, length=LENGTH, discount=1.0, is_person=False, shared=()):
    """Return a chooser of pairs from these observations."""
    recorder = Recorder("Test-v0", segment_steps=length, capacity=NUM_STEPS)
    actions = np.zeros((NUM_STEPS, NUM_ENVS, 1), np.float32)
    recorder.observe(
        Rollout(observations, actions, NO_REWARD, observations, NEVER, NEVER, ~NEVER, actions)
    )
    predictor = RewardPredictor(
        SPACE, PredictorConfig(hidden=(8,), segment_discount=discount), seed=1
    )
    rng, labels = np.random.default_rng(1), LabelPlan(is_person=is_person)
    return PairChooser(labels, recorder, predictor, rng, shared)


@pytest.fixture
def noise():
    shape = (NUM_STEPS, NUM_ENVS, 3)
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("is_person", [False, True])
@pytest.mark.parametrize("is_fitted", [False, True])
def test_sides_of_a_pair_never_share_steps(noise, is_fitted, is_person):
    # Every observation is unique, so that a shared step is found by its value.
    pairs = chooser_of(noise, is_person=is_person).choose(200, is_fitted=is_fitted)
    assert len(pairs) > 100
    for left, right in pairs:
        assert not np.isin(left.observations[:, 0], right.observations[:, 0]).any()


def test_identical_segments_are_never_compared():
    constant = np.ones((NUM_STEPS, NUM_ENVS, 3), np.float32)
    assert chooser_of(constant).choose(20, is_fitted=False) == []


def test_segment_of_another_experiment_is_never_compared_with_itself(noise):
    num = 9
    chooser = chooser_of(noise)
    lefts = [left for left, _ in chooser.choose(num, is_fitted=False)]
    # The same comparisons, of which the first would get its own left segment on the right.
    pairs = chooser_of(noise, shared=lefts[:1]).choose(num, is_fitted=False)
    assert [left.content_hash for left, _ in pairs] == [left.content_hash for left in lefts]
    assert pairs[4][1] is lefts[0]
    assert all(left.content_hash != right.content_hash for left, right in pairs)


def test_segments_of_another_layout_are_left_out(noise):
    """Images of another size, or segments without scene states."""
    own, _ = chooser_of(noise).choose(9, is_fitted=False)[-1]
    others = [
        replace(own, observations=own.observations[:, :2]),
        replace(own, scene_states=np.zeros((len(own), 7))),
    ]
    fitting = replace(own, rewards=own.rewards + 1)
    pairs = chooser_of(noise, shared=[*others, fitting]).choose(9, is_fitted=False)
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
    random = chooser_of(observations).choose(300, is_fitted=False)
    assert share_of_differing(random) == pytest.approx(0.375, abs=0.08)
    distinct = chooser_of(observations, is_person=True).choose(300, is_fitted=False)
    assert share_of_differing(distinct) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("discount", [1.0, 0.5])
@pytest.mark.parametrize(("length", "ended_after"), [(10, 10), (10, 4), (90, 90), (90, 1)])
def test_candidates_have_the_returns_of_a_fit(noise, length, ended_after, discount):
    chooser = chooser_of(noise, length=length, discount=discount)
    left = SegmentSpans(np.array([0, 5]), np.array([0, 1]), np.array([length, length]))
    right = SegmentSpans(np.array([9, 3]), np.array([2, 3]), np.array([length, ended_after]))
    labels = LabelSet(length, SPACE, 3, 0, discount)
    for sides in zip(*(chooser._recorder.segments(each) for each in (left, right)), strict=True):
        one, other = (SPACE.rows(each.observations, each.actions) for each in sides)
        labels.add(LabelledPair(one, other, 1.0))
    batch = gather_steps(labels.comparisons, np.arange(2), 0)
    rewards = chooser._predictor.member_rewards(batch["rows"])
    returns = (rewards * batch["weights"]).sum(-1)
    for side, cuts in enumerate((left, right)):
        rows, _ = input_rows(chooser._recorder, SPACE, cuts, chooser._stride)
        np.testing.assert_allclose(chooser._returns(cuts, rows), returns[..., side], atol=1e-4)


def test_features_of_a_segment_leave_out_the_padding_of_an_ended_segment(noise):
    """The padding repeats the last step, which may be a fall."""
    chooser, ended = chooser_of(noise), SegmentSpans(np.array([5]), np.array([1]), np.array([3]))
    features = chooser._features(*input_rows(chooser._recorder, SPACE, ended))
    np.testing.assert_allclose(features[0, :3], noise[5 : 5 + 3, 1].mean(0), atol=1e-6)


def test_known_clips_are_not_compared_again(noise):
    known = {pair[0].content_hash for pair in chooser_of(noise).choose(9, is_fitted=False)}
    chooser = chooser_of(noise)
    chooser.leave_out(known, are_shared=False)
    chosen = {side.content_hash for pair in chooser.choose(9, is_fitted=False) for side in pair}
    assert known.isdisjoint(chosen)
