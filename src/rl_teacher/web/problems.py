"""Error responses in the format of RFC 9457 (problem details)."""

import http
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from rl_teacher.common.errors import (
    BadExperimentName,
    BadInput,
    ComparisonNotFound,
    CorruptClip,
    ExperimentNotFound,
    InviteNotFound,
    InviteUnusable,
    LabelerExists,
    LabelerNotFound,
    MediaNotFound,
    RlTeacherError,
    RunFolderUnusable,
    StoreUnavailable,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2

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
NAME_TAKEN = ProblemType("name-taken", 409, "The name is taken")
INVITE_UNUSABLE = ProblemType("invite-unusable", 409, "The invite cannot be used")
TOO_LARGE = ProblemType("too-large", 413, "The request body is too large")
TOO_MANY = ProblemType("too-many", 429, "Too many requests")
NOT_VALID = ProblemType("not-valid", 422, "Request validation failed")
UNEXPECTED = ProblemType("unexpected", 500, "Internal error")
DAMAGED = ProblemType("damaged", 502, "A stored file is corrupt")
UNAVAILABLE = ProblemType("unavailable", 503, "The database is not available")
NOT_BUILT = ProblemType("not-built", 503, "The page has not been built")

PROBLEM_TYPES = (
    *(BAD_REQUEST, NO_CREDENTIAL, FORBIDDEN, NOT_FOUND, NOT_SHOWN, ALREADY_ANSWERED, NAME_TAKEN),
    *(INVITE_UNUSABLE, TOO_LARGE),
    *(NOT_VALID, TOO_MANY, UNEXPECTED, DAMAGED, UNAVAILABLE, NOT_BUILT),
)

TYPE_OF_ERROR: Sequence[tuple[type[Exception], ProblemType]] = (
    (ExperimentNotFound, NOT_FOUND),
    (BadExperimentName, NOT_FOUND),
    (ComparisonNotFound, NOT_FOUND),
    (MediaNotFound, NOT_FOUND),
    (LabelerNotFound, NOT_FOUND),
    (InviteNotFound, NOT_FOUND),
    (LabelerExists, NAME_TAKEN),
    (InviteUnusable, INVITE_UNUSABLE),
    (CorruptClip, DAMAGED),
    (StoreUnavailable, UNAVAILABLE),
    (RunFolderUnusable, UNAVAILABLE),
    (SQLAlchemyError, UNAVAILABLE),
    (BadInput, NOT_VALID),
)
"""The first that fits counts."""


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
        case HTTPException():
            return problem(type_for_status(error.status_code), str(error.detail))
        case SQLAlchemyError():
            logger.error("The database refused a statement.", exc_info=error)
            return problem(
                UNAVAILABLE,
                "The database refused a statement: it may have been changed by another version "
                "of rl-teacher. Stop the service and start it again.",
            )
    for error_class, kind in TYPE_OF_ERROR:
        if isinstance(error, error_class):
            return problem(kind, str(error))
    return problem(UNEXPECTED, "The service's log says more.")


def type_for_status(status: int) -> ProblemType:
    """Return the problem type with this status, or a generic one."""
    for kind in PROBLEM_TYPES:
        if kind.status == status:
            return kind
    phrase = http.HTTPStatus(status).phrase
    return ProblemType(phrase.lower().replace(" ", "-"), status, phrase)


def describe_errors(errors: Sequence[Any]) -> str:
    """Describe the first validation errors of a request."""
    messages = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in errors]
    return "; ".join(messages[:3])[:500] + ("; ..." if len(messages) > 3 else ".")


def response_of(details: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Build the response of a problem."""
    all_headers = dict(headers or {})
    if details.status in (UNAVAILABLE.status, TOO_MANY.status):
        all_headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    if details.status == NO_CREDENTIAL.status:
        all_headers.setdefault("WWW-Authenticate", 'Bearer realm="rl-teacher"')
    return JSONResponse(details.model_dump(), details.status, all_headers, media_type=MEDIA_TYPE)


async def handle_error(_request: Request, error: Exception) -> Response:
    """Handle an exception with a problem response."""
    headers = error.headers if isinstance(error, HTTPException) else None
    return response_of(problem_from_error(error), headers)


def add_error_handlers(app: FastAPI) -> None:
    """Register the error handlers of the application."""
    meant = (ProblemError, RequestValidationError, HTTPException, RlTeacherError, SQLAlchemyError)
    for error_class in meant:
        app.add_exception_handler(error_class, handle_error)
