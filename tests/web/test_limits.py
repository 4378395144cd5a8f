"""Bodies that are too large, and requests that are too many."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.web import limits
from rl_teacher.web.limits import Buckets, Limits, Rate, network_of
from rl_teacher.web.settings import MAX_BODY_BYTES
from tests.web.conftest import SAME_ORIGIN, TestClient, assert_problem, enter

MEGABYTE = b" " * 1_000_000


class TestTooLarge:
    def test_is_refused_before_it_is_read_when_its_length_is_said(self, program):
        headers = {"Content-Length": str(100_000_000), "Content-Type": "application/json"}
        response = program.post("/api/v1/labels", content=must_not_be_read(), headers=headers)
        assert "1,000,000 bytes" in assert_problem(response, 413)
        assert response.headers["connection"] == "close"

    @pytest.mark.parametrize("content_type", ["application/json", "text/plain", "multipart/x"])
    def test_is_refused_while_it_comes_when_its_length_is_not_said(self, program, content_type):
        chunks = (MEGABYTE for _ in range(100))
        headers = {"Content-Type": content_type}
        response = program.post("/api/v1/labels", content=chunks, headers=headers)
        assert_problem(response, 413)

    def test_is_not_what_just_fits(self, program):
        body = b'{"labels": []}'.ljust(MAX_BODY_BYTES)
        program.headers["Content-Type"] = "application/json"
        assert program.post("/api/v1/labels", content=body).status_code == 200
        assert_problem(program.post("/api/v1/labels", content=body + b" "), 413)

    def test_is_nothing_that_a_stranger_learns(self, stranger):
        headers = {"Content-Length": str(100_000_000)}
        response = stranger.post("/api/v1/labels", content=b"", headers=headers)
        assert_problem(response, 401)
        assert response.headers["connection"] == "close"


def must_not_be_read():
    yield b"{"


class Ticker:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class TestBuckets:
    def test_a_burst_is_answered_at_once_and_then_one_by_one(self):
        clock = Ticker()
        buckets = Buckets(Rate(2.0, 3), clock)
        assert [buckets.take("ann") for _ in range(3)] == [0, 0, 0]
        assert buckets.take("ann") == 0.5
        clock.now_s += 0.25
        assert buckets.take("ann") == 0.25
        clock.now_s += 0.25
        assert [buckets.take("ann"), buckets.take("ann")] == [0, 0.5]
        clock.now_s += 60
        assert [buckets.take("ann") for _ in range(4)] == [0, 0, 0, 0.5]

    def test_what_is_given_back_does_not_count(self):
        buckets = Buckets(Rate(1.0, 2), Ticker())
        assert [buckets.take("ann") for _ in range(3)] == [0, 0, 1]
        buckets.give_back("ann")
        buckets.give_back("bob")
        assert [buckets.take("ann"), buckets.take("ann")] == [0, 1]

    def test_keys_are_counted_apart(self):
        buckets = Buckets(Rate(1.0, 1), Ticker())
        assert [buckets.take("ann"), buckets.take("bob"), buckets.take("ann")] == [0, 0, 1]

    def test_to_look_counts_nothing(self):
        buckets = Buckets(Rate(1.0, 1), Ticker())
        assert [buckets.wait_s("ann"), buckets.wait_s("ann"), buckets.take("ann")] == [0, 0, 0]

    @given(st.lists(st.floats(0, 2), max_size=200))
    def test_no_stretch_of_time_has_more_than_the_burst_and_the_rate(self, pauses_s):
        clock = Ticker()
        buckets = Buckets(Rate(4.0, 8), clock)
        answered_s = []
        for pause_s in pauses_s:
            clock.now_s += pause_s
            if buckets.take("ann") == 0:
                answered_s.append(clock.now_s)
        for i, begin_s in enumerate(answered_s):
            for num, end_s in enumerate(answered_s[i:], 1):
                assert num <= 8 + 4 * (end_s - begin_s) + 1e-6

    def test_of_many_keys_only_those_that_matter_are_remembered(self, monkeypatch):
        monkeypatch.setattr(limits, "MAX_KEYS", 100)
        clock = Ticker()
        buckets = Buckets(Rate(1.0, 2), clock)
        for number in range(1_000):
            buckets.take(number)
            clock.now_s += 0.001
        assert len(buckets._full_at_s) <= 100
        clock.now_s += 60
        for number in range(101):
            buckets.take(number)
        assert len(buckets._full_at_s) <= 101


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
def test_a_home_counts_as_one_address(host, counts_as):
    assert network_of(host) == counts_as


class TestTooMany:
    def test_of_a_labelers_requests_are_told_to_wait(self, guest, clock):
        answered = [guest.get("/api/v1/me").status_code for _ in range(70)]
        assert answered == [200] * 61 + [429] * 9
        refused = guest.get("/api/v1/me")
        assert_problem(refused, 429)
        assert refused.headers["retry-after"] == "1"
        clock.advance(1)
        answered = [guest.get("/api/v1/me").status_code for _ in range(30)]
        assert answered == [200] * 20 + [429] * 10

    def test_ten_thousand_of_one_credential_in_a_second_reach_no_database(
        self, guest, store, clock, monkeypatch
    ):
        looked_up = []
        identify_many = store.access.identify_many
        monkeypatch.setattr(
            store.access,
            "identify_many",
            lambda tokens: looked_up.extend(tokens) or identify_many(tokens),
        )
        statuses = []
        for _ in range(1_000):
            statuses.append(guest.get("/api/v1/me").status_code)
            clock.advance(0.0001)
        assert statuses.count(200) <= 60 + 1 + 20 * 0.1 + 1
        assert len(looked_up) == statuses.count(200)

    def test_of_one_labeler_do_not_hold_up_another(self, guest, other_guest):
        for _ in range(100):
            guest.get("/api/v1/me")
        assert other_guest.get("/api/v1/me").status_code == 200

    def test_wrong_credentials_from_one_address_are_told_to_wait(self, app, clock):
        statuses = [
            enter(app, f"rlt_{number}").get("/api/v1/me").status_code for number in range(12)
        ]
        assert statuses == [401] * 10 + [429] * 2
        clock.advance(6)
        assert enter(app, "rlt_x").get("/api/v1/me").status_code == 401
        assert enter(app, "rlt_y").get("/api/v1/me").status_code == 429

    def test_wrong_credentials_do_not_lock_out_those_who_are_in(self, app, guest, program):
        assert guest.get("/api/v1/me").status_code == 200
        for number in range(20):
            enter(app, f"rlt_{number}").get("/api/v1/me")
        assert guest.get("/api/v1/me").status_code == 200
        assert program.get("/api/v1/me").status_code == 200

    def test_a_page_whose_credential_was_revoked_uses_up_nobodys_patience(
        self, app, guest, store, other_guest
    ):
        guest.get("/api/v1/me")
        store.access.revoke_credentials("ann")
        assert {guest.get("/api/v1/me").status_code for _ in range(50)} == {401}
        assert other_guest.get("/api/v1/me").status_code == 200

    def test_wrong_links_count_too(self, stranger):
        statuses = [stranger.get(f"/?token=rlt_{number}").status_code for number in range(11)]
        assert statuses == [401] * 10 + [429]

    def test_attempts_to_join_from_one_address_are_told_to_wait(self, stranger):
        given = {"invite": "rlt_nothing", "name": "Ann"}
        statuses = [
            stranger.post("/api/v1/join", json=given, headers=SAME_ORIGIN).status_code
            for _ in range(12)
        ]
        assert statuses == [409] * 10 + [429] * 2

    def test_a_whole_class_joins_from_one_address(self, app, store, clock):
        for number in range(25):
            with TestClient(app) as newcomer:
                given = {
                    "invite": store.access.invite(expires_at=clock() + timedelta(hours=1)).token,
                    "name": f"N{number}",
                }
                joined = newcomer.post("/api/v1/join", json=given, headers=SAME_ORIGIN)
                assert joined.status_code == 200

    def test_whoever_has_joined_is_not_held_up_by_wrong_credentials_of_others(
        self, app, store, clock
    ):
        with TestClient(app) as newcomer:
            given = {
                "invite": store.access.invite(expires_at=clock() + timedelta(hours=1)).token,
                "name": "Ann",
            }
            assert newcomer.post("/api/v1/join", json=given, headers=SAME_ORIGIN).is_success
            for number in range(20):
                enter(app, f"rlt_{number}").get("/api/v1/me")
            assert newcomer.get("/api/v1/me").status_code == 200

    def test_a_page_that_has_to_wait_says_so_and_comes_by_itself(self, guest):
        for _ in range(70):
            guest.get("/api/v1/me")
        response = guest.get("/e/hopper/label")
        assert response.status_code == 429
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["refresh"] == response.headers["retry-after"] == "1"
        assert "tries again in 1 s" in response.text

    def test_no_credential_at_all_costs_nothing(self, stranger):
        assert {stranger.get("/api/v1/me").status_code for _ in range(50)} == {401}

    def test_the_limits_are_generous_for_labelers_and_strict_for_strangers(self):
        assert Limits().labeler == Rate(20.0, 60)
        assert 60 * Limits().anonymous.per_s == pytest.approx(10)
