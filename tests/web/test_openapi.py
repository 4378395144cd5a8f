"""OpenAPI document of the service."""

import json
import subprocess
import sys

import pytest

from tests.web.conftest import assert_problem


def test_every_api_route_is_documented(app, program):
    described = program.get("/api/openapi.json").json()["paths"]
    routes = {
        route.path.replace(":path", "")
        for route in app.routes
        if route.path.startswith("/api/v1") and route.include_in_schema
    }
    assert set(described) >= routes
    assert all("description" in op for path in described.values() for op in path.values())


def test_null_bytes_are_rejected(program, trainer):
    for path in (
        "/api/v1/experiments/a%00b",
        "/api/v1/experiments/hopper/comparisons?labeler=a%00b",
        "/api/v1/environments/a%00b/clips",
        "/api/v1/audit?experiment=a%00b",
    ):
        response = program.get(path)
        assert response.status_code in (404, 422)
        assert_problem(response, response.status_code)


def test_every_operation_documents_the_problems(program):
    described = program.get("/api/openapi.json").json()
    for operations in described["paths"].values():
        for operation in operations.values():
            documented = operation["responses"]["default"]
            shape = documented["content"]["application/problem+json"]["schema"]
            assert shape == {"$ref": "#/components/schemas/Problem"}
            assert "409 not-leased" in documented["description"]
            assert "422" not in operation["responses"]


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/api/v1/clips/{content_hash}", {"200", "206", "304"}),
        ("/api/v1/play/clips/{content_hash}", {"200", "206", "304"}),
        ("/api/v1/scenes/{scene_hash}", {"200", "304"}),
    ],
)
def test_media_document_ranges_and_cached_content(program, path, statuses):
    operation = program.get("/api/openapi.json").json()["paths"][path]["get"]
    assert {each for each in operation["responses"] if each < "400"} == statuses


def test_openapi_command_prints_the_document_that_the_service_sends(program):
    printed = subprocess.run(
        [sys.executable, "-m", "rl_teacher.web.openapi"], check=True, capture_output=True
    )
    assert json.loads(printed.stdout) == program.get("/api/openapi.json").json()


@pytest.mark.parametrize("name", ["ServerEvents", "Scene", "LabelSubmission"])
def test_openapi_document_includes_schemas_without_a_route(program, name):
    schemas = program.get("/api/openapi.json").json()["components"]["schemas"]
    assert schemas[name]["required"]
