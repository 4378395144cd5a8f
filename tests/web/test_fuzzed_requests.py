"""Generated requests cause no server error, and change no label that they may not change.

Schemathesis generates valid and invalid requests for all operations in `/api/openapi.json`, which
are sent as owner, as labeler and without a credential, also with altered bytes.
"""

import json
from collections import Counter
from datetime import timedelta
from random import Random
from subprocess import CompletedProcess
from typing import Any
from uuid import UUID, uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rl_teacher.clips.answer import Answer
from rl_teacher.report.label_export import jsonl, label_rows
from rl_teacher.runs.doctor import check_clips
from rl_teacher.store.counters import recount
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.rankings import MAX_PAIRS, label_request_id
from rl_teacher.web import clip_export
from rl_teacher.web.routes import review
from tests.robustness.alterations import altered
from tests.store.comparisons import add_labeler, counts
from tests.store.credentials import issue_credential
from tests.web.conftest import ENV_ID, SCENE_HASH, TOKEN, Trainer, label, post

CHECKS = [
    *(not_a_server_error, status_code_conformance),
    *(content_type_conformance, response_schema_conformance),
]
CALLERS = {"owner": 1, "labeler": 2, "anonymous": 4}
"""Callers, and by how much the number of their requests is divided."""
LABELERS = {"owner": "owner", "labeler": "bob"}
NUM_COMPARISONS = 30
NUM_REQUESTS = 150
MIN_OPEN = 15
PUBLIC = {"/api/v1/join", "/healthz"}


@pytest.fixture
def database(database, request):
    if getattr(request, "param", "sqlite") == "postgres":
        return request.getfixturevalue("shared_postgres_url")
    return database


@pytest.fixture
def service(app, trainer, guest, tmp_path, monkeypatch):
    """Service with a running experiment and one that requests may delete."""
    monkeypatch.setattr(clip_export, "WIDTH", 16)
    monkeypatch.setattr(clip_export, "HEIGHT", 16)
    # There is no agent, which the command takes seconds to find out.
    refused = CompletedProcess([], 2, "", "error: no agent")
    monkeypatch.setattr(review.subprocess, "run", lambda *_, **__: refused)
    store = trainer.store
    comparisons = trainer.ask(NUM_COMPARISONS)
    assert post(guest, *(label(each, "equal") for each in comparisons[:10])).json()["accepted"]
    add_labeler(store, "bob")
    for each in comparisons[5:15]:
        store.labels.add(each, Answer.LEFT, "bob")
    for each in comparisons[20:23]:
        store.comparisons.set_gold(each, Answer.RIGHT)
    episode = {"clip": trainer.add_clip("latest"), "predicted_rewards": [1.0], "step": 2}
    store.experiments.set_latest_episode(trainer.id, episode)
    store.metrics.append(trainer.id, 1, {"true_return": 0.5})
    with store.locks.hold(trainer.name):
        yield FuzzedService(app, trainer, tmp_path / "media")


class FuzzedService:
    """A service, the requests sent to it, and the labels that it acknowledged."""

    def __init__(self, app, trainer, media):
        self.trainer, self.store, self.media = trainer, trainer.store, media
        owner = {"Authorization": f"Bearer {TOKEN}"}
        loaded: Any = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=owner)
        # Streams of events never end.
        loaded.config.max_stream_events = 1
        self.operations = [found.ok() for found in loaded.get_all_operations()]
        self.counts = Counter()
        self.answered = set()
        self.acknowledged = {}
        self.rankings = [uuid4()]
        self.before = self.labels()
        _, self.invite = self.store.access.invite(
            "labeler", expires_at=self.store.database.now() + timedelta(days=7), max_uses=100
        )
        self.restore()

    def labels(self):
        return {row["label_id"]: row for row in label_rows(self.store, self.trainer.name)}

    def restore(self):
        """Add what accepted requests may have deleted or used up."""
        if self.store.experiments.get(self.trainer.name).waiting < MIN_OPEN:
            self.trainer.ask(NUM_COMPARISONS)
        deletable = Trainer(self.store, self.trainer.media, "deletable")
        if not counts(self.store, deletable.id)[0]:
            [comparison_id] = deletable.ask()
            self.store.labels.add(comparison_id, Answer.LEFT, "ann")
        for name in ("ann", "bob"):
            self.store.labelers.set_excluded(name, is_excluded=False)

    def headers(self, caller):
        """Return the headers of a caller, whose earlier credential may be revoked."""
        if caller == "anonymous":
            return {}
        token = TOKEN if caller == "owner" else issue_credential(self.store, "bob")
        return {"Authorization": f"Bearer {token}"}

    def fuzz(self, operation, caller, num_requests):
        """Send generated requests of one operation."""
        headers = self.headers(caller)
        insert_known = KnownValues(self, LABELERS.get(caller, "bob"))

        @settings(
            max_examples=num_requests,
            phases=[Phase.generate],
            database=None,
            suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]
        )
        @given(case=cases_of(operation), seed=st.integers(0, 2**32 - 1))
        def send(case, seed):
            random = Random(seed)
            insert_known(case, random)
            arguments: dict[str, Any] = {"headers": dict(headers)}
            if operation.body and random.random() < 0.2:
                arguments["data"] = altered(encoded(case.body), random)
                arguments["headers"]["Content-Type"] = "application/json"
            self.check(caller, case, case.call(**arguments))

        send()
        self.restore()

    def check(self, caller, case, response):
        """Check a response against the document, and note what it acknowledges."""
        self.counts[caller, response.status_code // 100] += 1
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]
        elif caller == "anonymous":
            assert case.path in PUBLIC
        if response.status_code < 300:
            self.answered.add((case.method, case.path))
            self.note(caller, case, response)

    def note(self, caller, case, response):
        """Note the labels that a response acknowledges."""
        body = json.loads(response.request.body or b"null")
        if case.path == "/api/v1/labels":
            accepted = {UUID(each) for each in response.json()["accepted"]}
            # Accepted labels are valid; others in the same request need not even be objects.
            sent = {request_id_of(each): each for each in body["labels"]}
            self.acknowledged |= {each: (caller, sent[each]) for each in accepted}
        elif case.path.endswith("/rankings"):
            ranking, ids = UUID(body["request_id"]), response.json()["comparison_ids"]
            for number, comparison_id in enumerate(ids):
                label_id = label_request_id(ranking, number)
                self.acknowledged[label_id] = (caller, {"comparison_id": comparison_id})
            self.rankings.append(ranking)

    def check_labels(self):
        """Check that exactly the acknowledged labels are new, and return their number.

        Earlier ones are unchanged, but for columns that show accepted requests.
        """
        after = self.labels()
        for label_id, row in self.before.items():
            is_frozen = row["labeler"] == "ann"
            changeable = {"is_excluded", "gold"} | (set() if is_frozen else {"is_current"})
            changed = {name for name in row if row[name] != after[label_id][name]}
            assert changed <= changeable, (row, after[label_id])
        new = [row for label_id, row in after.items() if label_id not in self.before]
        withdrawals = {
            label_request_id(ranking, number)
            for ranking in self.rankings
            for number in range(2 * MAX_PAIRS)
        }
        for row in new:
            assert UUID(row["request_id"]) in {*self.acknowledged, *withdrawals}, row
        stored = {UUID(row["request_id"]) for row in after.values()}
        answered = {(row["labeler"], row["comparison_id"]) for row in after.values()}
        ours = {each.id for each in self.store.comparisons.asked(self.trainer.id)}
        for request_id, (caller, sent) in self.acknowledged.items():
            # An answer that was given before under the same lease is not stored again.
            is_answered = "lease" in sent and (LABELERS[caller], sent["comparison_id"]) in answered
            assert request_id in stored or is_answered or sent["comparison_id"] not in ours, sent
        return len(stored.intersection(self.acknowledged))

    def check_store(self):
        """Check the database, the clips and the counts, and that both exports have all labels."""
        media = MediaFiles(self.media)
        assert check_clips(self.store, media).faults == []
        ids = [each.id for each in self.store.comparisons.asked(self.trainer.id)]
        before = self.store.experiments.get(self.trainer.name)
        with self.store.database.writing() as connection:
            recount(connection, ids)
        assert self.store.experiments.get(self.trainer.name) == before
        assert b"".join(jsonl(iter(self.labels().values())))


class KnownValues:
    """Replaces generated values by those of existing resources, at random."""

    def __init__(self, service, labeler):
        trainer, store = service.trainer, service.store
        self._service, self._labeler = service, labeler
        self._asked = store.comparisons.asked(trainer.id)
        held = store.leases.claim(trainer.id, labeler, 20)
        held_ids = {each.comparison.id for each in held}
        pairs = [each for each in self._asked if not held or each.id in held_ids]
        self._pairs = [(each.left_hash, each.right_hash) for each in pairs]
        self._to_answer = [each.id for each in pairs]
        clips = [each.left_hash for each in self._asked]
        self._values = {
            "name": [trainer.name, trainer.name, "deletable"],
            "experiment": [trainer.name],
            "labeler": ["ann", "bob"],
            "env_id": [ENV_ID],
            "comparison_id": [each.id for each in self._asked],
            "content_hash": clips,
            "scene_hash": [SCENE_HASH],
            "labeler_id": [store.labelers.id_of(each) for each in ("ann", "bob", "owner")],
            "invite_id": [each.id for each in store.access.invites()],
            "invite": [service.invite],
            "ranking_id": [str(each) for each in service.rankings],
            "leases": [[str(each.lease)] for each in held],
            "lease": [str(each.lease) for each in held],
            "left_hash": clips,
            "response_ms": [10, 5_000],
        }

    def __call__(self, case, random):
        """Replace values of a request in place."""
        for values in (case.path_parameters, case.query):
            for key in values or ():
                if key in self._values and random.random() < 0.7:
                    values[key] = random.choice(self._values[key])
        if isinstance(case.body, dict) and random.random() < 0.8:
            for key in case.body:
                if (
                    key in self._values
                    and random.random() < 0.7
                    and not case.path.endswith("rename")
                ):
                    case.body[key] = random.choice(self._values[key])
            if "labels" in case.body:
                case.body["labels"] = [self._label(random) for _ in range(random.randint(1, 3))]
            if "groups" in case.body:
                case.body |= {
                    "request_id": str(new_uuid(random)),
                    "groups": [[each] for each in random.choice(self._pairs)],
                }

    def _label(self, random):
        """Return a label with random optional fields."""
        optional = ("lease", "left_hash", "response_ms")
        chosen = {
            key: random.choice(self._values[key])
            for key in optional
            if self._values[key] and random.random() < 0.3
        }
        return {
            "request_id": str(new_uuid(random)),
            "comparison_id": random.choice(self._to_answer),
            "answer": random.choice((*Answer, None)),
            **chosen,
        }


def new_uuid(random):
    return UUID(int=random.getrandbits(128), version=4)


def request_id_of(submitted):
    try:
        return UUID(submitted["request_id"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def encoded(body):
    """Return a body as JSON; nothing if there is none."""
    return b"" if isinstance(body, NotSet) else json.dumps(body, default=str).encode()


def cases_of(operation):
    """Return a strategy of valid requests, and of invalid ones where an operation has inputs."""
    has_parts = operation.body or any(operation.iter_parameters())
    allowed = operation.as_strategy()
    return allowed | operation.as_strategy(GenerationMode.NEGATIVE) if has_parts else allowed


@pytest.mark.slow
@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
def test_generated_requests_never_cause_server_errors(service):
    for operation in service.operations:
        for caller, divisor in CALLERS.items():
            service.fuzz(operation, caller, NUM_REQUESTS // divisor)
    num_acknowledged = service.check_labels()
    service.check_store()
    assert max(status for _, status in service.counts) < 5
    assert len(service.answered) > 40
    assert service.counts.total() >= 10_000
    assert num_acknowledged > 20
