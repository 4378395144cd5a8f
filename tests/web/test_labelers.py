"""Management of labelers and invites, and the audit log."""

from datetime import timedelta

from tests.web.conftest import TOKEN, assert_problem, label, post


def id_of(program, name):
    labelers = program.get("/api/v1/labelers").json()
    return next(each["id"] for each in labelers if each["name"] == name)


def audit(program, **query):
    return program.get("/api/v1/audit", params=query).json()


def kinds(program, **query):
    return [each["kind"] for each in audit(program, **query)["rows"]]


class TestLabelers:
    def test_labelers_are_listed_with_label_counts(self, program, guest, trainer):
        one, two = trainer.ask(2)
        post(guest, label(one), label(two))
        ann, *others = program.get("/api/v1/labelers").json()
        assert {each["name"] for each in others} <= {"owner"}
        assert ann == {
            "id": ann["id"],
            "name": "ann",
            "role": "labeler",
            "created_at": "2026-11-03T12:00:00Z",
            "excluded_at": None,
            "num_labels": 2,
            "last_label_at": "2026-11-03T12:00:00Z",
        }

    def test_exclusion_of_labeler_hides_votes_until_inclusion(self, program, guest, trainer, store):
        [comparison_id] = trainer.ask()
        post(guest, label(comparison_id, "equal"))
        ann = id_of(program, "ann")
        assert program.post(f"/api/v1/labelers/{ann}/exclude").json()["excluded_at"] is not None
        assert store.labels.votes([comparison_id]) == {}
        assert program.post(f"/api/v1/labelers/{ann}/include").json()["excluded_at"] is None
        assert list(store.labels.votes([comparison_id])[comparison_id].values()) == ["equal"]
        assert kinds(program)[:2] == ["include", "exclude"]

    def test_revoked_labeler_loses_access_and_keeps_labels(self, program, guest, trainer, store):
        [comparison_id] = trainer.ask()
        post(guest, label(comparison_id, "equal"))
        ann = id_of(program, "ann")
        assert program.post(f"/api/v1/labelers/{ann}/revoke").json() == {"num_revoked": 1}
        assert_problem(guest.get("/api/v1/me"), 401)
        assert list(store.labels.votes([comparison_id])[comparison_id].values()) == ["equal"]


class TestInvites:
    def test_invites_are_listed_without_secret(self, program, clock, trainer):
        made = program.post("/api/v1/invites", json={"experiment": "hopper"}).json()
        token, created = made["link"].removeprefix("http://testserver/join?invite="), made["invite"]
        assert created["status"] == "open"
        assert created["expires_at"] == (clock() + timedelta(days=7)).isoformat().replace(
            "+00:00", "Z"
        )
        assert program.get("/api/v1/invites").json() == [created]
        assert token.startswith(created["hint"])
        assert token not in program.get("/api/v1/audit").text


class TestAudit:
    def test_audit_event_names_actor_time_and_details(self, program, trainer):
        program.post("/api/v1/experiments/hopper/control", json={"state": "pause"})
        [event] = audit(program, experiment="hopper")["rows"]
        assert event == {
            "id": event["id"],
            "created_at": "2026-11-03T12:00:00Z",
            "kind": "control",
            "labeler": "owner",
            "experiment": "hopper",
            "details": {"state": {"from": None, "to": "pause"}},
        }

    def test_every_owner_change_is_audited(self, program, trainer, guest):
        [comparison_id] = trainer.ask()
        ann = id_of(program, "ann")
        changes = [
            ("POST", "/api/v1/invites", {}),
            ("POST", f"/api/v1/labelers/{ann}/exclude", None),
            ("POST", f"/api/v1/labelers/{ann}/include", None),
            ("POST", f"/api/v1/labelers/{ann}/revoke", None),
            ("PATCH", "/api/v1/experiments/hopper", {"instructions": "Higher."}),
            ("PATCH", "/api/v1/experiments/hopper", {"tags": ["thesis"]}),
            ("PATCH", "/api/v1/experiments/hopper", {"assignment": {"overlap": 0.5}}),
            ("POST", "/api/v1/experiments/hopper/control", {"state": "pause"}),
            ("PUT", f"/api/v1/comparisons/{comparison_id}/gold", {"answer": "left"}),
        ]
        for method, path, payload in changes:
            assert program.request(method, path, json=payload).status_code < 300, path
        assert program.get("/api/v1/experiments/hopper/export").status_code == 200
        assert {
            *("invite", "exclude", "include", "revoke", "instructions", "assignment"),
            *("control", "gold", "export", "tags"),
        } <= set(kinds(program))
        assert TOKEN not in program.get("/api/v1/audit").text
