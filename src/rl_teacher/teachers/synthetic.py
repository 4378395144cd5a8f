"""Synthetic teachers, which answer by the true reward with human-like errors.

Source: B-Pref (Lee et al. 2021), section 3. Differences to its code: the skip and equal thresholds
are scaled by their epsilon once, not twice; they follow the running true return of either sign, as
in the paper; a skipped comparison has a separate answer, `cannot_tell`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.teachers.teacher import TeacherContext


@dataclass(frozen=True)
class SyntheticTeacher:
    """Teacher that prefers the segment with the larger true return, subject to errors."""

    rationality: float = math.inf
    """beta: P(left) = sigmoid(beta * difference of returns); inf never errs"""
    myopia: float = 1.0
    """gamma: step k before the last one of a full segment counts gamma^k"""
    mistake: float = 0.0
    """epsilon: probability that left and right are swapped"""
    skip: float = 0.0
    """cannot tell if neither return exceeds this share of the running mean; where that is negative,
    if both are worse than it by all but this share of its size"""
    equal: float = 0.0
    """equal if the returns differ by less than this share of the running mean"""

    def __call__(self, left: Segment, right: Segment, context: TeacherContext) -> Answer:
        """Answer one comparison."""
        returns = left.true_return, right.true_return
        # The mean true return of segments of this length; 0 before the first step. A termination
        # may have cut one short: nothing is earned in its missing steps.
        num_steps = max(len(left), len(right))
        reference = context.mean_return * num_steps / context.mean_episode_steps
        reference = 0.0 if math.isnan(reference) else reference
        # Where returns are positive this is skip * reference, as in the paper.
        if self.skip > 0 and max(returns) <= reference - (1 - self.skip) * abs(reference):
            return Answer.CANNOT_TELL
        if self.equal > 0 and abs(returns[0] - returns[1]) < self.equal * abs(reference):
            return Answer.EQUAL
        left_return, right_return = (
            self.myopic_return(each.rewards, num_steps) for each in (left, right)
        )
        difference = left_return - right_return
        if difference == 0:
            return Answer.EQUAL
        p_left = float(difference > 0)
        if math.isfinite(self.rationality):
            # sigmoid(beta * d) = (1 + tanh(beta * d / 2)) / 2, which does not overflow
            p_left = 0.5 * (1 + math.tanh(0.5 * self.rationality * difference))
        prefers_left = context.rng.random() < p_left
        if context.rng.random() < self.mistake:
            prefers_left = not prefers_left
        return Answer.LEFT if prefers_left else Answer.RIGHT

    def myopic_return(self, rewards: Float[np.ndarray, " time"], num_steps: int) -> float:
        """Compute sum_t gamma^(T-1-t) r_t over a segment of T steps (B-Pref, section 3).

        Args:
            rewards: the segment's rewards; fewer than T if a termination has cut it short.
            num_steps: T.
        """
        weights = self.myopia ** np.arange(num_steps - 1, num_steps - 1 - len(rewards), -1)
        return float(np.sum(weights * rewards, dtype=np.float64))


ORACLE = SyntheticTeacher()

SYNTHETIC: dict[str, SyntheticTeacher] = {
    "oracle": ORACLE,
    "mistake": replace(ORACLE, mistake=0.1),
    "noisy": replace(ORACLE, rationality=1.0),
    "skip": replace(ORACLE, skip=0.1),
    "equal": replace(ORACLE, equal=0.1),
    "myopic": replace(ORACLE, myopia=0.9),
}
