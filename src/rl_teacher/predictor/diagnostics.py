"""Diagnostics of a reward predictor: fit report, calibration, over-estimation, ranked clips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64

from rl_teacher.common.sigmoid import sigmoid

MAX_RANKED = 4
"""Clips listed as ranked highest, and as many as ranked lowest."""
MAX_COMPARISONS = 500
"""Newest labelled comparisons whose predicted returns are reported."""
NUM_BINS = 10
"""Calibration bins of equal width over probabilities 0 to 1."""


@dataclass(frozen=True)
class CalibrationBin:
    """Held-out labels with similar predicted probabilities that left is preferred.

    Attributes:
        predicted: mean predicted probability.
        observed: share of labels that prefer left.
        num: number of labels, each counted once per member that held it out.
    """

    predicted: float
    observed: float
    num: int


@dataclass(frozen=True)
class FitReport:
    """Result of a fit, measured on a sample of the labels.

    Attributes:
        num_steps: gradient steps taken.
        loss: cross-entropy in nats on the examples that each member trains on; squared error with
            the objective `rank`.
        held_out_loss: the same on the examples that each member never trained on, or on a held-out
            set that no member trains on.
        held_out_accuracy: share of decisive held-out labels predicted correctly, or of pairs of
            held-out clips that are ordered correctly; NaN if none.
        held_out_labels: number of different labels, or clips, that the accuracy rests on.
        calibration_error: expected calibration error over ten bins; NaN with the objective `rank`,
            which predicts no probabilities.
        agreement: share of comparisons, or of pairs of clips, on which all members prefer the same
            side.
        calibration: non-empty bins by increasing probability.
    """

    num_steps: int
    loss: float
    held_out_loss: float
    held_out_accuracy: float
    held_out_labels: int
    calibration_error: float
    agreement: float
    calibration: tuple[CalibrationBin, ...] = ()

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "FitReport":
        """Restore a report from `dataclasses.asdict`, through JSON."""
        bins = tuple(CalibrationBin(**each) for each in saved["calibration"])
        return cls(**{**saved, "calibration": bins})

    def metrics(self) -> dict[str, float | int]:
        """Return the metrics to log, by name."""
        return {
            "loss": self.loss,
            "held_out_loss": self.held_out_loss,
            "held_out_accuracy": self.held_out_accuracy,
            "held_out_labels": self.held_out_labels,
            "calibration_error": self.calibration_error,
            "agreement": self.agreement,
        }


def member_agreement(logits: Float[np.ndarray, "member batch"]) -> float:
    """Compute the share of comparisons on which all members prefer the same side."""
    votes = (logits > 0).mean(0)
    return float(np.mean((votes == 0) | (votes == 1)))


def ordered_pairs(
    scores: Float[np.ndarray, "member clip"],
    ranks: Float[np.ndarray, " clip"],
    is_held_out: Bool[np.ndarray, "member clip"],
) -> tuple[
    Float[np.ndarray, "member pair"], Float[np.ndarray, " pair"], Bool[np.ndarray, "member pair"]
]:
    """Convert ranked clips to all comparisons between two of them.

    Args:
        scores: [M, N] predicted scores.
        ranks: [N] known order: higher is better.
        is_held_out: [M, N] clips that a member was not trained on.

    Returns:
        [M, P] differences of the scores, [P] targets as of labels (1, 0, and 1/2 for equal ranks),
        and [M, P] whether both clips are held out.
    """
    left, right = np.triu_indices(len(ranks), 1)
    targets = 0.5 + 0.5 * np.sign(ranks[left] - ranks[right])
    return (
        scores[:, left] - scores[:, right],
        targets,
        is_held_out[:, left] & is_held_out[:, right],
    )


def accuracy_and_calibration(
    logits: Float[np.ndarray, " label"],
    targets: Float64[np.ndarray, " label"],
    error_rate: float,
) -> tuple[float, tuple[CalibrationBin, ...]]:
    """Compute accuracy and calibration bins over decisive held-out labels.

    Where labelers disagree, the side that more of them prefer counts as correct.

    Args:
        logits: [N] predicted log-odds that left is preferred.
        targets: [N] labels, none of them 1/2.
        error_rate: probability of a random answer that the predictor assumes.

    Returns:
        Accuracy (NaN without labels) and the non-empty bins.
    """
    if not len(targets):
        return float("nan"), ()
    # P(left) = (1 - e) * sigmoid(x) + e / 2, as in the likelihood
    probability = (1 - error_rate) * sigmoid(logits) + error_rate / 2
    accuracy = np.mean((logits > 0) == (targets > 0.5))
    bin_of = np.minimum((probability * NUM_BINS).astype(int), NUM_BINS - 1)
    bins = tuple(
        CalibrationBin(
            float(probability[bin_of == b].mean()),
            float(targets[bin_of == b].mean()),
            int(np.sum(bin_of == b)),
        )
        for b in np.unique(bin_of)
    )
    return float(accuracy), bins


def calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Compute the expected calibration error (Guo et al. 2017); NaN without labels."""
    num = sum(each.num for each in bins)
    # ECE = sum_b (n_b / n) * |predicted_b - observed_b|
    gaps = [abs(each.predicted - each.observed) * (each.num / num) for each in bins]
    return sum(gaps) if gaps else float("nan")


@dataclass(frozen=True)
class RewardReference:
    """Mean and standard deviation of predicted and true rewards over steps of labelled segments.

    Attributes:
        predicted_mean: [M] of each member's raw rewards.
        predicted_std: [M], positive.
        true_mean: of the environment's rewards.
        true_std: positive.
    """

    predicted_mean: Float[np.ndarray, " member"]
    predicted_std: Float[np.ndarray, " member"]
    true_mean: float
    true_std: float

    @classmethod
    def measure(
        cls, members: Float[np.ndarray, "member step"], true: Float[np.ndarray, " step"]
    ) -> "RewardReference | None":
        """Measure the reference; return None if any reward is constant over the steps.

        Args:
            members: [M, S] raw predicted rewards of labelled steps.
            true: [S] the environment's rewards of the same steps.
        """
        if not len(true):
            return None
        members, true = members.astype(np.float64), true.astype(np.float64)
        reference = cls(members.mean(1), members.std(1), float(true.mean()), float(true.std()))
        is_constant = not reference.true_std > 0 or not (reference.predicted_std > 0).all()
        return None if is_constant else reference

    def over_estimation(
        self, members: Float[np.ndarray, "member step"], true: Float[np.ndarray, " step"]
    ) -> float:
        """Compute by how much more the predicted reward has risen than the true one.

        Both are standardised by the reference, as Gao et al. 2023 (Scaling laws for reward model
        overoptimization, section 2) make proxy and gold reward comparable: labels determine
        neither the zero nor the unit of a reward.

        Args:
            members: [M, S] raw predicted rewards of the current policy's steps.
            true: [S] the environment's rewards of the same steps.

        Returns:
            The difference in standard deviations; positive means over-estimation.
        """
        # 1/M sum_m (E[r_m] - mean_m) / std_m - (E[r] - mean) / std
        predicted = (members.mean(1) - self.predicted_mean) / self.predicted_std
        return float(predicted.mean() - (true.mean() - self.true_mean) / self.true_std)

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint."""
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> "RewardReference | None":
        """Restore a reference from the arrays of a checkpoint; None if there are none."""
        if not state:
            return None
        true_mean, true_std = float(state["true_mean"]), float(state["true_std"])
        return cls(state["predicted_mean"], state["predicted_std"], true_mean, true_std)


@dataclass(frozen=True)
class Diagnostics:
    """Results of the latest fit that the pages show.

    Attributes:
        predicted_returns: predicted return of each compared segment, by content hash; mean rewards
            with the objective `rank`.
        calibration: bins of held-out labels: predicted probability, observed share, count.
        comparisons: the same of the left and the right segment of each labelled comparison, by
            comparison id, the newest last.
        num_fits: completed fits.
        num_labels: labels of the latest fit.
    """

    predicted_returns: Mapping[str, float]
    calibration: Sequence[Mapping[str, float]]
    comparisons: Mapping[int, tuple[float, float]]
    num_fits: int
    num_labels: int

    def to_json(self, step: int) -> dict[str, Any]:
        """Return plain values for the page; no clip is listed as both highest and lowest.

        Args:
            step: environment steps of training done.
        """
        by_return = sorted(self.predicted_returns.items(), key=lambda each: (each[1], each[0]))
        num = min(MAX_RANKED, len(by_return) // 2)
        newest = list(self.comparisons.items())[-MAX_COMPARISONS:]
        ranked = [{"clip": clip, "predicted_return": round(value, 3)} for clip, value in by_return]
        return {
            "step": step,
            "best": ranked[len(ranked) - num :][::-1],
            "least": ranked[:num],
            "calibration": list(self.calibration),
            "comparisons": [
                [comparison_id, round(left, 4), round(right, 4)]
                for comparison_id, (left, right) in newest
            ],
            "num_fits": self.num_fits,
            "num_labels": self.num_labels,
        }
