"""Fixtures of the web service: an experiment, clients and a clock."""

import hashlib
import json
import os
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from rl_teacher.clips.poses import pack
from rl_teacher.store.experiment_locks import HeldLock
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.web.app import create_app
from rl_teacher.web.settings import Settings
from tests.store.comparisons import add_labeler
from tests.store.credentials import identify, issue_credential

with warnings.catch_warnings():
    # Starlette warns about a change of its HTTP client; both clients work.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

TOKEN = "t0ken-" + "x" * 40
ENV_ID = "ShortHopper-v1"
NUM_FRAMES, FPS = 30, 20.0
SCENE = json.dumps(
    {
        "version": 1,
        "bodies": ["torso", "thigh", "leg", "foot"],
        "geoms": [
            {
                "type": "sphere",
                "body": body,
                "size": [0.2, 0.0, 0.0],
                "pos": [0.0, 0.0, 0.3 * body],
                "quat": [1.0, 0.0, 0.0, 0.0],
                "rgba": [0.9, 0.1, 0.1, 1.0],
                "mesh": None,
                "hfield": None,
            }
            for body in range(4)
        ],
        "meshes": [],
        "hfields": [],
        "camera": {
            "distance": 3.0,
            "elevation_deg": -20.0,
            "azimuth_deg": 90.0,
            "lookat": [0.0, 0.0, 1.0],
            "tracks": 0,
        },
        "extent": 2.0,
        "ground_z": None,
    }
).encode()
SCENE_HASH = hashlib.sha256(SCENE).hexdigest()
MP4 = b"\x00\x00\x00\x18ftypisom" + bytes(range(200))
HTML = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
"""Header of a browser that navigates to an address."""
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class FakeClock:
    def __init__(self):
        self.now = datetime(2026, 11, 3, 12, tzinfo=UTC)

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)

    def seconds(self):
        """Return the time in seconds, for a monotonic clock."""
        return self.now.timestamp()


class Trainer:
    """Stand-in for a training run, which writes to the store."""

    def __init__(self, store, media, name="hopper"):
        self.store, self.media, self.name = store, media, name
        self.id = store.experiments.ensure(name, ENV_ID, {"seed": 3})
        self._num_asked = 0
        self._lock = HeldLock(store.database, name)

    def add_clip(self, word, kind="poses", content=None):
        """Store a displayable clip and return its hash."""
        content_hash = hashlib.sha256(f"{self.name} {word}".encode()).hexdigest()
        poses = np.full((NUM_FRAMES, 4, 7), 0.5, np.float32)
        content = content or (pack(poses, FPS) if kind == "poses" else MP4)
        key = f"clips/{content_hash}.{'poses' if kind == 'poses' else 'mp4'}"
        self.media.put(key, content)
        self.media.put(f"scenes/{SCENE_HASH}.json", SCENE)
        scene_hash = SCENE_HASH if kind == "poses" else None
        rendered = RenderedClip(ENV_ID, 60, kind, key, scene_hash, NUM_FRAMES, FPS)
        self.store.clips.publish({content_hash: rendered})
        return content_hash

    def ask(self, count=1, *, step=0, rendered=True):
        """Add comparisons of new pairs of clips and return their ids."""
        numbers = range(self._num_asked, self._num_asked + count)
        self._num_asked += count
        make = self.add_clip if rendered else lambda word: hashlib.sha256(word.encode()).hexdigest()
        pairs = [(make(f"{n} left"), make(f"{n} right")) for n in numbers]
        return self.store.comparisons.add(self.id, pairs, ENV_ID, 60, step)

    def beat(self):
        """Write a heartbeat, as the process of a run does."""
        self._lock.renew()

    def set_phase(self, phase, **more):
        status = {"phase": phase, "message": f"{phase} now", "step": 10, "num_steps": 100}
        self.store.experiments.set_status(self.id, status | {"steps_per_second": 9.5, **more})


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def home():
    return Path(os.environ["RL_TEACHER_HOME"])


@pytest.fixture
def store(database, clock):
    with Store.open(database, busy_timeout_s=1.0, now=clock) as opened:
        yield opened


@pytest.fixture
def media(tmp_path):
    return MediaFiles(tmp_path / "media")


@pytest.fixture
def trainer(store, media):
    return Trainer(store, media)


@pytest.fixture
def static(tmp_path):
    """Folder of a built page."""
    (tmp_path / "static" / "assets").mkdir(parents=True)
    (tmp_path / "static" / "index.html").write_text("<!doctype html><title>built</title>")
    (tmp_path / "static" / "assets" / "page-1a2b.js").write_text("export {};" * 200)
    (tmp_path / "secret.js").write_text("not for the world")
    return tmp_path / "static"


@pytest.fixture
def app(store, media, static, clock):
    settings = Settings(
        TOKEN,
        instance="this-one",
        static=static,
        poll_every_s=0.02,
        now=clock,
        clock_s=clock.seconds,
    )
    return create_app(store, media, settings)


@pytest.fixture
def anonymous(app):
    """Client without a credential."""
    with TestClient(app, follow_redirects=False) as client:
        yield client


@pytest.fixture
def program(anonymous):
    """Client with the bearer token of the home."""
    anonymous.headers["Authorization"] = f"Bearer {TOKEN}"
    return anonymous


def enter(app, token):
    """Return a client with this bearer token."""
    return TestClient(app, follow_redirects=False, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def guest(app, store):
    """Client of the labeler Ann."""
    add_labeler(store, "ann")
    return enter(app, issue_credential(store, "ann"))


@pytest.fixture
def other_guest(app, store):
    """Client of the labeler Bob."""
    add_labeler(store, "bob")
    return enter(app, issue_credential(store, "bob"))


@pytest.fixture
def browser(app):
    """Client with the cookie of an opened link."""
    with TestClient(app, follow_redirects=False) as client:
        assert client.get(f"/?token={TOKEN}").status_code == 303
        yield client


def lease(store, labeler, *comparison_ids):
    """Let leases of comparisons begin and end, so that a labeler may answer them."""
    moment = store.database.now()
    labeler_id = store.labelers.id_of(labeler)
    found = store.leases.find({(labeler, each) for each in comparison_ids})
    chosen = [
        (each.comparison, "answer")
        for each in found.values()
        if each.lease is None and not each.is_labelled
    ]
    with store.database.writing() as connection:
        store.leases.lease(connection, labeler_id, chosen, moment, until=moment)


def label(comparison_id, answer: str | None = "left", **more):
    return {"request_id": str(uuid4()), "comparison_id": comparison_id, "answer": answer, **more}


def post(client, *labels):
    """Post labels of comparisons that were leased to the client's labeler."""
    store = client.app.state.services.store
    token = client.headers.get("Authorization", "").removeprefix("Bearer ")
    identity = identify(store, token)
    if identity is not None:
        ids = {each["comparison_id"] for each in labels if each.get("lease") is None}
        lease(store, identity.name, *(each for each in ids if type(each) is int))
    return client.post("/api/v1/labels", json={"labels": labels})


def assert_problem(response, status):
    """Check the format of a problem and return its detail."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["status"] == status
    assert body["type"].startswith("urn:rl-teacher:")
    assert body["title"]
    assert body["detail"]
    return body["detail"]
