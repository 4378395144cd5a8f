"""Problem responses of all errors."""

import shutil
import sqlite3
from types import SimpleNamespace
from uuid import uuid4

import pytest
from fastapi import APIRouter
from sqlalchemy.exc import ProgrammingError

from rl_teacher.store.database import unavailable
from rl_teacher.store.media import MediaFiles
from rl_teacher.web.access import PublicRoute
from rl_teacher.web.problems import problem_from_error
from tests.web.conftest import TOKEN, TestClient, assert_problem, label, post
from tests.web.test_access import fill_path, routes_of

READING = (
    "/readyz",
    "/api/v1/experiments",
    "/api/v1/experiments/hopper",
    "/api/v1/experiments/hopper/metrics",
    "/api/v1/experiments/hopper/comparisons/next",
    "/api/v1/experiments/hopper/labels",
    "/api/v1/comparisons/1",
    f"/api/v1/clips/{'0' * 64}",
    "/api/v1/events?experiment=hopper",
)

ANSWERED_IN_ANY_CASE = (
    *("/e/{name}", "/e/{name}/label", "/e/{name}/watch"),
    "/api/v1/environments/{env_id:path}/clips",
    "/metrics",
)
VALID_BODIES = {
    "gold": {"answer": "left"},
    "control": {"state": "run"},
    "rename": {"name": "other"},
    "rankings": {"request_id": str(uuid4()), "groups": [["0" * 64], ["1" * 64]]},
}


def set_version(database, version):
    connection = sqlite3.connect(database)
    connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    connection.commit()
    connection.close()


class TestProblemFormat:
    def test_missing_resource_returns_problem_on_every_route(self, app, program):
        checked = set()
        for method, route in routes_of(app):
            if "{" not in route.path or route.path in ANSWERED_IN_ANY_CASE:
                continue
            path = route.path
            for name in ("{comparison_id}", "{name}", "{name:path}"):
                path = path.replace(name, "424242")
            payload = VALID_BODIES.get(route.path.rpartition("/")[2], {})
            response = program.request(method, fill_path(path), json=payload)
            if method == "HEAD":
                assert response.status_code == 404
            else:
                assert_problem(response, 404)
            checked.add(f"{method} {route.path}")
        assert len(checked) > 20

    def test_unsupported_method_returns_problem_on_every_route(self, app, program):
        for _, route in routes_of(app):
            response = program.request("TRACE", fill_path(route.path))
            assert_problem(response, 405)
            assert "allow" in response.headers

    @pytest.mark.parametrize("path", ["/nothing", "/api", "/api/v1", "/api/v2/labels", "/e/", "//"])
    def test_unknown_path_returns_problem(self, program, path):
        assert_problem(program.get(f"http://testserver{path}"), 404)

    def test_unexpected_error_is_logged_and_not_disclosed(self, app, caplog):
        def fail():
            raise RuntimeError("the secret of the pyramids")

        router = APIRouter(route_class=PublicRoute)
        router.get("/healthz")(fail)
        app.router.routes[:] = [*router.routes, *app.router.routes]
        with TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            response = client.get("/healthz")
        assert "pyramids" not in assert_problem(response, 500)
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "pyramids" in caplog.text


class TestMalformedHeaders:
    @pytest.mark.parametrize(
        "header",
        [
            *("accept-encoding", "authorization-x", "content-type"),
            *("cookie", "host", "origin", "sec-fetch-site"),
        ],
    )
    @pytest.mark.parametrize("value", [b"\xff\xfe\x00", b'"', b"=;,=", b"a" * 5000, b"bytes=-"])
    def test_malformed_headers_never_cause_server_errors(self, program, trainer, header, value):
        clip = trainer.add_clip("one", "video")
        response = program.get(f"/api/v1/clips/{clip}", headers={header: value})
        assert response.status_code in (200, 400)
        response = program.post("/api/v1/labels", json={"labels": []}, headers={header: value})
        assert response.status_code in (200, 400, 422)


def raises(error):
    """Return a coroutine function that raises an error."""

    async def fail(*_args, **_kwargs):
        raise error

    return fail


class TestMedia:
    def test_missing_clip_names_no_folder(self, guest, trainer, tmp_path, media):
        clip = trainer.add_clip("one", "video")
        shutil.rmtree(tmp_path / "media")
        detail = assert_problem(guest.get(f"/api/v1/clips/{clip}"), 502)
        assert str(tmp_path) not in detail

    def test_remote_folder_that_does_not_answer_is_not_named(self, guest, trainer, monkeypatch):
        clip = trainer.add_clip("one", "video")
        remote = MediaFiles("memory://bucket-of-the-lab/clips")
        monkeypatch.setattr(trainer.media, "_backend", remote._backend)
        failing = lambda _key: 1 / 0  # noqa: E731 - stands for any error of a driver
        monkeypatch.setattr(remote._backend, "_file_system", SimpleNamespace(cat_file=failing))
        detail = assert_problem(guest.get(f"/api/v1/clips/{clip}"), 503)
        assert detail.startswith("The media cannot be used.")
        assert "division" not in detail


@pytest.mark.usefixtures("trainer")
class TestDatabase:
    def test_deleted_database_is_reported(self, program, database):
        database.unlink()
        for path in READING:
            response = program.get(path)
            detail = assert_problem(response, 503)
            assert "database" in detail
            assert str(database.parent) not in detail
            assert int(response.headers["retry-after"]) > 0

    def test_error_of_the_database_server_names_no_host(self, app, guest, monkeypatch):
        text = 'connection to server at "db.internal" (10.0.0.5), port 5432 failed'
        monkeypatch.setattr(
            app.state.services.authenticator, "of", raises(unavailable("postgresql://db", text))
        )
        detail = assert_problem(guest.get("/api/v1/me"), 503)
        assert detail.startswith("The database cannot be used.")

    def test_locked_database_rejects_label_until_unlocked(self, program, trainer, database):
        [comparison_id] = trainer.ask()
        payload = label(comparison_id)
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert "locked" in assert_problem(post(program, payload), 503)
        assert program.get("/api/v1/experiments/hopper").status_code == 200
        other.execute("ROLLBACK")
        other.close()
        assert post(program, payload).json()["accepted"] == [payload["request_id"]]
        assert list(trainer.store.labels.answers([comparison_id])) == [comparison_id]

    def test_database_of_other_version_rejects_label(self, program, trainer, database):
        [comparison_id] = trainer.ask()
        set_version(database, "9999")
        assert "9999" in assert_problem(post(program, label(comparison_id)), 503)
        assert trainer.store.labels.answers([comparison_id]) == {}

    def test_database_error_returns_503_without_details(self):
        shown = problem_from_error(
            ProgrammingError("SELECT secret", {}, Exception("no such column"))
        )
        assert shown.status == 503
        assert "secret" not in shown.detail
