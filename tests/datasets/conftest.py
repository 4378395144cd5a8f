"""A small data set and the experiment whose labels it contains."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.datasets.import_export import from_experiment
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store

ENV_ID = "ShortReacher-v1"
SPACE = InputSpace((10,), (2,))
NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)


def segment(seed, steps=5, env_id=ENV_ID):
    rng = np.random.default_rng(seed)
    return Segment(
        env_id=env_id,
        observations=rng.normal(size=(steps, 10)).astype(np.float32),
        actions=rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
        rewards=rng.normal(size=steps).astype(np.float32),
        scene_states=rng.normal(size=(steps, 4)),
    )


def row_of(number, pair, answer="left"):
    """Return the current label of a comparison."""
    left, right = (each.content_hash for each in pair)
    ids = dict.fromkeys(("label_id", "comparison_id", "comparison_number"), number + 1)
    clips = {"left_clip": left, "right_clip": right, "shown_left": left}
    false = dict.fromkeys(("is_swapped", "is_too_fast", "is_excluded", "is_held_out"), False)
    texts = {"experiment": "theirs", "labeler": "zoe", "role": "labeler", "purpose": "answer"}
    return {
        **{"schema_version": 1, "asked_at_step": 0, "answer": answer, "lease": "none"},
        **{"answered_at": NOW.isoformat(), "request_id": str(UUID(int=number))},
        **{"response_ms": None, "gold": None, "details": None, "is_current": True},
        **(ids | clips | false | texts),
    }


class LabelledExperiment:
    """Experiment whose comparisons are asked and answered by the test."""

    def __init__(self, store, name="experiment"):
        self.store, self.name = store, name
        self.files = SegmentFiles(home() / "segments")
        with Experiment.open(name, {"env_id": ENV_ID}) as experiment:
            self.id = store.experiments.ensure(experiment.name, ENV_ID, {"env_id": ENV_ID})
        self._requests = 0

    def ask(self, seed, step=0):
        pair = segment(2 * seed), segment(2 * seed + 1, steps=4)
        for each in pair:
            self.files.save(each)
        hashes = [(pair[0].content_hash, pair[1].content_hash)]
        lengths = {each.content_hash: len(each) for each in pair}
        [comparison_id] = self.store.comparisons.add(self.id, hashes, ENV_ID, lengths, step)
        return comparison_id

    def answer(self, comparison_id, answer, labeler="zoe", **details):
        self._requests += 1
        request_id = UUID(int=self._requests)
        answer = None if answer is None else Answer(answer)
        label = NewLabel(comparison_id, answer, labeler, request_id, **details)
        self.store.labels.add_many([label])

    def dataset(self):
        return from_experiment(self.store, self.name)


@pytest.fixture
def experiment(make_database):
    make_database(Path(default_url(home())))
    with Store.open(default_url(home()), now=lambda: NOW) as store:
        yield LabelledExperiment(store)


@pytest.fixture
def dataset(experiment):
    """Return a data set of four comparisons: left, right, equal and cannot tell."""
    for seed, answer in enumerate(("left", "right", "equal", "cannot_tell")):
        experiment.answer(experiment.ask(seed, step=10 - seed), answer)
    return experiment.dataset()
