"""OpenAPI document of the service."""

import json

import pytest

from rl_teacher.web.app import ROUTERS
from rl_teacher.web.openapi import DescribedApi


def test_every_api_route_is_documented(app, program):
    described = program.get("/api/openapi.json").json()["paths"]
    routes = {
        route.path.replace(":path", "")
        for route in app.routes
        if route.path.startswith("/api/v1") and route.include_in_schema
    }
    assert set(described) >= routes
    assert all("description" in op for path in described.values() for op in path.values())


def test_every_operation_documents_the_problems(program):
    described = program.get("/api/openapi.json").json()
    for operations in described["paths"].values():
        for operation in operations.values():
            documented = operation["responses"]["default"]
            shape = documented["content"]["application/problem+json"]["schema"]
            assert shape == {"$ref": "#/components/schemas/Problem"}
            assert "409 not-leased" in documented["description"]
            assert "422" not in operation["responses"]


def test_document_without_a_service_is_the_one_that_the_service_sends(program):
    described = json.loads(json.dumps(DescribedApi(ROUTERS).openapi()))
    assert described == program.get("/api/openapi.json").json()


@pytest.mark.parametrize("name", ["Scene", "LabelSubmission"])
def test_openapi_document_includes_schemas_without_a_route(program, name):
    schemas = program.get("/api/openapi.json").json()["components"]["schemas"]
    assert schemas[name]["required"]
