"""The built page, the API documentation and the health checks."""

import re
from html import escape
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from rl_teacher.common.errors import NotFound
from rl_teacher.web.access import Access, requires
from rl_teacher.web.address import service_proof
from rl_teacher.web.label_intake import check_schema_version
from rl_teacher.web.monitoring import exposition
from rl_teacher.web.problems import NotBuilt, html_page, problem_kinds
from rl_teacher.web.routes.media import IMMUTABLE
from rl_teacher.web.services import Services, ServicesDep

ASSET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
"""File name without a path separator, so that it cannot leave the folder."""

MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
"""Fixed, because the types of the operating system vary and `nosniff` forbids wrong ones."""

READ = ["GET", "HEAD"]

ACCESS = (
    "Every request except /healthz and /api/v1/join needs a credential. A browser has it as a "
    "cookie after opening a link or using an invite; programs send it in the header Authorization: "
    "Bearer KEY. Owners' routes answer labelers as if they did not exist."
)

Nonce = Annotated[str | None, Query(pattern="^[0-9a-f]{32}$")]

health_router = APIRouter(tags=["health"])
router = APIRouter(include_in_schema=False)


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


@health_router.get("/healthz")
@requires(Access.PUBLIC)
def say_alive(services: ServicesDep, nonce: Nonce = None) -> Health:
    """Return the instance name of the service, and a proof that it belongs to its home."""
    settings = services.settings
    proof = None if nonce is None else service_proof(settings.token, settings.instance, nonce)
    return Health(status="ok", instance=settings.instance, proof=proof)


@health_router.get("/readyz")
@requires(Access.LABELER)
def say_ready(services: ServicesDep) -> Readiness:
    """Return the schema version if the database can be read and written; 503 otherwise."""
    version = check_schema_version(services.store)
    services.store.check_writable()
    return Readiness(status="ready", schema_version=version)


@health_router.get("/metrics", response_class=PlainTextResponse)
@requires(Access.OWNER)
def send_metrics(services: ServicesDep) -> Response:
    """Return metrics of the service and of all experiments in Prometheus' text format."""
    experiments = services.store.experiments.all()
    text = exposition(services.metrics, experiments, services.experiments)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


@router.api_route("/join", methods=READ)
@requires(Access.PUBLIC)
def send_join_page(services: ServicesDep) -> Response:
    """Send the page to a visitor with an invite and no credential."""
    return built_page(services)


@router.api_route("/", methods=READ)
@router.api_route("/play", methods=READ)
@router.api_route("/e/{name}", methods=READ)
@router.api_route("/e/{name}/label", methods=READ)
@router.api_route("/e/{name}/watch", methods=READ)
@requires(Access.LABELER)
def send_page(services: ServicesDep) -> Response:
    """Send the page; the client selects the view by its address."""
    return built_page(services)


def built_page(services: Services) -> Response:
    """Return the single HTML file of the page.

    Raises:
        NotBuilt: The page has not been built.
    """
    index = services.settings.static / "index.html"
    if not index.is_file():
        raise NotBuilt(
            "This checkout of rl-teacher does not contain the built page. Run `make page` there "
            "and reload. An installed rl-teacher contains it."
        )
    return FileResponse(index, headers={"Cache-Control": "no-cache"}, media_type="text/html")


@router.api_route("/assets/{name:path}", methods=READ)
@requires(Access.PUBLIC)
def send_asset(name: str, services: ServicesDep) -> Response:
    """Send an asset of a permitted type; its name changes with its content.

    Assets are public: the join page needs them, and they contain only what is in the package.

    Raises:
        NotFound: The asset does not exist.
    """
    folder = services.settings.static / "assets"
    path = folder / name if ASSET_NAME.fullmatch(name) else folder
    media_type = MEDIA_TYPES.get(path.suffix)
    if media_type is None or not path.is_file():
        raise NotFound("The page has no such file. Reload the page.")
    return FileResponse(path, headers={"Cache-Control": IMMUTABLE}, media_type=media_type)


@router.get("/api/openapi.json")
@requires(Access.LABELER)
def send_openapi(request: Request) -> JSONResponse:
    """Send the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/api/docs")
@requires(Access.LABELER)
def send_docs(request: Request) -> Response:
    """Send the API documentation as HTML."""
    operations = "".join(
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(each['description'])}</p>"
        for path, methods in request.app.openapi()["paths"].items()
        for method, each in methods.items()
    )
    problems = "".join(
        f'<li id="{slug}">{status} {slug}: {title}.</li>' for status, slug, title in problem_kinds()
    )
    return html_page(
        "API",
        f'<p>{ACCESS} Parameters and schemas are in <a href="/api/openapi.json">openapi.json</a>.'
        f"</p>{operations}<h2>Problems</h2><p>Every error is application/problem+json: type, title,"
        f" status, detail.</p><ul>{problems}</ul>",
    )
