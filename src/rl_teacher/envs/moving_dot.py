"""MovingDot: move a white dot to the centre of a black image.

Source: github.com/mrahtz/gym-moving-dot, with the ids of both its versions.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import UInt8

DESCRIPTION = "move a dot to the centre of an image"
HEIGHT, WIDTH = 210, 160
"""Size of the image in pixels, as in Atari."""
HALF_SIDE = 2
"""Half the side of the dot, which is 4 x 4 pixels large."""
LOWEST, HIGHEST = (HALF_SIDE, HALF_SIDE), (WIDTH - 1 - HALF_SIDE, HEIGHT - 1 - HALF_SIDE)
"""Bounds of the dot's x and y; y grows downwards."""
CENTRE = (80, 105)
MOVES = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
"""Moves (x, y) of the discrete actions: none, down, right, up, left."""
THRESHOLD = 0.1
"""Components of a continuous action below this magnitude do not move the dot."""
NUM_MOVES = 1_000
"""Moves per episode; with frame skipping an episode has a third as many steps."""
REPEATS = (2, 4)
"""Least and most repetitions of an action with frame skipping, as in Atari's v0."""
FPS = 60

Screen = UInt8[np.ndarray, "210 160 3"]


class MovingDot(gymnasium.Env):
    """A dot that moves by one pixel: reward +1 if nearer to the centre, -1 if further, else 0."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}  # noqa: RUF012 - Gymnasium's way

    def __init__(
        self,
        *,
        is_continuous: bool = False,
        repeats: tuple[int, int] = (1, 1),
        render_mode: str | None = None,
    ) -> None:
        """Create an environment.

        Args:
            is_continuous: whether actions are two numbers in [-1, 1] for x and y, not one of five
                moves.
            repeats: least and most repetitions of an action, drawn for each step; the rewards of
                a step are summed.
            render_mode: `rgb_array` or None.
        """
        self.render_mode = render_mode
        self.observation_space = Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.action_space = Box(-1, 1, (2,), np.float32) if is_continuous else Discrete(len(MOVES))
        self.metadata = self.metadata | {"render_fps": 2 * FPS / sum(repeats)}
        self._is_continuous = is_continuous
        self._repeats = repeats
        self._screen = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self.place = CENTRE
        """Position (x, y) of the dot."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Screen, dict[str, Any]]:
        """Place the dot at random."""
        super().reset(seed=seed, options=options)
        x, y = self.np_random.integers(LOWEST, HIGHEST, endpoint=True).tolist()
        self.place = (x, y)
        self._draw()
        return self._screen.copy(), {}

    def step(self, action: Any) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        """Move the dot. No rule ends an episode."""
        fewest, most = self._repeats
        times = int(self.np_random.integers(fewest, most + 1)) if fewest < most else fewest
        if self._is_continuous:
            move = [int(np.sign(each)) if abs(each) >= THRESHOLD else 0 for each in action]
        else:
            move = MOVES[int(action)]
        before, reward = self.place, 0
        for _ in range(times):
            bounds = zip(self.place, move, LOWEST, HIGHEST, strict=True)
            x, y = (min(max(at + by, low), high) for at, by, low, high in bounds)
            reward += int(np.sign(distance(self.place) - distance((x, y))))
            self.place = (x, y)
        if self.place != before:
            self._draw(before)
        return self._screen.copy(), float(reward), False, False, {}

    def render(self) -> Screen:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the current image."""
        return self._screen.copy()

    def _draw(self, before: tuple[int, int] | None = None) -> None:
        """Draw the dot after erasing the previous one, or the whole screen."""
        self._screen[slice(None) if before is None else pixels(before)] = 0
        self._screen[pixels(self.place)] = 255


def pixels(place: tuple[int, int]) -> tuple[slice, slice]:
    """Return the rows and columns of a dot."""
    x, y = place
    return slice(y - HALF_SIDE, y + HALF_SIDE), slice(x - HALF_SIDE, x + HALF_SIDE)


def distance(place: tuple[int, int]) -> int:
    """Return the squared distance to the centre in pixels."""
    # Squared: only the order of distances matters, and integers compare exactly.
    return (place[0] - CENTRE[0]) ** 2 + (place[1] - CENTRE[1]) ** 2


# --- names ---


def kinds() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all ids with their keywords; MovingDot and MovingDotDiscrete are the same."""
    for name, is_continuous in (("", False), ("Discrete", False), ("Continuous", True)):
        for skip, repeats in (("", REPEATS), ("NoFrameskip", (1, 1))):
            yield f"MovingDot{name}{skip}-v0", {"is_continuous": is_continuous, "repeats": repeats}


KINDS = dict(kinds())


def register() -> None:
    """Register the ids with Gymnasium."""
    for env_id, keywords in KINDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point=f"{__name__}:{MovingDot.__name__}",
                # The mean number of repeats is half the sum of least and most.
                max_episode_steps=2 * NUM_MOVES // sum(keywords["repeats"]),
                kwargs=keywords,
            )
