"""API documentation."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from rl_teacher.web import html_pages
from rl_teacher.web.access import Access, requires
from rl_teacher.web.problems import PROBLEM_TYPES

router = APIRouter(prefix="/api", include_in_schema=False)

ACCESS = (
    "Every request but /healthz and /api/v1/join needs a credential: a browser has it as a cookie, "
    "once a link was opened or an invite was used; programs send it in a header, Authorization: "
    "Bearer TOKEN. What is for owners alone is answered to labelers as if it was not there."
)


@router.get("/openapi.json")
@requires(Access.LABELER)
def send_openapi(request: Request) -> JSONResponse:
    """Send the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/docs")
@requires(Access.LABELER)
def send_docs(request: Request) -> Response:
    """Send the API documentation as HTML."""
    schema = request.app.openapi()
    body = "".join(
        [
            f'<p>{escape(ACCESS)} As a file: <a href="/api/openapi.json">openapi.json</a>.</p>',
            *operations(schema),
            *problems(),
            *shapes(schema),
        ]
    )
    return html_pages.page("The API", body, 200, {})


def operations(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the HTML of each operation."""
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
    """Yield the HTML of the problem types."""
    yield "<h2>Problems</h2><p>Every error is application/problem+json: type, title, status, "
    yield "detail.</p><ul>"
    for kind in PROBLEM_TYPES:
        yield f'<li id="{kind.slug}">{kind.status} {kind.slug}: {escape(kind.title)}.</li>'
    yield "</ul>"


def shapes(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the HTML of the schemas."""
    for name, shape in schema["components"]["schemas"].items():
        yield f"<h2>{escape(name)}</h2><pre>{escape(json.dumps(shape, indent=2))}</pre>"
