"""The built page, and the files that belong to it."""

import re

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from rl_teacher.web import plainpage
from rl_teacher.web.access import Access, open_to
from rl_teacher.web.problems import NOT_FOUND, Refusal
from rl_teacher.web.routes.media import FOREVER
from rl_teacher.web.services import Services, Work

ASSET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
"""A file's name and nothing more: no folder, no way out of the folder."""

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
@open_to(Access.ANYBODY)
def send_page_for_guests(work: Work) -> Response:
    """The page, for whoever has an invite and no credential yet."""
    return built_page(work)


@router.api_route("/", methods=READ)
@router.api_route("/play", methods=READ)
@router.api_route("/e/{name}", methods=READ)
@router.api_route("/e/{name}/label", methods=READ)
@open_to(Access.LABELER)
def send_page(work: Work) -> Response:
    """The page; which part of it is shown, it finds in its address."""
    return built_page(work)


def built_page(work: Services) -> Response:
    """The one file that every page begins with."""
    index = work.settings.static / "index.html"
    if not index.is_file():
        return plainpage.not_built()
    return FileResponse(index, headers={"Cache-Control": "no-cache"}, media_type="text/html")


@router.api_route("/assets/{name:path}", methods=READ)
@open_to(Access.ANYBODY)
def send_asset(name: str, work: Work) -> Response:
    """A file of the page, if it is of a kind that a page uses; its name changes with its content.

    Note: an invite's page needs them too, and there is nothing in them that is not in the package.

    Raises:
        Refusal: there is none.
    """
    folder = work.settings.static / "assets"
    path = folder / name if ASSET_NAME.fullmatch(name) else folder
    media_type = MEDIA_TYPES.get(path.suffix)
    if media_type is None or not path.is_file():
        raise Refusal(NOT_FOUND, "The page has no such file. Load the page again.")
    return FileResponse(path, headers={"Cache-Control": FOREVER}, media_type=media_type)
