"""Limits of body sizes and request rates."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.web import authentication
from rl_teacher.web.authentication import TokenBuckets, network_of
from rl_teacher.web.problems import TooMany
from rl_teacher.web.settings import MAX_BODY_BYTES, Rate
from tests.store.credentials import issue_credential
from tests.web.conftest import HTML, SAME_ORIGIN, TestClient, assert_problem, enter, label, post

MEGABYTE = b" " * 1_000_000


class TestTooLarge:
    @pytest.mark.parametrize("content_type", ["application/json", "multipart/x"])
    def test_large_chunked_body_is_rejected_while_reading(self, program, content_type):
        chunks = (MEGABYTE for _ in range(100))
        headers = {"Content-Type": content_type}
        assert_problem(program.post("/api/v1/labels", content=chunks, headers=headers), 413)

    def test_body_of_maximum_size_is_accepted(self, program):
        body = b'{"labels": []}'.ljust(MAX_BODY_BYTES)
        program.headers["Content-Type"] = "application/json"
        assert program.post("/api/v1/labels", content=body).status_code == 200
        assert_problem(program.post("/api/v1/labels", content=body + b" "), 413)


class ManualClock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def manual_clock():
    return ManualClock()


@pytest.fixture
def take(manual_clock):
    """Function that counts a request and returns 0, or the seconds to wait."""
    return taker(manual_clock)


def taker(clock):
    buckets = TokenBuckets(clock)

    def take(rate, key="ann", cost=1):
        try:
            buckets.take(rate, key, cost)
        except TooMany as error:
            return error.wait_s
        return 0

    return take


class TestTokenBuckets:
    def test_burst_is_accepted_and_then_the_rate_applies(self, take, manual_clock):
        rate = Rate(2.0, 3)
        assert [take(rate) for _ in range(4)] == [0, 0, 0, 0.5]
        manual_clock.now_s += 0.25
        assert take(rate) == 0.25
        manual_clock.now_s += 0.25
        assert [take(rate), take(rate)] == [0, 0.5]
        manual_clock.now_s += 60
        assert [take(rate) for _ in range(4)] == [0, 0, 0, 0.5]

    def test_refunded_request_does_not_count(self, take):
        rate = Rate(1.0, 2)
        assert [take(rate) for _ in range(3)] == [0, 0, 1]
        take(rate, cost=-1)
        take(rate, "bob", cost=-1)
        assert [take(rate), take(rate)] == [0, 1]

    def test_keys_and_rates_have_separate_buckets(self, take):
        one, other = Rate(1.0, 1), Rate(2.0, 1)
        assert [take(one), take(one, "bob"), take(other), take(one)] == [0, 0, 0, 1]

    def test_request_that_costs_more_than_the_burst_is_refused(self, take):
        assert take(Rate(1.0, 2), cost=3) > 0
        assert take(Rate(1.0, 2), cost=2) == 0

    @given(st.lists(st.floats(0, 2), max_size=200))
    def test_no_interval_exceeds_burst_plus_rate(self, pauses_s):
        clock = ManualClock()
        take = taker(clock)
        answered_s = []
        for pause_s in pauses_s:
            clock.now_s += pause_s
            if take(Rate(4.0, 8)) == 0:
                answered_s.append(clock.now_s)
        for i, begin_s in enumerate(answered_s):
            for num, end_s in enumerate(answered_s[i:], 1):
                assert num <= 8 + 4 * (end_s - begin_s) + 1e-6

    def test_least_recently_used_bucket_is_forgotten(self, take, monkeypatch):
        monkeypatch.setattr(authentication, "MAX_BUCKETS", 2)
        rate = Rate(1.0, 1)
        assert [take(rate, key) for key in ("a", "b", "a", "c", "a", "b")] == [0, 0, 1, 0, 1, 0]


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
    def test_labeler_over_rate_limit_has_to_wait_and_no_other(self, guest, other_guest, clock):
        answered = [guest.get("/api/v1/me").status_code for _ in range(70)]
        assert answered == [200] * 60 + [429] * 10
        refused = guest.get("/api/v1/me")
        assert_problem(refused, 429)
        assert refused.headers["retry-after"] == "1"
        assert other_guest.get("/api/v1/me").status_code == 200
        clock.advance(1)
        answered = [guest.get("/api/v1/me").status_code for _ in range(30)]
        assert answered == [200] * 20 + [429] * 10

    def test_labels_over_rate_limit_have_to_wait(self, guest, trainer, clock):
        [comparison_id] = trainer.ask()
        batch = [label(comparison_id) for _ in range(100)]
        assert [post(guest, *batch).status_code for _ in range(2)] == [200] * 2
        assert_problem(post(guest, label(comparison_id)), 429)
        clock.advance(1)
        assert post(guest, label(comparison_id), label(comparison_id)).status_code == 200

    def test_wrong_credentials_from_one_network_are_rate_limited(self, app, clock):
        statuses = [
            enter(app, f"rlt_{number}").get("/api/v1/me").status_code for number in range(12)
        ]
        assert statuses == [401] * 10 + [429] * 2
        clock.advance(6)
        assert enter(app, "rlt_x").get("/api/v1/me").status_code == 401
        assert enter(app, "rlt_y").get(f"/?token={'w' * 46}").status_code == 429

    def test_wrong_credentials_do_not_lock_out_others(self, app, guest, store, program, clock):
        for number in range(20):
            enter(app, f"rlt_{number}").get("/api/v1/me")
        store.labelers.add("new")
        newcomer = enter(app, issue_credential(store, "new"))
        for client in (guest, newcomer, program):
            assert client.get("/api/v1/me").status_code == 200
        assert join(app, store, clock, "Ann-Marie").is_success

    def test_failed_joins_from_one_network_are_rate_limited(self, anonymous):
        payload = {"invite": "rlt_nothing", "name": "Ann"}
        statuses = [
            anonymous.post("/api/v1/join", json=payload, headers=SAME_ORIGIN).status_code
            for _ in range(12)
        ]
        assert statuses == [409] * 10 + [429] * 2

    def test_many_labelers_join_from_one_network(self, app, store, clock):
        assert all(join(app, store, clock, f"N{number}").is_success for number in range(15))

    def test_rate_limited_page_reloads_itself(self, guest):
        for _ in range(70):
            guest.get("/api/v1/me")
        response = guest.get("/e/hopper/label", headers=HTML)
        assert response.status_code == 429
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["refresh"] == response.headers["retry-after"] == "1"


def join(app, store, clock, name):
    invite = store.access.invite(expires_at=clock() + timedelta(hours=1)).token
    with TestClient(app) as newcomer:
        payload = {"invite": invite, "name": name}
        return newcomer.post("/api/v1/join", json=payload, headers=SAME_ORIGIN)
