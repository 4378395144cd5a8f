"""Error responses: problem details (RFC 9457) for programs, HTML pages for browsers."""

import base64
import hashlib
import http
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from rl_teacher.common.errors import (
    BadExperimentName,
    BadInput,
    ComparisonNotFound,
    CorruptCheckpoint,
    CorruptClip,
    ExperimentExists,
    ExperimentInUse,
    ExperimentNotFound,
    InviteNotFound,
    InviteUnusable,
    LabelerExists,
    LabelerNotFound,
    MediaNotFound,
    RankingNotFound,
    RendererKilled,
    RlTeacherError,
    RunFolderUnusable,
    StoreUnavailable,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
UNEXPECTED_DETAIL = "The log of the service has the details."

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 12vh auto; max-width: 60ch; padding: 0 1.5rem; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { overflow-x: auto; }
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


@dataclass(frozen=True)
class ProblemType:
    """Type of a problem.

    Attributes:
        slug: Anchor in the documentation.
        status: HTTP status.
        title: Fixed summary.
    """

    slug: str
    status: int
    title: str


BAD_REQUEST = ProblemType("bad-request", 400, "Malformed request")
NO_CREDENTIAL = ProblemType("no-credential", 401, "Authentication required")
FORBIDDEN = ProblemType("forbidden", 403, "Forbidden")
NOT_FOUND = ProblemType("not-found", 404, "Not found")
NOT_SHOWN = ProblemType("not-shown", 409, "Not ready yet")
ALREADY_ANSWERED = ProblemType("already-answered", 409, "Already answered in another tab")
NOT_LEASED = ProblemType("not-leased", 409, "Not assigned to you")
REQUEST_REUSED = ProblemType("request-reused", 409, "Request id already used")
RUNNING = ProblemType("running", 409, "Experiment is running")
NAME_TAKEN = ProblemType("name-taken", 409, "Name already taken")
INVITE_UNUSABLE = ProblemType("invite-unusable", 409, "Invite not usable")
TOO_LARGE = ProblemType("too-large", 413, "Request body too large")
TOO_MANY = ProblemType("too-many", 429, "Too many requests")
NOT_VALID = ProblemType("not-valid", 422, "Request validation failed")
UNEXPECTED = ProblemType("unexpected", 500, "Internal error")
DAMAGED = ProblemType("damaged", 502, "Stored file corrupt")
UNAVAILABLE = ProblemType("unavailable", 503, "Storage not available")
NOT_RENDERED = ProblemType("not-rendered", 503, "Rendering not available")
NOT_BUILT = ProblemType("not-built", 503, "Page not built")

PROBLEM_TYPES = (
    *(BAD_REQUEST, NO_CREDENTIAL, FORBIDDEN, NOT_FOUND, NOT_SHOWN, ALREADY_ANSWERED, NOT_LEASED),
    *(REQUEST_REUSED, RUNNING, NAME_TAKEN, INVITE_UNUSABLE, TOO_LARGE),
    *(NOT_VALID, TOO_MANY, UNEXPECTED, DAMAGED, UNAVAILABLE, NOT_RENDERED, NOT_BUILT),
)

MISSING = (
    *(ExperimentNotFound, BadExperimentName, ComparisonNotFound, MediaNotFound),
    *(LabelerNotFound, InviteNotFound, RankingNotFound),
)
TYPE_OF_ERROR = (
    (MISSING, NOT_FOUND),
    ((LabelerExists, ExperimentExists), NAME_TAKEN),
    (ExperimentInUse, RUNNING),
    (InviteUnusable, INVITE_UNUSABLE),
    ((CorruptCheckpoint, CorruptClip), DAMAGED),
    (RendererKilled, NOT_RENDERED),
    ((StoreUnavailable, RunFolderUnusable), UNAVAILABLE),
    (BadInput, NOT_VALID),
)
"""Problem types of exceptions; the first match counts."""


class ProblemError(Exception):
    """Request failure with a problem type."""

    def __init__(self, kind: ProblemType, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def problem(kind: ProblemType, detail: str) -> Problem:
    """Build a problem.

    Args:
        kind: One of `PROBLEM_TYPES`.
        detail: The given value, the expected value and the remedy.
    """
    # Input that is quoted here may contain lone surrogates.
    encodable = detail.encode(errors="replace").decode()
    return Problem(
        type=f"/api/docs#{kind.slug}", title=kind.title, status=kind.status, detail=encodable
    )


def problem_from_error(error: Exception) -> Problem:
    """Convert an exception to a problem."""
    match error:
        case ProblemError():
            return problem(error.kind, str(error))
        case RequestValidationError() | ValidationError():
            return problem(NOT_VALID, describe_errors(error.errors()))
        case HTTPException(status_code=404):
            # The same text for hidden routes, so that their existence is not disclosed.
            return problem(NOT_FOUND, "This address does not exist, or you have no access to it.")
        case HTTPException():
            return problem(type_for_status(error.status_code), str(error.detail))
        case SQLAlchemyError():
            logger.error("A database statement failed.", exc_info=error)
            return problem(
                UNAVAILABLE,
                "A database statement failed: another version of rl-teacher may have changed the "
                "database. Restart the service.",
            )
    kinds = (kind for error_class, kind in TYPE_OF_ERROR if isinstance(error, error_class))
    kind = next(kinds, UNEXPECTED)
    detail = UNEXPECTED_DETAIL if kind is UNEXPECTED else str(error)
    if isinstance(error, CorruptCheckpoint | RunFolderUnusable | StoreUnavailable):
        # The text may name folders and servers, which labelers must not see.
        logger.warning("%s", error)
        detail = getattr(error, "public", None) or UNEXPECTED_DETAIL
    return problem(kind, detail)


def type_for_status(status: int) -> ProblemType:
    """Return the problem type with this status, or a generic one."""
    phrase = http.HTTPStatus(status).phrase
    generic = ProblemType(phrase.lower().replace(" ", "-"), status, phrase)
    return next((kind for kind in PROBLEM_TYPES if kind.status == status), generic)


def describe_errors(errors: Sequence[Any]) -> str:
    """Describe the first validation errors of a request."""
    messages = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in errors]
    return "; ".join(messages[:3])[:500] + ("; ..." if len(messages) > 3 else ".")


def error_response(
    request: Request, details: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """Build the response of a problem: HTML if the client asks for it, JSON otherwise."""
    all_headers = {"Cache-Control": "no-store", "Vary": "Accept", **(headers or {})}
    if details.status in (UNAVAILABLE.status, TOO_MANY.status):
        all_headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    if details.status == NO_CREDENTIAL.status:
        all_headers.setdefault("WWW-Authenticate", 'Bearer realm="rl-teacher"')
    if not accepts_html(request):
        content = details.model_dump()
        return JSONResponse(content, details.status, all_headers, media_type=MEDIA_TYPE)
    detail = re.sub("`([^`]+)`", r"<code>\1</code>", escape(details.detail))
    body = f"<p>{detail}</p>"
    if details.status == TOO_MANY.status:
        all_headers["Refresh"] = all_headers["Retry-After"]
        body += f"<p>This page tries again in {all_headers['Retry-After']} s.</p>"
    elif details.status != NO_CREDENTIAL.status:
        body += '<p><a href="/">All experiments</a></p>'
    return html_page(details.title, body, details.status, all_headers)


def accepts_html(request: Request) -> bool:
    """Return whether a browser navigates to the address; programs and scripts ask for any type."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


def html_page(
    title: str, body: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Build an HTML page without scripts.

    Args:
        title: Plain text.
        body: HTML; untrusted text must be escaped.
        status: HTTP status.
        headers: HTTP headers.
    """
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} - rl-teacher</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>",
        status,
        headers,
    )


async def handle_error(request: Request, error: Exception) -> Response:
    """Handle an exception with a problem response."""
    headers = error.headers if isinstance(error, HTTPException) else None
    return error_response(request, problem_from_error(error), headers)


def add_error_handlers(app: FastAPI) -> None:
    """Register the error handlers of the application."""
    expected = (
        ProblemError,
        RequestValidationError,
        HTTPException,
        RlTeacherError,
        SQLAlchemyError,
    )
    for error_class in expected:
        app.add_exception_handler(error_class, handle_error)
