"""Export of clips as GIF or MP4, rendered on the server."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from fastapi import Response
from pydantic import ValidationError

from rl_teacher.clips.offscreen import OffscreenRenderer, View
from rl_teacher.clips.poses import unpack
from rl_teacher.clips.scene import aim_camera
from rl_teacher.clips.video import Frame, decode_mp4, encode_gif, encode_mp4, side_by_side
from rl_teacher.common.errors import BadInput, CorruptClip
from rl_teacher.web.problems import NotRendered, TooMany, describe_errors
from rl_teacher.web.schemas.shared import Scene

ExportFormat = Literal["gif", "mp4"]
MEDIA_TYPES = {"gif": "image/gif", "mp4": "video/mp4"}

WIDTH, HEIGHT = 480, 360
"""Size of rendered poses; videos keep their size."""
WHITE = (255, 255, 255)
MAX_WAITING = 4
"""Exports that are rendered or wait for it; one more is rejected."""

RENDERING = threading.Lock()
SLOTS = threading.BoundedSemaphore(MAX_WAITING)


@dataclass(frozen=True)
class ExportedClip:
    """A clip to export, alone or beside another one.

    Attributes:
        content: Encoded poses, or a video.
        fps: Frames per second.
        speed: Speed at which it is played, see `playback_speed`.
        scene: Scene that the poses animate, as JSON; None for a video.
    """

    content: bytes
    fps: float
    speed: float
    scene: bytes | None


def export(sides: Sequence[ExportedClip], form: ExportFormat) -> bytes:
    """Return the file that shows one clip, or several side by side.

    Raises:
        TooMany: Too many exports wait.
        NotRendered: This machine cannot render.
        CorruptClip: A clip or scene is invalid.
    """
    if form == "mp4" and len(sides) == 1 and sides[0].scene is None and sides[0].speed == 1:
        return sides[0].content
    if not SLOTS.acquire(blocking=False):
        raise TooMany("Other clips are being rendered. Try again in a few seconds.")
    try:
        # One at a time, because rendering competes with training for the processor.
        with RENDERING:
            return encode(sides, form)
    finally:
        SLOTS.release()


def encode(sides: Sequence[ExportedClip], form: ExportFormat) -> bytes:
    """Encode clips side by side, at the speed at which the page plays them."""
    with ExitStack() as stack:
        renderer = None
        if any(side.scene is not None for side in sides):
            try:
                renderer = stack.enter_context(closing(OffscreenRenderer()))
            except BadInput as error:
                raise NotRendered(str(error)) from error
        # Short clips show every step, longer ones every k-th: repeat frames of the slower ones.
        fps = max(side.fps for side in sides)
        columns = []
        for side in sides:
            others = [each for each in sides if each is not side]
            columns.append(repeat_each(frames_of(side, renderer, others), round(fps / side.fps)))
        encode_frames = encode_gif if form == "gif" else encode_mp4
        return encode_frames(joined(columns), fps * max(side.speed for side in sides))


def frames_of(
    clip: ExportedClip, renderer: OffscreenRenderer | None, beside: Sequence[ExportedClip] = ()
) -> Iterator[Frame]:
    """Yield the frames of a clip.

    Args:
        clip: The clip.
        renderer: Renderer of poses; None if there are only videos.
        beside: Clips shown next to it, which share the camera's height and distance.

    Raises:
        CorruptClip: The clip or its scene is invalid.
    """
    if clip.scene is None or renderer is None:
        yield from decode_mp4(clip.content)
        return
    try:
        scene = Scene.model_validate_json(clip.scene)
    except ValidationError as error:
        message = describe_errors(error.errors())
        raise CorruptClip(f"The scene of the clip is invalid: {message}") from error
    poses, _ = unpack(clip.content)
    if poses.shape[1] != len(scene.bodies):
        raise CorruptClip(
            f"The clip has {poses.shape[1]} bodies, but its scene has {len(scene.bodies)}."
        )
    others = [unpack(each.content)[0] for each in beside if each.scene == clip.scene]
    others = [each for each in others if each.shape[1:] == poses.shape[1:]]
    try:
        targets, distance = aim_camera(scene.model_dump(), poses, WIDTH / HEIGHT, others)
        # What was checked is drawn, in which false is 0.
        view = View(scene.model_dump_json().encode(), distance, WIDTH, HEIGHT)
        yield from renderer.draw(view, poses, targets)
    except (ValueError, LookupError) as error:
        raise CorruptClip(f"The scene of the clip cannot be drawn: {error!s:.200}") from error


def repeat_each(frames: Iterator[Frame], times: int) -> Iterator[Frame]:
    """Yield every frame several times in a row."""
    return (frame for frame in frames for _ in range(times))


def joined(sides: Sequence[Iterator[Frame]]) -> Iterator[Frame]:
    """Yield the frames of clips side by side; a shorter clip holds its last frame."""
    last: list[Frame] = []
    for frames in zip_longest(*sides):
        last = [
            before if frame is None else frame
            for frame, before in zip(frames, last or frames, strict=True)
        ]
        yield side_by_side(last, WHITE)


def download(content: bytes, name: str, form: ExportFormat) -> Response:
    """Return the response with a file to save."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return Response(content, headers=headers, media_type=MEDIA_TYPES[form])
