"""Invites for one person and for a class."""

from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from rl_teacher.web.settings import Settings
from tests.store.comparisons import num_labels_of
from tests.web.conftest import (
    SAME_ORIGIN,
    TOKEN,
    TestClient,
    assert_problem,
    label,
    lease,
)

MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def invite(program):
    """Return a function that creates an invite and returns its token."""

    def make(**fields):
        response = program.post("/api/v1/invites", json=fields)
        assert response.status_code == 201, response.text
        return parse_qs(urlsplit(response.json()["link"]).query)["invite"][0]

    return make


@pytest.fixture
def newcomer(app):
    """Browser without a cookie."""
    with TestClient(app, follow_redirects=False) as client:
        yield client


def join(client, token, name="Ann", headers=SAME_ORIGIN):
    return client.post("/api/v1/join", json={"invite": token, "name": name}, headers=headers)


class TestJoining:
    def test_joining_sets_cookie_with_new_credential(self, newcomer, invite, trainer, store):
        [comparison_id] = trainer.ask()
        token = invite(experiment="hopper")
        response = join(newcomer, token)
        ann = {"name": "Ann", "role": "labeler", "home": Settings(TOKEN).home}
        assert response.json() == {**ann, "experiment": "hopper"}
        cookie = response.headers["set-cookie"]
        assert {"httponly", "samesite=lax", "path=/"} <= {
            part.strip().lower() for part in cookie.split(";")[1:]
        }
        assert token not in cookie
        assert newcomer.get("/api/v1/me").json() == ann
        lease(store, "Ann", comparison_id)
        payload = {"labels": [label(comparison_id)]}
        newcomer.post("/api/v1/labels", json=payload, headers=SAME_ORIGIN)
        assert num_labels_of(store, trainer.id, "Ann") == 1

    def test_used_invite_is_rejected(self, app, newcomer, invite):
        token = invite()
        assert join(newcomer, token).status_code == 200
        with TestClient(app) as second:
            fields = assert_problem(join(second, token, "Bob"), 409)
            assert "has already been used" in fields
            assert_problem(second.get("/api/v1/me"), 401)

    def test_repeated_request_signs_in_again(self, newcomer, invite):
        fields = {"invite": invite(), "name": "Ann", "request_id": str(uuid4())}
        for _ in range(2):
            newcomer.cookies.clear()
            joined = newcomer.post("/api/v1/join", json=fields, headers=SAME_ORIGIN)
            assert joined.status_code == 200
            assert newcomer.get("/api/v1/me").json()["name"] == "Ann"

    def test_name_with_markup_is_stored_as_text(self, newcomer, invite, program):
        assert join(newcomer, invite(), MARKUP).json()["name"] == MARKUP
        response = program.get("/api/v1/labelers")
        assert response.headers["content-type"] == "application/json"
        assert MARKUP in [each["name"] for each in response.json()]

    @pytest.mark.parametrize(
        "headers",
        [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}],
    )
    def test_cross_site_join_is_rejected(self, newcomer, invite, headers):
        token = invite()
        assert_problem(join(newcomer, token, headers=headers), 403)
        assert join(newcomer, token).status_code == 200


class TestClassInvite:
    def test_class_invite_admits_several_people_with_own_credentials(self, app, invite, program):
        token = invite(max_uses=2)
        names = []
        for name in ("Ann", "Bob"):
            client = TestClient(app)
            assert join(client, token, name).status_code == 200
            names.append(client.get("/api/v1/me").json()["name"])
        assert names == ["Ann", "Bob"]
        third = join(TestClient(app), token, "Carl")
        assert "has already been used" in assert_problem(third, 409)
        [made] = program.get("/api/v1/invites").json()
        assert (made["max_uses"], made["num_uses"], made["status"]) == (2, 2, "used")

    @pytest.mark.parametrize("fields", [{"role": "owner"}, {"name": "Zoë"}])
    def test_class_invite_for_owners_or_with_a_name_is_rejected(self, program, fields):
        response = program.post("/api/v1/invites", json={"max_uses": 2, **fields})
        assert "several people" in assert_problem(response, 422)
        assert program.get("/api/v1/invites").json() == []
