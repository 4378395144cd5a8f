"""Liveness and readiness."""

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
    """Return the instance name of the service."""
    return Health(status="ok", instance=services.settings.instance)


@router.get("/readyz")
@requires(Access.LABELER)
def say_ready(services: ServicesDep) -> Readiness:
    """Return the schema version if the database is usable; 503 otherwise."""
    return Readiness(status="ready", schema_version=check_schema_version(services.store))
