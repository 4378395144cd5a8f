"""The built page and its assets."""

import re

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from rl_teacher.web import html_pages
from rl_teacher.web.access import Access, requires
from rl_teacher.web.problems import NOT_FOUND, ProblemError
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
"""Note: what the operating system thinks of them differs, and `nosniff` forgives nothing."""

READ = ["GET", "HEAD"]

router = APIRouter(include_in_schema=False)


@router.api_route("/join", methods=READ)
@requires(Access.PUBLIC)
def send_join_page(services: ServicesDep) -> Response:
    """Send the page to a visitor with an invite and no credential."""
    return built_page(services)


@router.api_route("/", methods=READ)
@router.api_route("/play", methods=READ)
@router.api_route("/e/{name}", methods=READ)
@router.api_route("/e/{name}/label", methods=READ)
@requires(Access.LABELER)
def send_page(services: ServicesDep) -> Response:
    """Send the page; the client selects the view by its address."""
    return built_page(services)


def built_page(services: Services) -> Response:
    """Return the single HTML file of the page."""
    index = services.settings.static / "index.html"
    if not index.is_file():
        return html_pages.missing_build_page()
    return FileResponse(index, headers={"Cache-Control": "no-cache"}, media_type="text/html")


@router.api_route("/assets/{name:path}", methods=READ)
@requires(Access.PUBLIC)
def send_asset(name: str, services: ServicesDep) -> Response:
    """Send an asset of a permitted type; its name changes with its content.

    Assets are public: the join page needs them, and they contain only what is in the package.

    Raises:
        ProblemError: The asset does not exist.
    """
    folder = services.settings.static / "assets"
    path = folder / name if ASSET_NAME.fullmatch(name) else folder
    media_type = MEDIA_TYPES.get(path.suffix)
    if media_type is None or not path.is_file():
        raise ProblemError(NOT_FOUND, "The page has no such file. Load the page again.")
    return FileResponse(path, headers={"Cache-Control": IMMUTABLE}, media_type=media_type)
