"""Limits of body sizes and request rates."""

from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.web import shared_state
from rl_teacher.web.authentication import Buckets, RateLimited, network_of
from rl_teacher.web.settings import MAX_BODY_BYTES, Limits, Rate
from rl_teacher.web.shared_state import SharedState
from tests.store.credentials import issue_credential
from tests.web.conftest import HTML, SAME_ORIGIN, TestClient, assert_problem, enter, label, post

MEGABYTE = b" " * 1_000_000


class TestTooLarge:
    def test_large_content_length_is_rejected_before_reading(self, program):
        headers = {"Content-Length": str(100_000_000), "Content-Type": "application/json"}
        response = program.post("/api/v1/labels", content=unread_body(), headers=headers)
        assert "1,000,000 bytes" in assert_problem(response, 413)
        assert response.headers["connection"] == "close"

    @pytest.mark.parametrize("content_type", ["application/json", "text/plain", "multipart/x"])
    def test_large_chunked_body_is_rejected_while_reading(self, program, content_type):
        chunks = (MEGABYTE for _ in range(100))
        headers = {"Content-Type": content_type}
        response = program.post("/api/v1/labels", content=chunks, headers=headers)
        assert_problem(response, 413)

    def test_body_of_maximum_size_is_accepted(self, program):
        body = b'{"labels": []}'.ljust(MAX_BODY_BYTES)
        program.headers["Content-Type"] = "application/json"
        assert program.post("/api/v1/labels", content=body).status_code == 200
        assert_problem(program.post("/api/v1/labels", content=body + b" "), 413)

    def test_anonymous_large_body_is_unauthorized(self, anonymous):
        headers = {"Content-Length": str(100_000_000)}
        response = anonymous.post("/api/v1/labels", content=b"", headers=headers)
        assert_problem(response, 401)
        assert response.headers["connection"] == "close"


def unread_body():
    yield b"{"


class ManualClock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def make_buckets(rate, clock, shared=None):
    return Buckets(shared or SharedState(), "requests", rate, clock)


def take(buckets, key):
    """Count a request and return 0, or return the seconds to wait."""
    try:
        buckets.count(key)
    except RateLimited as error:
        return error.wait_s
    return 0


class TestBuckets:
    def test_burst_is_accepted_and_then_the_rate_applies(self):
        clock = ManualClock()
        buckets = make_buckets(Rate(2.0, 3), clock)
        assert [take(buckets, "ann") for _ in range(3)] == [0, 0, 0]
        assert take(buckets, "ann") == 0.5
        clock.now_s += 0.25
        assert take(buckets, "ann") == 0.25
        clock.now_s += 0.25
        assert [take(buckets, "ann"), take(buckets, "ann")] == [0, 0.5]
        clock.now_s += 60
        assert [take(buckets, "ann") for _ in range(4)] == [0, 0, 0, 0.5]

    def test_refunded_request_does_not_count(self):
        buckets = make_buckets(Rate(1.0, 2), ManualClock())
        assert [take(buckets, "ann") for _ in range(3)] == [0, 0, 1]
        buckets.refund("ann")
        buckets.refund("bob")
        assert [take(buckets, "ann"), take(buckets, "ann")] == [0, 1]

    def test_keys_have_separate_buckets(self):
        buckets = make_buckets(Rate(1.0, 1), ManualClock())
        assert [take(buckets, "ann"), take(buckets, "bob"), take(buckets, "ann")] == [0, 0, 1]

    def test_rate_limits_have_separate_buckets(self):
        shared, clock = SharedState(), ManualClock()
        requests = Buckets(shared, "requests", Rate(1.0, 1), clock)
        labels = Buckets(shared, "labels", Rate(1.0, 1), clock)
        assert [take(requests, "ann"), take(labels, "ann"), take(requests, "ann")] == [0, 0, 1]

    def test_request_that_costs_more_than_the_burst_is_refused(self):
        buckets = make_buckets(Rate(1.0, 2), ManualClock())
        with pytest.raises(RateLimited):
            buckets.count("ann", 3)
        buckets.count("ann", 2)

    @given(st.lists(st.floats(0, 2), max_size=200))
    def test_no_interval_exceeds_burst_plus_rate(self, pauses_s):
        clock = ManualClock()
        buckets = make_buckets(Rate(4.0, 8), clock)
        answered_s = []
        for pause_s in pauses_s:
            clock.now_s += pause_s
            if take(buckets, "ann") == 0:
                answered_s.append(clock.now_s)
        for i, begin_s in enumerate(answered_s):
            for num, end_s in enumerate(answered_s[i:], 1):
                assert num <= 8 + 4 * (end_s - begin_s) + 1e-6

    def test_number_of_buckets_is_limited(self, monkeypatch):
        monkeypatch.setattr(shared_state, "MAX_BUCKETS", 100)
        monkeypatch.setattr(shared_state, "PRUNE_EVERY", 10)
        clock, shared = ManualClock(), SharedState()
        buckets = make_buckets(Rate(1.0, 2), clock, shared)
        for number in range(1_000):
            take(buckets, f"network {number}")
            clock.now_s += 0.001
        assert 90 <= num_buckets(shared) <= 110
        assert [take(buckets, "network 999") for _ in range(2)] == [0, pytest.approx(0.999)]
        clock.now_s += 60
        for number in range(10):
            take(buckets, f"network {number}")
        assert num_buckets(shared) <= 10


def num_buckets(shared):
    [(number,)] = shared._execute("SELECT count(*) FROM buckets")
    return number


@pytest.mark.parametrize(
    ("host", "counts_as"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", "testclient"),
        (None, "unknown"),
    ],
)
def test_ipv6_addresses_share_a_network(host, counts_as):
    assert network_of(host) == counts_as


class TestTooMany:
    def test_labeler_over_rate_limit_has_to_wait(self, guest, clock):
        answered = [guest.get("/api/v1/me").status_code for _ in range(70)]
        assert answered == [200] * 61 + [429] * 9
        refused = guest.get("/api/v1/me")
        assert_problem(refused, 429)
        assert refused.headers["retry-after"] == "1"
        clock.advance(1)
        answered = [guest.get("/api/v1/me").status_code for _ in range(30)]
        assert answered == [200] * 20 + [429] * 10

    def test_labels_over_rate_limit_have_to_wait(self, guest, trainer, clock):
        [comparison_id] = trainer.ask()
        batch = [label(comparison_id) for _ in range(100)]
        assert post(guest, *batch).status_code == 200
        assert post(guest, *batch).status_code == 200
        refused = post(guest, label(comparison_id))
        assert_problem(refused, 429)
        assert refused.headers["retry-after"] == "1"
        clock.advance(1)
        assert post(guest, label(comparison_id), label(comparison_id)).status_code == 200

    def test_labels_of_owners_are_not_limited(self, program, trainer):
        [comparison_id] = trainer.ask()
        batch = [label(comparison_id) for _ in range(100)]
        assert [post(program, *batch).status_code for _ in range(3)] == [200] * 3

    def test_rejected_requests_do_not_query_the_database(self, app, guest, clock, monkeypatch):
        looked_up = []
        access = app.state.services.store.access
        identify = access.identify_hashes

        def count(hashes):
            looked_up.extend(hashes)
            return identify(hashes)

        monkeypatch.setattr(access, "identify_hashes", count)
        statuses = []
        for _ in range(200):
            statuses.append(guest.get("/api/v1/me").status_code)
            clock.advance(0.0005)
        assert statuses.count(200) <= 60 + 1 + 20 * 0.1 + 1
        assert len(looked_up) == statuses.count(200)

    def test_rate_limit_of_one_labeler_does_not_affect_another(self, guest, other_guest):
        for _ in range(100):
            guest.get("/api/v1/me")
        assert other_guest.get("/api/v1/me").status_code == 200

    def test_wrong_credentials_from_one_network_are_rate_limited(self, app, clock):
        statuses = [
            enter(app, f"rlt_{number}").get("/api/v1/me").status_code for number in range(12)
        ]
        assert statuses == [401] * 10 + [429] * 2
        clock.advance(6)
        assert enter(app, "rlt_x").get("/api/v1/me").status_code == 401
        assert enter(app, "rlt_y").get("/api/v1/me").status_code == 429

    def test_wrong_credentials_do_not_block_known_labelers(self, app, guest, program):
        assert guest.get("/api/v1/me").status_code == 200
        for number in range(20):
            enter(app, f"rlt_{number}").get("/api/v1/me")
        assert guest.get("/api/v1/me").status_code == 200
        assert program.get("/api/v1/me").status_code == 200

    def test_wrong_credentials_do_not_lock_out_new_credential(self, app, store):
        for number in range(20):
            enter(app, f"rlt_{number}").get("/api/v1/me")
        store.labelers.add("new")
        newcomer = enter(app, issue_credential(store, "new"))
        assert newcomer.get("/api/v1/me").status_code == 200
        assert enter(app, "rlt_x").get("/api/v1/me").status_code == 429

    def test_revoked_credential_does_not_block_its_network(self, app, guest, store, other_guest):
        guest.get("/api/v1/me")
        store.access.revoke_credentials("ann")
        assert {guest.get("/api/v1/me").status_code for _ in range(50)} == {401}
        assert other_guest.get("/api/v1/me").status_code == 200

    def test_wrong_tokens_in_links_are_rate_limited(self, anonymous):
        statuses = [anonymous.get(f"/?token=rlt_{number}").status_code for number in range(11)]
        assert statuses == [401] * 10 + [429]

    def test_failed_joins_from_one_network_are_rate_limited(self, anonymous):
        payload = {"invite": "rlt_nothing", "name": "Ann"}
        statuses = [
            anonymous.post("/api/v1/join", json=payload, headers=SAME_ORIGIN).status_code
            for _ in range(12)
        ]
        assert statuses == [409] * 10 + [429] * 2

    def test_many_labelers_join_from_one_network(self, app, store, clock):
        for number in range(25):
            with TestClient(app) as newcomer:
                payload = {
                    "invite": store.access.invite(expires_at=clock() + timedelta(hours=1)).token,
                    "name": f"N{number}",
                }
                joined = newcomer.post("/api/v1/join", json=payload, headers=SAME_ORIGIN)
                assert joined.status_code == 200

    def test_repeated_join_counts_as_requests_of_the_credential(self, anonymous, store, clock):
        payload = {
            "invite": store.access.invite(expires_at=clock() + timedelta(hours=1)).token,
            "name": "Ann",
            "request_id": str(uuid4()),
        }
        statuses = [
            anonymous.post("/api/v1/join", json=payload, headers=SAME_ORIGIN).status_code
            for _ in range(61)
        ]
        assert statuses == [200] * 60 + [429]

    def test_joined_labeler_is_not_blocked_by_wrong_credentials(self, app, store, clock):
        with TestClient(app) as newcomer:
            payload = {
                "invite": store.access.invite(expires_at=clock() + timedelta(hours=1)).token,
                "name": "Ann",
            }
            assert newcomer.post("/api/v1/join", json=payload, headers=SAME_ORIGIN).is_success
            for number in range(20):
                enter(app, f"rlt_{number}").get("/api/v1/me")
            assert newcomer.get("/api/v1/me").status_code == 200

    def test_rate_limited_page_reloads_itself(self, guest):
        for _ in range(70):
            guest.get("/api/v1/me")
        response = guest.get("/e/hopper/label", headers=HTML)
        assert response.status_code == 429
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["refresh"] == response.headers["retry-after"] == "1"
        assert "tries again in 1 s" in response.text

    def test_missing_credential_is_not_counted(self, anonymous):
        assert {anonymous.get("/api/v1/me").status_code for _ in range(50)} == {401}

    def test_default_limits_for_labelers_and_anonymous_requests(self):
        assert Limits().labeler == Rate(20.0, 60)
        assert 60 * Limits().anonymous.per_s == pytest.approx(10)
