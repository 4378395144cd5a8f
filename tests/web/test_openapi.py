"""Requests generated from the OpenAPI document never cause server errors.

Schemathesis generates the requests from `/api/openapi.json`.
"""

import json
import subprocess
import sys

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from rl_teacher.web import clip_export
from tests.web.conftest import TOKEN, assert_problem, label, post

OWNER = {"Authorization": f"Bearer {TOKEN}"}
CHECKS = [not_a_server_error, response_schema_conformance]
NEVER_ENDING = "/api/v1/events"
OPEN_PATHS = {"/healthz", "/api/v1/join"}


@pytest.fixture
def description(app, trainer, guest, monkeypatch):
    """OpenAPI document of a service with content, whose experiment is running."""
    monkeypatch.setattr(clip_export, "WIDTH", 16)
    monkeypatch.setattr(clip_export, "HEIGHT", 16)
    responses = trainer.ask(3)
    post(guest, label(responses[0], "equal"))
    trainer.store.metrics.append(trainer.id, 1, {"true_return": 0.5})
    loaded = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=OWNER)
    described = loaded.exclude(path=NEVER_ENDING)
    described.hook(map_path_parameters)
    # Otherwise a generated request deletes the experiment.
    with trainer.store.locks.hold("hopper"):
        yield described


def map_path_parameters(_context, path_parameters):
    """Replace half of the path parameters with existing ones."""
    there = {"name": "hopper", "comparison_id": 1, "labeler_id": 1, "invite_id": 1}
    return {
        key: there.get(key, value) if len(str(value)) % 2 else value
        for key, value in (path_parameters or {}).items()
    }


@pytest.mark.parametrize("num_requests", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_generated_requests_never_cause_server_errors(description, num_requests):
    responses = set()
    for operation in (found.ok() for found in description.get_all_operations()):

        @settings(
            max_examples=num_requests,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]
        )
        @given(case=cases_of(operation))
        def ask(case):
            response = case.call(headers=OWNER)
            responses.add((case.method, case.path, response.status_code))
            case.validate_response(response, checks=CHECKS)
            if response.status_code >= 400:
                assert response.headers["content-type"] == ["application/problem+json"]

        ask()
    assert max(status for _, _, status in responses) < 500
    answered = {(method, path) for method, path, status in responses if status < 300}
    assert len(answered) > 20


def cases_of(operation):
    """Return a strategy of valid requests, and of invalid ones where an operation has inputs."""
    has_parts = operation.body or any(operation.iter_parameters())
    allowed = operation.as_strategy()
    return allowed | operation.as_strategy(GenerationMode.NEGATIVE) if has_parts else allowed


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
                if status >= "400"
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


def test_openapi_command_prints_the_document_that_the_service_sends(program):
    printed = subprocess.run(
        [sys.executable, "-m", "rl_teacher.web.openapi"], check=True, capture_output=True
    )
    assert json.loads(printed.stdout) == program.get("/api/openapi.json").json()


@pytest.mark.parametrize("name", ["ServerEvents", "Scene", "LabelSubmission"])
def test_openapi_document_includes_schemas_without_a_route(program, name):
    schemas = program.get("/api/openapi.json").json()["components"]["schemas"]
    assert schemas[name]["required"]
