"""Task teachers, whose goal differs from the environment's own reward.

They use the observations alone, as a person uses the clip. Each scores a segment and prefers the
one with the larger score.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.teachers.teacher import TeacherContext


@dataclass(frozen=True)
class TaskTeacher:
    """Teacher that prefers the segment with the larger score.

    Attributes:
        score: score of a segment.
        env: name of the environment in the suite.
    """

    score: Callable[[Segment], float]
    env: str

    def __call__(self, left: Segment, right: Segment, context: TeacherContext) -> Answer:  # noqa: ARG002
        """Answer one comparison.

        Raises:
            BadInput: the task belongs to another environment.
        """
        self.check_environment(left.env_id)
        difference = self.score(left) - self.score(right)
        if difference == 0:
            return Answer.EQUAL
        return Answer.LEFT if difference > 0 else Answer.RIGHT

    def check_environment(self, env_id: str) -> None:
        """Check that the task belongs to an environment.

        Raises:
            BadInput: it belongs to another one.
        """
        if env_id not in (f"{self.env}-v1", f"Short{self.env}-v1"):
            raise BadInput(
                f"This teacher judges the suite's {self.env}, but the environment is {env_id}. "
                f"Use -e {self.env}-v1 or -e Short{self.env}-v1, or another --teacher."
            )


HOPPER_HEIGHT, HOPPER_SIN, HOPPER_COS = 0, 1, 2
"""Indices in the observation of the suite's Hopper: torso height (m), sine and cosine of its pitch
(forwards > 0)."""
STANDING_HEIGHT = 1.25


def backward_rotation(segment: Segment) -> float:
    """Compute the backward rotation of Hopper's torso in radians, weighted by its height.

    Rotation near the ground counts less, so that rolling on the floor is not a flip.
    """
    obs = segment.observations.astype(np.float64)
    pitch = np.arctan2(obs[:, HOPPER_SIN], obs[:, HOPPER_COS])
    # [T - 1], like the differences of T angles.
    height = segment.observations[:-1, HOPPER_HEIGHT]
    # The angle jumps by 2 pi at the back. Between two steps the torso rotates by less than half a
    # turn, so that differences taken modulo 2 pi are exact.
    rotated = -((np.diff(pitch) + np.pi) % (2 * np.pi) - np.pi)
    return float(np.sum(rotated * np.clip(height / STANDING_HEIGHT, 0.0, 1.5)))


REACHER_TO_TARGET = slice(8, 10)
"""Indices in Reacher's observation: fingertip minus target, x and y (m)."""


def target_distance(segment: Segment) -> float:
    """Compute the mean distance of Reacher's fingertip from the target, in metres."""
    return float(np.linalg.norm(segment.observations[:, REACHER_TO_TARGET], axis=1).mean())


TASKS: dict[str, TaskTeacher] = {
    "backflip": TaskTeacher(backward_rotation, "Hopper"),
    "opposite": TaskTeacher(target_distance, "Reacher"),
}
