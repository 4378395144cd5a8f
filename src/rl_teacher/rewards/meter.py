"""Measurements of a reward predictor while it is fitted and used.

M: ensemble members, T: steps of a rollout, N: environments, F: features of an input row.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
from jaxtyping import Float32, Shaped

from rl_teacher.common.state_dict import StateDict, array_to_text, nest, part_of, text_to_array
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import FitReport, RewardReference, unseen_share
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import gather_steps
from rl_teacher.predictor.labels import LabelSet
from rl_teacher.rewards.source import Metrics

EQUAL = 0.5
"""Target of a label that prefers neither segment."""
FRESH_LABELS = 40
"""Newest labels whose agreement with the predictor is logged."""
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
        self._reference: RewardReference | None = None
        # Environment steps observed: in all, until the last fit, and until the newest label; -1
        # before there is one.
        self._num_steps, self._fit_step, self._label_step = 0, -1, -1

    def observe(
        self,
        rollout: Rollout,
        rows: Shaped[np.ndarray, "time env features"],
        members: Float32[np.ndarray, "member time env"],
        labels: LabelSet,
    ) -> Metrics:
        """Count the steps of a rollout; measure how far it is from what was labelled.

        Args:
            rollout: steps of all environments.
            rows: [T, N, F] the predictor's input rows.
            members: [M, T, N] raw rewards of its members.
            labels: labels of the fits.
        """
        self._num_steps += rollout.num_steps
        metrics: Metrics = {}
        is_valid, normaliser = rollout.is_valid, self._predictor.normaliser
        if not is_valid.any():
            return metrics
        if not self._predictor.space.has_byte_rows and len(labels):
            metrics["unseen_inputs"] = unseen_share(
                rows[is_valid], labels.input_low, labels.input_high, normaliser.mask
            )
        if self._reference is not None:
            metrics["over_estimation"] = self._reference.over_estimation(
                members[:, is_valid], rollout.rewards[is_valid]
            )
        return metrics

    def count_labels(self) -> None:
        """Count new labels as given at this step."""
        self._label_step = self._num_steps

    def compare(self, labels: LabelSet, comparison_ids: Sequence[int]) -> None:
        """Record whether the predictor agrees with new labels, which it was not fitted to yet.

        Args:
            labels: contains the new labels.
            comparison_ids: of these.
        """
        known = [each for each in comparison_ids if each in labels]
        indices = [index for each in known if (index := labels.index_of(each)) is not None]
        decided = [index for index in indices if labels.targets[index] != EQUAL]
        if decided:
            left, right = self.scores(labels, decided).T
            self._agreed.extend(((left > right) == (labels.targets[decided] > EQUAL)).tolist())

    def scores(
        self, labels: LabelSet, indices: Sequence[int]
    ) -> Float32[np.ndarray, "comparison 2"]:
        """Predict the scores of both segments of labelled comparisons."""
        batch = gather_steps(labels, np.array(indices), 0)
        rewards = self._predictor.normalised(self._predictor.member_rewards(batch["rows"]))
        return self._predictor.clip_scores(rewards, batch["weights"])

    def count_fit(self, report: FitReport, labels: LabelSet) -> None:
        """Record a fit, whose networks the predictor has now.

        Predicted and true rewards are measured on comparisons spread evenly over the labels.
        """
        self.report, self._fit_step = report, self._num_steps
        spread = np.linspace(0, len(labels) - 1, min(len(labels), REFERENCE_COMPARISONS))
        indices = spread.astype(int)
        true = labels.true_rewards[indices]
        is_known = (labels.weights[indices] > 0) & np.isfinite(true)
        members = self._predictor.member_rewards(labels.rows[indices][is_known])
        self._reference = RewardReference.measure(members, true[is_known])

    def metrics(self) -> Metrics:
        """Return the quality of the last fit, and how long ago it and the newest label were."""
        metrics: Metrics = {"fresh_labels": len(self._agreed)}
        for name, step in (("fit", self._fit_step), ("label", self._label_step)):
            if step >= 0:
                metrics[f"steps_since_{name}"] = self._num_steps - step
        if self._agreed:
            metrics["fresh_accuracy"] = sum(self._agreed) / len(self._agreed)
        return metrics | (self.report.metrics() if self.report is not None else {})

    def state(self) -> StateDict:
        """Return everything needed to resume exactly."""
        own: StateDict = {
            "agreed": np.array(self._agreed, bool),
            "report": text_to_array(json.dumps(self.report and asdict(self.report))),
            "steps": np.array([self._num_steps, self._fit_step, self._label_step]),
        }
        reference = {} if self._reference is None else self._reference.state()
        return nest({"self": own, "reference": reference})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state."""
        self._agreed.extend(state["self/agreed"].tolist())
        self._num_steps, self._fit_step, self._label_step = state["self/steps"].tolist()
        self._reference = RewardReference.from_state(part_of(state, "reference"))
        report = json.loads(array_to_text(state["self/report"]))
        self.report = None if report is None else FitReport.from_json(report)
