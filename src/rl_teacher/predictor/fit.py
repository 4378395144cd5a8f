"""Fitting the reward predictor to the labels.

M: members, B: comparisons of a minibatch, T: steps, F: features, K: gradient steps of one call.
"""

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float32

from rl_teacher.config import PredictorConfig
from rl_teacher.named_arrays import (
    NamedArrays,
    array_to_rng,
    arrays_to_tree,
    nest,
    part_of,
    rng_to_array,
    tree_to_arrays,
)
from rl_teacher.networks import ACTIVATIONS, MLP
from rl_teacher.predictor.ensemble import new_networks
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelSet
from rl_teacher.predictor.likelihood import preference_logit, preference_loss

CHUNK_STEPS = 8
"""Gradient steps of one compiled call."""
SAMPLED_STEPS = 30
"""Steps of a longer segment, about, that one gradient step looks at; see `_minibatches`."""
EVALUATED = 128
"""Comparisons, at most, on which the losses are measured after a chunk."""
PATIENCE = 8
"""Chunks without improvement after which a fit to convergence ends."""
IMPROVEMENT = 1e-3
"""Nats by which the held-out loss must fall to count as better."""
L2_RANGE = (1e-4, 1.0)
LOSS_RATIO_RANGE = (1.1, 1.5)
"""Held-out loss over training loss, kept in here by the weight decay (Christiano et al., 2.2.3)."""


@dataclass(frozen=True)
class FitReport:
    """What a fit reached, on a sample of the labels.

    Attributes:
        num_steps: gradient steps taken.
        loss: cross-entropy on the members' own samples, in nats.
        held_out_loss: on what each member never trained on.
        held_out_accuracy: share of decisive held-out labels predicted right; NaN without any.
        calibration_error: mean distance, over ten bins, of predicted chance and observed share.
        agreement: share of comparisons on which all members prefer the same side.
        l2: weight decay, mean over members.
    """

    num_steps: int
    loss: float
    held_out_loss: float
    held_out_accuracy: float
    calibration_error: float
    agreement: float
    l2: float

    @property
    def loss_ratio(self) -> float:
        """Held-out loss over training loss."""
        return self.held_out_loss / max(self.loss, 1e-6)

    def figures(self) -> dict[str, float | int]:
        """By name, to report."""
        return {
            "loss": self.loss,
            "held_out_loss": self.held_out_loss,
            "loss_ratio": self.loss_ratio,
            "held_out_accuracy": self.held_out_accuracy,
            "calibration_error": self.calibration_error,
            "agreement": self.agreement,
            "l2": self.l2,
        }


def _segment_rewards(
    network: MLP, rows: Array, weights: Array, dropout: float, key: Array
) -> Array:
    """[..., T] weighted rewards of one member; padded steps are 0."""
    if dropout == 0.0:
        return network(rows)[..., 0] * weights
    activate, _ = ACTIVATIONS[network.activation]
    keys = jax.random.split(key, len(network.weights))
    layers = list(zip(network.weights, network.biases, keys, strict=True))
    for weight, bias, layer_key in layers[:-1]:
        rows = activate(rows @ weight + bias)
        kept = jax.random.bernoulli(layer_key, 1 - dropout, rows.shape)
        rows = jnp.where(kept, rows / (1 - dropout), 0.0)
    weight, bias, _ = layers[-1]
    return (rows @ weight + bias)[..., 0] * weights


def _member_logits(network: MLP, rows: Array, weights: Array) -> Array:
    """[B] log-odds that the left clip is preferred, by one member, without dropout."""
    rewards = _segment_rewards(network, rows, weights, 0.0, jax.random.key(0))
    return preference_logit(rewards[:, 0], rewards[:, 1])


def _member_loss(network, minibatch, config, key):  # noqa: ANN001, ANN202
    rows, weights = minibatch["rows"], minibatch["weights"]
    rewards = _segment_rewards(network, rows, weights, config.dropout, key)
    logits = preference_logit(rewards[:, 0], rewards[:, 1])
    return preference_loss(logits, minibatch["targets"], config.error_rate).mean()


@functools.partial(jax.jit, static_argnames="config")
def _descend(networks, state, minibatches, input_moments, l2, key, config):  # noqa: ANN001, ANN202, PLR0913
    """K gradient steps of every member in one compiled call.

    Args:
        minibatches: rows [K, M, B, 2, T, F] as recorded, weights [K, M, B, 2, T] and targets
            [K, M, B].
        input_moments: mean [F] and std [F] that the rows are scaled by.
        l2: [M] decoupled weight decay of each member.
    """
    optimiser = optax.scale_by_adam()
    mean, std = input_moments
    minibatches = minibatches | {"rows": (minibatches["rows"] - mean) / std}

    def step(carry, minibatch):  # noqa: ANN001, ANN202
        networks, state, key = carry
        key, step_key = jax.random.split(key)
        member_keys = jax.random.split(step_key, config.ensemble_size)
        gradient = jax.grad(functools.partial(_member_loss, config=config))
        gradients = jax.vmap(lambda n, m, k: gradient(n, m, key=k))(
            networks, minibatch, member_keys
        )
        updates, state = optimiser.update(gradients, state)

        def move(parameter: Array, update: Array) -> Array:
            decay = l2.reshape(-1, *[1] * (parameter.ndim - 1)) * parameter
            return parameter - config.learning_rate * (update + decay)

        return (jax.tree.map(move, networks, updates), state, key), None

    (networks, state, key), _ = jax.lax.scan(step, (networks, state, key), minibatches)
    return networks, state, key


@functools.partial(jax.jit, static_argnames="config")
def _evaluate(networks, rows, weights, targets, input_moments, config):  # noqa: ANN001, ANN202
    """[M, B] every member's log-odds, and [M, B] their cross-entropy, in nats."""
    mean, std = input_moments
    rows = (rows - mean) / std
    logits = jax.vmap(lambda network: _member_logits(network, rows, weights))(networks)
    return logits, preference_loss(logits, targets, config.error_rate)


@dataclass(frozen=True)
class Fitted:
    """What a fit hands to the predictor.

    Attributes:
        networks: the M networks, stacked.
        input_mean: [F] what input rows are scaled by.
        input_std: [F].
        report: how good they are.
    """

    networks: MLP
    input_mean: Float32[np.ndarray, " features"]
    input_std: Float32[np.ndarray, " features"]
    report: FitReport


class Fitter:
    """Fits an ensemble; keeps what a warm start needs: weights, optimiser, decay, randomness."""

    def __init__(self, space: InputSpace, config: PredictorConfig, *, seed: int) -> None:
        self._config = config
        self._rng = np.random.default_rng([seed, 4])
        self._key = jax.random.PRNGKey(seed)
        self._networks = new_networks(space, config, seed)
        self._state = jax.jit(optax.scale_by_adam().init)(self._networks)
        self._l2 = np.full(config.ensemble_size, config.l2, np.float32)
        self._input_moments = _input_moments(None, space.num_features)

    def fit(self, labels: LabelSet, max_steps: int, *, patience: int = PATIENCE) -> Fitted:
        """Descend until the held-out loss stops improving, or `max_steps` are done.

        Ends with the weights that did best on held-out labels.

        Args:
            labels: at least one.
            max_steps: gradient steps at most; at least one chunk is done.
            patience: chunks without improvement after which the fit ends.
        """
        self._input_moments = _input_moments(labels, 0)
        sample = self._rng.permutation(len(labels))[:EVALUATED]
        best = self._descend_chunk(labels, sample, CHUNK_STEPS)
        num_steps, since_best = CHUNK_STEPS, 0
        while since_best < patience and num_steps < max_steps:
            num_steps += CHUNK_STEPS
            latest = self._descend_chunk(labels, sample, num_steps)
            is_better = latest.report.held_out_loss < best.report.held_out_loss - IMPROVEMENT
            best, since_best = (latest, 0) if is_better else (best, since_best + 1)
        self._networks = best.networks
        return replace(best, report=replace(best.report, num_steps=num_steps))

    def _descend_chunk(self, labels: LabelSet, sample: np.ndarray, num_steps: int) -> Fitted:
        """One chunk of gradient steps, and what it reached on a sample of the labels."""
        self._networks, self._state, self._key = _descend(
            self._networks,
            self._state,
            self._minibatches(labels),
            self._input_moments,
            self._l2,
            self._key,
            self._config,
        )
        return Fitted(self._networks, *self._input_moments, self._report(labels, sample, num_steps))

    def _minibatches(self, labels: LabelSet) -> dict[str, np.ndarray]:
        """K minibatches for every member, drawn from its own bootstrap sample.

        Of a long segment only every k-th step is looked at, from a random first one, and each
        counts for k: consecutive steps are much alike, so this estimates the same return at a
        k-th of the cost.
        """
        shape = (CHUNK_STEPS, self._config.batch_size)
        chances = labels.counts + 1e-9  # a member that drew nothing yet trains on anything
        cumulative = np.cumsum(chances / chances.sum(1, keepdims=True), axis=1)
        indices = np.stack(
            [np.searchsorted(member[:-1], self._rng.random(shape)) for member in cumulative], axis=1
        )
        stride = stride_of(labels.num_steps)
        steps = _every(stride, int(self._rng.integers(stride)), labels.num_steps)
        return _looked_at(labels, indices, steps)

    def _report(self, labels: LabelSet, sample: np.ndarray, num_steps: int) -> FitReport:
        """Measure on a sample, and move the weight decay towards the paper's band."""
        logits, losses = self._evaluate(labels, sample)
        targets, held_out = labels.targets[sample], labels.counts[:, sample] == 0
        loss, held_out_loss = _mean_where(losses, ~held_out), _mean_where(losses, held_out)
        self._adapt_l2(loss, held_out_loss)
        accuracy, calibration_error = _accuracy_and_calibration(
            logits, targets, held_out, self._config.error_rate
        )
        return FitReport(
            num_steps=num_steps,
            loss=float(loss.mean()),
            held_out_loss=float(held_out_loss.mean()),
            held_out_accuracy=accuracy,
            calibration_error=calibration_error,
            agreement=_agreement(logits),
            l2=float(self._l2.mean()),
        )

    def _evaluate(
        self, labels: LabelSet, sample: np.ndarray
    ) -> tuple[Float[np.ndarray, "member batch"], Float[np.ndarray, "member batch"]]:
        """Log-odds and losses on a sample; padded to one shape, so that it compiles once."""
        stride = stride_of(labels.num_steps)
        steps = _every(stride, stride // 2, labels.num_steps)
        batch = _looked_at(labels, np.resize(sample, EVALUATED), steps)
        logits, losses = _evaluate(
            self._networks,
            batch["rows"],
            batch["weights"],
            batch["targets"],
            self._input_moments,
            self._config,
        )
        return np.asarray(logits)[:, : len(sample)], np.asarray(losses)[:, : len(sample)]

    def _adapt_l2(
        self, loss: Float[np.ndarray, " member"], held_out_loss: Float[np.ndarray, " member"]
    ) -> None:
        low, high = LOSS_RATIO_RANGE
        ratio = held_out_loss / np.maximum(loss, 1e-6)
        factor = np.where(ratio > high, 1.1, np.where(ratio < low, 1 / 1.1, 1.0))
        self._l2 = np.clip(self._l2 * factor, *L2_RANGE).astype(np.float32)

    def state(self) -> NamedArrays:
        """Everything needed to go on exactly."""
        own = {
            "rng": rng_to_array(self._rng),
            "key": np.asarray(self._key),
            "l2": self._l2,
            "input_mean": self._input_moments[0],
            "input_std": self._input_moments[1],
        }
        trees = tree_to_arrays((self._networks, self._state))
        return nest({"self": own, "networks": trees})

    def load_state(self, state: NamedArrays) -> None:
        """Go on from a saved state."""
        array_to_rng(self._rng, state["self/rng"])
        self._key = jnp.asarray(state["self/key"])
        self._l2 = state["self/l2"]
        self._input_moments = state["self/input_mean"], state["self/input_std"]
        trees = (self._networks, self._state)
        self._networks, self._state = arrays_to_tree(trees, part_of(state, "networks"))


def _input_moments(
    labels: LabelSet | None, num_features: int
) -> tuple[Float32[np.ndarray, " features"], Float32[np.ndarray, " features"]]:
    """Mean and std of all labelled steps; 0 and 1 before there are any."""
    if labels is None:
        return np.zeros(num_features, np.float32), np.ones(num_features, np.float32)
    moments = labels.input_moments
    return moments.mean.astype(np.float32), (moments.std + 1e-3).astype(np.float32)


def stride_of(segment_steps: int) -> int:
    """Of how many consecutive steps of a segment one is looked at."""
    return max(round(segment_steps / SAMPLED_STEPS), 1)


def _every(stride: int, first: int, num_steps: int) -> slice:
    """Every k-th step from `first`; equally many, whichever is first."""
    return slice(first, first + num_steps // stride * stride, stride)


def _looked_at(labels: LabelSet, indices: np.ndarray, steps: slice) -> dict[str, np.ndarray]:
    """Comparisons by their numbers, with some of their steps, which count for all of them."""
    weights = labels.weights[indices]
    sampled = weights[..., steps]
    whole, part = weights.sum(-1, keepdims=True), sampled.sum(-1, keepdims=True)
    return {
        "rows": labels.rows[:, :, steps][indices],
        "weights": sampled * whole / np.maximum(part, 1e-9),
        "targets": labels.targets[indices],
    }


def _mean_where(
    losses: Float[np.ndarray, "member batch"], chosen: np.ndarray
) -> Float[np.ndarray, " member"]:
    """[M] mean over the chosen; over all where a member has none chosen."""
    chosen = np.where(chosen.any(1, keepdims=True), chosen, True)
    return (losses * chosen).sum(1) / chosen.sum(1)


def _agreement(logits: Float[np.ndarray, "member batch"]) -> float:
    votes = (logits > 0).mean(0)
    return float(np.mean((votes == 0) | (votes == 1)))


def _accuracy_and_calibration(
    logits: Float[np.ndarray, "member batch"],
    targets: Float32[np.ndarray, " batch"],
    held_out: np.ndarray,
    error_rate: float,
) -> tuple[float, float]:
    """Accuracy and expected calibration error (Guo et al. 2017) on decisive held-out labels."""
    counted = held_out & (targets != 0.5)
    if not counted.any():
        return float("nan"), float("nan")
    logits, left = logits[counted], np.broadcast_to(targets == 1.0, counted.shape)[counted]
    sigmoid = 0.5 * (1 + np.tanh(0.5 * logits))
    chance = (1 - error_rate) * sigmoid + error_rate / 2
    accuracy = np.mean((logits > 0) == left)
    bins = np.minimum((chance * 10).astype(int), 9)
    gaps = [
        abs(chance[bins == b].mean() - left[bins == b].mean()) * np.mean(bins == b)
        for b in np.unique(bins)
    ]
    return float(accuracy), float(sum(gaps))
