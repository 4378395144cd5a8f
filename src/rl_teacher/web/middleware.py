"""Middleware for the request log, security headers and body size limits."""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Iterable
from functools import partial
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.web.problems import (
    STYLE_HASH,
    TOO_LARGE,
    UNEXPECTED,
    UNEXPECTED_DETAIL,
    error_response,
    handle_error,
    problem,
)
from rl_teacher.web.shared_state import SharedState

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

ENCODED_HEADERS = {
    name.lower().encode(): value.encode() for name, value in SECURITY_HEADERS.items()
}
CACHE_CONTROL = (b"cache-control", b"no-store")
"""Header of responses that do not have one of this name."""

MAX_DIGITS = 18
"""Digits of a Content-Length; a longer number exceeds any limit."""

COUNTS_WRITTEN_AFTER_S = 1.0
"""Time after a request until the other processes of the service see that it was counted."""

QUESTION_MARK = re.compile(rb"\?|%3F", re.IGNORECASE)

logger = logging.getLogger(__name__)


class RequestLog:
    """Logs and counts requests, without the query, which may contain a token.

    An unexpected exception is logged and returned as a problem.
    """

    def __init__(self, app: ASGIApp, shared: SharedState) -> None:
        self._app = app
        self._shared = shared
        self._is_write_due = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        status = 0
        request_id = uuid4().hex

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        request_line = f"{scope['method']} {loggable_path(scope)}"
        try:
            await self._app(scope, receive, watch)
        except Exception:
            extra = {"request_id": request_id, **identities(scope)}
            logger.exception("%s failed.", request_line, extra=extra)
            # A response that has begun cannot be replaced.
            if status == 0:
                details = problem(UNEXPECTED, UNEXPECTED_DETAIL)
                await error_response(Request(scope), details)(scope, receive, watch)
        finally:
            took_s = time.perf_counter() - began_s
            self._count(status, took_s)
            extra = {
                "request_id": request_id,
                **identities(scope),
                "method": scope["method"],
                "path": loggable_path(scope),
                "status": status,
                "duration_ms": round(1000 * took_s, 1),
            }
            shown = status or "disconnected"
            logger.info("%s %s %.0f ms", request_line, shown, 1000 * took_s, extra=extra)

    def _count(self, status: int, took_s: float) -> None:
        self._shared.count_request(status, took_s)
        if not self._is_write_due:
            self._is_write_due = True
            loop = asyncio.get_running_loop()
            write = partial(loop.run_in_executor, None, self._write_counts)
            loop.call_later(COUNTS_WRITTEN_AFTER_S, write)

    def _write_counts(self) -> None:
        self._is_write_due = False
        with contextlib.suppress(StoreUnavailable):
            self._shared.write_counts()


def identities(scope: Scope) -> dict[str, str | None]:
    """Return the labeler and the experiment of a request, as far as they are known."""
    state = scope.get("state", {})
    labeler = getattr(state.get("identity"), "name", None)
    return {"labeler": labeler, "experiment": state.get("experiment")}


def loggable_path(scope: Scope) -> str:
    """Return the raw path without the query.

    Some programs encode the question mark of a link as %3F, with the token after it.
    """
    path = QUESTION_MARK.split(scope.get("raw_path", b""), 1)[0]
    return path.decode("ascii", "backslashreplace")[:500]


class SecurityHeaders:
    """Adds security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_security_headers(message["headers"])
            await send(message)

        await self._app(scope, receive, add_headers)


def with_security_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers with the security headers in place of their own ones."""
    # Once per response: `MutableHeaders` takes ten times as long.
    kept = [each for each in headers if each[0] not in ENCODED_HEADERS]
    is_cached = any(name == CACHE_CONTROL[0] for name, _ in kept)
    return [*kept, *ENCODED_HEADERS.items(), *(() if is_cached else (CACHE_CONTROL,))]


class BodyLimit:
    """Rejects request bodies over the size limit: by Content-Length, or while they are received."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        detail = f"The body may have up to {max_body_bytes:,} bytes. Split the request."
        closing = {"Connection": "close"}
        self._too_large = partial(HTTPException, TOO_LARGE.status, detail, closing)
        self._not_a_number = partial(HTTPException, 400, "Content-Length is not a number.", closing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        error = None
        if not (length.isascii() and length.isdigit()):
            error = self._not_a_number()
        elif len(length) > MAX_DIGITS or int(length) > self._max_body_bytes:
            error = self._too_large()
        if error is not None:
            response = await handle_error(Request(scope), error)
            await response(scope, receive, send)
            return
        num_bytes = 0

        async def count() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_body_bytes:
                raise self._too_large()
            return message

        await self._app(scope, count, send)
