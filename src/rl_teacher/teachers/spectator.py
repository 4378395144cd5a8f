"""Scores of clips of Atari games by what is visible, where the game's score is too sparse.

Positions are read from the newest image of each observation, at any size. tests/teachers compares
them with the console's memory.

T: steps of a segment. Lengths are in pixels of a screen of 210x160.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from rl_teacher.clips.segment import Segment
from rl_teacher.envs.atari.rules import SCREEN_HEIGHT, SCREEN_WIDTH, Area

Positions = Float64[np.ndarray, " time"]

FAINTEST = 8
"""Contrast, of 255, of what is no background; the area of Pong's ball is half a pixel at 42x42."""
PONG_BALL, PONG_PADDLE = Area(35, 190, 25, 137), Area(35, 190, 140, 144)
BREAKOUT_BALL, BREAKOUT_PADDLE = Area(95, 185, 12, 148), Area(189, 193, 12, 148)
ENDURO_CAR = Area(130, 155)
ENDURO_BODY = 90
"""Contrast of the agent's car to the road, which is more than that of most others."""
ENDURO_REST = 150.0
"""Row of the car at rest. It is drawn the higher the faster it is, at most 10 rows."""


def points_and_returns(segment: Segment) -> float:
    """Compute `points + returns / 4 + near / 2` in Pong.

    `near` is the mean of `1 - d_t / 155` over the steps, with the distance d of the paddle's height
    from the ball's, and 0 where no ball is seen.
    """
    ball_y, ball_x = _centres(segment, PONG_BALL)
    paddle_y, _ = _centres(segment, PONG_PADDLE)
    velocity = np.diff(ball_x)
    # Comparisons with NaN, where no ball is seen, are false.
    is_returned = (velocity[:-1] > 0) & (velocity[1:] < 0) & (ball_x[1:-1] > SCREEN_WIDTH / 2)
    near = _nearness(ball_y - paddle_y, PONG_BALL.bottom - PONG_BALL.top)
    return segment.true_return + np.count_nonzero(is_returned) / 4 + near / 2


def bricks_and_catches(segment: Segment) -> float:
    """Compute `bricks + near` in Breakout.

    `near` is the mean of `1 - d_t / 136` over the steps, with the horizontal distance d of the
    paddle from the ball, and 0 where no ball is seen below the bricks.
    """
    _, ball_x = _centres(segment, BREAKOUT_BALL)
    _, paddle_x = _centres(segment, BREAKOUT_PADDLE)
    near = _nearness(ball_x - paddle_x, BREAKOUT_BALL.right - BREAKOUT_BALL.left)
    return float(np.count_nonzero(segment.rewards) + near)


def cars_and_speed(segment: Segment) -> float:
    """Compute `cars + risen / 2` in Enduro: cars passed, less those that passed, and the speed.

    `risen` is how many rows higher than at rest the car is drawn, which grows with its speed.
    """
    rows, _ = _centres(segment, ENDURO_CAR, ENDURO_BODY)
    risen = ENDURO_REST - rows[np.isfinite(rows)]
    return segment.true_return + (float(risen.mean()) / 2 if len(risen) else 0.0)


def _nearness(distances: Positions, longest: int) -> float:
    return float(np.nan_to_num(1 - np.abs(distances) / longest).mean())


def _centres(segment: Segment, area: Area, contrast: int = FAINTEST) -> tuple[Positions, Positions]:
    """Return [T] row and [T] column of the centre of what is no background in an area.

    Returns:
        Means of rows and columns, weighted by the contrast above the given one; NaN where nothing
        has more.
    """
    height, width = segment.observations.shape[-2:]
    rows, columns = area.within(height, width)
    shown = segment.observations[:, -1, rows, columns].astype(np.float64)
    weights = np.maximum(np.abs(shown - np.median(shown)) - contrast, 0.0)
    total = weights.sum((1, 2))
    total[total == 0] = np.nan
    row = weights.sum(2) @ (np.arange(rows.start, rows.stop) + 0.5) / total
    column = weights.sum(1) @ (np.arange(columns.start, columns.stop) + 0.5) / total
    return row * SCREEN_HEIGHT / height, column * SCREEN_WIDTH / width


VISIBLE_SCORES: dict[str, Callable[[Segment], float]] = {
    "Breakout": bricks_and_catches,
    "Enduro": cars_and_speed,
    "Pong": points_and_returns,
}
"""Score of a segment, by the game's name."""
