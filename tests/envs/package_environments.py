"""Environments of other packages, with observations that agents take."""

import gymnasium
from gymnasium.wrappers import FlattenObservation


def minigrid(render_mode=None):
    """Return MiniGrid's view of 7 x 7 cells as a vector, without the text of the mission."""
    from minigrid.wrappers import ImgObsWrapper  # pyright: ignore[reportMissingImports]

    env = gymnasium.make("MiniGrid-Empty-5x5-v0", render_mode=render_mode)
    return FlattenObservation(ImgObsWrapper(env))
