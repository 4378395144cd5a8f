"""Videos of played episodes with their rewards, rendered without a display."""

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from rl_teacher.clips.poses import body_poses
from rl_teacher.clips.scene import build_scene
from rl_teacher.clips.segment import frame_steps
from rl_teacher.clips.video import encode_mp4
from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.envs.registry import camera_settings
from rl_teacher.envs.rendering import iterate_frames
from rl_teacher.play.actors import Actor
from rl_teacher.play.episodes import RecordedEpisode, per_frame, record_episode
from rl_teacher.play.offscreen_renderer import OffscreenRenderer, Shot
from rl_teacher.play.options import PlayOptions
from rl_teacher.play.reward_overlay import CARD, Curve, RewardOverlay, figure, with_title
from rl_teacher.store.files import write_atomically

WIDTH, HEIGHT = 480, 360
"""Size of rendered bodies; an environment's own images keep their size."""
SMALLEST_WIDTH, LARGEST_WIDTH = 320, 640
GAP = 8
"""Pixels between two columns."""
HOLD_S = 0.5
"""Time that the last frame of an episode stays."""
GIF_FPS = 20.0

Picture = UInt8[np.ndarray, "_ _ 3"]


@dataclass(frozen=True)
class Column:
    """One actor's column of the video.

    Attributes:
        actor: the actor.
        episode: its episode.
        curves: its reward curves.
    """

    actor: Actor
    episode: RecordedEpisode
    curves: Sequence[Curve]

    @property
    def num_frames(self) -> int:
        """The number of frames."""
        return len(self.steps)

    @property
    def steps(self) -> np.ndarray:
        """The step of each frame."""
        return frame_steps(len(self.episode.segment), self.actor.env_info.fps)[0]


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
    """
    with convert_os_errors(path):
        tempfile.TemporaryFile(dir=path.parent).close()
    _, fps = frame_steps(1, actors[0].env_info.fps)
    with ExitStack() as stack:
        artist = None
        if actors[0].model is not None:
            artist = stack.enter_context(closing(OffscreenRenderer()))
        progress = stack.enter_context(Progress(console=console, transient=True))
        images = played(actors, options, artist, progress)
        is_gif = path.suffix.lower() == ".gif"
        content = encode_gif(images, fps) if is_gif else encode_mp4(images, fps)
    with convert_os_errors(path):
        write_atomically(path, content, is_synced=False)
    console.print(f"video: {path}", soft_wrap=True, highlight=False, markup=False)


@contextmanager
def convert_os_errors(path: Path) -> Iterator[None]:
    """Convert OSError to an error that names a remedy.

    Raises:
        RunFolderUnusable: the video cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise RunFolderUnusable(
            f"The video cannot be written to {path}: {error.strerror or error}. Name another "
            "place with --video."
        ) from error


def played(
    actors: Sequence[Actor],
    options: PlayOptions,
    artist: OffscreenRenderer | None,
    progress: Progress,
) -> Iterator[Picture]:
    """Play all episodes and yield their frames."""
    for number in range(options.episodes):
        seed = options.seed + number
        episode = [record_episode(actor, seed, explore=options.explore) for actor in actors]
        columns = columns_of(actors, episode)
        progress.console.print(in_words(number, columns), highlight=False, markup=False)
        titles = [
            [f"{actor.name} · step {actor.step:,}", f"episode {number + 1} of {options.episodes}"]
            for actor in actors
        ]
        num_frames = max(column.num_frames for column in columns)
        task = progress.add_task(f"episode {number + 1} of {options.episodes}", total=num_frames)
        for image in film_of(columns, titles, artist):
            progress.advance(task)
            yield image
        progress.remove_task(task)


def columns_of(actors: Sequence[Actor], episode: Sequence[RecordedEpisode]) -> list[Column]:
    """Pair actors, episodes and curves; true rewards share one scale."""
    truths = [each.true_rewards for each in episode if each.true_rewards is not None]
    limits = (
        (min(float(t.min()) for t in truths), max(float(t.max()) for t in truths))
        if truths
        else None
    )
    return [
        Column(actor, each, list(curves_of(actor, each, limits)))
        for actor, each in zip(actors, episode, strict=True)
    ]


def curves_of(
    actor: Actor, episode: RecordedEpisode, limits: tuple[float, float] | None
) -> Iterator[Curve]:
    """Yield the known reward curves of an episode."""
    steps, _ = frame_steps(len(episode.segment), actor.env_info.fps)
    if episode.predicted_rewards is not None:
        values = per_frame(episode.predicted_rewards, steps)
        yield Curve("predicted reward", values, float(episode.predicted_rewards.sum()))
    if episode.true_rewards is not None:
        values = per_frame(episode.true_rewards, steps)
        total = episode.segment.true_return
        yield Curve("true reward", values, total, is_truth=True, limits=limits)


def in_words(number: int, columns: Sequence[Column]) -> str:
    """Describe lengths and returns in one line."""
    descriptions = []
    for column in columns:
        totals = "".join(f", {each.title} {figure(each.total)}" for each in column.curves)
        name = f"{column.actor.name}: " if len(columns) > 1 else ""
        descriptions.append(f"{name}{len(column.episode.segment):,} steps{totals}")
    return f"episode {number + 1}: {'; '.join(descriptions)}"


# --- frames ---


def film_of(
    columns: Sequence[Column], titles: Sequence[Sequence[str]], artist: OffscreenRenderer | None
) -> Iterator[Picture]:
    """Yield the frames of an episode; the shorter side holds its last frame."""
    sides = [with_last(pictures_of(column, artist)) for column in columns]
    num_frames = max(column.num_frames for column in columns)
    overlays: list[list[RewardOverlay]] = []
    fps = frame_steps(1, columns[0].actor.env_info.fps)[1]
    image = None
    for frame in range(num_frames):
        panes = [
            np.asarray(with_title(next(side), t)) for side, t in zip(sides, titles, strict=True)
        ]
        overlays = overlays or [
            [RewardOverlay(curve, pane.shape[1]) for curve in column.curves]
            for column, pane in zip(columns, panes, strict=True)
        ]
        image = beside(
            [
                np.concatenate([pane, *(strip.at(frame) for strip in below)])
                for pane, below in zip(panes, overlays, strict=True)
            ]
        )
        yield image
    if image is not None:
        yield from itertools.repeat(image, round(HOLD_S * fps))


def with_last(images: Iterator[Picture]) -> Iterator[Picture]:
    """Yield images, then the last one for ever."""
    image = None
    for image in images:
        yield image
    while image is not None:
        yield image


def pictures_of(column: Column, artist: OffscreenRenderer | None) -> Iterator[Picture]:
    """Return the images of one column."""
    segment, env_id = column.episode.segment, column.actor.env_info.id
    if artist is not None:
        return artist.draw(shot_of(column), segment.scene_states[column.steps])
    record = column.episode.replay_record
    assert record is not None  # noqa: S101 - only MuJoCo has none
    filmed = iterate_frames(env_id, record, column.steps, column.actor.frames, is_observed=False)
    return (in_good_size(frame) for _, frame in filmed)


def shot_of(column: Column) -> Shot:
    """Return the initial camera of the page."""
    model, env_id = column.actor.model, column.actor.env_info.id
    heights = body_poses(model, column.episode.segment.scene_states)[..., 2]
    camera = build_scene(model, camera_settings(env_id))["camera"]
    return Shot(env_id, camera, float(heights.mean()), WIDTH, HEIGHT)


def in_good_size(frame: Picture) -> Picture:
    """Resize an image that is too narrow or too wide."""
    height, width = frame.shape[:2]
    wanted = min(max(width, SMALLEST_WIDTH), LARGEST_WIDTH)
    if wanted == width:
        return frame
    is_larger = wanted > width
    how = Image.Resampling.NEAREST if is_larger else Image.Resampling.LANCZOS
    size = wanted, max(round(height * wanted / width), 1)
    return np.asarray(Image.fromarray(frame).resize(size, how))


def beside(columns: Sequence[Picture]) -> Picture:
    """Join images horizontally, padding the shorter ones below."""
    height = max(len(column) for column in columns)
    parts: list[np.ndarray] = []
    for column in columns:
        if parts:
            parts.append(np.full((height, GAP, 3), CARD, np.uint8))
        rest = np.full((height - len(column), column.shape[1], 3), CARD, np.uint8)
        parts.append(np.concatenate([column, rest]))
    return np.concatenate(parts, axis=1)


def encode_gif(images: Iterable[Picture], fps: float) -> bytes:
    """Encode an endless GIF with at most 20 frames per second."""
    every = max(1, int(np.ceil(fps / GIF_FPS)))
    chosen = itertools.islice(iter(images), 0, None, every)
    quantised = (
        Image.fromarray(each).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        for each in chosen
    )
    content = BytesIO()
    # A GIF counts in hundredths of a second.
    duration_ms = 10 * round(100 * every / fps)
    next(quantised).save(
        content,
        "GIF",
        save_all=True,
        append_images=quantised,
        duration=duration_ms,
        loop=0,
    )
    return content.getvalue()
