"""Task teachers, which judge what a clip shows and not the environment's own reward alone.

They use the observations, as a person uses the clip. Each scores a segment and prefers the one with
the larger score. Each also has a measure of how well whole episodes do the task.

T: steps of a segment.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.teachers.spectator import VISIBLE_SCORES
from rl_teacher.teachers.teacher import TeacherContext


@dataclass(frozen=True)
class TaskTeacher:
    """Teacher that prefers the segment with the larger score.

    Attributes:
        score: score of a segment.
        env_ids: environments that it judges.
        measure: how well an episode does the task; not used for answers.
        measure_name: meaning of the measure.
        is_share: whether the measure is from 0 to 1.
        tie: difference of the scores below which segments are equal.
        mistake: probability that left and right are swapped.
    """

    score: Callable[[Segment], float]
    env_ids: tuple[str, ...]
    measure: Callable[[Segment], float]
    measure_name: str
    is_share: bool = True
    tie: float = 0.0
    mistake: float = 0.0

    def __call__(self, left: Segment, right: Segment, context: TeacherContext) -> Answer:
        """Answer one comparison.

        Raises:
            BadInput: the task belongs to another environment.
        """
        self.check_environment(left.env_id)
        difference = self.score(left) - self.score(right)
        if difference == 0 or abs(difference) < self.tie:
            return Answer.EQUAL
        is_mistaken = context.rng.random() < self.mistake
        return Answer.LEFT if (difference > 0) != is_mistaken else Answer.RIGHT

    def check_environment(self, env_id: str) -> None:
        """Check that the task belongs to an environment.

        Raises:
            BadInput: it belongs to another one.
        """
        # A module that is imported first may precede an id.
        if env_id.rpartition(":")[2] not in self.env_ids:
            raise BadInput(
                f"This teacher judges {', '.join(self.env_ids)}, but the environment is {env_id}. "
                "Choose one of these with -e, or another --teacher."
            )


Steps = Float64[np.ndarray, " time"]

TORSO_HEIGHT, PITCH_SIN, PITCH_COS = 0, 1, 2
"""Indices in the observations of the suite's Hopper and Walker: torso height (m), sine and cosine
of its pitch (forwards > 0)."""


def _chain_height(base: Steps, *links: tuple[Steps, float, float]) -> Steps:
    """Compute [T] the height of the end of a chain of links in the plane of x and z.

    Args:
        base: [T] height of the first link's origin, in metres.
        links: for each link, [T] its angle about +y in radians, and the end's x and z in its frame.
    """
    height = base
    for angle, x, z in links:
        height = height + z * np.cos(angle) - x * np.sin(angle)
    return height


def _stillness(velocity_x: Steps) -> Steps:
    """Return [T] a factor from 1 at rest to 0 at high speed: 1 / (1 + v_x^2), v_x in m/s."""
    return 1.0 / (1.0 + velocity_x**2)


# --- backflip ---

STANDING_HEIGHT = 1.25


def backward_rotation(segment: Segment) -> float:
    """Compute the backward rotation of Hopper's torso in radians, weighted by its height.

    Rotation near the ground counts less, so that rolling on the floor is not a flip.
    """
    height = segment.observations[:-1, TORSO_HEIGHT]
    return float(np.sum(_backward_steps(segment) * np.clip(height / STANDING_HEIGHT, 0.0, 1.5)))


def backward_turns(segment: Segment) -> float:
    """Count the full backward turns of Hopper's torso, net of forward turns."""
    furthest = np.cumsum(_backward_steps(segment)).max(initial=0.0)
    # Rounding errors must not take a turn away.
    return float(np.floor(furthest / (2 * np.pi) + 1e-6))


def _backward_steps(segment: Segment) -> Float64[np.ndarray, " steps"]:
    """Return [T - 1] the backward rotation from each step to the next, in radians."""
    obs = segment.observations.astype(np.float64)
    pitch = np.arctan2(obs[:, PITCH_SIN], obs[:, PITCH_COS])
    # The angle jumps by 2 pi at the back. Between two steps the torso rotates by less than half a
    # turn, so that differences taken modulo 2 pi are exact.
    return -((np.diff(pitch) + np.pi) % (2 * np.pi) - np.pi)


# --- opposite ---

REACHER_TARGET = slice(4, 6)
REACHER_TO_TARGET = slice(8, 10)
"""Indices in Reacher's observation: the target, and fingertip minus target; x and y (m)."""
REACHER_LENGTH = 0.21
"""Distance from Reacher's base to its fingertip when the arm is stretched, in metres."""


def target_distance(segment: Segment) -> float:
    """Compute the mean distance of Reacher's fingertip from the target, in metres."""
    return float(np.linalg.norm(segment.observations[:, REACHER_TO_TARGET], axis=1).mean())


def share_of_largest_distance(segment: Segment) -> float:
    """Compute the mean distance from the target as a share of the largest that is reachable."""
    # The stretched arm points away from the target.
    target = np.linalg.norm(segment.observations[:, REACHER_TARGET], axis=1)
    return target_distance(segment) / float((target + REACHER_LENGTH).mean())


# --- ballerina ---

WALKER_LEGS = (slice(3, 6), slice(6, 9))
WALKER_VELOCITY_X = 9
"""Indices in the observation of the suite's Walker: hip, knee and ankle of both legs (rad), and the
torso's velocity (m/s)."""
KNEELING_HEIGHT, STANDING_RANGE = 0.7, 0.4
"""Height of Walker's torso on its knees, and how much higher it is on its feet, in metres."""
RAISED_GAP = 0.4
"""Height of one foot above the other for the full score, in metres."""
STANDS = 0.75
"""Standing score from which a raised foot counts."""


def one_leg_balance(segment: Segment) -> float:
    """Compute the mean of `s_t + 2 r_t [s_t > 3/4] - 0.1 min(|v_t|, 3)` over the steps of Walker.

    It judges in stages, as a person does: first standing, then raising a foot, then standing still.
    `s` is `clip((z - 0.7 m) / 0.4 m, 0, 1) max(cos(pitch), 0)^2` with the torso's height z; `r` is
    the root of the difference of the feet's heights / 0.4 m, clipped to 0 .. 1, times a factor that
    is 1 while the lower foot is on the ground and 0 from 15 cm on; `v` is the forward velocity in
    m/s. The root makes the first centimetres count: without it, agents stay on both feet.
    """
    obs = segment.observations.astype(np.float64)
    height = np.clip((obs[:, TORSO_HEIGHT] - KNEELING_HEIGHT) / STANDING_RANGE, 0.0, 1.0)
    stand = height * np.maximum(obs[:, PITCH_COS], 0.0) ** 2
    lower, higher = _walker_feet(segment)
    gap = np.clip((higher - lower) / RAISED_GAP, 0.0, 1.0)
    raised = np.sqrt(gap) * np.clip(1.5 - lower / 0.1, 0.0, 1.0)
    speed = np.minimum(np.abs(obs[:, WALKER_VELOCITY_X]), 3.0)
    return float(np.mean(stand + 2.0 * raised * (stand > STANDS) - 0.1 * speed))


def share_on_one_leg(segment: Segment) -> float:
    """Return the share of steps in which Walker stands on one leg.

    The torso is above 1 m and pitched by less than 30 degrees, the lower foot is within 10 cm of
    the ground and the other one above 30 cm.
    """
    obs = segment.observations
    is_upright = (obs[:, TORSO_HEIGHT] > 1.0) & (obs[:, PITCH_COS] > np.cos(np.pi / 6))
    lower, higher = _walker_feet(segment)
    return float(np.mean(is_upright & (lower < 0.1) & (higher > 0.3)))


def _walker_feet(segment: Segment) -> tuple[Steps, Steps]:
    """Compute [T] the heights of the lower and of the higher foot above the ground, in metres."""
    obs = segment.observations.astype(np.float64)
    pitch = np.arctan2(obs[:, PITCH_SIN], obs[:, PITCH_COS])
    feet = []
    for leg in WALKER_LEGS:
        # Hip, knee and ankle turn about -y.
        thigh, shin, foot = (pitch[:, None] - np.cumsum(obs[:, leg], axis=1)).T
        links = (pitch, 0.0, -0.2), (thigh, 0.0, -0.45), (shin, 0.0, -0.5)
        heel = _chain_height(obs[:, TORSO_HEIGHT], *links)
        toe = _chain_height(heel, (foot, 0.2, 0.0))
        feet.append(np.minimum(heel, toe) - 0.06)  # the foot's radius
    return np.minimum(*feet), np.maximum(*feet)


# --- tapdance ---

CHEETAH_Z, CHEETAH_PITCH, CHEETAH_FRONT_LEG, CHEETAH_VELOCITY_X = 0, 1, slice(5, 8), 8
"""Indices in Cheetah's observation: height above its initial one (m), pitch (forwards > 0), the
front leg's hip, knee and ankle (rad), and the torso's velocity (m/s)."""
CHEETAH_HEIGHT = 0.7
"""Initial height of the torso's centre, in metres."""
HIP_HEIGHT = 0.5
"""Height of the hind hip when Cheetah stands on its hind leg, in metres."""
FRONT_FOOT_HEIGHT = 0.4
"""Height of the front foot for the full score, in metres."""


def hind_leg_stand(segment: Segment) -> float:
    """Sum `h_t^3 max(cos(p_t + 60 deg), 0) (1/2 + f_t) / (1 + v_t^2)` over Cheetah's steps.

    `h` is the height of the hind hip / 0.5 m and `f` that of the front foot / 0.4 m, both clipped
    to 0 .. 1; `p` is the pitch (forwards > 0) and `v` the forward velocity. The score rises as soon
    as Cheetah leans back from its four feet. On its back or on its head it scores 0, because the
    cosine is negative; sitting upright scores little, because its hip is low.
    """
    obs = segment.observations.astype(np.float64)
    pitch = obs[:, CHEETAH_PITCH]
    hip, front_foot = _cheetah_heights(segment)
    raised = np.clip(front_foot / FRONT_FOOT_HEIGHT, 0.0, 1.0)
    posture = np.maximum(np.cos(pitch + np.pi / 3), 0.0) * (0.5 + raised)
    still = _stillness(obs[:, CHEETAH_VELOCITY_X])
    return float(np.sum(np.clip(hip / HIP_HEIGHT, 0.0, 1.0) ** 3 * posture * still))


def share_on_hind_leg(segment: Segment) -> float:
    """Return the share of steps in which Cheetah stands on its hind leg.

    The torso points more than 30 degrees upwards, the front foot is above 20 cm and the hind hip
    above 25 cm, so that it does not sit.
    """
    hip, front_foot = _cheetah_heights(segment)
    is_pitched = -np.sin(segment.observations[:, CHEETAH_PITCH]) > 0.5
    return float(np.mean(is_pitched & (front_foot > 0.2) & (hip > 0.25)))


def _cheetah_heights(segment: Segment) -> tuple[Steps, Steps]:
    """Compute [T] the heights of the hind hip and of the front foot's tip, in metres."""
    obs = segment.observations.astype(np.float64)
    pitch, base = obs[:, CHEETAH_PITCH], obs[:, CHEETAH_Z] + CHEETAH_HEIGHT
    thigh, shin, foot = (pitch[:, None] + np.cumsum(obs[:, CHEETAH_FRONT_LEG], axis=1)).T
    links = (pitch, 0.5, 0.0), (thigh, -0.14, -0.24), (shin, 0.13, -0.18), (foot, 0.0845, -0.1278)
    tip = _chain_height(base, *links) - 0.046  # the foot's radius
    return _chain_height(base, (pitch, -0.5, 0.0)), tip


def _suite(body: str) -> tuple[str, str]:
    return f"{body}-v1", f"Short{body}-v1"


def visible_score(segment: Segment) -> float:
    """Compute the score of a clip of an Atari game by what is visible."""
    return next(score for game, score in VISIBLE_SCORES.items() if game in segment.env_id)(segment)


TASKS: dict[str, TaskTeacher] = {
    "backflip": TaskTeacher(
        backward_rotation,
        _suite("Hopper"),
        backward_turns,
        "backward turns per episode",
        is_share=False,
    ),
    "opposite": TaskTeacher(
        target_distance,
        _suite("Reacher"),
        share_of_largest_distance,
        "distance from the target, of the largest possible",
    ),
    "ballerina": TaskTeacher(
        one_leg_balance, _suite("Walker"), share_on_one_leg, "time on one leg", tie=0.01
    ),
    "tapdance": TaskTeacher(
        hind_leg_stand, _suite("Cheetah"), share_on_hind_leg, "time on the hind leg"
    ),
    "spectator": TaskTeacher(
        visible_score,
        tuple(
            name for game in VISIBLE_SCORES for name in (f"{game}NoFrameskip-v4", f"ALE/{game}-v5")
        ),
        lambda segment: segment.true_return,
        "score",
        is_share=False,
        tie=0.02,
    ),
}
