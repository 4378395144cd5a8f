"""OpenAPI document of the service.

`python -m rl_teacher.web.openapi` writes it to standard output without starting a service.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from rl_teacher.web.access import SAFE_METHODS, Access, required_access
from rl_teacher.web.problems import MEDIA_TYPE as PROBLEM_TYPE
from rl_teacher.web.problems import PROBLEM_TYPES
from rl_teacher.web.schemas.experiments import ServerEvents
from rl_teacher.web.schemas.labelling import LabelSubmission
from rl_teacher.web.schemas.shared import Scene

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
REF_TEMPLATE = "#/components/schemas/{model}"
UNREFERENCED: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
    (ServerEvents, "serialization"),
    (Scene, "serialization"),
    (LabelSubmission, "validation"),
]

MAY_CONFLICT = (
    *("join", "add_labeler", "show_comparison", "send_clip", "show_episode"),
    *("download_clip", "download_comparison", "download_episode"),
    *("delete_experiment", "rename_experiment", "archive_experiment", "restore_experiment"),
)
"""Operations that return 409 if the resource exists already, is not ready yet, or is running."""
MAY_BE_DAMAGED = (
    *("send_clip", "send_scene", "download_clip"),
    *("show_comparison", "download_comparison", "rename_experiment"),
)
"""Operations that return 502 if a clip, a scene, or the metadata of one is damaged, or the
configuration of an experiment."""


class DescribedApi(FastAPI):
    """Application whose OpenAPI document lists the errors and server-sent events of the API."""

    def __init__(self, routers: Sequence[APIRouter], **options: Any) -> None:
        super().__init__(
            title="rl-teacher",
            version=version("rl-teacher"),
            routes=[route for router in routers for route in router.routes],
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
            **options,
        )

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is built once."""
        is_new = self.openapi_schema is None
        document = super().openapi()
        if is_new:
            add_problem_responses(document, self.routes)
            add_unreferenced_schemas(document)
        return document


def add_problem_responses(document: dict[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Add the problem responses to every operation."""
    for route in routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for method in documented_methods(route):
            operation = document["paths"][route.path_format][method.lower()]
            # FastAPI documents its default validation error, which the service never returns.
            operation["responses"].pop("422", None)
            operation["responses"] |= {
                str(status): problem_response(status)
                for status in problem_statuses(route, operation)
            }
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def add_unreferenced_schemas(document: dict[str, Any]) -> None:
    """Add schemas that no route refers to: event payloads, scene files and single labels."""
    _, definitions = models_json_schema(UNREFERENCED, ref_template=REF_TEMPLATE)
    schemas = document["components"]["schemas"]
    for name, schema in definitions["$defs"].items():
        schemas.setdefault(name, schema)
    # A batch accepts any items, because each is validated on its own.
    submission = {"$ref": REF_TEMPLATE.format(model=LabelSubmission.__name__)}
    schemas["LabelBatch"]["properties"]["labels"]["items"] = submission


def problem_statuses(route: APIRoute, operation: Mapping[str, Any]) -> list[int]:
    """Return the error statuses that an operation may return, except internal errors."""
    access = required_access(route)
    has_body = "requestBody" in operation
    parameters = {each["name"] for each in operation.get("parameters", [])}
    may_return = {
        400: has_body,
        401: access is not Access.PUBLIC,
        403: SAFE_METHODS.isdisjoint(documented_methods(route)),
        404: access is Access.OWNER or "{" in route.path or "experiment" in parameters,
        409: route.name in MAY_CONFLICT,
        413: has_body,
        422: has_body or bool(parameters),
        429: True,
        502: route.name in MAY_BE_DAMAGED,
        503: True,
    }
    return [status for status, is_possible in may_return.items() if is_possible]


def documented_methods(route: APIRoute) -> list[str]:
    """Return the documented HTTP methods of a route."""
    return [method for method in METHODS if method in (route.methods or ())]


def problem_response(status: int) -> dict[str, Any]:
    """Return the OpenAPI description of a problem response."""
    titles = " ".join(f"{kind.title}." for kind in PROBLEM_TYPES if kind.status == status)
    schema = {"$ref": REF_TEMPLATE.format(model="Problem")}
    return {"description": titles, "content": {PROBLEM_TYPE: {"schema": schema}}}


if __name__ == "__main__":
    from rl_teacher.web.app import ROUTERS

    json.dump(DescribedApi(ROUTERS).openapi(), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
