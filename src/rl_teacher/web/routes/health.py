"""Health checks and metrics."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from rl_teacher.web.access import LabelerRoute, OwnerRoute, PublicRoute
from rl_teacher.web.address import service_proof
from rl_teacher.web.label_intake import check_schema_version
from rl_teacher.web.monitoring import exposition
from rl_teacher.web.services import ServicesDep

router = APIRouter(tags=["health"], route_class=LabelerRoute)
owner_router = APIRouter(tags=["health"], route_class=OwnerRoute)
public_router = APIRouter(tags=["health"], route_class=PublicRoute)

Nonce = Annotated[str | None, Query(pattern="^[0-9a-f]{32}$")]


class Health(BaseModel):
    """Response of a service that is alive.

    `instance` identifies the process. `proof` is the HMAC-SHA-256 of instance and nonce under the
    access token of the home; null without a nonce.
    """

    status: Literal["ok"]
    instance: str
    proof: str | None


class Readiness(BaseModel):
    """Response of a service that can use its database."""

    status: Literal["ready"]
    schema_version: str


@public_router.get("/healthz")
def say_alive(services: ServicesDep, nonce: Nonce = None) -> Health:
    """Return the instance name of the service, and a proof that it belongs to its home."""
    settings = services.settings
    proof = None if nonce is None else service_proof(settings.token, settings.instance, nonce)
    return Health(status="ok", instance=settings.instance, proof=proof)


@router.get("/readyz")
def say_ready(services: ServicesDep) -> Readiness:
    """Return the schema version if the database can be read and written; 503 otherwise."""
    version = check_schema_version(services.store)
    services.store.check_writable()
    return Readiness(status="ready", schema_version=version)


@owner_router.get("/metrics", response_class=PlainTextResponse)
def send_metrics(services: ServicesDep) -> Response:
    """Return metrics of all experiments in Prometheus' text format."""
    text = exposition(services.store.experiments.all(), services.experiments)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
