"""Clips and scenes, whose content never changes under its address."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from rl_teacher.clips.poses import unpack
from rl_teacher.common.errors import CorruptClip, MediaNotFound
from rl_teacher.store.media import CONTENT_HASH, MediaFiles, scene_key
from rl_teacher.store.records import ClipView
from rl_teacher.web.access import Access, requires
from rl_teacher.web.clip_export import MEDIA_TYPES as EXPORT_TYPES
from rl_teacher.web.clip_export import ExportedClip, ExportFormat, download, export
from rl_teacher.web.serializers import serialize_clip
from rl_teacher.web.services import ServicesDep

BYTE_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
MEDIA_TYPES = {"poses": "application/octet-stream", "video": "video/mp4"}
IMMUTABLE = "private, max-age=31536000, immutable"
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has the content, by If-None-Match."}
}
CONTENT = {"content": {"application/octet-stream": {}, "video/mp4": {}}}
BYTES: dict[int | str, dict[str, Any]] = NOT_MODIFIED | {
    200: CONTENT,
    206: CONTENT | {"description": "The requested range."},
    416: {"description": "The requested range is beyond the end of the content."},
}

EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {each: {} for each in EXPORT_TYPES.values()}}
}

Format = Annotated[ExportFormat, Query(alias="format")]

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


@router.get("/clips/{content_hash}/download", response_class=Response, responses=EXPORTED)
@requires(Access.LABELER)
def download_clip(content_hash: str, services: ServicesDep, form: Format = "mp4") -> Response:
    """Return a clip as a file to save: an MP4 video or a GIF."""
    clip = services.store.clips.get(check_hash("clip", content_hash))
    content = export([exported_clip(clip, services.media)], form)
    return download(content, f"clip-{content_hash[:12]}", form)


@router.head("/scenes/{scene_hash}", include_in_schema=False)
@router.get("/scenes/{scene_hash}", responses=NOT_MODIFIED)
@requires(Access.LABELER)
def send_scene(scene_hash: str, request: Request, services: ServicesDep) -> Response:
    """Send the scene that clips of poses animate, as JSON."""
    check_hash("scene", scene_hash)
    if is_not_modified(request, scene_hash):
        return Response(status_code=304, headers=immutable_headers(scene_hash))
    content = services.media.get(scene_key(scene_hash))
    return Response(content, headers=immutable_headers(scene_hash), media_type="application/json")


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


def immutable_headers(content_hash: str) -> dict[str, str]:
    """Return headers for content that never changes."""
    return {"Cache-Control": IMMUTABLE, "ETag": f'"{content_hash}"'}


def is_not_modified(request: Request, content_hash: str) -> bool:
    """Return whether the client has the current content."""
    value = request.headers.get("if-none-match", "")
    known = [each.strip().removeprefix("W/") for each in value.split(",")]
    return f'"{content_hash}"' in known or known == ["*"]


def range_response(request: Request, content: bytes, headers: Mapping[str, str]) -> Response:
    """Return the whole content, or the requested range (RFC 9110, section 14).

    Browsers request ranges to seek in a video. A request for several ranges, for a unit other than
    bytes or, by If-Range, for other content gets the whole content.

    Args:
        request: Request with or without a Range header.
        content: The whole content.
        headers: Headers of the whole content, including ETag.
    """
    all_headers = {"Accept-Ranges": "bytes", **headers}
    is_current = request.headers.get("if-range", headers["ETag"]) == headers["ETag"]
    wanted = request.headers.get("range", "").replace(" ", "") if is_current else ""
    requested = BYTE_RANGE.fullmatch(wanted)
    if requested is None or requested.groups() == ("", ""):
        return Response(content, headers=all_headers)
    first, last, size = requested[1], requested[2], len(content)
    if first:
        start, end = int(first), min(int(last) + 1 if last else size, size)
    else:  # "-5" requests the last five bytes
        start, end = max(size - int(last), 0), size
    if start >= end:
        return Response(status_code=416, headers=all_headers | {"Content-Range": f"bytes */{size}"})
    part = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
    return Response(content[start:end], 206, all_headers | part)
