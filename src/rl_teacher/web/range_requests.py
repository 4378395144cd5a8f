"""Range requests (RFC 9110, section 14), which browsers use to seek in a video."""

import re
from collections.abc import Mapping

from fastapi import Request, Response

ONE_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def range_response(request: Request, content: bytes, headers: Mapping[str, str]) -> Response:
    """Return the response with the whole content, or with the requested range.

    A request for several ranges, or for a unit other than bytes, gets the whole content.

    Args:
        request: Request with or without a Range header.
        content: The whole content.
        headers: Headers of the whole content, including ETag.
    """
    common = {"Accept-Ranges": "bytes", **headers}
    requested = ONE_RANGE.fullmatch(requested_range(request, headers["ETag"]))
    if requested is None or requested.groups() == ("", ""):
        return Response(content, headers=common)
    first, end = bounds(requested[1], requested[2], len(content))
    if first >= end:
        unsatisfied = {"Content-Range": f"bytes */{len(content)}"}
        return Response(status_code=416, headers=common | unsatisfied)
    part = {"Content-Range": f"bytes {first}-{end - 1}/{len(content)}"}
    return Response(content[first:end], 206, common | part)


def requested_range(request: Request, etag: str) -> str:
    """Return the Range header, empty if If-Range names other content."""
    if request.headers.get("if-range", etag) != etag:
        return ""
    return request.headers.get("range", "").replace(" ", "")


def bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Return the first and the end offset; `-5` selects the last five bytes."""
    if not first:
        return max(size - int(last), 0), size
    end = int(last) + 1 if last else size
    return int(first), min(end, size)
