"""Comparisons for tests, of clips that are identified by names instead of contents."""

import hashlib
from typing import NamedTuple

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import RenderedClip

ENV_ID = "ShortHopper-v1"


def clip(name):
    return hashlib.sha256(str(name).encode()).hexdigest()


def pair(name):
    return clip(f"{name} left"), clip(f"{name} right")


def shown(content_hash, **changes):
    poses = {
        "env_id": ENV_ID,
        "num_steps": 30,
        "kind": "poses",
        "media_key": f"clips/{content_hash}.poses",
        "scene_hash": clip("scene"),
        "num_frames": 15,
        "fps": 12.5,
    }
    return RenderedClip(**{**poses, **changes})


def ask(store, experiment_id, *names, step=1000):
    return store.comparisons.add(experiment_id, [pair(name) for name in names], ENV_ID, 30, step)


def show(store, *names):
    store.clips.publish({each: shown(each) for name in names for each in pair(name)})


def ask_and_show(store, experiment_id, *names, step=1000):
    ids = ask(store, experiment_id, *names, step=step)
    show(store, *names)
    return ids


def open_comparisons(store, experiment_id, limit=9, exclude=()):
    """Return the comparisons that a new labeler would get, without keeping the leases."""
    claimed = store.leases.claim(experiment_id, "new labeler", limit, exclude)
    store.leases.release("new labeler", [each.lease for each in claimed])
    return [each.comparison for each in claimed]


class AnsweredComparison(NamedTuple):
    """A comparison and its newest current answer."""

    id: int
    left_hash: str
    right_hash: str
    answer: Answer


def answered_comparisons(store, experiment_id):
    """Return every comparison that has an answer, oldest first."""
    asked = store.comparisons.asked(experiment_id)
    answers = store.labels.answers([each.id for each in asked])
    return [
        AnsweredComparison(each.id, each.left_hash, each.right_hash, answers[each.id])
        for each in asked
        if each.id in answers
    ]


def add_labeler(store, name, role="labeler"):
    """Add a labeler without a credential, and return the id."""
    with store.database.writing() as connection:
        return store.labelers.add_within(connection, name, role)


def counts(store, experiment_id):
    """Return the numbers of comparisons asked and answered."""
    [view] = [each for each in store.experiments.all() if each.id == experiment_id]
    return view.asked, view.answered


def num_labels_of(store, experiment_id, labeler):
    """Return the number of comparisons that a labeler currently answers."""
    return store.labels.count_by_experiment({labeler}).get((experiment_id, labeler), 0)


def ids_of(comparisons):
    return [comparison.id for comparison in comparisons]


def rows_of(store, statement):
    with store.database.reading() as connection:
        return connection.execute(statement).all()


def recorded_events(store):
    return [(each.kind, each.details, each.labeler) for each in store.events.page().rows]
