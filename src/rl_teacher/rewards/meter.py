"""Measurements of a reward predictor while it is fitted and used.

M: ensemble members, T: steps of a rollout, N: environments.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import nan

import numpy as np
from jaxtyping import Float, Float32

from rl_teacher.common.state_dict import StateDict, array_to_text, nest, part_of, text_to_array
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import FitReport, RewardReference
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import gather_steps
from rl_teacher.predictor.labels import EQUAL, LabelSet
from rl_teacher.quality.labelers import Share
from rl_teacher.rewards.source import Metrics

FRESH_LABELS = 40
"""Newest labels whose agreement with the predictor is logged."""
RECENT_ROLLOUTS = 16
"""Latest rollouts over which the correlation of predicted and true rewards is averaged."""
SPARSE = 0.1
"""Share of steps with a true reward other than 0 up to which its correlation with the predicted one
is no evidence: what earns a point may be right, and rewarded, seconds before it."""
REFERENCE_COMPARISONS = 32
"""Labelled comparisons on which predicted and true rewards are standardised after a fit."""


class PredictorMeter:
    """Measures a predictor on new labels, and on the steps of the policy.

    Attributes:
        report: of the latest fit; None before the first.
    """

    def __init__(self, predictor: RewardPredictor) -> None:
        self.report: FitReport | None = None
        self._predictor = predictor
        self._agreed: deque[bool] = deque(maxlen=FRESH_LABELS)
        self._correlations: deque[float] = deque(maxlen=RECENT_ROLLOUTS)
        self._reference: RewardReference | None = None

    def observe(
        self,
        rollout: Rollout,
        members: Float32[np.ndarray, "member time env"],
        correlation: float | None = None,
    ) -> Metrics:
        """Measure how far the predicted rewards of a rollout are from the true ones.

        Args:
            rollout: steps of all environments.
            members: [M, T, N] raw rewards of the predictor's members.
            correlation: of both, if it is known.
        """
        is_valid = rollout.is_valid
        num_rewarded = np.count_nonzero(rollout.rewards[is_valid])
        if correlation is not None and num_rewarded > SPARSE * is_valid.sum():
            self._correlations.append(correlation)
        if self._reference is None or not is_valid.any():
            return {}
        true = rollout.rewards[is_valid]
        return {"over_estimation": self._reference.over_estimation(members[:, is_valid], true)}

    def compare(self, labels: LabelSet, comparison_ids: Sequence[int]) -> None:
        """Record whether the predictor agrees with new labels, which it was not fitted to yet.

        Args:
            labels: contains the new labels.
            comparison_ids: of these.
        """
        indices = [labels.index_of(each) for each in comparison_ids]
        # Others were replaced by newer ones already.
        decided = [i for i in indices if i is not None and labels.targets[i] != EQUAL]
        if decided:
            left, right = self.scores(labels, decided).T
            self._agreed.extend(((left > right) == (labels.targets[decided] > EQUAL)).tolist())

    def scores(
        self, labels: LabelSet, indices: Sequence[int]
    ) -> Float32[np.ndarray, "comparison 2"]:
        """Predict the scores of both segments of labelled comparisons."""
        batch = gather_steps(labels.comparisons, np.array(indices), 0)
        rewards = self._predictor.normalised(self._predictor.member_rewards(batch["rows"]))
        return self._predictor.clip_scores(rewards, batch["weights"])

    def count_fit(self, report: FitReport, labels: LabelSet) -> None:
        """Record a fit, whose networks the predictor has now.

        Predicted and true rewards are measured on comparisons spread evenly over the labels.
        """
        self.report = report
        spread = np.linspace(0, len(labels) - 1, min(len(labels), REFERENCE_COMPARISONS))
        indices = spread.astype(int)
        true = labels.true_rewards[indices]
        is_known = (labels.weights[indices] > 0) & np.isfinite(true)
        members = self._predictor.member_rewards(labels.rows[indices][is_known])
        self._reference = RewardReference.measure(members, true[is_known])

    def metrics(self) -> Metrics:
        """Return the quality of the last fit, and the agreement with new labels.

        Accuracies have the ends of their 95 % intervals; NaN without labels.
        """
        metrics: Metrics = {"fresh_labels": len(self._agreed)}
        if self._agreed:
            metrics["fresh_accuracy"] = sum(self._agreed) / len(self._agreed)
        metrics |= self.report.metrics() if self.report is not None else {}
        for kind in ("fresh", "held_out"):
            share = Share.estimate(
                metrics.get(f"{kind}_accuracy", nan), int(metrics.get(f"{kind}_labels", 0))
            )
            metrics |= {f"{kind}_accuracy_low": share.low, f"{kind}_accuracy_high": share.high}
        if len(self._correlations) == RECENT_ROLLOUTS:
            # Two standard errors of the mean above it.
            error = np.std(self._correlations) / np.sqrt(RECENT_ROLLOUTS)
            metrics["recent_correlation_high"] = float(np.mean(self._correlations) + 2 * error)
        return metrics

    def state(self) -> StateDict:
        """Return everything needed to resume exactly."""
        own: StateDict = {
            "agreed": np.array(self._agreed, bool),
            "correlations": np.array(self._correlations, np.float64),
            "report": text_to_array(json.dumps(self.report and asdict(self.report))),
        }
        reference = {} if self._reference is None else self._reference.state()
        return nest({"self": own, "reference": reference})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state."""
        self._agreed.extend(state["self/agreed"].tolist())
        self._correlations.extend(state["self/correlations"].tolist())
        self._reference = RewardReference.from_state(part_of(state, "reference"))
        report = json.loads(array_to_text(state["self/report"]))
        self.report = None if report is None else FitReport.from_json(report)


def true_agreement(labels: LabelSet) -> Share:
    """Return for which share of the labels the preferred segment has the higher true return.

    Ties, of either, do not count, and neither do segments whose true rewards are unknown.
    """
    returns = np.where(labels.weights > 0, labels.weights * labels.true_rewards, 0).sum(-1)
    product = (labels.targets - EQUAL) * (returns[:, 0] - returns[:, 1])
    return Share.of(product[np.isfinite(product) & (product != 0)] > 0)


def share_above(scores: Float[np.ndarray, " one"], others: Float[np.ndarray, " other"]) -> float:
    """Compute P(score > other) + P(score = other) / 2 over all pairs (Mann and Whitney 1947)."""
    return float(np.mean(np.sign(scores[:, None] - others) / 2 + 0.5))
