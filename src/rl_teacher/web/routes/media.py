"""Clips and scenes, whose content never changes under its address."""

import re
from typing import Any

from fastapi import APIRouter, Request, Response

from rl_teacher.clips.poses import unpack
from rl_teacher.common.errors import CorruptClip, MediaNotFound
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import ClipView
from rl_teacher.web.access import Access, requires
from rl_teacher.web.range_requests import range_response
from rl_teacher.web.serializers import serialize_clip
from rl_teacher.web.services import ServicesDep

HASH = re.compile(r"[0-9a-f]{64}")
MEDIA_TYPES = {"poses": "application/octet-stream", "video": "video/mp4"}
IMMUTABLE = "private, max-age=31536000, immutable"
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}, "video/mp4": {}}}
}

router = APIRouter(prefix="/api/v1", tags=["media"])


@router.head("/clips/{content_hash}", include_in_schema=False)
@router.get("/clips/{content_hash}", responses=BYTES)
@requires(Access.LABELER)
def send_clip(content_hash: str, request: Request, services: ServicesDep) -> Response:
    """Send the content of a clip: poses, or a video, which supports range requests."""
    clip = services.store.clips.get(check_hash("clip", content_hash))
    kind = serialize_clip(clip).kind
    if is_not_modified(request, content_hash):
        return Response(status_code=304, headers=immutable_headers(content_hash))
    content = read_clip(clip, services.media)
    headers = immutable_headers(content_hash) | {"Content-Type": MEDIA_TYPES[kind]}
    return range_response(request, content, headers)


@router.head("/scenes/{scene_hash}", include_in_schema=False)
@router.get("/scenes/{scene_hash}")
@requires(Access.LABELER)
def send_scene(scene_hash: str, request: Request, services: ServicesDep) -> Response:
    """Send the scene that clips of poses animate, as JSON."""
    check_hash("scene", scene_hash)
    if is_not_modified(request, scene_hash):
        return Response(status_code=304, headers=immutable_headers(scene_hash))
    content = services.media.get(f"scenes/{scene_hash}.json")
    return Response(content, headers=immutable_headers(scene_hash), media_type="application/json")


def check_hash(what: str, value: str) -> str:
    """Return a hash after a check of its format.

    Raises:
        MediaNotFound: The hash is malformed.
    """
    if not HASH.fullmatch(value):
        raise MediaNotFound(f"There is no {what} {value[:80]!r}: 64 of 0-9, a-f were needed.")
    return value


def read_clip(clip: ClipView, media: MediaFiles) -> bytes:
    """Read the file of a clip and check it against its metadata.

    Raises:
        CorruptClip: The file is missing, truncated or altered.
    """
    try:
        content = media.get(clip.media_key or "")
    except MediaNotFound as error:
        raise corrupt_clip(clip, str(error)) from error
    except CorruptClip as error:
        raise corrupt_clip(clip, str(error)) from error
    check_content(clip, content)
    return content


def check_content(clip: ClipView, content: bytes) -> None:
    """Check that a page can show the content.

    Raises:
        CorruptClip: The number of frames differs from the metadata, or the file is not a video.
    """
    if clip.kind == "video":
        if content[4:8] != b"ftyp":
            raise corrupt_clip(clip, "It is no MP4 file.")
        return
    try:
        poses, _ = unpack(content)
    except CorruptClip as error:
        raise corrupt_clip(clip, str(error)) from error
    if len(poses) != clip.num_frames:
        raise corrupt_clip(clip, f"It has {len(poses)} frames, not {clip.num_frames}.")


def corrupt_clip(clip: ClipView, why: str) -> CorruptClip:
    """Build the error of a corrupt clip."""
    return CorruptClip(f"Clip {clip.content_hash} cannot be shown. {why}")


def immutable_headers(content_hash: str) -> dict[str, str]:
    """Return headers for content that never changes."""
    return {"Cache-Control": IMMUTABLE, "ETag": f'"{content_hash}"'}


def is_not_modified(request: Request, content_hash: str) -> bool:
    """Return whether the client has the current content."""
    value = request.headers.get("if-none-match", "")
    known = [each.strip().removeprefix("W/") for each in value.split(",")]
    return f'"{content_hash}"' in known or known == ["*"]
