"""Middleware for the request log, security headers and body size limits."""

import logging
import re
import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_teacher.web.problems import STYLE_HASH, error_response

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; "
        f"style-src 'self' {STYLE_HASH}; "
        "img-src 'self' data: blob:; media-src 'self' blob:; font-src 'self'; "
        "connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
ENCODED_HEADERS = [
    (name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
]
NOT_CACHED = (b"cache-control", b"no-store")
"""Header of responses that do not have one of this name."""

QUESTION_MARK = re.compile(rb"\?|%3F", re.IGNORECASE)

logger = logging.getLogger(__name__)


class RequestLog:
    """Logs requests, without the query, which may contain a token.

    It adds the security headers to every response. An unexpected exception is logged and returned
    as a problem.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers: list[tuple[bytes, bytes]] = list(message["headers"])
                if not any(name == NOT_CACHED[0] for name, _ in headers):
                    headers.append(NOT_CACHED)
                message["headers"] = headers + ENCODED_HEADERS
            await send(message)

        request_line = f"{scope['method']} {loggable_path(scope)}"
        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            logger.exception("%s failed.", request_line)
            # A response that has begun cannot be replaced.
            if status == 0:
                await error_response(Request(scope), error)(scope, receive, watch)
        finally:
            took_ms = 1000 * (time.perf_counter() - began_s)
            logger.info("%s %s %.0f ms", request_line, status or "disconnected", took_ms)


def loggable_path(scope: Scope) -> str:
    """Return the raw path without the query.

    Some programs encode the question mark of a link as %3F, with the token after it.
    """
    path = QUESTION_MARK.split(scope.get("raw_path", b""), 1)[0]
    return path.decode("ascii", "backslashreplace")[:500]


class BodyLimit:
    """Rejects request bodies over the size limit while they are received."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        num_bytes = 0

        async def count() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_body_bytes:
                raise HTTPException(
                    413, f"The body may have up to {self._max_body_bytes:,} bytes. Split it."
                )
            return message

        await self._app(scope, count, send)
