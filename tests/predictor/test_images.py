"""Reward predictors on image observations."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.common.errors import BadObservation
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.nn.encoders import ImageBox, PredictorEncoder
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.random_features import random_features_for
from rl_teacher.predictor.ensemble import IMAGES_PER_CALL, RewardPredictor
from rl_teacher.predictor.fit import (
    _normalised,
    fit,
    gather_steps,
    initial_state,
    subsampling_stride,
    warm_start,
)
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.predictor.networks import ImageRewardNetwork
from tests.image_environments import Seeker, make_corridors, make_crossings

IMAGES = gym.spaces.Box(0, 255, (2, 12, 12), np.uint8)
CONFIG = PredictorConfig(ensemble_size=2)
SMALL = PredictorConfig(ensemble_size=2, image_encoder="small")
PAPER = PredictorConfig(ensemble_size=2, image_encoder="paper")
ACTIONS = {
    "discrete": gym.spaces.Discrete(3, start=5),
    "several": gym.spaces.MultiDiscrete([2, 3]),
    "continuous": gym.spaces.Box(-2, 2, (2,), np.float32),
}


def test_action_that_is_not_finite_is_named_beside_an_image():
    space = InputSpace.from_spaces(IMAGES, ACTIONS["continuous"])
    predictor = RewardPredictor(space, SMALL)
    images = np.zeros((3, 2, 12, 12), np.uint8)
    actions = np.zeros((3, 2), np.float32)
    predictor(images, actions)
    actions[1, 1] = np.nan
    with pytest.raises(BadObservation, match=r"1 of 3 steps .* first at index \(1,\)"):
        predictor(images, actions)


@pytest.mark.parametrize("kind", ACTIONS)
def test_cnn_row_holds_bytes_of_image_and_action(kind):
    space = InputSpace.from_spaces(IMAGES, ACTIONS[kind])
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 2, 12, 12), np.uint8)
    actions = {
        "discrete": np.array([5, 7, 6]),
        "several": np.array([[0, 0], [1, 2], [0, 1]]),
        "continuous": np.array([[0.5, -1.25], [2.0, 0.0], [1e-3, -2.0]], np.float32),
    }[kind]
    expected = {
        "discrete": [[1, 0, 0], [0, 0, 1], [0, 1, 0]],
        "several": [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]],
        "continuous": actions,
    }[kind]
    rows = space.rows(images, actions)
    assert rows.dtype == np.uint8
    assert rows.shape == (3, space.num_features)
    seen, encoded, numbers = space.split(rows)
    np.testing.assert_array_equal(seen, images.reshape(3, -1))
    np.testing.assert_array_equal(encoded, np.asarray(expected, np.float32))
    assert numbers.shape == (3, 0)


@pytest.mark.parametrize("kind", ACTIONS)
def test_default_row_holds_random_features_and_action(kind):
    plain = InputSpace.from_spaces(IMAGES, ACTIONS[kind])
    space = plain.for_encoder("keypoints")
    assert plain.image is not None
    seen = random_features_for(plain.image)
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 2, 12, 12), np.uint8)
    actions = np.stack([np.stack([ACTIONS[kind].sample() for _ in range(4)]) for _ in range(3)])
    rows = space.rows(images, actions)
    assert rows.dtype == np.float32
    assert (
        rows.shape
        == (3, 4, space.num_features)
        == (3, 4, seen.num_features + plain.num_action_inputs)
    )
    np.testing.assert_allclose(rows[1, 2, : seen.num_features], seen(images[1, 2:3])[0], atol=1e-5)
    if kind == "continuous":
        np.testing.assert_array_equal(rows[..., seen.num_features :], actions)
    else:
        assert (rows[..., seen.num_features :].sum(-1) == (2 if kind == "several" else 1)).all()
    np.testing.assert_array_equal(space.feature_scales[seen.num_features :], 1)
    np.testing.assert_array_equal(space.feature_scales[: seen.num_features], seen.scales)


class TestNumbersBesideImages:
    LAYOUT = ImageLayout((2, 12, 12), 0, vector_size=2)
    NUMBERS = np.array([[1.5, -2.0], [0.0, 1e-3], [4.0, 6.0]], np.float32)

    def rows(self, encoder, kind="discrete"):
        """Return the input space and rows of three steps, and their images and actions."""
        space = InputSpace.from_spaces(ImageBox(self.LAYOUT), ACTIONS[kind]).for_encoder(encoder)
        images = np.random.default_rng(0).integers(0, 256, (3, self.LAYOUT.num_bytes), np.uint8)
        actions = np.stack([ACTIONS[kind].sample() for _ in range(3)])
        return space, space.rows(self.LAYOUT.join(images, self.NUMBERS), actions), images, actions

    @pytest.mark.parametrize("kind", ACTIONS)
    def test_cnn_row_ends_with_their_bytes(self, kind):
        space, rows, images, actions = self.rows("small", kind)
        plain = InputSpace.from_spaces(IMAGES, ACTIONS[kind])
        without = plain.rows(images.reshape(3, 2, 12, 12), actions)
        np.testing.assert_array_equal(rows[:, :-8], without)
        np.testing.assert_array_equal(space.split(rows)[2], self.NUMBERS)
        np.testing.assert_array_equal(space.normalised_part(rows), self.NUMBERS)

    def test_row_of_random_features_ends_with_them_for_both_kinds_of_features(self):
        space, rows, images, actions = self.rows("auto")
        plain = InputSpace.from_spaces(IMAGES, ACTIONS["discrete"]).for_encoder("auto")
        np.testing.assert_array_equal(
            rows[:, :-2], plain.rows(images.reshape(3, 2, 12, 12), actions)
        )
        np.testing.assert_array_equal(rows[:, -2:], self.NUMBERS)
        for encoder in ("keypoints", "profiles"):
            expected = [*plain.feature_mask(encoder), True, True]
            np.testing.assert_array_equal(space.feature_mask(encoder), expected)
        np.testing.assert_array_equal(space.feature_scales[-2:], 1)

    def test_cnn_row_is_normalised_by_labels_in_its_numbers_alone(self):
        space, rows, *_ = self.rows("small")
        labels = LabelSet(3, space, CONFIG.ensemble_size, seed=0)
        labels.add(LabelledPair(rows, rows, 1.0))
        normaliser = labels.normaliser(space.feature_mask("small"))
        normalised = normaliser(rows)
        np.testing.assert_array_equal(normalised[:, :-8], rows[:, :-8])
        numbers = space.normalised_part(normalised)
        np.testing.assert_allclose(numbers.mean(0), 0, atol=1e-3)
        np.testing.assert_allclose(numbers.std(0), 1, atol=1e-2)
        batch = _normalised({"rows": jnp.asarray(rows)}, normaliser)
        np.testing.assert_allclose(space.split(batch["rows"])[2], numbers, atol=1e-6)

    @pytest.mark.parametrize("kind", ["discrete", "continuous"])
    def test_one_that_is_not_finite_is_named(self, kind):
        space, _, images, actions = self.rows("small", kind)
        numbers = self.NUMBERS.copy()
        numbers[2, 0] = np.nan
        with pytest.raises(BadObservation, match=r"first at index \(2,\)"):
            RewardPredictor(space, SMALL)(self.LAYOUT.join(images, numbers), actions)


@pytest.mark.parametrize(
    "config", [CONFIG, pytest.param(SMALL, marks=pytest.mark.slow)], ids=["auto", "small"]
)
@pytest.mark.usefixtures("_shapes_unchecked")
def test_predictor_learns_reward_that_needs_image_and_numbers(tmp_path, config):
    rollout, space = random_rollout(200, config.image_encoder, make_crossings)
    rows = space.rows(rollout.observations, rollout.actions)
    labels = labelled(rollout, rows, space, 300).comparisons
    outcome = fit(initial_state(space, config, 0), labels, 1_000)
    predictor = RewardPredictor(space, config)
    predictor.set_networks(outcome.networks, outcome.normaliser)
    rewards = predictor(rollout.observations, rollout.actions)
    assert np.corrcoef(rewards.ravel(), rollout.rewards.ravel())[0, 1] > 0.8
    predictor.save(tmp_path)
    again = RewardPredictor.load(tmp_path)
    np.testing.assert_array_equal(again(rollout.observations, rollout.actions), rewards)


def comparisons(space, depends_on, num, seed=0, into=None):
    """Create labels that depend on the profiles, or on how often the first action was taken."""
    rng = np.random.default_rng(seed)
    labels = into or LabelSet(5, space, CONFIG.ensemble_size, seed=0)
    lines, first_action = space.feature_mask("profiles"), space.num_observation_inputs
    for _ in range(num):
        rows = rng.normal(size=(2, 5, space.num_features)).astype(np.float32)
        rows[..., lines] += rng.normal(size=(2, 1, 1))
        rows[..., first_action:] = np.eye(3)[rng.integers(0, 3, (2, 5))]
        good = rows[..., lines].mean(-1) if depends_on == "profiles" else rows[..., first_action]
        left, right = good.sum(-1)
        target = 0.5 if left == right else float(left > right)
        labels.add(LabelledPair(rows[0], rows[1], target))
    return labels


def differs_between_actions(outcome, space):
    """Return whether the predicted reward depends on the action."""
    predictor = RewardPredictor(space, CONFIG)
    predictor.set_networks(outcome.networks, outcome.normaliser)
    rows = np.zeros((3, space.num_features), np.float32)
    rows[:, space.num_observation_inputs :] = np.eye(3)
    rewards = predictor.member_rewards(rows)
    assert np.isfinite(rewards).all()
    return bool((rewards.std(-1) > 1e-6).any())


def random_feature_space():
    return InputSpace.from_spaces(IMAGES, gym.spaces.Discrete(3)).for_encoder("auto")


def test_keypoints_include_actions_and_profiles_do_not():
    space = random_feature_space()
    places, lines = space.feature_mask("keypoints"), space.feature_mask("profiles")
    np.testing.assert_array_equal(np.flatnonzero(places), [*range(24), *range(184, 187)])
    np.testing.assert_array_equal(np.flatnonzero(lines), range(24, 184))  # 10 rows and 10 columns
    assert space.feature_mask("keypoints", uses_actions=False).sum() == 24
    vectors = InputSpace.from_spaces(gym.spaces.Box(-1, 1, (3,)), ACTIONS["discrete"])
    assert vectors.feature_mask("auto").all()
    assert vectors.feature_mask("auto", uses_actions=False).tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("depends_on", "expected"), [("profiles", "profiles"), ("actions", "keypoints")]
)
def test_auto_encoder_selects_features_with_lower_held_out_loss(depends_on, expected):
    space = random_feature_space()
    outcome = fit(
        initial_state(space, CONFIG, 0), comparisons(space, depends_on, 150).comparisons, 1_000
    )
    np.testing.assert_array_equal(outcome.state.feature_mask, space.feature_mask(expected))
    assert differs_between_actions(outcome, space) == (expected == "keypoints")
    assert outcome.report.held_out_accuracy > 0.7


def test_auto_encoder_selects_again_after_labels_double():
    space = random_feature_space()
    labels = comparisons(space, "profiles", 40)
    first = fit(initial_state(space, CONFIG, 0), labels.comparisons, 400)
    comparisons(space, "actions", 39, 1, into=labels)
    second = fit(first.state, labels.comparisons, 8)
    assert not differs_between_actions(second, space)
    comparisons(space, "actions", 400, 2, into=labels)
    third = fit(second.state, labels.comparisons, 8)
    assert differs_between_actions(third, space)
    np.testing.assert_array_equal(third.state.feature_mask, space.feature_mask("keypoints"))


def test_restored_state_keeps_feature_mask_and_next_selection():
    space = random_feature_space()
    labels = comparisons(space, "profiles", 40)
    one = fit(initial_state(space, CONFIG, 0), labels.comparisons, 100).state
    other = initial_state(space, CONFIG, 0).restored(one.arrays())
    np.testing.assert_array_equal(other.feature_mask, space.feature_mask("profiles"))
    for num in (20, 60):  # the second number triggers a new selection
        comparisons(space, "actions", num, num, into=labels)
        ours, theirs = (fit(state, labels.comparisons, 16) for state in (one, other))
        one, other = ours.state, theirs.state
        np.testing.assert_array_equal(one.feature_mask, other.feature_mask)
        arrays = (jax.tree.leaves(each.networks) for each in (ours, theirs))
        for our_array, their_array in zip(*arrays, strict=True):
            np.testing.assert_array_equal(our_array, their_array)


@pytest.mark.parametrize("network", ["keypoints", "profiles"])
def test_explicit_encoder_fixes_mask_and_warm_start_keeps_it(network):
    space = random_feature_space()
    config = PredictorConfig(ensemble_size=2, image_encoder=network)
    depends_on = "profiles" if network == "keypoints" else "actions"
    outcome = fit(
        initial_state(space, config, 0), comparisons(space, depends_on, 100).comparisons, 100
    )
    np.testing.assert_array_equal(outcome.normaliser.mask, space.feature_mask(network))
    later = warm_start(initial_state(space, CONFIG, 0), outcome.networks, outcome.normaliser)
    labels = LabelSet(5, space, CONFIG.ensemble_size, seed=0)
    labels.warm_start_from(outcome.normaliser)
    assert np.isfinite(labels.input_stats.std).all()
    outcome = fit(later, comparisons(space, depends_on, 100, into=labels).comparisons, 100)
    np.testing.assert_array_equal(outcome.normaliser.mask, space.feature_mask(network))


@pytest.mark.parametrize("expected", [True, False])
def test_cnn_uses_actions_unless_ignore_actions_is_set(expected):
    space = InputSpace.from_spaces(IMAGES, gym.spaces.Discrete(3))
    config = PredictorConfig(ensemble_size=2, image_encoder="small", ignore_actions=not expected)
    predictor = RewardPredictor(space, config)
    images = np.repeat(IMAGES.sample()[None], 3, axis=0)
    rewards = predictor.member_rewards(predictor.space.rows(images, np.arange(3)))
    assert (rewards.std(-1) > 1e-6).all() == expected


def make_seekers(num_envs):
    return make_corridors(num_envs, Seeker)


def random_rollout(num_steps=120, network: PredictorEncoder = "auto", make=make_seekers):
    """Collect a rollout of random actions in corridors whose reward depends on the image."""
    venv = make(8)
    collector = Collector(venv, seed=0)
    rollout = collector.collect(collector.random_actions, num_steps)
    space = InputSpace.from_spaces(venv.single_observation_space, venv.single_action_space)
    return rollout, space.for_encoder(network)


def labelled(rollout, rows, space, num, num_steps=5):
    rng = np.random.default_rng(0)
    labels = LabelSet(num_steps, space, CONFIG.ensemble_size, seed=0)
    for _ in range(num):
        cuts = [
            (slice(first, first + num_steps), rng.integers(8))
            for first in rng.integers(0, len(rows) - num_steps, 2)
        ]
        left, right = (rollout.rewards[cut].sum() for cut in cuts)
        target = 0.5 if left == right else float(left > right)
        labels.add(LabelledPair(rows[cuts[0]], rows[cuts[1]], target))
    return labels


@pytest.mark.parametrize(
    "config", [CONFIG, pytest.param(PAPER, marks=pytest.mark.slow)], ids=["auto", "paper"]
)
def test_image_predictor_learns_from_comparisons_and_round_trips_through_file(tmp_path, config):
    rollout, space = random_rollout(network=config.image_encoder)
    rows = space.rows(rollout.observations, rollout.actions)
    outcome = fit(
        initial_state(space, config, 0), labelled(rollout, rows, space, 150).comparisons, 400
    )
    predictor = RewardPredictor(space, config)
    predictor.set_networks(outcome.networks, outcome.normaliser)
    members = predictor.member_rewards(rows)
    predictor.recent.update(members.reshape(2, -1))
    rewards = predictor(rollout.observations, rollout.actions)
    assert np.corrcoef(rewards.ravel(), rollout.rewards.ravel())[0, 1] > 0.9
    predictor.save(tmp_path)
    again = RewardPredictor.load(tmp_path)
    np.testing.assert_array_equal(again(rollout.observations, rollout.actions), rewards)


def test_predictions_do_not_depend_on_batch_size():
    rollout, space = random_rollout(40, "paper")
    rows = space.rows(rollout.observations, rollout.actions).reshape(-1, space.num_features)
    predictor = RewardPredictor(space, PAPER)
    whole = predictor.member_rewards(rows)
    assert len(rows) > IMAGES_PER_CALL
    for num in (0, 1, 3, 300):
        np.testing.assert_allclose(predictor.member_rewards(rows[:num]), whole[:, :num], atol=1e-5)


@pytest.mark.slow
def test_paper_network_fit_updates_batch_norm_and_continues_exactly_after_load():
    rollout, space = random_rollout(40, "paper")
    rows = space.rows(rollout.observations, rollout.actions)
    config = PredictorConfig(
        ensemble_size=2, image_encoder="paper", batch_norm=True, dropout=0.5, batch_size=8
    )
    labels = labelled(rollout, rows, space, 20)
    first = fit(initial_state(space, config, 0), labels.comparisons, 8)
    assert isinstance(first.networks, ImageRewardNetwork)
    assert all(norm.mean.any() for norm in first.networks.convolutions.norms)
    restored = initial_state(space, config, 1).restored(first.state.arrays())
    states = first.state, restored
    ours, theirs = (jax.tree.leaves(fit(state, labels.comparisons, 8).networks) for state in states)
    for our_array, their_array in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our_array, their_array)


def test_padding_of_short_segments_does_not_affect_batch_norm():
    rollout, space = random_rollout(40, "paper")
    rows = space.rows(rollout.observations, rollout.actions)
    config = PredictorConfig(ensemble_size=1, image_encoder="paper", batch_norm=True, batch_size=8)
    networks = []
    for padding in (0, 255):
        labels = LabelSet(25, space, 1, seed=0)
        labels.add(LabelledPair(rows[:25, 0], rows[:9, 1], 1.0))
        labels.rows[0, 1, 9:] = padding
        networks.append(fit(initial_state(space, config, 0), labels.comparisons, 8).networks)
    for one, other in zip(*map(jax.tree.leaves, networks), strict=True):
        np.testing.assert_array_equal(one, other)


def test_image_segments_are_subsampled_more_coarsely():
    assert subsampling_stride(25, has_byte_rows=True) == 3
    assert subsampling_stride(25, has_byte_rows=False) == 1
    rollout, space = random_rollout(40, "paper")
    rows = space.rows(rollout.observations, rollout.actions)
    labels = labelled(rollout, rows, space, 2, num_steps=25)
    batch = gather_steps(labels.comparisons, np.array([0, 1]), 1)
    assert batch["rows"].shape == (2, 2, 8, space.num_features)
    np.testing.assert_array_equal(batch["rows"], labels.rows[:, :, 1:25:3])
    # Each of the 8 sampled steps has weight 25 / 8.
    np.testing.assert_allclose(batch["weights"], 25 / 8)


def test_long_image_segment_stores_every_kth_image_with_weight_k():
    rollout, space = random_rollout(100, "paper")
    rows = space.rows(rollout.observations, rollout.actions)
    labels = LabelSet(100, space, CONFIG.ensemble_size, seed=0)
    labels.add(LabelledPair(rows[:100, 0], rows[:9, 1], 1.0))
    # At most 30 of 100 steps are stored: every 4th, 25 in all.
    assert labels.num_steps == 25
    np.testing.assert_array_equal(labels.rows[0, 0], rows[:100:4, 0])
    np.testing.assert_array_equal(labels.rows[0, 1, :3], rows[:9:4, 1])
    np.testing.assert_array_equal(labels.weights[0, 0], 4)
    np.testing.assert_array_equal(labels.weights[0, 1, :4], [4, 4, 1, 0])
