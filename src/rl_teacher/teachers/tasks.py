"""Task teachers: want something that the environment's own reward does not.

They look at the observations alone, as a person looks at the clip. Each is a score of one segment;
the segment with the larger score is preferred.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.errors import BadInput
from rl_teacher.teachers.teacher import Circumstances


@dataclass(frozen=True)
class TaskTeacher:
    """Prefers the segment with the larger score.

    Attributes:
        score: of one segment.
        env: what the environment's name must contain, in lower case.
        wish: what it wants, in words.
    """

    score: Callable[[Segment], float]
    env: str
    wish: str

    def __call__(
        self,
        left: Segment,
        right: Segment,
        circumstances: Circumstances,  # noqa: ARG002
    ) -> Answer:
        """Answer one comparison.

        Raises:
            BadInput: the environment is not the one this task is about.
        """
        if self.env not in left.env_id.lower():
            raise BadInput(
                f"This teacher is about {self.env}, but the environment is {left.env_id}. "
                "Choose another --teacher, or another -e."
            )
        difference = self.score(left) - self.score(right)
        if difference == 0:
            return Answer.EQUAL
        return Answer.LEFT if difference > 0 else Answer.RIGHT


HOPPER_HEIGHT, HOPPER_PITCH = 0, 1
"""Places in Hopper's observation: torso height (m), pitch (rad, forwards positive)."""
STANDING_HEIGHT = 1.25


def backwards_turning(segment: Segment) -> float:
    """Hopper: how far the torso turned over backwards, in radians, and how high it was meanwhile.

    Turning near the ground counts less, so that rolling about on the floor is not a flip.
    """
    pitch = segment.observations[:, HOPPER_PITCH].astype(np.float64)
    height = segment.observations[:-1, HOPPER_HEIGHT]
    # The shortest way round: the observed pitch may jump by a full turn.
    turned = -((np.diff(pitch) + np.pi) % (2 * np.pi) - np.pi)
    return float(np.sum(turned * np.clip(height / STANDING_HEIGHT, 0.0, 1.5)))


REACHER_TO_TARGET = slice(8, 10)
"""Places in Reacher's observation: fingertip minus target, x and y (m)."""


def away_from_target(segment: Segment) -> float:
    """Reacher: mean distance of the fingertip from the target, in metres."""
    return float(np.linalg.norm(segment.observations[:, REACHER_TO_TARGET], axis=1).mean())


TASKS: dict[str, TaskTeacher] = {
    "backflip": TaskTeacher(
        backwards_turning, "hopper", "Prefer the clip that comes closer to a backflip."
    ),
    "opposite": TaskTeacher(
        away_from_target, "reacher", "Prefer the clip that stays farther from the target."
    ),
}
