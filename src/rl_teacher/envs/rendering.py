"""Episodes lived again in front of a camera: the clips of environments without MuJoCo."""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing

import gymnasium
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
"""Observations that differ by more than this, absolute and relative, show another life."""


def render_steps(
    env_id: str,
    record: ReplayRecord,
    steps: Integer[np.ndarray, " time"],
    observations: Shaped[np.ndarray, "time ..."] | None = None,
    frames: FrameSettings | None = None,
) -> UInt8[np.ndarray, "time height width 3"]:
    """Pictures of an episode; no display is needed.

    Args:
        env_id: any name that `envs.registry.get_env_info` accepts.
        record: of the episode.
        steps: [T] which steps, rising; step s is what the first s actions led to.
        observations: [T, ...] what was observed in these steps, to be sure that the pictures show
            what was lived.
        frames: what was seen of it, where it shows pictures; None: these as they are.

    Raises:
        BadInput: the environment draws no pictures, or lives its episode otherwise than before.
    """
    game = atari_game(env_id)
    if game is None:
        filmed = _film_of_gymnasium(env_id, record, steps, frames)
        return _stacked(env_id, filmed, observations)
    from rl_teacher.envs.atari.film import frames_of, shared_replayer  # noqa: PLC0415

    seen = None if observations is None else frames_of(record)
    with shared_replayer(game, seen) as projector:
        return _stacked(env_id, projector.film(record, steps), observations)


def _stacked(
    env_id: str,
    filmed: Iterable[tuple[Observation | None, Frame]],
    observations: Shaped[np.ndarray, "time ..."] | None,
) -> UInt8[np.ndarray, "time height width 3"]:
    """The pictures of what was lived.

    Raises:
        BadInput: something else was filmed.
    """
    shown = []
    for place, (obs, frame) in enumerate(filmed):
        if obs is not None and observations is not None:
            _check_lived(env_id, obs, observations[place])
        shown.append(frame)
    return np.stack(shown)


def film(
    env_id: str,
    record: ReplayRecord,
    steps: Integer[np.ndarray, " time"],
    frames: FrameSettings | None = None,
    *,
    is_observed: bool = True,
) -> Iterator[tuple[Observation | None, Frame]]:
    """The observation and the picture of each of some steps, one after the other.

    Args:
        env_id: any name that `envs.registry.get_env_info` accepts.
        record: of the episode.
        steps: [T] which steps, rising.
        frames: what was shown of an environment that shows pictures; records of Atari say so.
        is_observed: whether the observations are needed; None may come where they are not.
    """
    game = atari_game(env_id)
    if game is None:
        return _film_of_gymnasium(env_id, record, steps, frames)
    from rl_teacher.envs.atari.film import EpisodeReplayer, frames_of  # noqa: PLC0415

    return EpisodeReplayer(game, frames_of(record) if is_observed else None).film(record, steps)


def _film_of_gymnasium(
    env_id: str,
    record: ReplayRecord,
    steps: Integer[np.ndarray, " time"],
    frames: FrameSettings | None = None,
) -> Iterator[tuple[Observation, Frame]]:
    _do_without_a_display()
    wanted = set(steps.tolist())
    with closing(ReplayableEnv(make_rendered_env(env_id, frames), ReplayHistory(0))) as env:
        obs = env.begin_again(record.beginning)
        for step in range(max(wanted) + 1):
            if step > 0:
                obs, *_ = env.step(record.actions[step - 1])
            if step in wanted:
                yield obs, _picture(env_id, env)


def _do_without_a_display() -> None:
    """Let pygame, which draws most of these environments, open no window and print no greeting."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def _picture(env_id: str, env: gymnasium.Env) -> Frame:
    picture = np.asarray(env.render())
    if picture.shape[2:] != (3,) or picture.dtype != np.uint8:
        raise BadInput(
            f"{env_id} was asked for a picture (render_mode='rgb_array') and returned "
            f"an array of {picture.dtype} {picture.shape}; uint8 [height, width, 3] is needed. Its "
            "clips cannot be shown to a person: mend its render(), or choose another environment."
        )
    return picture


def _check_lived(env_id: str, obs: Observation, lived: Observation) -> None:
    if not np.allclose(obs, lived, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        raise BadInput(
            f"{env_id} did not live its episode again as it was, so its clips cannot be shown: a "
            "person would judge what never happened. Let all its randomness come from "
            "self.np_random, or choose another environment."
        )
