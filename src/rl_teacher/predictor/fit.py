"""Fitting the reward predictor to the labels.

M: members, B: comparisons of a minibatch, T: steps, F: features, K: gradient steps of one call.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Float32, Float64, Int64

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
from rl_teacher.nn.encoders import PredictorNetwork
from rl_teacher.predictor.ensemble import unscaled
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LEAST_STD, LabelSet
from rl_teacher.predictor.likelihood import preference_logit, preference_loss
from rl_teacher.predictor.networks import (
    RewardNetwork,
    new_networks,
    rewards_while_fitting,
    stacked,
    unstacked,
    with_statistics,
)

CHUNK_STEPS = 8
"""Gradient steps of one compiled call."""
SAMPLED_STEPS = 30
"""Steps of a longer segment, about, that one gradient step looks at; see `looked_at`."""
SAMPLED_PICTURES = 8
"""The same where steps show pictures, each of which costs a hundred times as much."""
EVALUATED = 128
"""Comparisons, at most, on which the losses are measured after a chunk."""
PATIENCE = 8
"""Chunks without improvement after which a fit to convergence ends."""
PATIENCE_WITH_DROPOUT = 24
"""The same with dropout, which begins by improving nothing."""
IMPROVEMENT = 1e-3
"""Nats by which the held-out loss must fall to count as better."""
TRIAL_STEPS = 2_000
"""Gradient steps, at most, of finding out once more what labels are predicted better from."""
L2_RANGE = (1e-4, 1.0)
LOSS_RATIO_RANGE = (1.1, 1.5)
"""Held-out loss over training loss, kept in here by the weight decay (Christiano et al., 2.2.3)."""


NUM_BINS = 10
NEVER = 0
"""As the number of labels at which something is decided."""


@dataclass(frozen=True)
class CalibrationBin:
    """Held-out labels for which a predictor saw about the same chance that left is preferred.

    Attributes:
        predicted: that chance, on average.
        observed: how often left was preferred.
        num: labels, each counted for every member that held it out.
    """

    predicted: float
    observed: float
    num: int


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
        calibration: the bins, from the lowest chance up; those without a label are left out.
    """

    num_steps: int
    loss: float
    held_out_loss: float
    held_out_accuracy: float
    calibration_error: float
    agreement: float
    l2: float
    calibration: tuple[CalibrationBin, ...] = ()

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "FitReport":
        """From what `asdict` gave, through JSON."""
        bins = tuple(CalibrationBin(**each) for each in saved.get("calibration", ()))
        return cls(**{**saved, "calibration": bins})

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


def _logits(network: RewardNetwork, batch: Mapping[str, Array]) -> Array:
    """[B] log-odds that the left clip is preferred, by one member."""
    rewards = network(batch["rows"])[..., 0] * batch["weights"]
    return preference_logit(rewards[:, 0], rewards[:, 1])


def _loss(
    network: RewardNetwork, batch: Mapping[str, Array], config: PredictorConfig, key: Array
) -> tuple[Array, RewardNetwork]:
    """Of a minibatch, and the network with its running statistics moved on."""
    rewards, network = rewards_while_fitting(network, batch["rows"], config.dropout, key)
    rewards = rewards * batch["weights"]
    logits = preference_logit(rewards[:, 0], rewards[:, 1])
    return preference_loss(logits, batch["targets"], config.error_rate).mean(), network


@functools.partial(jax.jit, static_argnames="config")
def _improve(network, state, minibatches, sample, input_moments, l2, key, config):  # noqa: ANN001, ANN202, PLR0913
    """K gradient steps of one member in one compiled call, and what they reached.

    Args:
        minibatches: rows [K, B, 2, T, F] as recorded, weights [K, B, 2, T] and targets [K, B].
        sample: comparisons that the outcome is measured on, with the same names and no K.
        input_moments: mean [F] and std [F] that the rows are scaled by; pictures are not.
        l2: decoupled weight decay.

    Returns:
        The network, the optimiser's state and the key to go on with, and of every comparison of
        the sample the log-odds [B] and their cross-entropy [B], in nats.
    """
    optimiser = optax.scale_by_adam()
    if len(input_moments[0]):
        mean, std = input_moments
        minibatches, sample = (
            batch | {"rows": (batch["rows"] - mean) / std} for batch in (minibatches, sample)
        )

    def step(carry, minibatch):  # noqa: ANN001, ANN202
        network, state, key = carry
        key, step_key = jax.random.split(key)
        gradients, seen = jax.grad(_loss, has_aux=True)(network, minibatch, config, step_key)
        updates, state = optimiser.update(gradients, state)

        def move(parameter: Array, update: Array) -> Array:
            return parameter - config.learning_rate * (update + l2 * parameter)

        return (with_statistics(jax.tree.map(move, network, updates), seen), state, key), None

    (network, state, key), _ = jax.lax.scan(step, (network, state, key), minibatches)
    logits = _logits(network, sample)
    return (
        network,
        state,
        key,
        logits,
        preference_loss(logits, sample["targets"], config.error_rate),
    )


@dataclass(frozen=True)
class Fitted:
    """What a fit hands to the predictor.

    Attributes:
        networks: the M networks, stacked.
        input_mean: [F] what input rows are scaled by.
        input_std: [F].
        report: how good they are.
    """

    networks: RewardNetwork
    input_mean: Float32[np.ndarray, " features"]
    input_std: Float32[np.ndarray, " features"]
    report: FitReport


class _Member(NamedTuple):
    """What a warm start of one member needs."""

    network: RewardNetwork
    state: optax.OptState
    key: Array


class Fitter:
    """Fits an ensemble; keeps what a warm start needs: weights, optimiser, decay, randomness.

    Note: members know nothing of each other, so each has its own compiled call, and the calls run
    side by side. One call for all of them, by vmap, keeps to one core and takes 1.6 times as long.

    Attributes:
        told: [F] which numbers of an input row the networks are told.
    """

    def __init__(
        self,
        space: InputSpace,
        config: PredictorConfig,
        *,
        seed: int,
        told: Bool[np.ndarray, " features"] | None = None,
    ) -> None:
        """Begin with random networks.

        Args:
            space: what input rows are made of.
            config: what is fitted, and how.
            seed: of networks, minibatches and samples.
            told: as the attribute; None: as the config says.
        """
        self._space, self._config, self._seed = space, config, seed
        decides = told is None and config.image_encoder == "auto" and space.tells_places
        self._decide_at = 1 if decides else NEVER
        self.told = self._told_with(config.image_encoder) if told is None else told
        self._rng = np.random.default_rng([seed, 4])
        networks = new_networks(space, config, seed)
        begin = jax.jit(optax.scale_by_adam().init)
        keys = jax.random.split(jax.random.PRNGKey(seed), config.ensemble_size)
        self._members = [
            _Member(network, begin(network), key)
            for network, key in zip(unstacked(networks), keys, strict=True)
        ]
        self._l2 = np.full(config.ensemble_size, config.l2, np.float32)
        self._input_moments = unscaled(space)
        self._cores = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fit")

    def warm_start_from(
        self,
        networks: RewardNetwork,
        input_mean: Float32[np.ndarray, " features"],
        input_std: Float32[np.ndarray, " features"],
    ) -> None:
        """Have networks, and the scales of their inputs, that were fitted before."""
        begin = jax.jit(optax.scale_by_adam().init)
        self._members = [
            member._replace(network=network, state=begin(network))
            for member, network in zip(self._members, unstacked(networks), strict=True)
        ]
        self._input_moments = input_mean, input_std
        self.told, self._decide_at = np.isfinite(input_std), NEVER

    def fit(self, labels: LabelSet, max_steps: int, *, patience: int | None = None) -> Fitted:
        """Descend until the held-out loss stops improving, or `max_steps` are done.

        Ends with the weights that did best on held-out labels.

        Args:
            labels: at least one.
            max_steps: gradient steps at most; at least one chunk is done.
            patience: chunks without improvement after which the fit ends; None: as many as a fit
                to convergence needs.
        """
        if patience is None:
            patience = PATIENCE_WITH_DROPOUT if self._config.dropout else PATIENCE
        if self._decide_at != NEVER and labels.num_added >= self._decide_at:
            changed = self._decide(labels, max_steps)
            if changed is not None:
                return changed
        self._input_moments = self._moments_of(labels)
        sample = self._rng.permutation(len(labels))[:EVALUATED]
        best_networks, best = self._descend_chunk(labels, sample)
        num_steps, since_best = CHUNK_STEPS, 0
        while since_best < patience and num_steps < max_steps:
            num_steps += CHUNK_STEPS
            networks, report = self._descend_chunk(labels, sample)
            if report.held_out_loss < best.held_out_loss - IMPROVEMENT:
                best_networks, best, since_best = networks, report, 0
            else:
                since_best += 1
        self._members = [
            member._replace(network=network)
            for member, network in zip(self._members, best_networks, strict=True)
        ]
        report = replace(best, num_steps=num_steps)
        return Fitted(stacked(best_networks), *self._input_moments, report)

    def _decide(self, labels: LabelSet, max_steps: int) -> Fitted | None:
        """Tell the networks places and actions, or lines: what predicts held-out labels better.

        Actions are not told beside lines. Where what was done has no bearing on the reward, chance
        still makes some of it look better, and an agent does that at once and nothing else.

        This is found out with the first labels, and again whenever there are twice as many.

        Returns:
            What was fitted anew, where it is the first fit or is to be otherwise than it was.
        """
        is_first, self._decide_at = self._decide_at == 1, 2 * labels.num_added
        num_steps = max_steps if is_first else TRIAL_STEPS
        trials = [self._trial(network) for network in ("places", "lines")]
        outcomes = [trial.fit(labels, num_steps) for trial in trials]
        for trial in trials:
            trial.close()
        best = int(np.argmin([outcome.report.held_out_loss for outcome in outcomes]))
        if (trials[best].told == self.told).all() and not is_first:
            return None
        self._become(trials[best])
        return outcomes[best]

    def _trial(self, network: PredictorNetwork) -> "Fitter":
        return Fitter(self._space, self._config, seed=self._seed, told=self._told_with(network))

    def _told_with(self, network: PredictorNetwork) -> Bool[np.ndarray, " features"]:
        return self._space.told(network, sees_actions=not self._config.ignores_actions)

    def _become(self, trial: "Fitter") -> None:
        """Go on from where a trial is."""
        self.told = trial.told
        self._members, self._l2 = trial._members, trial._l2
        self._input_moments = trial._input_moments

    def _moments_of(
        self, labels: LabelSet
    ) -> tuple[Float32[np.ndarray, " features"], Float32[np.ndarray, " features"]]:
        """Mean of all labelled steps, and the spread over which each number has its weight.

        Note: what is not to be told is as if infinitely spread: always in the middle.
        """
        moments = labels.input_moments
        spread = ((moments.std + LEAST_STD) / labels.input_weights).astype(np.float32)
        spread[~self.told] = np.inf
        return moments.mean.astype(np.float32), spread

    def _descend_chunk(
        self, labels: LabelSet, sample: np.ndarray
    ) -> tuple[list[RewardNetwork], FitReport]:
        """One chunk of gradient steps, and what it reached on a sample of the labels."""
        stride = stride_of(labels.num_steps, are_pictures=labels.are_pictures)
        first = int(self._rng.integers(stride))
        held_out = looked_at(labels, np.resize(sample, EVALUATED), stride // 2)

        def improve(member: _Member, indices: np.ndarray, l2: np.float32) -> tuple:
            minibatches = looked_at(labels, indices, first)
            moments = self._input_moments
            # Note: waits here, so that a thread is busy until its member is done.
            return jax.block_until_ready(
                _improve(*member[:2], minibatches, held_out, moments, l2, member.key, self._config)
            )

        outcomes = self._cores.map(improve, self._members, self._draws(labels), self._l2)
        *members, logits, losses = zip(*outcomes, strict=True)
        self._members = [_Member(*member) for member in zip(*members, strict=True)]
        evaluated = (np.stack(each)[:, : len(sample)] for each in (logits, losses))
        report = self._report(labels, sample, *evaluated)
        return [member.network for member in self._members], report

    def _draws(self, labels: LabelSet) -> Int64[np.ndarray, "member step batch"]:
        """[M, K, B] numbers of the labels of K minibatches, from each member's bootstrap sample."""
        shape = (CHUNK_STEPS, self._config.batch_size)
        chances = labels.counts + 1e-9  # a member that drew nothing yet trains on anything
        cumulative = np.cumsum(chances / chances.sum(1, keepdims=True), axis=1)
        return np.stack(
            [np.searchsorted(member[:-1], self._rng.random(shape)) for member in cumulative]
        )

    def _report(
        self,
        labels: LabelSet,
        sample: np.ndarray,
        logits: Float[np.ndarray, "member batch"],
        losses: Float[np.ndarray, "member batch"],
    ) -> FitReport:
        """What was measured on a sample; moves the weight decay towards the paper's band."""
        targets, held_out = labels.targets[sample], labels.counts[:, sample] == 0
        loss, held_out_loss = _mean_where(losses, ~held_out), _mean_where(losses, held_out)
        self._adapt_l2(loss, held_out_loss)
        counted = held_out & (targets != 0.5)
        accuracy, calibration = _accuracy_and_calibration(
            logits[counted],
            np.broadcast_to(targets, counted.shape)[counted].astype(np.float64),
            self._config.error_rate,
        )
        return FitReport(
            num_steps=CHUNK_STEPS,
            loss=float(loss.mean()),
            held_out_loss=float(held_out_loss.mean()),
            held_out_accuracy=accuracy,
            calibration_error=_calibration_error(calibration),
            agreement=_agreement(logits),
            l2=float(self._l2.mean()),
            calibration=calibration,
        )

    def _adapt_l2(
        self, loss: Float[np.ndarray, " member"], held_out_loss: Float[np.ndarray, " member"]
    ) -> None:
        low, high = LOSS_RATIO_RANGE
        ratio = held_out_loss / np.maximum(loss, 1e-6)
        factor = np.where(ratio > high, 1.1, np.where(ratio < low, 1 / 1.1, 1.0))
        self._l2 = np.clip(self._l2 * factor, *L2_RANGE).astype(np.float32)

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        own = {
            "rng": rng_to_array(self._rng),
            "l2": self._l2,
            "told": self.told,
            "decide_at": np.asarray(self._decide_at),
            "input_mean": self._input_moments[0],
            "input_std": self._input_moments[1],
        }
        return nest({"self": own, "members": tree_to_arrays(self._members)})

    def load_state(self, state: StateDict) -> None:
        """Go on from a saved state."""
        array_to_rng(self._rng, state["self/rng"])
        self._l2 = state["self/l2"]
        if "self/decide_at" in state:
            self._decide_at = int(state["self/decide_at"])
            self.told = state["self/told"]
        self._input_moments = state["self/input_mean"], state["self/input_std"]
        self._members = arrays_to_tree(self._members, part_of(state, "members"))

    def close(self) -> None:
        """Let go of threads."""
        self._cores.shutdown()


def stride_of(segment_steps: int, *, are_pictures: bool) -> int:
    """Of how many consecutive steps of a segment one is looked at."""
    sampled = SAMPLED_PICTURES if are_pictures else SAMPLED_STEPS
    return max(round(segment_steps / sampled), 1)


def looked_at(labels: LabelSet, indices: np.ndarray, first: int) -> dict[str, np.ndarray]:
    """Comparisons by their numbers [...]: rows [..., 2, T/k, F], weights, targets.

    Of a long segment only every k-th step is looked at, from the given first one, and each
    counts for k: consecutive steps are much alike, so this estimates the same return at a k-th
    of the cost.
    """
    stride = stride_of(labels.num_steps, are_pictures=labels.are_pictures)
    steps = slice(first, first + labels.num_steps // stride * stride, stride)
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
    logits: Float[np.ndarray, " counted"],
    targets: Float64[np.ndarray, " counted"],
    error_rate: float,
) -> tuple[float, tuple[CalibrationBin, ...]]:
    """Of held-out labels that prefer a side: share of right guesses, and chances by size.

    Where labelers disagree, the side that more of them prefer is the right guess.
    """
    if not len(targets):
        return float("nan"), ()
    sigmoid = 0.5 * (1 + np.tanh(0.5 * logits))
    chance = (1 - error_rate) * sigmoid + error_rate / 2
    accuracy = np.mean((logits > 0) == (targets > 0.5))
    bin_of = np.minimum((chance * NUM_BINS).astype(int), NUM_BINS - 1)
    bins = tuple(
        CalibrationBin(
            float(chance[bin_of == b].mean()),
            float(targets[bin_of == b].mean()),
            int(np.sum(bin_of == b)),
        )
        for b in np.unique(bin_of)
    )
    return float(accuracy), bins


def _calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Expected calibration error (Guo et al. 2017); NaN without any labels."""
    num = sum(each.num for each in bins)
    gaps = [abs(each.predicted - each.observed) * (each.num / num) for each in bins]
    return sum(gaps) if gaps else float("nan")
