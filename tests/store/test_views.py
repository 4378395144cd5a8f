"""Tests of the views behind the labelling page."""

import re
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ComparisonNotFound
from rl_teacher.store import labels, leases
from rl_teacher.store.records import ClipView, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Event, Label, Labeler
from tests.store.comparisons import (
    ENV_ID,
    answered_comparisons,
    ask,
    ask_and_show,
    clip,
    counts,
    ids_of,
    num_labels_of,
    open_comparisons,
    pair,
    rows_of,
    show,
    shown,
)

REQUEST = UUID("12345678-1234-5678-1234-567812345678")
NO_ID = [0, -1, 999, 2**31 - 1]
"""Ids that were never given away."""


def read_plan(path, statement):
    """Return the steps of SQLite's query plan in an empty database."""
    with Store.open(path) as store, store.database.reading() as connection:
        text = str(statement.compile(connection.engine))
        text = re.sub(r"__\[POSTCOMPILE_\w+\]", "?, ?", text)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", (1,) * text.count("?"))
        return [row.detail for row in plan]


class TestClips:
    def test_comparison_waits_only_if_both_clips_are_rendered(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        left, right = pair(1)
        assert open_comparisons(store, experiment_id, 5) == []
        store.clips.publish({left: shown(left)})
        assert open_comparisons(store, experiment_id, 5) == []
        store.clips.publish({right: shown(right)})
        assert ids_of(open_comparisons(store, experiment_id, 5)) == [comparison_id]

    def test_comparison_contains_clips(self, store, experiment_id):
        ask(store, experiment_id, 1)
        left, right = pair(1)
        film = shown(right, kind="video", media_key=f"clips/{right}.mp4", scene_hash=None)
        store.clips.publish({left: shown(left), right: film})
        [comparison] = open_comparisons(store, experiment_id, 5)
        assert comparison.left == ClipView(
            left, "poses", f"clips/{left}.poses", clip("scene"), 15, 12.5
        )
        assert comparison.right == ClipView(right, "video", f"clips/{right}.mp4", None, 15, 12.5)
        assert (comparison.experiment_name, comparison.asked_at_step) == ("human-175", 1000)

    def test_clips_are_shared_by_environment_and_length(self, store, experiment_id):
        ask(store, experiment_id, 1)
        store.comparisons.add(experiment_id, [(clip("long"), clip("longer"))], ENV_ID, 45, 0)
        foreign = (clip("foreign"), clip("strange"))
        store.comparisons.add(experiment_id, [foreign], "Reacher-v1", 30, 0)
        store.experiments.delete("human-175")
        assert store.clips.shared(ENV_ID, 30) == sorted(pair(1))

    def test_deleted_unused_clip_returns_media_key(self, store):
        show(store, 1)
        left, right = pair(1)
        assert store.clips.delete_unused(left) == f"clips/{left}.poses"
        assert store.clips.shared(ENV_ID, 30) == [right]
        assert store.clips.delete_unused(left) is None

    def test_clip_of_latest_episode_is_not_deleted(self, store, experiment_id):
        show(store, 1)
        left, _ = pair(1)
        store.experiments.set_latest_episode(experiment_id, {"clip": pair(3)[0], "step": 6})
        store.experiments.set_latest_episode(experiment_id, {"clip": left, "step": 7})
        assert store.clips.delete_unused(left) is None
        store.experiments.set_latest_episode(experiment_id, {"clip": pair(2)[0], "step": 8})
        assert store.clips.delete_unused(left) == f"clips/{left}.poses"


class TestAnswering:
    def test_label_stores_details_of_answer(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        details = {"replays": 2, "speed": 0.25, "viewport": [390, 844]}
        label = NewLabel(
            comparison_id, Answer.LEFT, "owner", is_swapped=True, response_ms=850, details=details
        )
        store.labels.add_many([label])
        kept = rows_of(store, select(Label.is_swapped, Label.response_ms, Label.details))
        assert kept == [(True, 850, details)]

    @pytest.mark.parametrize("unknown", NO_ID)
    def test_error_lists_unknown_comparisons_of_batch(self, store, experiment_id, unknown):
        known, other = ask(store, experiment_id, 1, 2)
        labels = [NewLabel(each, Answer.LEFT, "owner") for each in (known, unknown, other)]
        with pytest.raises(ComparisonNotFound) as caught:
            store.labels.add_many(labels)
        assert caught.value.ids == [unknown]
        assert store.labels.answers([known, other, unknown]) == {}


class TestLabelsSince:
    def test_labels_since_are_ordered_and_continue_after_id(self, store, experiment_id):
        first, second = ask(store, experiment_id, 1, 2)
        store.labels.add(second, Answer.LEFT, "owner")
        store.labels.add(first, Answer.EQUAL, "owner")
        seen = store.labels.since(experiment_id, 0)
        store.labels.add(second, None, "owner")
        assert [(label.comparison_id, label.answer) for label in seen] == [
            (second, Answer.LEFT),
            (first, Answer.EQUAL),
        ]
        [later] = store.labels.since(experiment_id, seen[-1].id)
        assert (later.comparison_id, later.answer) == (second, None)
        assert store.labels.since(experiment_id, later.id) == []


class TestLabelsOf:
    def test_labels_of_labeler_are_newest_first_and_one_per_comparison(self, store, experiment_id):
        first, second = ask_and_show(store, experiment_id, 1, 2)
        store.labels.add(first, Answer.LEFT, "owner")
        store.labels.add(second, Answer.LEFT, "owner")
        store.labels.add(first, Answer.EQUAL, "owner", REQUEST)
        labels = store.labels.of_labeler(experiment_id, "owner", 9)
        assert [(label.comparison.id, label.answer) for label in labels] == [
            (first, Answer.EQUAL),
            (second, Answer.LEFT),
        ]
        assert labels[0].request_id == REQUEST
        assert labels[0].comparison == store.comparisons.get(first)
        assert num_labels_of(store, experiment_id, "owner") == 2


class TestExperiments:
    def test_experiments_are_newest_first_with_their_counts(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        first, _, _ = ask_and_show(store, experiment_id, 1, 2, 3)
        ask(store, experiment_id, "not shown yet")
        ask_and_show(store, other_id, 1)
        store.labels.add(first, Answer.LEFT, "owner")
        counted = [
            (each.name, each.asked, each.answered, each.waiting) for each in store.experiments.all()
        ]
        assert counted == [("other", 1, 0, 1), ("human-175", 4, 1, 2)]

    def test_latest_episode_accepts_numpy_numbers_and_nan(self, store, experiment_id):
        rewards = np.array([0.5, np.nan, -np.inf], np.float32)
        episode = {"clip": clip(1), "predicted_rewards": rewards, "true_return": np.float32("nan")}
        store.experiments.set_latest_episode(experiment_id, episode)
        assert store.experiments.get("human-175").latest_episode == {
            "clip": clip(1),
            "predicted_rewards": [0.5, None, None],
            "true_return": None,
        }


class TestMetrics:
    @pytest.fixture
    def written(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        for step in range(10):
            store.metrics.append(experiment_id, step, {"step": step})
            store.metrics.append(other_id, -step, {})
        return experiment_id

    def test_metrics_are_ordered_and_continue_after_id(self, store, written):
        rows = store.metrics.after(written)
        assert [row.step for row in rows] == list(range(10))
        assert store.metrics.after(written, after_id=rows[6].id) == rows[7:]
        assert store.metrics.after(written, after_id=rows[-1].id) == []
        assert store.metrics.latest(written) == rows[-1]

    @pytest.mark.parametrize("at_most", range(1, 12))
    def test_thinned_rows_are_evenly_spread_and_end_with_newest(self, store, written, at_most):
        steps = [row.step for row in store.metrics.after(written, at_most=at_most)]
        assert len(steps) <= at_most
        assert steps[-1] == 9
        assert len(set(np.diff(steps))) <= 1

    def test_drop_after_keeps_earlier_steps_and_other_experiments(self, store, written):
        store.metrics.drop_after(written, 6)
        assert [row.step for row in store.metrics.after(written)] == list(range(7))
        assert len(store.metrics.after(store.experiments.get("other").id)) == 10


class TestEvents:
    def test_event_outlives_experiment(self, store, experiment_id):
        owner_id = store.labelers.id_of("owner")
        store.events.record("opened", {"name": "human-175"}, experiment_id, owner_id)
        store.experiments.delete("human-175")
        events = rows_of(
            store,
            select(Event.kind, Event.details, Event.experiment_id, Labeler.name).join(Labeler),
        )
        opened = ("opened", {"name": "human-175"}, None, "owner")
        deletion = {"experiment": "human-175", "comparisons": 0, "labels": 0}
        assert events == [opened, ("delete", deletion, None, "owner")]


class TestServing:
    @pytest.mark.parametrize(
        ("statement", "indexes"),
        [
            (leases.FREE, ["open"]),
            (leases.FREE_GOLD, ["gold"]),
            (leases.PENDING, ["open", "gold"]),
            (labels.GOLD, ["gold"]),
        ],
        ids=["free", "free gold", "pending", "gold"],
    )
    def test_sqlite_without_statistics_uses_partial_indexes(self, path, statement, indexes):
        steps = [step for step in read_plan(path, statement) if " comparisons USING INDEX " in step]
        used = [re.findall(r"ix_comparisons_\w+", step) for step in steps]
        assert used == [[f"ix_comparisons_{name}"] for name in indexes]


actions = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([*Answer, None]),
        st.sampled_from(["owner", "Zoë"]),
        st.integers(0, 6),
    ),
    max_size=15,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(taken=actions)
def test_views_agree_after_any_answers_withdrawals_and_resends(store, taken):
    """Compare with a dictionary; a repeated request number is a resent request."""
    store.experiments.delete("model")
    experiment_id = store.experiments.ensure("model", ENV_ID, {})
    ids = ask_and_show(store, experiment_id, *range(4))
    current, seen = {}, set()
    for place, answer, labeler, number in taken:
        store.labels.add(ids[place], answer, labeler, UUID(int=number))
        if number not in seen:
            seen.add(number)
            # Removed first, so that the dictionary keeps the order of the answers.
            current.pop((ids[place], labeler), None)
            current[ids[place], labeler] = answer
    votes = {key: answer for key, answer in current.items() if answer is not None}
    said = {comparison_id: answer for (comparison_id, _), answer in votes.items()}
    mine = {each: answer for (each, labeler), answer in votes.items() if labeler == "owner"}
    view = store.experiments.get("model")
    assert store.labels.answers(ids) == said
    assert {each.id: each.answer for each in answered_comparisons(store, experiment_id)} == said
    assert sum(map(len, store.labels.votes(ids).values())) == len(votes)
    waiting = ids_of(open_comparisons(store, experiment_id, 9))
    assert waiting == [each for each in ids if each not in said]
    assert (view.asked, view.answered, view.waiting) == (4, len(said), 4 - len(said))
    assert counts(store, experiment_id) == (4, len(said))
    assert num_labels_of(store, experiment_id, "owner") == len(mine)
    labels = store.labels.of_labeler(experiment_id, "owner", 9)
    assert {label.comparison.id: label.answer for label in labels} == mine
