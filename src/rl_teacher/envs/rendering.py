"""Rendering by replay: the frames of environments without MuJoCo."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from jaxtyping import Integer, Shaped, UInt8

from rl_teacher.common.errors import BadInput
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.episode_replay import ReplayHistory, ReplayRecord
from rl_teacher.envs.registry import atari_game, make_rendered_env
from rl_teacher.envs.snapshots import ReplayableEnv

Frame = UInt8[np.ndarray, "height width 3"]
Observation = Shaped[np.ndarray, "..."]

TOLERANCE = 1e-4
"""Largest difference, absolute and relative, between recorded and replayed observations."""


def render_steps(
    env_id: str,
    record: ReplayRecord,
    steps: Integer[np.ndarray, " time"],
    observations: Shaped[np.ndarray, "time ..."] | None = None,
    frames: FrameSettings | None = None,
) -> UInt8[np.ndarray, "time height width 3"]:
    """Render steps of an episode without a display.

    Args:
        env_id: any name that `envs.registry.get_env_info` accepts.
        record: the record of the episode.
        steps: [T] ascending step numbers; step s follows the first s actions.
        observations: [T, ...] the recorded observations of these steps, to verify the replay.
        frames: preprocessing of image observations; None if there is none.

    Raises:
        BadInput: the environment renders no images, or the replay differs from the record.
    """
    stacked = []
    for index, (obs, frame) in enumerate(iterate_frames(env_id, record, steps, frames)):
        if observations is not None:
            check_replayed(env_id, obs, observations[index])
        stacked.append(frame)
    return np.stack(stacked)


def check_replayed(env_id: str, replayed: Observation | None, recorded: Observation) -> None:
    """Compare a replayed with a recorded observation.

    Raises:
        BadInput: they differ.
    """
    if replayed is None or np.allclose(
        replayed, recorded, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    ):
        return
    raise BadInput(
        f"Replaying {env_id} gave other observations than the recorded episode, so its clips would "
        "show what never happened. Draw all randomness from self.np_random, or choose another "
        "environment."
    )


def iterate_frames(
    env_id: str,
    record: ReplayRecord,
    steps: Integer[np.ndarray, " time"],
    frames: FrameSettings | None = None,
) -> Iterator[tuple[Observation | None, Frame]]:
    """Yield the observation and the frame of each step.

    Args:
        env_id: any name that `envs.registry.get_env_info` accepts.
        record: the record of the episode.
        steps: [T] ascending step numbers.
        frames: preprocessing of image observations; None if there is none.

    Yields:
        The observation, and the [H, W, 3] frame. Of Atari games, which always repeat themselves,
        the observation is None: it would take another emulator.
    """
    game = atari_game(env_id)
    if game is None:
        yield from _iterate_gymnasium_frames(env_id, record, steps, frames)
        return
    from rl_teacher.envs.atari.emulators import shared_replayer  # noqa: PLC0415

    with shared_replayer(game) as replayer:
        for image in replayer.iterate_images(record, steps):
            yield None, image.transpose(1, 2, 0)


def _iterate_gymnasium_frames(
    env_id: str,
    record: ReplayRecord,
    steps: Integer[np.ndarray, " time"],
    frames: FrameSettings | None = None,
) -> Iterator[tuple[Observation, Frame]]:
    requested = set(steps.tolist())
    size: tuple[int, ...] | None = None
    with closing(ReplayableEnv(make_rendered_env(env_id, frames), ReplayHistory(0))) as env:
        obs = env.restart(record.reset_state)
        for step in range(max(requested) + 1):
            if step > 0:
                obs, *_ = env.step(record.actions[step - 1])
            # Every step is taken, but rendering costs more than stepping.
            if step in requested:
                rendered = env.render()
                if (fault := find_frame_fault(rendered)) is not None:
                    raise BadInput(f"{env_id}: {fault}")
                frame = np.asarray(rendered)
                size = size or frame.shape
                if frame.shape != size:
                    raise BadInput(
                        f"{env_id}: render() returned frames of {size[0]} x {size[1]} and of "
                        f"{frame.shape[0]} x {frame.shape[1]} pixels: all must have one size. Its "
                        "clips cannot be shown."
                    )
                yield obs, frame


def find_frame_fault(rendered: Any) -> str | None:
    """Describe how the result of `render` is not an RGB image; None where it is one."""
    image = np.asarray(rendered)
    if image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        return None
    returned = "None" if rendered is None else f"{image.dtype} {image.shape}"
    return (
        f"render() returned {returned}: uint8 [height, width, 3] is needed, with "
        "render_mode='rgb_array'. Its clips cannot be shown."
    )
