"""Requests that labelers wait for: handled directly, and by the declared endpoints."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from rl_teacher.web.app import create_app
from rl_teacher.web.routes import labelling
from rl_teacher.web.settings import MAX_BODY_BYTES, Limits, Rate, Settings
from tests.store.credentials import issue_credential
from tests.web.conftest import TOKEN, assert_problem, label, lease

LABELS = "/api/v1/labels"
NEXT = "/api/v1/experiments/hopper/comparisons/next"


@pytest.fixture
def settings(clock):
    limits = Limits(labeler=Rate(1.0, 40), labels=Rate(1.0, 3))
    return Settings(TOKEN, now=clock, clock_s=clock.seconds, limits=limits)


@pytest.fixture
def token(store):
    store.labelers.add("ann")
    return issue_credential(store, "ann")


@pytest.fixture
def direct(store, media, settings):
    """Client of an application with the short path."""
    return TestClient(create_app(store, media, settings))


@pytest.fixture
def declared(store, media, settings, monkeypatch):
    """Client of an application without the short path."""
    monkeypatch.setattr(labelling, "SHORT_PATH", {})
    return TestClient(create_app(store, media, settings))


@pytest.fixture
def both(direct, declared):
    return direct, declared


@pytest.fixture
def sent(monkeypatch):
    """Responses of the short path."""
    found = []
    respond = labelling.json_response

    def watch(content):
        found.append(content)
        return respond(content)

    monkeypatch.setattr(labelling, "json_response", watch)
    return found


def answers(clients, token, method, path, **request):
    """Return the responses of both applications, without what differs between any two requests."""
    headers = {"Authorization": f"Bearer {token}", **request.pop("headers", {})}
    responses = [each.request(method, path, headers=headers, **request) for each in clients]
    varying = {"x-request-id", "vary", "content-encoding", "content-length"}
    return [
        (each.status_code, each.json(), {k: v for k, v in each.headers.items() if k not in varying})
        for each in responses
    ]


@pytest.mark.parametrize("query", ["", "?limit=2", "?exclude=1&exclude=2", "?limit=2&limit=3&x=1"])
def test_next_comparisons_are_those_of_the_endpoint(query, both, token, trainer, sent):
    trainer.ask(6)
    one, other = answers(both, token, "GET", NEXT + query)
    assert one == other
    assert one[0] == 200
    assert len(sent) == 1


def test_answer_is_stored_like_by_the_endpoint(both, token, trainer, sent):
    [comparison_id] = trainer.ask()
    lease(trainer.store, "ann", comparison_id)
    body = {"labels": [label(comparison_id, details={"text": "\u00e9 \u2764"})]}
    one, other = answers(both, token, "POST", LABELS, json=body)
    assert one == other
    assert one[1]["accepted"] == [body["labels"][0]["request_id"]]
    assert len(sent) == 1
    [row] = trainer.store.labels.export(trainer.id, 0, 10)
    assert str(row.request_id) == body["labels"][0]["request_id"]


AS_JSON = {"Content-Type": "application/json"}
REFUSED = [
    (422, "GET", f"{NEXT}?limit=0", {}),
    (422, "GET", f"{NEXT}?exclude=first", {}),
    (404, "GET", "/api/v1/experiments/none/comparisons/next", {}),
    (404, "GET", "/api/v1/experiments/a%20b/comparisons/next", {}),
    (422, "POST", LABELS, {"json": {"labels": 1}}),
    (422, "POST", LABELS, {"content": b"{", "headers": AS_JSON}),
    (422, "POST", LABELS, {"content": b'{"labels": []}'}),
    (429, "POST", LABELS, {"json": {"labels": [{}] * 4}}),
    (413, "POST", LABELS, {"json": {"labels": [{"a": "b" * MAX_BODY_BYTES}]}}),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_refusals_are_those_of_the_endpoint(refused, both, token, trainer, sent):
    status, method, path, request = refused
    trainer.ask()
    one, other = answers(both, token, method, path, **request)
    assert one == other
    assert one[0] == status
    assert sent == []


def test_lone_surrogates_and_other_media_types_are_left_to_the_endpoint(direct, token, trainer):
    [comparison_id] = trainer.ask()
    lease(trainer.store, "ann", comparison_id)
    headers = {"Authorization": f"Bearer {token}"}
    text = b'{"labels": [{"details": {"a": "\\ud800"}}]}'
    for media_type in ("application/json", "application/json; charset=utf-8"):
        response = direct.post(
            LABELS, content=text, headers={**headers, "Content-Type": media_type}
        )
        assert len(response.json()["rejected"]) == 1


def test_short_path_needs_a_credential(direct, trainer):
    trainer.ask()
    assert_problem(direct.get(NEXT), 401)
    assert_problem(direct.post(LABELS, json={"labels": []}), 401)


def test_body_that_ends_early_is_malformed(direct, token):
    async def receive():
        return {"type": "http.disconnect"}

    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": LABELS,
        "raw_path": LABELS.encode(),
        "query_string": b"",
        "headers": [
            (b"authorization", f"Bearer {token}".encode()),
            (b"content-type", b"application/json"),
        ],
    }
    asyncio.run(direct.app(scope, receive, send))
    assert sent[0]["status"] == 400


# --- credentials that were valid before ---


@pytest.fixture
def known(direct, token, trainer):
    """Client whose credential has been looked up, with a comparison that is leased to it."""
    [comparison_id] = trainer.ask()
    direct.headers["Authorization"] = f"Bearer {token}"
    [shown] = direct.get(NEXT).json()["comparisons"]
    assert shown["id"] == comparison_id
    body = {"labels": [label(comparison_id, lease=shown["lease"])]}
    return SimpleNamespace(client=direct, body=body, trainer=trainer)


@pytest.mark.parametrize("is_valid", [True, False])
def test_revoked_credential_is_rejected_at_once_and_its_labels_are_not_stored(known, is_valid):
    known.trainer.store.access.revoke_credentials("ann")
    body = known.body if is_valid else {"labels": 1}
    assert_problem(known.client.post(LABELS, json=body), 401)
    assert_problem(known.client.get(NEXT if is_valid else f"{NEXT}?limit=0"), 401)
    assert known.trainer.store.labels.export(known.trainer.id, 0, 10) == []


def test_ended_session_is_rejected_at_once(known, token):
    authenticator = known.client.app.state.services.authenticator
    cookie = authenticator.sessions.start(token)
    known.client.headers["Authorization"] = f"Bearer {cookie}"
    assert known.client.get(NEXT).status_code == 200
    authenticator.end_session(cookie)
    assert_problem(known.client.post(LABELS, json=known.body), 401)
    assert known.trainer.store.labels.export(known.trainer.id, 0, 10) == []


def test_labeler_who_may_no_longer_see_the_experiment_gets_nothing(known, token, monkeypatch):
    access = known.client.app.state.services.authenticator._store.access
    identify = access.identify_hashes

    def elsewhere(hashes):
        return [replace(each, experiment="secret") for each in identify(hashes)]

    monkeypatch.setattr(access, "identify_hashes", elsewhere)
    assert_problem(known.client.get(NEXT), 404)
    receipt = known.client.post(LABELS, json=known.body).json()
    assert receipt["accepted"] == []
    assert len(receipt["rejected"]) == 1


def test_requests_of_known_credential_are_limited(known, settings):
    burst = settings.limits.labeler.burst
    codes = [known.client.get(NEXT).status_code for _ in range(burst + 1)]
    assert codes == [200] * burst + [429]
