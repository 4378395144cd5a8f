"""OpenAPI document of the service."""

import json
import subprocess
import sys

import pytest

from tests.web.conftest import assert_problem

OPEN_PATHS = {"/healthz", "/api/v1/join"}


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


def test_every_operation_documents_its_errors(program):
    described = program.get("/api/openapi.json").json()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            failures = {
                status: documented
                for status, documented in operation["responses"].items()
                if status >= "400" and status != "416"  # without a body
            }
            assert {"429", "503"} <= set(failures), path
            assert ("401" in failures) == (path not in OPEN_PATHS), path
            assert ("403" in failures) == (method != "get"), path
            for documented in failures.values():
                shape = documented["content"]["application/problem+json"]["schema"]
                assert shape == {"$ref": "#/components/schemas/Problem"}
    assert "HTTPValidationError" not in described["components"]["schemas"]


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("get", "/api/v1/experiments/{name}", {"401", "404", "422", "429", "503"}),
        ("get", "/api/v1/me", {"401", "429", "503"}),
        (
            "get",
            "/api/v1/clips/{content_hash}",
            {"401", "404", "409", "416", "422", "429", "502", "503"},
        ),
        ("get", "/api/v1/scenes/{scene_hash}", {"401", "404", "422", "429", "502", "503"}),
        ("post", "/api/v1/join", {"400", "403", "409", "413", "422", "429", "503"}),
        (
            "post",
            "/api/v1/labelers",
            {"400", "401", "403", "404", "409", "413", "422", "429", "503"},
        ),
    ],
)
def test_operation_documents_expected_statuses(program, method, path, statuses):
    operation = program.get("/api/openapi.json").json()["paths"][path][method]
    assert {each for each in operation["responses"] if each >= "400"} == statuses


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
