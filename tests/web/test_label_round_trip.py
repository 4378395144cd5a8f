"""Labels from the API to an export, an import and an export of that."""

import json
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.datasets import load
from rl_teacher.datasets.dataset import counts
from rl_teacher.datasets.import_export import RESTORED, from_experiment, import_as
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import NewLabel, RenderedClip
from tests.web.conftest import ENV_ID, FPS, NUM_FRAMES, SCENE_HASH, label, lease

KEYS = st.sampled_from(["imported", "ranking", "labeler", "request_id", "😀"]) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DETAILS = st.dictionaries(KEYS, JSON, max_size=3)
MARKS = {"labeler": "owner", "role": "owner", "request_id": str(uuid4()), "is_held_out": True}
JSON_BODY = {"Content-Type": "application/json"}
KEPT = (*RESTORED, "answer", "details", "response_ms", "is_swapped")


@pytest.fixture
def database(make_database):
    """Return the path of the home's database, which imports use."""
    return make_database(home() / default_url(home()).rpartition("/")[2])


@pytest.fixture
def comparison_id(trainer):
    """Add a comparison that can be shown and whose segments are in the home."""
    segments = [segment(seed) for seed in (1, 2)]
    for each in segments:
        SegmentFiles(home() / "segments").save(each)
    left, right = (each.content_hash for each in segments)
    [added] = trainer.store.comparisons.add(trainer.id, [(left, right)], ENV_ID, 60, 0)
    clip = RenderedClip(ENV_ID, 60, "poses", "clips/x.poses", SCENE_HASH, NUM_FRAMES, FPS)
    trainer.store.clips.publish({left: clip, right: clip})
    return added


def segment(seed):
    rng = np.random.default_rng(seed)
    return Segment(
        env_id=ENV_ID,
        observations=rng.normal(size=(60, 12)).astype(np.float32),
        actions=rng.uniform(-1, 1, (60, 3)).astype(np.float32),
        rewards=rng.normal(size=60).astype(np.float32),
        scene_states=rng.normal(size=(60, 4)),
    )


def exported(store, name):
    """Return the data set of an experiment."""
    return from_experiment(store, name)


def kept(dataset):
    return [{name: row[name] for name in KEPT} for row in dataset.rows if counts(row)]


def submit(client, comparison_id, *details):
    """Submit labels with ASCII escapes in their details, and return the accepted request ids."""
    lease(client.app.state.services.store, "ann", comparison_id)
    labels = [label(comparison_id, details=each) for each in details]
    response = client.post(
        "/api/v1/labels", content=json.dumps({"labels": labels}), headers=JSON_BODY
    )
    assert response.status_code == 200, response.text
    return response.json()["accepted"]


def test_no_label_can_pretend_to_be_imported(guest, store, comparison_id):
    """The labeler joined under a reserved name before it was reserved."""
    store.labelers.ids_of({"imported:evil"})
    for details in ({"imported": MARKS}, {"imported": "1"}):
        store.labels.add_many(
            [NewLabel(comparison_id, Answer.LEFT, "imported:evil", details=details)]
        )
    assert submit(guest, comparison_id, {"imported": MARKS}, {"imported": "1"})
    rows = exported(store, "hopper").rows
    assert {row["labeler"] for row in rows} == {"imported:evil", "ann"}
    assert not any(row["is_held_out"] for row in rows)


def test_accepted_labels_survive_export_and_import(guest, store, comparison_id, tmp_path):
    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.lists(DETAILS, min_size=1, max_size=4))
    @example([{"note": "\U0001f600", "imported": {"labeler": "owner"}}, {"imported": "1"}])
    def check(details):
        submit(guest, comparison_id, {}, *details)
        path = tmp_path / "set.zip"
        exported(store, "hopper").save(path)
        read = load(path)
        assert read.rows == exported(store, "hopper").rows
        name = f"again-{uuid4()}"
        import_as(read, name)
        assert kept(exported(store, name)) == kept(read)

    check()
