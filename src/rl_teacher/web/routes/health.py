"""Whether the service is alive, and whether it can work."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from rl_teacher.web.access import Access, open_to
from rl_teacher.web.services import Work
from rl_teacher.web.versions import check_version

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """Response of a service that is alive; `instance` identifies the process."""

    status: Literal["ok"]
    instance: str


class Readiness(BaseModel):
    """Response of a service that can use its database."""

    status: Literal["ready"]
    schema_version: str


@router.get("/healthz")
@open_to(Access.ANYBODY)
def say_alive(work: Work) -> Health:
    """The service is there; `instance` is a name that only this process has."""
    return Health(status="ok", instance=work.settings.instance)


@router.get("/readyz")
@open_to(Access.LABELER)
def say_ready(work: Work) -> Readiness:
    """The database answers, and is of this version; 503 otherwise."""
    return Readiness(status="ready", schema_version=check_version(work.store))
