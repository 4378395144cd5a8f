"""The built page and the OpenAPI document."""

import re

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, JSONResponse

from rl_teacher.common.errors import NotFound
from rl_teacher.web.access import LabelerRoute, PublicRoute
from rl_teacher.web.problems import NotBuilt
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

router = APIRouter(include_in_schema=False, route_class=LabelerRoute)
public_router = APIRouter(include_in_schema=False, route_class=PublicRoute)


@public_router.api_route("/join", methods=READ)
def send_join_page(services: ServicesDep) -> Response:
    """Send the page to a visitor with an invite and no credential."""
    return built_page(services)


@router.api_route("/", methods=READ)
@router.api_route("/play", methods=READ)
@router.api_route("/e/{name}", methods=READ)
@router.api_route("/e/{name}/label", methods=READ)
@router.api_route("/e/{name}/watch", methods=READ)
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


@public_router.api_route("/assets/{name:path}", methods=READ)
def send_asset(name: str, request: Request, services: ServicesDep) -> Response:
    """Send an asset of a permitted type; its name changes with its content.

    It was compressed when the page was built.

    Assets are public: the join page needs them, and they contain only what is in the package.

    Raises:
        NotFound: The asset does not exist.
    """
    folder = services.settings.static / "assets"
    path = folder / name if ASSET_NAME.fullmatch(name) else folder
    media_type = MEDIA_TYPES.get(path.suffix)
    if media_type is None or not path.is_file():
        raise NotFound("The page has no such file. Reload the page.")
    headers = {"Cache-Control": IMMUTABLE, "Vary": "Accept-Encoding"}
    compressed = folder / f"{name}.gz"
    if "gzip" in request.headers.get("accept-encoding", "") and compressed.is_file():
        path, headers["Content-Encoding"] = compressed, "gzip"
    return FileResponse(path, headers=headers, media_type=media_type)


@router.get("/api/openapi.json")
def send_openapi(request: Request) -> JSONResponse:
    """Send the OpenAPI document."""
    return JSONResponse(request.app.openapi())
