"""The API's own documentation, with nothing loaded from elsewhere."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from rl_teacher.web import plainpage
from rl_teacher.web.access import HARMLESS_METHODS, Access, declared_access, open_to
from rl_teacher.web.problems import KINDS
from rl_teacher.web.problems import MEDIA_TYPE as PROBLEM_TYPE

router = APIRouter(prefix="/api", include_in_schema=False)

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

MAY_CONFLICT = ("join", "add_labeler", "show_comparison", "send_clip", "show_episode")
"""Where what is asked for may stand in the way of something that is there, or not yet be."""

ACCESS = (
    "Every request but /healthz and /api/v1/join needs a credential: a browser has it as a cookie, "
    "once a link was opened or an invite was used; programs send it in a header, Authorization: "
    "Bearer TOKEN. What is for owners alone is answered to labelers as if it was not there."
)


@router.get("/openapi.json")
@open_to(Access.LABELER)
def send_openapi(request: Request) -> JSONResponse:
    """The API as OpenAPI has it."""
    return JSONResponse(request.app.openapi())


@router.get("/docs")
@open_to(Access.LABELER)
def send_docs(request: Request) -> Response:
    """The API for people."""
    schema = request.app.openapi()
    body = "".join(
        [
            f'<p>{escape(ACCESS)} As a file: <a href="/api/openapi.json">openapi.json</a>.</p>',
            *operations(schema),
            *problems(),
            *shapes(schema),
        ]
    )
    return plainpage.page("The API", body, 200, {})


class DescribedApi(FastAPI):
    """An application whose description says how its requests may fail."""

    def openapi(self) -> dict[str, Any]:
        """The API as OpenAPI has it; made once."""
        is_new = self.openapi_schema is None
        schema = super().openapi()
        if is_new:
            describe_problems(schema, self.routes)
        return schema


def describe_problems(schema: dict[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Say of each operation which problems it may be answered with, and in which shape."""
    for route in routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for method in methods_of(route):
            operation = schema["paths"][route.path_format][method.lower()]
            described = {str(each): problem_response(each) for each in statuses(route, operation)}
            # Note: FastAPI says of its own errors what they would be without ours.
            operation["responses"].pop("422", None)
            operation["responses"] |= described
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)


def statuses(route: APIRoute, operation: Mapping[str, Any]) -> list[int]:
    """What may go wrong; of a fault of the service itself nothing is promised."""
    access = declared_access(route)
    has_body = "requestBody" in operation
    is_about_something = "{" in route.path or "experiment" in parameter_names(operation)
    found = {
        400: has_body,
        401: access is not Access.ANYBODY,
        403: HARMLESS_METHODS.isdisjoint(methods_of(route)),
        404: access is Access.OWNER or is_about_something,
        409: route.name in MAY_CONFLICT,
        413: has_body,
        422: has_body or bool(operation.get("parameters")),
        429: True,
        503: True,
    }
    return [status for status, may_be in found.items() if may_be]


def methods_of(route: APIRoute) -> list[str]:
    """Those that are described."""
    return [method for method in METHODS if method in (route.methods or ())]


def parameter_names(operation: Mapping[str, Any]) -> set[str]:
    """What a request may say outside its body."""
    return {each["name"] for each in operation.get("parameters", [])}


def problem_response(status: int) -> dict[str, Any]:
    """A problem as OpenAPI describes it."""
    titles = " ".join(f"{kind.title}." for kind in KINDS if kind.status == status)
    shape = {"$ref": "#/components/schemas/Problem"}
    return {"description": titles, "content": {PROBLEM_TYPE: {"schema": shape}}}


def operations(schema: Mapping[str, Any]) -> Iterator[str]:
    """What can be asked."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description') or operation['summary'])}</p>"
            names = [
                f"<code>{escape(each['name'])}</code> ({each['in']})"
                for each in operation.get("parameters", [])
            ]
            yield f"<p>Parameters: {', '.join(names)}</p>" if names else ""
            failures = [status for status in operation["responses"] if status >= "400"]
            yield f"<p>Problems: {', '.join(failures)}</p>"


def problems() -> Iterator[str]:
    """What may go wrong."""
    yield "<h2>Problems</h2><p>Every error is application/problem+json: type, title, status, "
    yield "detail.</p><ul>"
    for kind in KINDS:
        yield f'<li id="{kind.slug}">{kind.status} {kind.slug}: {escape(kind.title)}.</li>'
    yield "</ul>"


def shapes(schema: Mapping[str, Any]) -> Iterator[str]:
    """What is said and heard."""
    for name, shape in schema["components"]["schemas"].items():
        yield f"<h2>{escape(name)}</h2><pre>{escape(json.dumps(shape, indent=2))}</pre>"
