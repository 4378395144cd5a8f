"""MovingDot: a white dot that is to be moved to the middle of a black picture.

Source: github.com/mrahtz/gym-moving-dot, with the names of both its generations.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import UInt8

DESCRIPTION = "a dot to be moved to the middle of a picture"
HEIGHT, WIDTH = 210, 160
"""Of the picture, in pixels; those of Atari."""
REACH = 2
"""Pixels of the dot to each side of its place, so it is 4 x 4 pixels large."""
LOWEST, HIGHEST = (REACH, REACH), (WIDTH - 1 - REACH, HEIGHT - 1 - REACH)
"""Where the dot may be: x, y; y grows downwards."""
CENTRE = (80, 105)
MOVES = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
"""What each discrete action moves, x and y: nothing, down, right, up, left."""
THRESHOLD = 0.1
"""Of a continuous action: what is nearer to 0 moves nothing."""
NUM_MOVES = 1_000
"""Of an episode: so many steps, or a third of them where frames are skipped."""
REPEATS = (2, 4)
"""Of an action where frames are skipped: at least, at most; those of Atari's v0."""
FPS = 60

Screen = UInt8[np.ndarray, "210 160 3"]


class MovingDot(gymnasium.Env):
    """A dot that moves by one pixel: +1 for nearer to the centre, -1 for further away, else 0."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}  # noqa: RUF012 - Gymnasium's way

    def __init__(
        self,
        *,
        is_continuous: bool = False,
        repeats: tuple[int, int] = (1, 1),
        render_mode: str | None = None,
    ) -> None:
        """Make one.

        Args:
            is_continuous: whether an action is two numbers from -1 to 1, for x and y, in the place
                of one of five moves.
            repeats: how many times an action is carried out, at least and at most; drawn anew for
                each step. The rewards of a step are added.
            render_mode: `rgb_array`, or None.
        """
        self.render_mode = render_mode
        self.observation_space = Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.action_space = Box(-1, 1, (2,), np.float32) if is_continuous else Discrete(len(MOVES))
        self.metadata = self.metadata | {"render_fps": 2 * FPS / sum(repeats)}
        self._is_continuous = is_continuous
        self._repeats = repeats
        self._screen = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self.place = CENTRE
        """x, y of the dot."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Screen, dict[str, Any]]:
        """Put the dot anywhere."""
        super().reset(seed=seed, options=options)
        x, y = self.np_random.integers(LOWEST, HIGHEST, endpoint=True).tolist()
        self.place = (x, y)
        self._draw()
        return self._screen.copy(), {}

    def step(self, action: Any) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        """Move the dot; no rule ends an episode."""
        least, most = self._repeats
        times = least if least == most else int(self.np_random.integers(least, most + 1))
        before, move = self.place, self._move(action)
        reward = sum(self._moved(move) for _ in range(times))
        if self.place != before:
            self._draw(before)
        return self._screen.copy(), float(reward), False, False, {}

    def render(self) -> Screen:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The picture as it is now."""
        return self._screen.copy()

    def _move(self, action: Any) -> tuple[int, int]:
        """What an action moves, x and y."""
        if not self._is_continuous:
            return MOVES[int(action)]
        x, y = (int(np.sign(each)) if abs(each) >= THRESHOLD else 0 for each in action)
        return x, y

    def _moved(self, move: tuple[int, int]) -> int:
        """Move once, as far as there is room; the reward."""
        before = distance(self.place)
        bounds = zip(self.place, move, LOWEST, HIGHEST, strict=True)
        x, y = (min(max(at + by, low), high) for at, by, low, high in bounds)
        self.place = (x, y)
        now = distance(self.place)
        return int(now < before) - int(now > before)

    def _draw(self, before: tuple[int, int] | None = None) -> None:
        """Draw the dot; it is wiped out where it was before, or everywhere."""
        self._screen[slice(None) if before is None else pixels(before)] = 0
        self._screen[pixels(self.place)] = 255


def pixels(place: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns of the dot."""
    x, y = place
    return slice(y - REACH, y + REACH), slice(x - REACH, x + REACH)


def distance(place: tuple[int, int]) -> int:
    """The square of the distance to the centre, in pixels."""
    return (place[0] - CENTRE[0]) ** 2 + (place[1] - CENTRE[1]) ** 2


# --- names ---


def kinds() -> Iterator[tuple[str, dict[str, Any]]]:
    """The ids, and how each is made; MovingDot and MovingDotDiscrete are one and the same."""
    for name, is_continuous in (("", False), ("Discrete", False), ("Continuous", True)):
        for skip, repeats in (("", REPEATS), ("NoFrameskip", (1, 1))):
            yield f"MovingDot{name}{skip}-v0", {"is_continuous": is_continuous, "repeats": repeats}


KINDS = dict(kinds())


def register() -> None:
    """Tell Gymnasium of the ids."""
    for env_id, made_with in KINDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point=f"{__name__}:{MovingDot.__name__}",
                max_episode_steps=2 * NUM_MOVES // sum(made_with["repeats"]),
                kwargs=made_with,
            )
