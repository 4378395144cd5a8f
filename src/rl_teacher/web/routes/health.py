"""Whether the service is alive, and whether it can work."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from rl_teacher.web.access import Access, requires
from rl_teacher.web.services import ServicesDep
from rl_teacher.web.versions import check_schema_version

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
@requires(Access.PUBLIC)
def say_alive(services: ServicesDep) -> Health:
    """The service is there; `instance` is a name that only this process has."""
    return Health(status="ok", instance=services.settings.instance)


@router.get("/readyz")
@requires(Access.LABELER)
def say_ready(services: ServicesDep) -> Readiness:
    """The database answers, and is of this version; 503 otherwise."""
    return Readiness(status="ready", schema_version=check_schema_version(services.store))
