"""Clips and scenes, whose content never changes under its address."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rl_teacher.clips.poses import unpack
from rl_teacher.common.errors import CorruptClip, MediaNotFound
from rl_teacher.store.media import CONTENT_HASH, MediaFiles, scene_key
from rl_teacher.store.records import ClipView
from rl_teacher.web.access import LabelerRoute
from rl_teacher.web.clip_export import MEDIA_TYPES as EXPORT_TYPES
from rl_teacher.web.clip_export import ExportedClip, ExportFormat, download, export
from rl_teacher.web.serializers import serialize_clip
from rl_teacher.web.services import ServicesDep

MEDIA_TYPES = {"poses": "application/octet-stream", "video": "video/mp4"}
IMMUTABLE = "private, max-age=31536000, immutable"
CLIP_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {each: {} for each in MEDIA_TYPES.values()}}
}
EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {each: {} for each in EXPORT_TYPES.values()}}
}

Format = Annotated[ExportFormat, Query(alias="format")]

router = APIRouter(prefix="/api/v1", tags=["media"], route_class=LabelerRoute)


@router.get("/clips/{content_hash}", response_class=Response, responses=CLIP_RESPONSES)
def send_clip(content_hash: str, services: ServicesDep) -> Response:
    """Send the content of a clip: poses, or a video."""
    clip = services.store.clips.get(check_hash("clip", content_hash))
    kind = serialize_clip(clip).kind
    return immutable(read_clip(clip, services.media), MEDIA_TYPES[kind])


@router.get("/clips/{content_hash}/download", response_class=Response, responses=EXPORTED)
def download_clip(content_hash: str, services: ServicesDep, form: Format = "mp4") -> Response:
    """Return a clip as a file to save: an MP4 video or a GIF."""
    clip = services.store.clips.get(check_hash("clip", content_hash))
    content = export([exported_clip(clip, services.media)], form)
    return download(content, f"clip-{content_hash[:12]}", form)


@router.get("/scenes/{scene_hash}")
def send_scene(scene_hash: str, services: ServicesDep) -> Response:
    """Send the scene that clips of poses animate, as JSON."""
    key = scene_key(check_hash("scene", scene_hash))
    return immutable(services.media.get(key), "application/json")


def check_hash(what: str, value: str) -> str:
    """Return a hash after a check of its format.

    Raises:
        MediaNotFound: The hash is malformed.
    """
    if not CONTENT_HASH.fullmatch(value):
        raise MediaNotFound(
            f"There is no {what} {value[:80]!r}: 64 characters 0-9, a-f are needed."
        )
    return value


def read_clip(clip: ClipView, media: MediaFiles) -> bytes:
    """Read the file of a clip and check that a page can show it.

    Raises:
        CorruptClip: The file is missing, truncated or altered, is not a video, or has another
            number of frames than its metadata.
    """
    try:
        content = media.get(clip.media_key or "")
        if clip.kind == "video":
            if content[4:8] != b"ftyp":
                raise CorruptClip("It is not an MP4 file.")
        elif (num_frames := len(unpack(content)[0])) != clip.num_frames:
            raise CorruptClip(f"It has {num_frames} frames instead of {clip.num_frames}.")
    except (MediaNotFound, CorruptClip) as error:
        raise CorruptClip(f"Clip {clip.content_hash} cannot be shown. {error}") from error
    return content


def exported_clip(clip: ClipView, media: MediaFiles) -> ExportedClip:
    """Read a clip and the scene that its poses animate.

    Raises:
        NotShown: The clip cannot be shown yet.
        CorruptClip: Its file or metadata is invalid.
        MediaNotFound: The scene is missing.
    """
    shown = serialize_clip(clip)
    scene = None if clip.scene_hash is None else media.get(scene_key(clip.scene_hash))
    return ExportedClip(read_clip(clip, media), shown.fps, shown.speed, scene)


def immutable(content: bytes, media_type: str) -> Response:
    """Return content that never changes under its address, so that clients keep it."""
    return Response(content, headers={"Cache-Control": IMMUTABLE}, media_type=media_type)
