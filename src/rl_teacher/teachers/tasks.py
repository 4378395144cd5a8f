"""Task teachers: want something that the environment's own reward does not.

They look at the observations alone, as a person looks at the clip. Each is a score of one segment;
the segment with the larger score is preferred.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.teachers.teacher import Circumstances


@dataclass(frozen=True)
class TaskTeacher:
    """Prefers the segment with the larger score.

    Attributes:
        score: of one segment.
        env: name of the suite's environment that it is about.
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
        self.check_environment(left.env_id)
        difference = self.score(left) - self.score(right)
        if difference == 0:
            return Answer.EQUAL
        return Answer.LEFT if difference > 0 else Answer.RIGHT

    def check_environment(self, env_id: str) -> None:
        """Refuse an environment that the task is not about.

        Raises:
            BadInput: says which one it is about.
        """
        if env_id not in (f"{self.env}-v1", f"Short{self.env}-v1"):
            raise BadInput(
                f"This teacher is about the suite's {self.env}, but the environment is {env_id}. "
                f"Use -e {self.env}-v1 or -e Short{self.env}-v1, or another --teacher."
            )


HOPPER_HEIGHT, HOPPER_SIN, HOPPER_COS = 0, 1, 2
"""Places in the suite's Hopper: torso height (m), sine and cosine of its pitch (forwards > 0)."""
STANDING_HEIGHT = 1.25


def backwards_turning(segment: Segment) -> float:
    """Hopper: how far the torso turned over backwards, in radians, and how high it was meanwhile.

    Turning near the ground counts less, so that rolling about on the floor is not a flip.
    """
    seen = segment.observations.astype(np.float64)
    pitch = np.arctan2(seen[:, HOPPER_SIN], seen[:, HOPPER_COS])
    height = segment.observations[:-1, HOPPER_HEIGHT]
    # From one step to the next the torso went the shorter way round.
    turned = -((np.diff(pitch) + np.pi) % (2 * np.pi) - np.pi)
    return float(np.sum(turned * np.clip(height / STANDING_HEIGHT, 0.0, 1.5)))


REACHER_TO_TARGET = slice(8, 10)
"""Places in Reacher's observation: fingertip minus target, x and y (m)."""


def away_from_target(segment: Segment) -> float:
    """Reacher: mean distance of the fingertip from the target, in metres."""
    return float(np.linalg.norm(segment.observations[:, REACHER_TO_TARGET], axis=1).mean())


TASKS: dict[str, TaskTeacher] = {
    "backflip": TaskTeacher(
        backwards_turning, "Hopper", "Prefer the clip that comes closer to a backflip."
    ),
    "opposite": TaskTeacher(
        away_from_target, "Reacher", "Prefer the clip that stays farther from the target."
    ),
}
