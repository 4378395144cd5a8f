"""Error responses: problem details (RFC 9457) for programs, HTML pages for browsers.

Status, slug and title of a problem are attributes of the exception's class.
"""

import base64
import hashlib
import http
import logging
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from rl_teacher.common.errors import (
    BadInput,
    CorruptCheckpoint,
    CorruptClip,
    NotFound,
    RlTeacherError,
    RunFolderUnusable,
    StoreUnavailable,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rl-teacher:"
RETRY_AFTER_S = 2
SEE_LOG = "The log of the service has the details."

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 12vh auto; max-width: 60ch; padding: 0 1.5rem; }
h1 { font-size: 1.4rem; }
code { font-family: ui-monospace, monospace; font-size: 0.9em; }
"""

STYLE_HASH = f"'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
"""Source expression with which a Content-Security-Policy allows exactly this style."""

logger = logging.getLogger(__name__)


class Problem(BaseModel):
    """Problem details of a failed request."""

    type: str
    title: str
    status: int
    detail: str


class NoCredential(RlTeacherError):
    """A request without a valid credential."""

    status = 401
    slug = "no-credential"
    title = "Authentication required"


class Forbidden(RlTeacherError):
    """A request from another site's page, or for a route that is closed."""

    status = 403
    slug = "forbidden"
    title = "Forbidden"


class NotShown(RlTeacherError):
    """A clip or an episode that cannot be shown yet."""

    status = 409
    slug = "not-shown"
    title = "Not ready yet"


class AlreadyAnswered(RlTeacherError):
    """A label of a comparison that the labeler has answered in another tab."""

    status = 409
    slug = "already-answered"
    title = "Already answered in another tab"


class NotLeased(RlTeacherError):
    """A label of a comparison that was not given to the labeler."""

    status = 409
    slug = "not-leased"
    title = "Not assigned to you"


class RequestReused(RlTeacherError):
    """A label with the request id of a different label."""

    status = 409
    slug = "request-reused"
    title = "Request id already used"


class TooMany(RlTeacherError):
    """Event streams or exports over a limit."""

    status = 429
    slug = "too-many"
    title = "Too many requests"


class NotRendered(RlTeacherError):
    """An export on a machine that cannot render."""

    status = 503
    slug = "not-rendered"
    title = "Rendering not available"


class NotBuilt(RlTeacherError):
    """A checkout without the built page."""

    status = 503
    slug = "not-built"
    title = "Page not built"


def problem_kinds() -> list[tuple[int, str, str]]:
    """Return status, slug and title of every kind of problem, in order."""
    kinds: set[tuple[int, str, str]] = set()
    classes: list[type[RlTeacherError]] = [RlTeacherError]
    while classes:
        error_class = classes.pop()
        kinds.add((error_class.status, error_class.slug, error_class.title))
        classes += error_class.__subclasses__()
    return sorted(kinds)


def problem_from_error(error: Exception) -> Problem:
    """Convert an exception to a problem."""
    kind, detail = RlTeacherError, SEE_LOG
    match error:
        case RequestValidationError() | ValidationError():
            kind, detail = BadInput, describe_errors(error.errors())
        case HTTPException(status_code=404):
            # The same text for hidden routes, so that their existence is not disclosed.
            kind = NotFound
            detail = "This address does not exist, or you have no access to it."
        case HTTPException(status_code=status):
            title = http.HTTPStatus(status).phrase
            slug = title.lower().replace(" ", "-")
            return Problem(
                type=TYPE_PREFIX + slug, title=title, status=status, detail=str(error.detail)
            )
        case SQLAlchemyError():
            logger.error("A database statement failed.", exc_info=error)
            kind, detail = StoreUnavailable, f"A database statement failed. {SEE_LOG}"
        case CorruptClip():
            kind, detail = CorruptClip, str(error)  # which names no folder
        case CorruptCheckpoint() | RunFolderUnusable() | StoreUnavailable():
            # The text may name folders and servers, which labelers must not see.
            logger.warning("%s", error)
            kind, detail = type(error), getattr(error, "public", None) or SEE_LOG
        case RlTeacherError():
            kind = type(error)
            detail = SEE_LOG if kind.status == RlTeacherError.status else str(error)
        case _:
            pass
    # Input that is quoted here may contain lone surrogates.
    encodable = detail.encode(errors="replace").decode()
    return Problem(
        type=TYPE_PREFIX + kind.slug, title=kind.title, status=kind.status, detail=encodable
    )


def describe_errors(errors: Sequence[Any]) -> str:
    """Describe the first validation errors of a request."""
    messages = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in errors]
    return "; ".join(messages[:3])[:500] + ("; ..." if len(messages) > 3 else ".")


def error_response(request: Request, error: Exception) -> Response:
    """Build the response to a failed request: HTML if the client asks for it, JSON otherwise."""
    details = problem_from_error(error)
    headers = {"Cache-Control": "no-store", "Vary": "Accept"}
    if isinstance(error, HTTPException):
        headers |= error.headers or {}
    if details.status in (StoreUnavailable.status, TooMany.status):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if details.status == NoCredential.status:
        headers["WWW-Authenticate"] = 'Bearer realm="rl-teacher"'
    if not accepts_html(request):
        return JSONResponse(details.model_dump(), details.status, headers, media_type=MEDIA_TYPE)
    title = escape(details.title)
    body = re.sub("`([^`]+)`", r"<code>\1</code>", f"<p>{escape(details.detail)}</p>")
    if details.status != NoCredential.status:
        body += '<p><a href="/">All experiments</a></p>'
    return html_page(title, body, details.status, headers)


def html_page(
    title: str, body: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """Build a page without scripts from escaped text."""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{title} - rl-teacher</title><style>{STYLE}</style></head>"
        f"<body><h1>{title}</h1>{body}</body></html>",
        status,
        headers,
    )


def accepts_html(request: Request) -> bool:
    """Return whether a browser navigates to the address; programs and scripts ask for any type."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


async def handle_error(request: Request, error: Exception) -> Response:
    """Handle an exception with a problem response."""
    return error_response(request, error)


def add_error_handlers(app: FastAPI) -> None:
    """Register the error handlers of the application."""
    for error_class in (RequestValidationError, HTTPException, RlTeacherError, SQLAlchemyError):
        app.add_exception_handler(error_class, handle_error)
