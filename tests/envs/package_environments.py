"""Environments of other packages, with observations that agents take."""

import gymnasium
from gymnasium.wrappers import FlattenObservation, TimeLimit, TransformObservation


def minigrid(render_mode=None):
    """Return MiniGrid's view of 7 x 7 cells as a vector, without the text of the mission."""
    from minigrid.wrappers import ImgObsWrapper  # pyright: ignore[reportMissingImports]

    env = gymnasium.make("MiniGrid-Empty-5x5-v0", render_mode=render_mode)
    return FlattenObservation(ImgObsWrapper(env))


def vizdoom(render_mode=None):
    """Create a VizDoom environment whose observation is the screen alone."""
    import vizdoom.gymnasium_wrapper  # noqa: F401 # pyright: ignore[reportMissingImports]

    env = gymnasium.make("VizdoomBasic-v1", render_mode=render_mode, frame_skip=4)
    screen = env.observation_space["screen"]  # pyright: ignore[reportIndexIssue]
    env = TransformObservation(env, lambda observation: observation["screen"], screen)
    return TimeLimit(env, 75)
