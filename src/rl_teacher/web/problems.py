"""One shape for every error: problem details (RFC 9457)."""

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
    """Why a request was not fulfilled."""

    type: str
    title: str
    status: int
    detail: str


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    Attributes:
        slug: its name in the documentation.
        status: of HTTP.
        title: the same in every case.
    """

    slug: str
    status: int
    title: str


BAD_REQUEST = Kind("bad-request", 400, "The request cannot be understood")
NO_CREDENTIAL = Kind("no-credential", 401, "The access token is needed")
FORBIDDEN = Kind("forbidden", 403, "This is not allowed")
NOT_FOUND = Kind("not-found", 404, "There is no such thing")
NOT_SHOWN = Kind("not-shown", 409, "It cannot be shown yet")
NAME_TAKEN = Kind("name-taken", 409, "Somebody has this name already")
INVITE_UNUSABLE = Kind("invite-unusable", 409, "The invite lets nobody in")
TOO_LARGE = Kind("too-large", 413, "The request's body is too large")
TOO_MANY = Kind("too-many", 429, "There were too many requests")
NOT_VALID = Kind("not-valid", 422, "The request says something that cannot be meant")
UNEXPECTED = Kind("unexpected", 500, "The service has a fault")
DAMAGED = Kind("damaged", 502, "A file is not what was written")
UNAVAILABLE = Kind("unavailable", 503, "The database cannot be used now")
NOT_BUILT = Kind("not-built", 503, "The page has not been built")

KINDS = (
    *(BAD_REQUEST, NO_CREDENTIAL, FORBIDDEN, NOT_FOUND, NOT_SHOWN, NAME_TAKEN),
    *(INVITE_UNUSABLE, TOO_LARGE),
    *(NOT_VALID, TOO_MANY, UNEXPECTED, DAMAGED, UNAVAILABLE, NOT_BUILT),
)

KIND_OF_ERROR: Sequence[tuple[type[Exception], Kind]] = (
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


class Refusal(Exception):
    """A request that is not fulfilled, for a reason that no other error says."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def problem(kind: Kind, detail: str) -> Problem:
    """A problem of a kind.

    Args:
        kind: see `KINDS`.
        detail: what was given, what was needed, what to do.
    """
    encodable = detail.encode(errors="replace").decode()
    return Problem(
        type=f"/api/docs#{kind.slug}", title=kind.title, status=kind.status, detail=encodable
    )


def problem_of(error: Exception) -> Problem:
    """What an exception means to whoever asked."""
    match error:
        case Refusal():
            return problem(error.kind, str(error))
        case RequestValidationError() | ValidationError():
            return problem(NOT_VALID, in_words(error.errors()))
        case HTTPException():
            return problem(kind_of_status(error.status_code), str(error.detail))
        case SQLAlchemyError():
            logger.error("The database refused a statement.", exc_info=error)
            return problem(
                UNAVAILABLE,
                "The database refused a statement: it may have been changed by another version "
                "of rl-teacher. Stop the service and start it again.",
            )
    for error_class, kind in KIND_OF_ERROR:
        if isinstance(error, error_class):
            return problem(kind, str(error))
    return problem(UNEXPECTED, "The service's log says more.")


def kind_of_status(status: int) -> Kind:
    """The kind with this status; one made of HTTP's own words where there is none."""
    for kind in KINDS:
        if kind.status == status:
            return kind
    phrase = http.HTTPStatus(status).phrase
    return Kind(phrase.lower().replace(" ", "-"), status, phrase)


def in_words(errors: Sequence[Any]) -> str:
    """The first few faults that were found in a request."""
    said = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in errors]
    return "; ".join(said[:3])[:500] + ("; ..." if len(said) > 3 else ".")


def response_of(said: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as an answer."""
    all_headers = dict(headers or {})
    if said.status in (UNAVAILABLE.status, TOO_MANY.status):
        all_headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    if said.status == NO_CREDENTIAL.status:
        all_headers.setdefault("WWW-Authenticate", 'Bearer realm="rl-teacher"')
    return JSONResponse(said.model_dump(), said.status, all_headers, media_type=MEDIA_TYPE)


async def answer_with_problem(_request: Request, error: Exception) -> Response:
    """The handler of every exception that has a meaning."""
    headers = error.headers if isinstance(error, HTTPException) else None
    return response_of(problem_of(error), headers)


def add_to(app: FastAPI) -> None:
    """Let an application say all its errors in one shape."""
    meant = (Refusal, RequestValidationError, HTTPException, RlTeacherError, SQLAlchemyError)
    for error_class in meant:
        app.add_exception_handler(error_class, answer_with_problem)
