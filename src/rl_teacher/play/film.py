"""Videos of played episodes with their rewards, rendered without a display.

F: frames.
"""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from rl_teacher.clips.renderer import SegmentRenderer
from rl_teacher.clips.segment import Segment, frame_steps, frame_stride, playback_speed
from rl_teacher.clips.video import RgbImage, encode_gif, encode_mp4, side_by_side
from rl_teacher.common.files import write_atomically, write_errors
from rl_teacher.common.text import counted
from rl_teacher.play.actors import Actor
from rl_teacher.play.episodes import RecordedEpisode, per_frame, record_episode
from rl_teacher.play.options import PlayOptions
from rl_teacher.play.reward_overlay import (
    CARD,
    Curve,
    RewardOverlay,
    format_reward,
    with_title,
)

SMALLEST_WIDTH, LARGEST_WIDTH = 320, 640
HOLD_S = 0.5
"""Time that the last frame of an episode stays."""


@dataclass(frozen=True)
class Column:
    """One actor's column of the video.

    Attributes:
        actor: the actor.
        episode: its episode.
        steps: [F] the step of each frame.
        curves: its reward curves.
    """

    actor: Actor
    episode: RecordedEpisode
    steps: Int64[np.ndarray, " frame"]
    curves: Sequence[Curve]


def write_film(actors: Sequence[Actor], options: PlayOptions, path: Path, console: Console) -> None:
    """Play episodes and write a video; an existing file is replaced only by a complete one.

    Args:
        actors: one actor, or two of the same environment.
        options: number of episodes, first seed, exploration.
        path: path of the video, .mp4 or .gif.
        console: output for progress and returns.

    Raises:
        RunFolderUnusable: the video cannot be written.
        BadInput: nothing can be rendered on this machine.
        RendererKilled: the rendering process was killed.
    """
    failure, remedy = f"The video cannot be written to {path}", "Name another place with --video."
    with write_errors(failure, remedy):
        # Before anything is played: rendering may take minutes.
        tempfile.TemporaryFile(dir=path.parent).close()
    fps = frame_rate(actors[0].env_info.fps)
    encode = encode_gif if path.suffix.lower() == ".gif" else encode_mp4
    with (
        closing(SegmentRenderer(actors[0].env_info)) as renderer,
        Progress(console=console, transient=True) as progress,
    ):
        content = encode(iterate_film(actors, options, renderer, progress), fps)
    with write_errors(failure, remedy):
        write_atomically(path, content, is_synced=False)
    console.out(f"video: {path}", highlight=False)


def iterate_film(
    actors: Sequence[Actor], options: PlayOptions, renderer: SegmentRenderer, progress: Progress
) -> Iterator[RgbImage]:
    """Play all episodes and yield the frames of the video, short episodes in slow motion."""
    env_fps = actors[0].env_info.fps
    for number in range(options.episodes):
        seed = options.seed + number
        episodes = [record_episode(actor, seed, explore=options.explore) for actor in actors]
        longest = max(len(each.segment) for each in episodes)
        steps, _ = frame_steps(longest, env_fps)
        columns = make_columns(actors, episodes, steps)
        progress.console.print(describe(number, columns), highlight=False, markup=False)
        caption = f"episode {number + 1} of {options.episodes}"
        task = progress.add_task(caption, total=len(steps))
        times = frames_per_image(longest, env_fps)
        image = None
        for frame, image in enumerate(compose_frames(columns, caption, renderer)):
            progress.advance(task)
            yield from itertools.repeat(image, round((frame + 1) * times) - round(frame * times))
        if image is not None:
            yield from itertools.repeat(image, round(HOLD_S * frame_rate(env_fps)))
        progress.remove_task(task)


def make_columns(
    actors: Sequence[Actor],
    episodes: Sequence[RecordedEpisode],
    steps_of_frames: Int64[np.ndarray, " longest"],
) -> list[Column]:
    """Pair actors, episodes and their rewards; true rewards share one scale.

    They have a curve even if all are 0, since all frames of a video have one size.

    Args:
        actors: one or two actors.
        episodes: their episodes.
        steps_of_frames: the step of each frame of the longest episode.
    """
    limits = true_limits(episodes)
    columns = []
    for actor, episode in zip(actors, episodes, strict=True):
        steps = steps_of_frames[steps_of_frames < len(episode.segment)]
        curves = []
        if episode.predicted_rewards is not None:
            values = per_frame(episode.predicted_rewards, steps)
            curves.append(Curve("predicted reward", values, float(episode.predicted_rewards.sum())))
        segment = episode.segment
        values = per_frame(segment.rewards, steps)
        curves.append(
            Curve("true reward", values, segment.true_return, is_truth=True, limits=limits)
        )
        columns.append(Column(actor, episode, steps, curves))
    return columns


def true_limits(episodes: Sequence[RecordedEpisode]) -> tuple[float, float]:
    """Return the lowest and the highest true reward of all episodes."""
    rewards = np.concatenate([each.segment.rewards for each in episodes])
    return float(rewards.min()), float(rewards.max())


def describe(number: int, columns: Sequence[Column]) -> str:
    """Describe lengths and returns of an episode in one line."""
    descriptions = []
    for column in columns:
        totals = "".join(f", {each.title} {format_reward(each.total)}" for each in column.curves)
        name = f"{column.actor.name}: " if len(columns) > 1 else ""
        descriptions.append(f"{name}{counted(len(column.episode.segment), 'step')}{totals}")
    return f"episode {number + 1}: {'; '.join(descriptions)}"


def frame_rate(env_fps: float) -> float:
    """Return the frames per second of a video, which all its episodes share."""
    return env_fps / frame_stride(env_fps)


def frames_per_image(num_steps: int, env_fps: float) -> float:
    """Return the number of frames of the video for each image of an episode.

    It is 1, unless the episode is so short that it is played in slow motion.
    """
    _, images_per_s = frame_steps(num_steps, env_fps)
    return frame_rate(env_fps) / (images_per_s * playback_speed(num_steps / env_fps))


# --- frames ---


def compose_frames(
    columns: Sequence[Column], caption: str, renderer: SegmentRenderer
) -> Iterator[RgbImage]:
    """Yield the frames of an episode; the shorter side holds its last image."""
    segments = [column.episode.segment for column in columns]
    sides = [
        hold_last(titled_images(column, caption, renderer, segments[:i] + segments[i + 1 :]))
        for i, column in enumerate(columns)
    ]
    overlays: list[list[RewardOverlay]] = []
    for frame in range(max(len(column.steps) for column in columns)):
        images = [next(side) for side in sides]
        # Created with the first images, whose width they share.
        overlays = overlays or [
            [RewardOverlay(curve, image.shape[1]) for curve in column.curves]
            for column, image in zip(columns, images, strict=True)
        ]
        yield side_by_side(
            [
                np.concatenate([image, *(overlay.at(frame) for overlay in below)])
                for image, below in zip(images, overlays, strict=True)
            ],
            CARD,
        )


def titled_images(
    column: Column, caption: str, renderer: SegmentRenderer, beside: Sequence[Segment]
) -> Iterator[RgbImage]:
    """Yield the images of one column with the name of its actor."""
    actor, segment = column.actor, column.episode.segment
    record = renderer.replay_record(actor.venv, segment)
    title = [f"{actor.name} · step {actor.step:,}", caption]
    for image in renderer.images(segment, column.steps, record, actor.frames, beside):
        yield np.asarray(with_title(limit_width(image), title))


def hold_last(images: Iterator[RgbImage]) -> Iterator[RgbImage]:
    """Yield images, then the last one for ever."""
    image = None
    for image in images:
        yield image
    while image is not None:
        yield image


def limit_width(image: RgbImage) -> RgbImage:
    """Resize an image that is too narrow or too wide."""
    height, width = image.shape[:2]
    wanted = min(max(width, SMALLEST_WIDTH), LARGEST_WIDTH)
    if wanted == width:
        return image
    is_enlarged = wanted > width
    filtering = Image.Resampling.NEAREST if is_enlarged else Image.Resampling.LANCZOS
    size = wanted, max(round(height * wanted / width), 1)
    return np.asarray(Image.fromarray(image).resize(size, filtering))
