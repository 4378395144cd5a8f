"""Absence of credentials from logs, errors and reprs, and of code execution from data."""

import logging
import re
from pathlib import Path

import pytest

from rl_teacher.web.access import LabelerRoute
from rl_teacher.web.labelers_cli import NewCredential
from rl_teacher.web.settings import Settings
from tests.store.comparisons import add_labeler
from tests.store.credentials import identify, issue_credential
from tests.web.conftest import SAME_ORIGIN, TOKEN, TestClient, assert_problem, enter, label, post

SOURCE = Path(__file__).parents[2] / "src" / "rl_teacher"
RUNS_DATA = re.compile(
    r"\b(import|from)\s+(pickle|cloudpickle|marshal|shelve|dill|joblib)\b|\bpickle\.(load|Unpick)"
    r"|\beval\(|\bexec\(|allow_pickle\s*=\s*True|\btorch\.load\((?!.*\bweights_only=True\))|\byaml\.(unsafe_)?load\b"
)


@pytest.fixture
def secret(store):
    add_labeler(store, "ann")
    return issue_credential(store, "ann")


def test_logs_contain_no_credential(app, program, trainer, secret, caplog):
    caplog.set_level(logging.DEBUG)
    [comparison_id] = trainer.ask()
    ann = enter(app, secret)
    post(ann, label(comparison_id))
    ann.get("/api/v1/nothing")
    ann.get("/api/v1/labelers")
    wrong = "rlt_" + "w" * 43
    enter(app, wrong).get("/api/v1/me")
    link = program.post("/api/v1/invites", json={}).json()["link"]
    invite = link.partition("invite=")[2]
    anonymous = program
    del anonymous.headers["Authorization"]
    anonymous.get(f"/join?invite={invite}")
    payload = {"invite": invite, "name": "Bob"}
    assert anonymous.post("/api/v1/join", json=payload, headers=SAME_ORIGIN).status_code == 200
    assert_problem(anonymous.post("/api/v1/join", json=payload, headers=SAME_ORIGIN), 409)
    anonymous.get(f"/e/hopper?token={secret}")
    anonymous.get(f"/e/hopper?token={TOKEN}")
    logged = service_log(caplog)
    assert "/e/hopper 303" in logged
    for each in (secret, wrong, invite, TOKEN, anonymous.cookies[Settings(TOKEN).cookie]):
        assert each not in logged


def service_log(caplog):
    """Return the log without the records of the test client."""
    formatter = logging.Formatter()
    return "\n".join(
        formatter.format(each) for each in caplog.records if not each.name.startswith("http")
    )


def test_log_of_unexpected_error_contains_no_credential(app, store, secret, caplog):
    def fail():
        raise RuntimeError("it broke")

    app.router.add_api_route("/api/v1/broken", fail, route_class_override=LabelerRoute)
    with TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as client:
        assert_problem(client.get("/api/v1/broken"), 500)
    assert "it broke" in service_log(caplog)
    assert secret not in service_log(caplog)


def test_responses_do_not_repeat_wrong_credential(app, anonymous):
    wrong = "rlt_" + "w" * 43
    for response in (
        enter(app, wrong).get("/api/v1/me"),
        anonymous.get(f"/?token={wrong}"),
        anonymous.post("/api/v1/join", json={"invite": wrong, "name": "x"}, headers=SAME_ORIGIN),
    ):
        assert response.status_code >= 400
        assert wrong not in response.text


def test_repr_of_objects_contains_no_credential(app, store, secret, clock):
    identity = identify(store, secret)
    store.access.invite("labeler", expires_at=clock())
    objects = [
        Settings(TOKEN),
        identity,
        app.state.services,
        app.state.services.authenticator,
        NewCredential("ann", secret, f"http://127.0.0.1/?token={secret}"),
        store.access.invites(),
        store.labelers.all(),
    ]
    for each in objects:
        for text in (repr(each), str(each)):
            assert secret not in text
            assert TOKEN not in text


def test_package_never_executes_data():
    found = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text().splitlines()
        if RUNS_DATA.search(line)
    }
    assert found == set()
