"""Fits of the reward predictor to comparisons, or to the ranks of clips.

M: members, B: examples of a minibatch, S: their sides (comparisons 2, clips 1), T: steps,
F: features, K: gradient steps of one call.
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Float32, Int

from rl_teacher.common.errors import Diverged
from rl_teacher.common.runtime import executor
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    arrays_to_tree,
    nest,
    part_of,
    rng_to_array,
    tree_to_arrays,
)
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.nn.conv import bytes_to_floats
from rl_teacher.nn.encoders import PredictorEncoder
from rl_teacher.nn.image_layout import FLOAT_BYTES
from rl_teacher.predictor.diagnostics import (
    CalibrationBin,
    FitReport,
    accuracy_and_calibration,
    calibration_error,
    member_agreement,
    ordered_pairs,
)
from rl_teacher.predictor.inputs import InputNormaliser, InputSpace
from rl_teacher.predictor.labels import Examples, draw_examples
from rl_teacher.predictor.likelihood import (
    mean_reward,
    preference_logit,
    preference_loss,
    regression_loss,
)
from rl_teacher.predictor.networks import (
    RewardNetwork,
    learning_rate,
    new_networks,
    replace_running_stats,
    stack_members,
    training_rewards,
    unstack_members,
)

CHUNK_STEPS = 8
"""Gradient steps of one compiled call."""
SAMPLED_STEPS = 30
"""Approximate steps of a segment that one gradient step uses; see `gather_steps`."""
SAMPLED_IMAGES = 8
"""The same with a CNN, for which a step costs a hundred times as much."""
MAX_EVALUATED = 128
"""Examples on which the losses are measured after a chunk."""
PATIENCE = 8
"""Chunks without improvement after which a fit to convergence ends."""
PATIENCE_WITH_DROPOUT = 24
"""The same with dropout, which improves the held-out loss more slowly at first."""
MAX_ORDERED = 1_000
"""Clips of a held-out set whose pairs count for the accuracy: their number is quadratic."""
MIN_IMPROVEMENT = 1e-3
"""Decrease of the held-out loss that counts as an improvement."""
TRIAL_STEPS = 2_000
"""Maximum gradient steps of each trial when the image features are selected again."""
MAX_DECAY = 0.1
"""Share of each weight that decays in a gradient step, at most, however few the labels are."""
NEVER = 0
"""Number of labels for the next selection of features, if there is none."""

ADAM = optax.scale_by_adam()
_init_adam = jax.jit(ADAM.init)


def _minibatch_loss(
    network: RewardNetwork, batch: Mapping[str, Array], config: PredictorConfig, key: Array
) -> tuple[Array, RewardNetwork]:
    """Compute the loss of a minibatch, and the network with updated running statistics."""
    # The weights are 0 at padded steps.
    is_real = batch["weights"] > 0
    rewards, network = training_rewards(network, batch["rows"], is_real, config.dropout, key)
    return _scores_and_losses(rewards, batch, config)[1].mean(), network


def _scores_and_losses(
    rewards: Array, batch: Mapping[str, Array], config: PredictorConfig
) -> tuple[Array, Array]:
    """Compute what the objective compares with the targets, and its loss, for each example.

    Args:
        rewards: [B, S, T] predicted reward per step.
        batch: weights [B, S, T], targets [B] and certainty [B].
        config: settings of the fit.

    Returns:
        [B] log-odds and [B] cross-entropy in nats, or [B] mean rewards and [B] squared errors.
    """
    rewards, weights = rewards * batch["weights"], batch["weights"]
    if config.objective != "preferences":
        scores = mean_reward(rewards[:, 0], weights[:, 0])
        return scores, regression_loss(scores, batch["targets"], batch["certainty"])
    # R_left - R_right with R = sum_t w_t r_t
    logits = preference_logit(rewards[:, 0], rewards[:, 1])
    return logits, preference_loss(logits, batch["targets"], config.error_rate)


class _MemberState(NamedTuple):
    """State that one member's next fit continues from."""

    network: RewardNetwork
    optimiser_state: optax.OptState
    key: Array


@functools.partial(jax.jit, static_argnames="config")
def _improve_member(
    member: _MemberState,
    minibatches: Mapping[str, Array],
    sample: Mapping[str, Array],
    normaliser: InputNormaliser,
    decay: Array,
    config: PredictorConfig,
) -> tuple[_MemberState, Array, Array]:
    """Take K gradient steps of one member in one compiled call, and evaluate the result.

    Args:
        member: state to continue from.
        minibatches: rows [K, B, S, T, F] as recorded, weights [K, B, S, T], targets [K, B] and
            certainty [K, B].
        sample: examples for the evaluation, with the same names and without K.
        normaliser: normalisation of the rows; empty for byte rows.
        decay: share of each weight that decays in a gradient step.
        config: settings of the fit.

    Returns:
        The new state, and for the sample the scores [B] and losses [B]; see `_scores_and_losses`.
    """
    rate = learning_rate(config, member.network)
    minibatches = _normalised(minibatches, normaliser)
    sample = _normalised(sample, normaliser)

    def step(member: _MemberState, minibatch: Mapping[str, Array]) -> tuple[_MemberState, None]:
        key, step_key = jax.random.split(member.key)
        gradients, updated = jax.grad(_minibatch_loss, has_aux=True)(
            member.network, minibatch, config, step_key
        )
        updates, optimiser_state = ADAM.update(gradients, member.optimiser_state)

        def descend(parameter: Array, update: Array) -> Array:
            # AdamW (Loshchilov and Hutter 2019): w <- w - lr * adam(g) - decay * w
            return parameter - rate * update - decay * parameter

        # Adam must not move the batch-norm statistics, which are leaves of the network too.
        network = replace_running_stats(jax.tree.map(descend, member.network, updates), updated)
        return _MemberState(network, optimiser_state, key), None

    member, _ = jax.lax.scan(step, member, minibatches)
    # In evaluation mode: without dropout, and with the running batch-norm statistics.
    rewards = member.network(sample["rows"])[..., 0]
    return member, *_scores_and_losses(rewards, sample, config)


@functools.partial(jax.jit, static_argnames="config")
def _evaluate_member(
    network: RewardNetwork,
    sample: Mapping[str, Array],
    normaliser: InputNormaliser,
    config: PredictorConfig,
) -> tuple[Array, Array]:
    """Return the scores [B] and losses [B] of one member; see `_scores_and_losses`."""
    # In evaluation mode, as at the end of `_improve_member`.
    rewards = network(_normalised(sample, normaliser)["rows"])[..., 0]
    return _scores_and_losses(rewards, sample, config)


def _normalised(batch: Mapping[str, Array], normaliser: InputNormaliser) -> Mapping[str, Array]:
    """Normalise the rows of a batch; of byte rows, only the vectors at their end."""
    if not len(normaliser.mean):
        return batch
    rows = batch["rows"]
    if rows.dtype == jnp.uint8:
        end = rows.shape[-1] - FLOAT_BYTES * len(normaliser.mean)
        vectors = _normalised({"rows": bytes_to_floats(rows[..., end:])}, normaliser)["rows"]
        encoded = jax.lax.bitcast_convert_type(vectors, jnp.uint8).reshape(*rows.shape[:-1], -1)
        return {**batch, "rows": jnp.concatenate([rows[..., :end], encoded], axis=-1)}
    # x' = mask * (x - mean) / std
    rows = (rows - normaliser.mean) / normaliser.std
    return {**batch, "rows": jnp.where(normaliser.mask, rows, 0.0)}


@dataclass(frozen=True)
class FitState:
    """All that the next fit continues from.

    Attributes:
        space: space of the input rows.
        config: settings of the networks and of the fits.
        seed: seed of networks, minibatches and evaluation samples.
        members: state of each of the M members.
        feature_mask: [F] features of an input row that the networks use.
        select_at: number of labels for the next selection of image features; `NEVER`: none.
        rng: draws minibatches and evaluation samples.
    """

    space: InputSpace
    config: PredictorConfig
    seed: int
    members: Sequence[_MemberState]
    feature_mask: Bool[np.ndarray, " features"]
    select_at: int
    rng: np.random.Generator

    def arrays(self) -> StateDict:
        """Return the arrays of a checkpoint."""
        own = {
            "rng": rng_to_array(self.rng),
            "feature_mask": self.feature_mask,
            "select_at": np.asarray(self.select_at),
        }
        return nest({"self": own, "members": tree_to_arrays(list(self.members))})

    def restored(self, arrays: StateDict) -> "FitState":
        """Return the state that a checkpoint holds, for the same space and settings."""
        rng = np.random.default_rng()
        array_to_rng(rng, arrays["self/rng"])
        return replace(
            self,
            members=arrays_to_tree(list(self.members), part_of(arrays, "members")),
            feature_mask=arrays["self/feature_mask"],
            select_at=int(arrays["self/select_at"]),
            rng=rng,
        )


@dataclass(frozen=True)
class FitResult:
    """Outcome of a fit.

    Attributes:
        networks: the M networks, stacked.
        normaliser: normalisation of their input rows.
        report: quality on training and held-out labels.
        state: what the next fit continues from.
    """

    networks: RewardNetwork
    normaliser: InputNormaliser
    report: FitReport
    state: FitState


def initial_state(
    space: InputSpace,
    config: PredictorConfig,
    seed: int,
    encoder: PredictorEncoder | None = None,
) -> FitState:
    """Initialise the networks of a fit at random.

    Args:
        space: space of the input rows.
        config: settings of the networks and of the fits.
        seed: seed of networks, minibatches and evaluation samples.
        encoder: which image features to use; None follows the config, and selects them by held-out
            loss where it says so.
    """
    selects = encoder is None and config.image_encoder == "auto" and space.uses_random_features
    uses_actions = not config.ignore_actions
    networks = unstack_members(new_networks(space, config, seed))
    keys = jax.random.split(jax.random.PRNGKey(seed), config.ensemble_size)
    return FitState(
        space,
        config,
        seed,
        [_new_member(network, key) for network, key in zip(networks, keys, strict=True)],
        space.feature_mask(encoder or config.image_encoder, uses_actions=uses_actions),
        1 if selects else NEVER,
        np.random.default_rng([seed, 4]),
    )


def warm_start(state: FitState, networks: RewardNetwork, normaliser: InputNormaliser) -> FitState:
    """Replace the networks of a state by saved ones, with the features that they use."""
    members = [
        _new_member(network, member.key)
        for member, network in zip(state.members, unstack_members(networks), strict=True)
    ]
    return replace(state, members=members, feature_mask=normaliser.mask, select_at=NEVER)


def _new_member(network: RewardNetwork, key: Array) -> _MemberState:
    return _MemberState(network, _init_adam(network), key)


def fit(
    state: FitState, examples: Examples, max_steps: int, *, patience: int | None = None
) -> FitResult:
    """Train until the held-out loss stops improving, or for `max_steps`.

    The result has the weights of the chunk with the lowest held-out loss, on the examples that each
    member never trains on. It is never the networks that the fit starts from: a few held-out labels
    would often prefer these, and new labels would have no effect.

    Image features are selected with the first labels, and again whenever their number has doubled:
    keypoints with actions, or profiles alone, whichever generalise better. Profiles come without
    actions: where the action has no bearing on the reward, chance still makes some actions look
    better, and an agent exploits that at once.

    Args:
        state: initial state, or that of the fit before.
        examples: at least one: comparisons, or clips for the objective `rank`.
        max_steps: maximum gradient steps; at least one chunk is taken.
        patience: chunks without improvement after which the fit ends; None trains to convergence.

    Raises:
        Diverged: a loss is NaN or infinite.
    """
    num_labels = examples.labels.num_added
    if state.select_at != NEVER and num_labels >= state.select_at:
        is_first = state.select_at == 1
        num_steps = max_steps if is_first else TRIAL_STEPS
        # Both trials have the same seed: they differ in the features alone.
        trials = [
            _train(
                initial_state(state.space, state.config, state.seed, encoder),
                examples,
                num_steps,
                None,
            )
            for encoder in ("keypoints", "profiles")
        ]
        best = min(trials, key=lambda trial: trial.report.held_out_loss)
        state = replace(state, select_at=2 * num_labels)
        if is_first or (best.state.feature_mask != state.feature_mask).any():
            kept = {"select_at": state.select_at, "rng": state.rng}
            return replace(best, state=replace(best.state, **kept))
    return _train(state, examples, max_steps, patience)


def _train(state: FitState, examples: Examples, max_steps: int, patience: int | None) -> FitResult:
    """Fit the networks of a state; see `fit`."""
    if patience is None:
        patience = PATIENCE_WITH_DROPOUT if state.config.dropout else PATIENCE
    state = replace(state, rng=copy.deepcopy(state.rng))
    normaliser = examples.labels.normaliser(state.feature_mask)
    sample = state.rng.permutation(len(examples.targets))[:MAX_EVALUATED]
    state, best = _train_chunk(state, examples, normaliser, sample)
    networks = [member.network for member in state.members]
    num_steps, since_best = CHUNK_STEPS, 0
    while since_best < patience and num_steps < max_steps:
        num_steps += CHUNK_STEPS
        state, report = _train_chunk(state, examples, normaliser, sample)
        if report.held_out_loss < best.held_out_loss - MIN_IMPROVEMENT:
            networks, best, since_best = [member.network for member in state.members], report, 0
        else:
            since_best += 1
    members = [
        member._replace(network=network)
        for member, network in zip(state.members, networks, strict=True)
    ]
    report = replace(best, num_steps=num_steps)
    state = replace(state, members=members)
    return FitResult(stack_members(networks), normaliser, report, state)


def _train_chunk(
    state: FitState, examples: Examples, normaliser: InputNormaliser, sample: np.ndarray
) -> tuple[FitState, FitReport]:
    """Take one chunk of gradient steps of every member, and evaluate them on the sample.

    Members are independent, so each has its own compiled call, and the calls run in parallel
    threads. One call for all members by vmap keeps to one core and takes 1.6 times as long.
    """
    config, labels = state.config, examples.labels
    # A random offset, so that every step of a segment is trained on; the evaluation uses the
    # middle one, so that it does not vary by chance between chunks.
    stride = subsampling_stride(labels.num_steps, has_byte_rows=labels.has_byte_rows)
    offset = draw_offset(labels.num_steps, stride, state.rng)
    evaluated = gather_steps(examples, np.resize(sample, MAX_EVALUATED), stride // 2)
    rate = learning_rate(config, state.members[0].network)
    decay = np.float32(weight_decay(config.l2, rate, len(examples.targets)))

    def improve(member: _MemberState, indices: np.ndarray) -> tuple:
        minibatches = gather_steps(examples, indices, offset)
        # Dispatch is asynchronous: waiting here keeps a thread busy until its member is done.
        return jax.block_until_ready(
            _improve_member(member, minibatches, evaluated, normaliser, decay, config)
        )

    # [M, K, B] examples of K minibatches of each member
    shape = CHUNK_STEPS, config.batch_size
    indices = draw_examples(examples.is_held_out, shape, state.rng)
    results = executor("fit").map(improve, state.members, indices)
    members, scores, losses = zip(*results, strict=True)
    if not np.isfinite(losses).all():
        raise Diverged(
            "The fit of the reward predictor diverged: its loss is not finite. The previous "
            f"networks were kept. Lower --reward.learning-rate (now {rate:g}), or the "
            "learning_rate of PredictorConfig, and start again under another name."
        )
    # The sample was padded to a fixed size, so that only one program is compiled.
    scores, losses = (np.stack(each)[:, : len(sample)] for each in (scores, losses))
    targets, is_held_out = examples.targets[sample], examples.is_held_out[:, sample]
    report = _report(config, scores, losses, targets, is_held_out)
    return replace(state, members=members), report


def _report(
    config: PredictorConfig,
    scores: Float[np.ndarray, "member batch"],
    losses: Float[np.ndarray, "member batch"],
    targets: Float[np.ndarray, " batch"],
    is_held_out: Bool[np.ndarray, "member batch"],
) -> FitReport:
    """Summarise the evaluation on a sample."""
    logits, accuracy, num, calibration = _accuracy(config, scores, targets, is_held_out)
    return FitReport(
        num_steps=CHUNK_STEPS,
        loss=float(_mean_where(losses, ~is_held_out).mean()),
        held_out_loss=float(_mean_where(losses, is_held_out).mean()),
        held_out_accuracy=accuracy,
        held_out_labels=num,
        calibration_error=calibration_error(calibration),
        agreement=member_agreement(logits),
        calibration=calibration,
    )


def _accuracy(
    config: PredictorConfig,
    scores: Float[np.ndarray, "member batch"],
    targets: Float[np.ndarray, " batch"],
    is_held_out: Bool[np.ndarray, "member batch"],
) -> tuple[Float[np.ndarray, "member pair"], float, int, tuple[CalibrationBin, ...]]:
    """Return the log-odds of comparisons; and on held-out ones accuracy, number and calibration."""
    is_regression = config.objective != "preferences"
    logits = scores
    is_independent = is_held_out
    if is_regression:
        logits, targets, is_held_out = ordered_pairs(scores, targets, is_held_out)
    # `equal` is neither right nor wrong, so it does not count for accuracy and calibration.
    is_counted = is_held_out & (targets != 0.5)
    # Members share labels, and pairs share clips: only different ones are independent.
    num = int(np.count_nonzero((is_independent if is_regression else is_counted).any(0)))
    accuracy, calibration = accuracy_and_calibration(
        logits[is_counted],
        np.broadcast_to(targets, is_counted.shape)[is_counted].astype(np.float64),
        config.error_rate,
    )
    # A difference of mean rewards is no log-odds.
    return logits, accuracy, num, () if is_regression else calibration


def evaluate(result: FitResult, held_out: Examples) -> FitReport:
    """Return the report of a fit, with the held-out metrics of a set that no member trains on."""
    config, labels = result.state.config, held_out.labels
    stride = subsampling_stride(labels.num_steps, has_byte_rows=labels.has_byte_rows)
    num = len(held_out.targets)
    parts = []
    for start in range(0, num, MAX_EVALUATED):
        # Padded to a fixed size, so that only one program is compiled.
        indices = np.resize(np.arange(start, min(start + MAX_EVALUATED, num)), MAX_EVALUATED)
        sample = gather_steps(held_out, indices, stride // 2)
        members = [
            _evaluate_member(member.network, sample, result.normaliser, config)
            for member in result.state.members
        ]
        parts.append([np.stack(each) for each in zip(*members, strict=True)])
    # [M, E] without the padding
    scores, losses = (np.concatenate(each, axis=1)[:, :num] for each in zip(*parts, strict=True))
    counted = np.arange(num)
    if config.objective != "preferences":
        # Spread evenly over the set.
        counted = np.linspace(0, num - 1, min(num, MAX_ORDERED)).astype(int)
    scores, targets = scores[:, counted], held_out.targets[counted]
    _, accuracy, num_labels, calibration = _accuracy(
        config, scores, targets, np.ones(scores.shape, bool)
    )
    return replace(
        result.report,
        held_out_loss=float(losses.mean()),
        held_out_accuracy=accuracy,
        held_out_labels=num_labels,
        calibration_error=calibration_error(calibration),
        calibration=calibration,
    )


def weight_decay(l2: float, rate: float, num_examples: int) -> float:
    """Return the share of each weight that decays in a gradient step.

    The loss is a mean over examples. A Gaussian prior of the weights, whose log-density adds to the
    log-likelihood of all examples, therefore counts in inverse proportion to their number.
    """
    return min(rate * l2 / num_examples, MAX_DECAY)


def subsampling_stride(segment_steps: int, *, has_byte_rows: bool) -> int:
    """Compute the subsampling stride within a segment.

    Args:
        segment_steps: steps of the segment.
        has_byte_rows: whether a CNN learns from them; see `InputSpace.has_byte_rows`.
    """
    sampled = SAMPLED_IMAGES if has_byte_rows else SAMPLED_STEPS
    return max(round(segment_steps / sampled), 1)


def subsampled_weights(
    num_steps: Int[np.ndarray, " segment"], num_weighted: int, stride: int, discount: float
) -> tuple[Float32[np.ndarray, "segment sample"], Float32[np.ndarray, " segment"]]:
    """Return the weights of every k-th step of segments, and what scales their sums.

    Args:
        num_steps: [C] number of steps of each segment.
        num_weighted: largest number of steps with a weight.
        stride: subsampling stride k.
        discount: discount factor within a segment.

    Returns:
        [C, T/k] weights, 0 after the end of a segment; and [C] factors with which the weights of
        the sampled steps sum to those of the whole segment.
    """
    time = np.arange(num_weighted)
    # R = sum_t discount^t r_t
    weights = discount ** time.astype(np.float32) * (time < num_steps[:, None])
    sampled = weights[:, ::stride]
    return sampled, weights.sum(-1) / sampled.sum(-1)


def draw_offset(num_steps: int, stride: int, rng: np.random.Generator) -> int:
    """Draw the first of the steps to sample, so that every step of a segment may be sampled.

    The samples cover a multiple of the stride. Where it lies in the segment is random too: steps
    are then sampled equally often, but for less than a stride at both ends.
    """
    num_places = num_steps % stride + 1
    return sum(divmod(int(rng.integers(num_places * stride)), stride))


def gather_steps(examples: Examples, indices: np.ndarray, offset: int) -> dict[str, np.ndarray]:
    """Gather examples with every k-th step of their segments.

    Consecutive steps are similar, so every k-th step with weight k estimates the same return at a
    k-th of the cost.

    Args:
        examples: comparisons or clips.
        indices: [...] indices of examples.
        offset: first step to use; see `draw_offset`.

    Returns:
        rows [..., S, T/k, F], weights [..., S, T/k], targets [...] and certainty [...].
    """
    labels, places = examples.labels, examples.places[indices]
    stride = subsampling_stride(labels.num_steps, has_byte_rows=labels.has_byte_rows)
    steps = slice(offset, offset + labels.num_steps // stride * stride, stride)
    # [2C, T, ...] views of the segments
    rows, weights = (each.reshape(-1, *each.shape[2:]) for each in (labels.rows, labels.weights))
    weights = weights[places]
    sampled = weights[..., steps]
    # Rescale so that the weights of the sampled steps sum to those of the whole segment.
    whole, part = weights.sum(-1, keepdims=True), sampled.sum(-1, keepdims=True)
    return {
        "rows": rows[:, steps][places],
        "weights": sampled * whole / np.maximum(part, 1e-9),
        "targets": examples.targets[indices],
        "certainty": examples.certainty[indices],
    }


def _mean_where(
    losses: Float[np.ndarray, "member batch"], is_selected: np.ndarray
) -> Float[np.ndarray, " member"]:
    """Average selected losses per member; average all where a member has none selected."""
    is_selected = np.where(is_selected.any(1, keepdims=True), is_selected, True)
    return (losses * is_selected).sum(1) / is_selected.sum(1)
