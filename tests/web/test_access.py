"""Access control: credentials, cookies, links and origins."""

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html import unescape

import pytest
from starlette.routing import Route

from rl_teacher.store.store import Store
from rl_teacher.web.access import Access, required_access
from rl_teacher.web.address import one_time_code
from rl_teacher.web.app import create_app
from rl_teacher.web.settings import Settings
from tests.store.comparisons import add_labeler, num_labels_of
from tests.store.credentials import issue_credential
from tests.web.conftest import (
    HTML,
    SAME_ORIGIN,
    TOKEN,
    TestClient,
    assert_problem,
    enter,
    label,
    post,
)

WRONG = "w" * 46
POSSIBLE_PATHS = {
    "{name}": "hopper",
    "{name:path}": "page-1a2b.js",
    "{comparison_id}": "1",
    "{labeler_id}": "424242",
    "{invite_id}": "424242",
    "{env_id:path}": "ALE/Nothing-v5",
    "{content_hash}": "0" * 64,
    "{scene_hash}": "0" * 64,
    "{number}": "0",
    "{ranking_id}": "00000000-0000-4000-8000-000000000000",
}
FOR_OWNERS = {
    "DELETE /api/v1/experiments/{name}",
    "POST /api/v1/experiments/{name}/archive",
    "POST /api/v1/experiments/{name}/rename",
    "POST /api/v1/experiments/{name}/restore",
    "GET /api/v1/audit",
    "GET /api/v1/settings",
    "GET /api/v1/environments/{env_id:path}/clips",
    "GET /metrics",
    "GET /api/v1/experiments/{name}/comparisons",
    "GET /api/v1/experiments/{name}/agent",
    "GET /api/v1/experiments/{name}/export",
    "GET /api/v1/experiments/{name}/diagnostics",
    "GET /api/v1/experiments/{name}/episodes",
    "GET /api/v1/experiments/{name}/metrics",
    "GET /api/v1/experiments/{name}/quality",
    "GET /api/v1/experiments/{name}/ranking",
    "GET /api/v1/experiments/{name}/ranking/{content_hash}",
    "GET /api/v1/invites",
    "GET /api/v1/labelers",
    "GET /api/v1/play",
    "GET /api/v1/play/clips/{content_hash}",
    "GET /api/v1/play/episodes/{number}",
    "GET /api/v1/play/episodes/{number}/download",
    "GET /api/v1/play/scenes/{scene_hash}",
    "DELETE /api/v1/invites/{invite_id}",
    "PATCH /api/v1/experiments/{name}",
    "POST /api/v1/experiments/{name}/control",
    "POST /api/v1/invites",
    "POST /api/v1/labelers/{labeler_id}/exclude",
    "POST /api/v1/labelers/{labeler_id}/include",
    "POST /api/v1/labelers/{labeler_id}/revoke",
    "PUT /api/v1/comparisons/{comparison_id}/gold",
}


def fill_path(path):
    for placeholder, value in POSSIBLE_PATHS.items():
        path = path.replace(placeholder, value)
    assert "{" not in path
    return path


def routes_of(app):
    return [(method, route) for route in app.routes for method in sorted(route.methods)]


class TestEveryRoute:
    def test_every_route_declares_required_access(self, app):
        assert len(app.routes) > 10
        undeclared = [route.path for route in app.routes if required_access(route) is None]
        assert undeclared == []

    def test_anonymous_requests_reach_only_public_routes(self, app, anonymous):
        open_routes = set()
        for method, route in routes_of(app):
            response = anonymous.request(method, fill_path(route.path))
            if response.status_code != 401:
                open_routes.add(route.path)
        assert open_routes == {"/healthz", "/join", "/api/v1/join", "/assets/{name:path}"}

    def test_owner_routes_look_missing_to_labelers(self, app, guest, trainer):
        trainer.ask()
        nothing = {
            method: guest.request(method, "/api/v1/nothing")
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        }
        closed = set()
        for method, route in routes_of(app):
            if required_access(route) is Access.OWNER:
                response = guest.request(method, fill_path(route.path))
                assert response.status_code == 404, route.path
                assert response.content == nothing[method].content
                closed.add(f"{method} {route.path}")
        assert closed == FOR_OWNERS

    def test_owner_routes_hide_their_methods_from_labelers(self, guest):
        assert_problem(guest.request("TRACE", "/api/v1/labelers"), 404)
        assert_problem(guest.get("/api/v1/invites/1"), 404)
        assert_problem(guest.get("/api/v1/labels"), 405)

    def test_undeclared_route_is_forbidden(self, app, program):
        async def undeclared(request):
            raise AssertionError("the route was called")

        app.router.routes.append(Route("/api/v1/forgotten", undeclared))
        assert "does not declare" in assert_problem(program.get("/api/v1/forgotten"), 403)

    def test_every_route_sends_security_headers(self, app, browser):
        for method, route in routes_of(app):
            if route.path == "/api/v1/events":
                continue
            headers = browser.request(method, fill_path(route.path)).headers
            assert headers["x-content-type-options"] == "nosniff", route.path
            assert headers["referrer-policy"] == "no-referrer"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert "cache-control" in headers


class TestBearerToken:
    @pytest.mark.parametrize(
        "value",
        [
            f"Bearer {WRONG}",
            "Bearer",
            "Bearer ",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN} {TOKEN}",
            f"bearer {TOKEN.upper()}",
            "Bearer \xff\xfe".encode("latin-1"),
        ],
    )
    def test_invalid_token_is_rejected_despite_valid_cookie(self, browser, value):
        response = browser.get("/api/v1/experiments", headers={"Authorization": value})
        assert_problem(response, 401)
        assert response.headers["www-authenticate"].startswith("Bearer")

    def test_other_authorization_scheme_is_ignored(self, browser):
        headers = {"Authorization": "Basic bWU6cHc="}
        assert browser.get("/api/v1/experiments", headers=headers).status_code == 200


class TestLink:
    @pytest.mark.parametrize(
        ("link", "location"),
        [
            (f"/?token={TOKEN}", "/"),
            (f"/e/hopper/label?token={TOKEN}", "/e/hopper/label"),
            (f"/e/a%20b%C3%BC?x=1&token={TOKEN}&y=%26", "/e/a%20b%C3%BC?x=1&y=%26"),
            (f"/?token={TOKEN}&token={TOKEN}", "/"),
        ],
    )
    def test_link_sets_cookie_and_redirects_without_token(self, anonymous, link, location):
        response = anonymous.get(link)
        assert response.status_code == 303
        assert response.headers["location"] == location
        assert response.headers["cache-control"] == "no-store"
        assert anonymous.get("/").status_code == 200

    def test_cookie_is_http_only_and_same_site(self, anonymous):
        cookie = anonymous.get(f"/?token={TOKEN}").headers["set-cookie"]
        attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/"} <= attributes
        assert "secure" not in attributes

    @pytest.mark.parametrize(
        "path", ["//evil.example/", "/%2F%2Fevil.example/", "/%5Cevil.example"]
    )
    def test_redirect_stays_on_the_same_host(self, anonymous, path):
        response = anonymous.get(f"http://testserver{path}?token={TOKEN}")
        assert response.headers["location"].startswith(("/evil", "/%5Cevil"))

    @pytest.mark.parametrize("token", ["", WRONG, "%FF%00", f"{TOKEN}&token={WRONG}"])
    def test_invalid_token_in_link_returns_help_page(self, anonymous, token):
        response = anonymous.get(f"/?token={token}", headers=HTML)
        assert response.status_code == 401
        assert response.headers["content-type"].startswith("text/html")
        assert "rl-teacher serve" in response.text
        assert "set-cookie" not in response.headers


class TestCookie:
    def test_cookies_of_two_homes_coexist(self, store, media, static, browser):
        """Browsers send cookies to every port of a host, so both services receive both cookies."""
        other = create_app(store, media, Settings(WRONG, static=static))
        with TestClient(other, follow_redirects=False) as client:
            client.cookies = browser.cookies
            assert client.get("/").status_code == 401
            assert client.get(f"/?token={WRONG}").status_code == 303
            assert client.get("/").status_code == 200
            browser.cookies.update(client.cookies)
        assert browser.get("/").status_code == 200

    @pytest.mark.parametrize("value", [WRONG, "", '"', "\xff"])
    def test_invalid_cookie_is_rejected(self, anonymous, value):
        headers = {"Cookie": f"{Settings(TOKEN).cookie}={value}".encode("latin-1")}
        assert_problem(anonymous.get("/api/v1/experiments", headers=headers), 401)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "none"},
            {"Origin": "https://evil.example"},
            {"Origin": "http://testserver.evil.example"},
            {"Origin": "http://testserver:81"},
            {"Origin": "null"},
            {"Origin": "http://[bad"},
            {"Origin": "http://testserver", "Sec-Fetch-Site": "cross-site"},
        ],
    )
    def test_cross_site_request_changes_nothing(self, browser, trainer, headers):
        [comparison_id] = trainer.ask()
        payload = {"labels": [label(comparison_id)]}
        response = browser.post("/api/v1/labels", json=payload, headers=headers)
        assert "another site" in assert_problem(response, 403)
        assert trainer.store.labels.answers([comparison_id]) == {}

    @pytest.mark.parametrize(
        "headers", [SAME_ORIGIN, {"Origin": "http://testserver"}, {"Origin": "https://TESTSERVER"}]
    )
    def test_same_origin_request_stores_label(self, browser, trainer, headers):
        [comparison_id] = trainer.ask()
        payload = {"labels": [label(comparison_id)]}
        response = browser.post("/api/v1/labels", json=payload, headers=headers)
        assert len(response.json()["accepted"]) == 1


class TestSessions:
    def sign_in(self, app, token):
        """Return a client that has followed a link."""
        client = TestClient(app, follow_redirects=False)
        assert client.get(f"/?token={token}").status_code == 303
        return client

    def ann(self, app, store):
        if not any(each.name == "ann" for each in store.labelers.all()):
            add_labeler(store, "ann")
        return self.sign_in(app, issue_credential(store, "ann"))

    @pytest.mark.parametrize("user", ["owner", "ann"])
    def test_cookie_of_a_session_that_was_ended_is_worthless(self, app, store, user):
        client = self.sign_in(app, TOKEN) if user == "owner" else self.ann(app, store)
        copied = client.cookies[Settings(TOKEN).cookie]
        assert client.get("/api/v1/me").json()["name"] == user
        assert client.post("/api/v1/sign-out", headers=SAME_ORIGIN).status_code == 204
        assert Settings(TOKEN).cookie not in client.cookies
        assert_problem(enter(app, copied).get("/api/v1/me"), 401)
        client.cookies.set(Settings(TOKEN).cookie, copied)
        assert_problem(client.get("/api/v1/me"), 401)

    def test_signing_out_ends_no_other_session(self, app, store):
        add_labeler(store, "ann")
        token = issue_credential(store, "ann")
        one, other = self.sign_in(app, token), self.sign_in(app, token)
        one.post("/api/v1/sign-out", headers=SAME_ORIGIN)
        assert other.get("/api/v1/me").status_code == 200
        assert self.sign_in(app, token).get("/api/v1/me").status_code == 200

    @pytest.mark.parametrize("name", ["owner", "ann"])
    def test_altered_session_is_rejected(self, app, store, name):
        client = self.ann(app, store)
        cookie = client.cookies[Settings(TOKEN).cookie]
        content, proof = cookie.rsplit(".", 1)
        altered = {"owner": f"{content[:-4]}AAAA.{proof}", "ann": f"{content}.{proof[::-1]}"}[name]
        assert_problem(enter(app, altered).get("/api/v1/me"), 401)

    def test_session_expires(self, app, store, clock):
        client = self.ann(app, store)
        clock.advance(90 * 24 * 3600 + 1)
        assert_problem(client.get("/api/v1/me"), 401)


class TestLinksOfOtherSites:
    def follow(self, client, store, **headers):
        """Open a page with Ann's token, and return the name of the user afterwards."""
        add_labeler(store, "ann")
        token = issue_credential(store, "ann")
        response = client.get(f"/?token={token}", headers=headers)
        name = client.get("/api/v1/me").json().get("name")
        is_asked = "Continue as ann" in response.text
        assert response.status_code == (200 if is_asked else 303)
        return name, is_asked

    @pytest.mark.parametrize("site", [None, "cross-site", "same-site"])
    def test_owner_stays_signed_in(self, browser, store, site):
        headers = {"Sec-Fetch-Site": site} if site else {}
        assert self.follow(browser, store, **headers) == ("owner", site is not None)

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_visitor_is_signed_in_by_a_click_on_a_page_of_the_service(self, anonymous, store, site):
        """Another site could make a visitor answer under an account of its own."""
        assert self.follow(anonymous, store, **{"Sec-Fetch-Site": site}) == (None, True)
        token = issue_credential(store, "ann")
        page = anonymous.get(f"/e/x/label?a=%22&token={token}", headers={"Sec-Fetch-Site": site})
        [link] = re.findall(r'href="([^"]*)"', page.text)
        clicked = anonymous.get(
            f"/e/x/label{unescape(link)}", headers={"Sec-Fetch-Site": "same-origin"}
        )
        assert (clicked.status_code, clicked.headers["location"]) == (303, "/e/x/label?a=%22")
        assert anonymous.get("/api/v1/me").json()["name"] == "ann"

    @pytest.mark.parametrize("site", ["none", "same-origin"])
    def test_owner_can_sign_in_as_another(self, browser, store, site):
        assert self.follow(browser, store, **{"Sec-Fetch-Site": site}) == ("ann", False)


class TestHost:
    @pytest.fixture
    def named(self, store, media, static):
        settings = Settings(TOKEN, static=static, hosts=frozenset({"localhost", "label.example"}))
        return enter(create_app(store, media, settings), TOKEN)

    @pytest.mark.parametrize(
        "host",
        ["localhost", "localhost:8765", "127.0.0.1", "[::1]:8765", "10.0.0.5", "LABEL.example:443"],
    )
    def test_own_names_and_addresses_are_accepted(self, named, host):
        assert named.get("/api/v1/me", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        ["evil.com", "localhost.evil.com", "", "[::1", "127.0.0.1.evil.com"],
    )
    def test_name_of_another_site_is_refused_on_every_route(self, named, host):
        for path in ("/api/v1/me", "/healthz", "/assets/page-1a2b.js", f"/?token={TOKEN}"):
            assert_problem(named.get(path, headers={"Host": host}), 403)
        invited = named.post("/api/v1/invites", headers={"Host": host}, json={"days": 1})
        assert_problem(invited, 403)


class TestOneTimeCode:
    def code(self, clock, token=TOKEN, database=""):
        return one_time_code(token, database, clock().timestamp())

    def test_code_is_exchanged_for_the_owners_cookie_once(self, anonymous, app, clock):
        code = self.code(clock)
        response = anonymous.get(f"/e/hopper?x=1&code={code}")
        assert (response.status_code, response.headers["location"]) == (303, "/e/hopper?x=1")
        assert anonymous.get("/api/v1/labelers").status_code == 200
        with TestClient(app, follow_redirects=False) as other:
            assert other.get(f"/?code={code}").status_code == 401

    def test_code_expires_after_a_minute(self, anonymous, clock):
        code = self.code(clock)
        clock.advance(60)
        assert anonymous.get(f"/?code={code}").status_code == 401

    @pytest.mark.parametrize("other", [{"token": WRONG}, {"database": "another"}])
    def test_code_of_another_home_or_database_is_rejected(self, anonymous, clock, other):
        assert anonymous.get(f"/?code={self.code(clock, **other)}").status_code == 401

    @pytest.mark.parametrize("code", ["", "x", "..", "9999999999.x", "%ff%ff.x.y"])
    def test_malformed_code_is_rejected(self, anonymous, code):
        assert anonymous.get(f"/?code={code}").status_code == 401


def test_labeler_fields_in_the_request_are_ignored(program, trainer):
    [comparison_id] = trainer.ask()
    post(program, label(comparison_id, labeler="mallory", user_id=7))
    assert num_labels_of(trainer.store, trainer.id, "owner") == 1
    assert num_labels_of(trainer.store, trainer.id, "mallory") == 0


class TestLockedDatabase:
    @pytest.fixture
    def store(self, database, clock):
        """Store that waits for the lock longer than the test."""
        with Store.open(database, busy_timeout_s=20.0, now=clock) as opened:
            yield opened

    def test_authentication_does_not_wait_for_writes(self, guest, database, trainer, clock):
        trainer.ask(4)
        assert guest.get("/api/v1/me").status_code == 200
        clock.advance(60)
        lock = sqlite3.connect(database, isolation_level=None)
        next_url = "/api/v1/experiments/hopper/comparisons/next"
        with closing(lock), ThreadPoolExecutor(6) as threads:
            lock.execute("BEGIN IMMEDIATE")
            try:
                waiting = [threads.submit(guest.get, next_url) for _ in range(4)]
                reads = [threads.submit(guest.get, "/api/v1/me") for _ in range(2)]
                assert [each.result(timeout=5).status_code for each in reads] == [200] * 2
                assert not any(each.done() for each in waiting)
            finally:
                lock.execute("ROLLBACK")
            assert {each.result(timeout=30).status_code for each in waiting} == {200}


class TestLabelersCredential:
    @pytest.mark.parametrize("change", ["credential", "cookie"])
    def test_revoked_credential_is_rejected_immediately(self, app, store, guest, change):
        if change == "cookie":
            token = guest.headers.pop("Authorization").split()[1]
            guest.cookies.set(Settings(TOKEN).cookie, token)
        assert guest.get("/api/v1/me").status_code == 200
        assert store.access.revoke_credentials("ann") == 1
        assert_problem(guest.get("/api/v1/me"), 401)
        assert_problem(guest.get("/api/v1/me"), 401)

    def test_owner_credential_grants_access_to_owner_routes(self, app, store):
        add_labeler(store, "olga", "owner")
        olga = enter(app, issue_credential(store, "olga"))
        assert olga.get("/api/v1/labelers").status_code == 200
