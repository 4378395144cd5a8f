"""OpenAPI document of the service.

`python -m rl_teacher.web.openapi` writes it to standard output without starting a service.
"""

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rl_teacher.web.problems import MEDIA_TYPE, problem_kinds
from rl_teacher.web.schemas.labelling import LabelSubmission
from rl_teacher.web.schemas.shared import Scene

REF_TEMPLATE = "#/components/schemas/{model}"
UNREFERENCED: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
    (Scene, "serialization"),
    (LabelSubmission, "validation"),
]
"""Scene files and single labels, to which no route refers."""


class DescribedApi(FastAPI):
    """Application whose OpenAPI document includes the problems of the API."""

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
        if self.openapi_schema is not None:
            return self.openapi_schema
        document = super().openapi()
        failure = {
            "description": "; ".join(
                f"{status} {slug}: {title}" for status, slug, title in problem_kinds()
            ),
            "content": {MEDIA_TYPE: {"schema": {"$ref": REF_TEMPLATE.format(model="Problem")}}},
        }
        for operations in document["paths"].values():
            for operation in operations.values():
                # FastAPI documents its default validation error, which the service never returns.
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = failure
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        _, definitions = models_json_schema(UNREFERENCED, ref_template=REF_TEMPLATE)
        for name, schema in definitions["$defs"].items():
            schemas.setdefault(name, schema)
        # A batch accepts any items, because each is validated on its own.
        submission = {"$ref": REF_TEMPLATE.format(model=LabelSubmission.__name__)}
        schemas["LabelBatch"]["properties"]["labels"]["items"] = submission
        return document


if __name__ == "__main__":
    from rl_teacher.web.app import ROUTERS

    json.dump(DescribedApi(ROUTERS).openapi(), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
