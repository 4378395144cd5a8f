"""Tests of the views behind the labelling page, on SQLite and on PostgreSQL."""

import re
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ComparisonNotFound, ExperimentNotFound, MediaNotFound
from rl_teacher.store import (
    access,
    assignment,
    clips,
    comparisons,
    counters,
    events,
    experiments,
    labels,
    leases,
    sql,
)
from rl_teacher.store.database import versions
from rl_teacher.store.records import ClipView, Counts, MetricsRow, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Event, Label, Labeler
from tests.store.comparisons import (
    ENV_ID,
    answered_comparisons,
    ask,
    ask_and_show,
    clip,
    ids_of,
    open_comparisons,
    pair,
    rows_of,
    show,
    shown,
)

REQUEST = UUID("12345678-1234-5678-1234-567812345678")
WHOLE_TABLE = r"SCAN (?!CONSTANT|anon|\()"
"""Step of SQLite's query plan that reads a whole table, not a subquery."""

STATEMENTS = {
    "experiments": experiments.NEWEST_EXPERIMENTS_FIRST,
    "experiment": experiments.EXPERIMENT_BY_NAME,
    "counts": experiments.COUNTS,
    "labels since": labels.SINCE,
    "labels of labeler": labels.LABELS_OF_LABELER,
    "number of labels": labels.NUM_LABELS_OF_LABELERS,
    "shared": clips.SHARED,
    "shared and rendered": clips.SHARED_AND_RENDERED,
    "free": assignment.FREE,
    "unfilled": assignment.UNFILLED,
    "places": assignment.NUM_FREE,
    "unavailable": assignment.UNAVAILABLE,
    "free gold": assignment.FREE_GOLD,
    "repeatable": assignment.REPEATABLE,
    "tally": assignment.MY_TALLY,
    "held": leases.HELD,
    "leases of pairs": leases.LEASES_OF_PAIRS,
    "lock leases": leases.LOCK_LEASES,
    "extend": leases.EXTEND,
    "renew": leases.RENEW,
    "leases": leases.LEASES_OF_LABELERS,
    "comparisons": sql.COMPARISONS_BY_ID,
    "holders": access.HOLDERS,
    "votes": labels.VOTES,
    "pairs": comparisons.PAIRS,
    "open ids": comparisons.OPEN_IDS,
    "newest label": labels.NEWEST_ID,
    "clips of experiment": clips.CLIPS_OF_EXPERIMENT,
    "recount": counters.RECOUNT,
    "reopen": counters.REOPEN,
    "states": counters.STATES,
    "comparisons with clips": counters.COMPARISONS_WITH_CLIPS,
    "current labels": comparisons.CURRENT_LABELS,
    "export": labels.EXPORT,
    "library": clips.LIBRARY,
    "events": events.EVENTS_OF_EXPERIMENT,
    "pending": leases.PENDING,
}

NO_ID = [0, -1, 999, 2**31, 2**40, 2**70, -(2**70)]
"""Ids that were never given away; some have no room in a database."""


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

    def test_clips_can_be_published_before_comparison(self, store, experiment_id):
        show(store, 1)
        ask(store, experiment_id, 1)
        assert len(open_comparisons(store, experiment_id, 5)) == 1

    def test_republished_clip_changes_only_rendering(self, store):
        show(store, 1)
        left, _ = pair(1)
        store.clips.publish({left: shown(left, num_frames=30, fps=25.0)})
        assert (store.clips.get(left).num_frames, store.clips.get(left).fps) == (30, 25.0)
        assert len(store.clips.shared(ENV_ID, 30)) == 2

    def test_repeated_pair_keeps_media_of_clips(self, store, experiment_id):
        ask_and_show(store, experiment_id, 1)
        ask(store, experiment_id, 1)
        assert store.clips.get(pair(1)[0]).kind == "poses"

    def test_publishing_nothing_changes_nothing(self, store):
        store.clips.publish({})
        assert store.clips.shared(ENV_ID, 30) == []

    def test_unknown_clip_raises_media_not_found(self, store):
        with pytest.raises(MediaNotFound, match="There is no clip"):
            store.clips.get("../../etc/passwd")

    def test_unrendered_clip_has_no_media(self, store, experiment_id):
        ask(store, experiment_id, 1)
        left, _ = pair(1)
        assert store.clips.get(left) == ClipView(left, None, None, None, None, None)

    def test_clips_are_shared_by_environment_and_length(self, store, experiment_id):
        ask(store, experiment_id, 1)
        store.comparisons.add(experiment_id, [(clip("long"), clip("longer"))], ENV_ID, 45, 0)
        foreign = (clip("foreign"), clip("strange"))
        store.comparisons.add(experiment_id, [foreign], "Reacher-v1", 30, 0)
        store.experiments.delete("human-175")
        assert store.clips.shared(ENV_ID, 30) == sorted(pair(1))

    def test_unrendered_clips_can_be_left_out(self, store, experiment_id):
        ask_and_show(store, experiment_id, 1)
        ask(store, experiment_id, 2)
        assert set(store.clips.shared(ENV_ID, 30)) == {*pair(1), *pair(2)}
        assert set(store.clips.shared(ENV_ID, 30, only_rendered=True)) == {*pair(1)}

    def test_deleted_unused_clip_returns_media_key(self, store):
        show(store, 1)
        left, right = pair(1)
        assert store.clips.delete_unused(left) == f"clips/{left}.poses"
        assert store.clips.shared(ENV_ID, 30) == [right]
        assert store.clips.delete_unused(left) is None

    def test_compared_clip_is_not_deleted(self, store, experiment_id):
        ask_and_show(store, experiment_id, 1)
        assert [store.clips.delete_unused(each) for each in pair(1)] == [None, None]
        assert store.clips.get(pair(1)[0]).kind == "poses"

    def test_clip_of_latest_episode_is_not_deleted(self, store, experiment_id):
        show(store, 1)
        left, _ = pair(1)
        store.experiments.set_latest_episode(experiment_id, {"clip": pair(3)[0], "step": 6})
        store.experiments.set_latest_episode(experiment_id, {"clip": left, "step": 7})
        assert store.clips.delete_unused(left) is None
        store.experiments.set_latest_episode(experiment_id, {"clip": pair(2)[0], "step": 8})
        assert store.clips.delete_unused(left) == f"clips/{left}.poses"


class TestWaiting:
    def test_waiting_is_sorted_by_latest_step_then_order_asked(self, store, experiment_id):
        early = ask_and_show(store, experiment_id, 1, 2, step=100)
        late = ask_and_show(store, experiment_id, 3, 4, step=10**10)
        assert ids_of(open_comparisons(store, experiment_id, 9)) == [*late, *early]

    def test_limit_bounds_result(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1, 2, 3)
        assert ids_of(open_comparisons(store, experiment_id, 2)) == ids[:2]
        assert open_comparisons(store, experiment_id, 0) == []

    def test_excluded_comparisons_are_replaced_by_others(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1, 2, 3, 4)
        found = open_comparisons(store, experiment_id, 2, exclude=[ids[0], ids[2]])
        assert ids_of(found) == ids[1::2]

    @pytest.mark.parametrize("foreign", [NO_ID, range(100_000, 100_500), [1] * 1000])
    def test_invalid_excluded_ids_are_ignored(self, store, experiment_id, foreign):
        ids = ask_and_show(store, experiment_id, 1, 2)
        wanted = [each for each in ids if each not in foreign]
        assert ids_of(open_comparisons(store, experiment_id, 9, exclude=foreign)) == wanted

    def test_answered_comparison_does_not_wait(self, store, experiment_id):
        first, second = ask_and_show(store, experiment_id, 1, 2)
        store.labels.add(first, Answer.CANNOT_TELL, "owner")
        assert ids_of(open_comparisons(store, experiment_id, 9)) == [second]

    def test_comparisons_of_other_experiments_are_excluded(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        [mine] = ask_and_show(store, experiment_id, 1)
        [other] = ask_and_show(store, other_id, 1)
        assert ids_of(open_comparisons(store, experiment_id, 9)) == [mine]
        assert ids_of(open_comparisons(store, other_id, 9)) == [other]

    def test_unknown_experiment_has_no_waiting_comparisons(self, store):
        assert open_comparisons(store, 999, 9) == []


class TestOneComparison:
    @pytest.mark.parametrize("comparison_id", NO_ID)
    def test_unknown_comparison_raises_not_found(self, store, comparison_id):
        with pytest.raises(
            ComparisonNotFound, match=f"Comparison {comparison_id} is not"
        ) as caught:
            store.comparisons.get(comparison_id)
        assert caught.value.ids == [comparison_id]

    def test_deleted_comparison_is_not_found(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.experiments.delete("human-175")
        with pytest.raises(ComparisonNotFound, match="deleted with its experiment"):
            store.comparisons.get(comparison_id)


class TestAnswering:
    def test_withdrawn_answer_reopens_comparison(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        store.labels.add(comparison_id, None, "owner")
        assert store.labels.answers([comparison_id]) == {}
        assert answered_comparisons(store, experiment_id) == []
        assert store.experiments.counts(experiment_id) == Counts(asked=1, answered=0)
        assert ids_of(open_comparisons(store, experiment_id, 9)) == [comparison_id]

    def test_comparison_withdrawn_twice_can_be_answered_again(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        store.labels.add(comparison_id, None, "owner")
        store.labels.add(comparison_id, None, "owner")
        assert store.labels.answers([comparison_id]) == {}
        store.labels.add(comparison_id, Answer.RIGHT, "owner")
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.RIGHT}

    def test_withdrawal_without_answer_changes_nothing(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.labels.add(comparison_id, None, "owner")
        assert ids_of(open_comparisons(store, experiment_id, 9)) == [comparison_id]

    def test_resent_withdrawal_keeps_later_answer(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        store.labels.add(comparison_id, None, "owner", REQUEST)
        store.labels.add(comparison_id, Answer.EQUAL, "owner")
        store.labels.add(comparison_id, None, "owner", REQUEST)
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.EQUAL}

    def test_duplicate_request_in_one_batch_counts_once(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        label = NewLabel(comparison_id, Answer.LEFT, "owner", REQUEST)
        store.labels.add_many([label, label])
        assert len(rows_of(store, select(Label.id))) == 1

    def test_all_labels_are_kept_in_order(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        for answer in (Answer.LEFT, None, Answer.EQUAL):
            store.labels.add(comparison_id, answer, "owner")
        said = rows_of(store, select(Label.answer).order_by(Label.id))
        assert [answer for (answer,) in said] == ["left", None, "equal"]

    def test_label_stores_details_of_answer(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        details = {"replays": 2, "speed": 0.25, "viewport": [390, 844]}
        label = NewLabel(
            comparison_id, Answer.LEFT, "owner", is_swapped=True, response_ms=850, details=details
        )
        store.labels.add_many([label])
        kept = rows_of(store, select(Label.is_swapped, Label.response_ms, Label.details))
        assert kept == [(True, 850, details)]

    def test_teacher_label_needs_no_details(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "synthetic:oracle")
        kept = rows_of(store, select(Label.is_swapped, Label.response_ms, Label.details))
        assert kept == [(False, None, None)]

    def test_long_response_time_is_stored(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add_many([NewLabel(comparison_id, Answer.LEFT, "owner", response_ms=2**53)])
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.LEFT}

    def test_answer_to_deleted_comparison_is_refused(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        store.experiments.delete("human-175")
        with pytest.raises(ComparisonNotFound, match=f"Comparison {comparison_id} is not"):
            store.labels.add(comparison_id, Answer.RIGHT, "owner")

    @pytest.mark.parametrize("unknown", NO_ID)
    def test_error_lists_unknown_comparisons_of_batch(self, store, experiment_id, unknown):
        known, other = ask(store, experiment_id, 1, 2)
        labels = [NewLabel(each, Answer.LEFT, "owner") for each in (known, unknown, other)]
        with pytest.raises(ComparisonNotFound) as caught:
            store.labels.add_many(labels)
        assert caught.value.ids == [unknown]
        assert store.labels.answers([known, other, unknown]) == {}

    def test_each_labeler_is_stored_once(self, store, experiment_id, url):
        ids = ask(store, experiment_id, 1, 2, 3)
        for each, labeler in zip(ids, ["Zoë", "owner", "Zoë"], strict=True):
            store.labels.add(each, Answer.LEFT, labeler)
        with Store.open(url) as other:
            other.labels.add(ids[0], Answer.LEFT, "owner")
            names = rows_of(other, select(Labeler.name).order_by(Labeler.id))
        assert names == [("Zoë",), ("owner",)]


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

    def test_labels_of_other_experiments_are_excluded(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        [comparison_id] = ask(store, other_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        assert store.labels.since(experiment_id, 0) == []

    def test_reader_of_concurrent_writers_misses_no_label(self, store, experiment_id, url):
        ids = ask(store, experiment_id, *range(60))
        seen = []

        def write(part):
            with Store.open(url) as other:
                for each in part:
                    other.labels.add(each, Answer.LEFT, "owner")

        writers = [threading.Thread(target=write, args=(ids[start::3],)) for start in range(3)]
        for writer in writers:
            writer.start()
        while len(seen) < len(ids):
            is_over = not any(writer.is_alive() for writer in writers)
            seen += store.labels.since(experiment_id, seen[-1].id if seen else 0)
            assert not is_over or len(seen) == len(ids)
        for writer in writers:
            writer.join()
        assert sorted(label.comparison_id for label in seen) == ids


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
        assert store.labels.count_of_labeler(experiment_id, "owner") == 2

    def test_withdrawn_labels_are_left_out(self, store, experiment_id):
        first, second = ask(store, experiment_id, 1, 2)
        for each in (first, second):
            store.labels.add(each, Answer.LEFT, "owner")
        store.labels.add(first, None, "owner")
        labels = store.labels.of_labeler(experiment_id, "owner", 9)
        assert [label.comparison.id for label in labels] == [second]
        assert store.labels.count_of_labeler(experiment_id, "owner") == 1

    def test_labelers_do_not_override_each_other(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        store.labels.add(comparison_id, Answer.RIGHT, "Zoë")
        [mine] = store.labels.of_labeler(experiment_id, "owner", 9)
        [hers] = store.labels.of_labeler(experiment_id, "Zoë", 9)
        assert (mine.answer, hers.answer) == (Answer.LEFT, Answer.RIGHT)
        assert store.labels.count_of_labeler(experiment_id, "owner") == 1
        assert store.labels.count_of_labeler(experiment_id, "Zoë") == 1

    def test_limit_bounds_result(self, store, experiment_id):
        ids = ask(store, experiment_id, *range(5))
        store.labels.add_many([NewLabel(each, Answer.LEFT, "owner") for each in ids])
        labels = store.labels.of_labeler(experiment_id, "owner", 2)
        assert [label.comparison.id for label in labels] == [ids[4], ids[3]]

    def test_labeler_without_answers_has_no_labels(self, store, experiment_id):
        assert store.labels.of_labeler(experiment_id, "nobody", 9) == []
        assert store.labels.count_of_labeler(experiment_id, "nobody") == 0

    def test_labels_of_other_experiments_are_excluded(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        [comparison_id] = ask(store, other_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "owner")
        assert store.labels.of_labeler(experiment_id, "owner", 9) == []
        assert store.labels.count_of_labeler(experiment_id, "owner") == 0


class TestExperiments:
    def test_new_experiment_has_no_status(self, store, experiment_id):
        [view] = store.experiments.all()
        assert view == store.experiments.get("human-175")
        assert (view.id, view.name, view.env_id) == (experiment_id, "human-175", ENV_ID)
        assert view.config == {"seed": 3}
        assert (view.instructions, view.target_labels) == ("", None)
        assert (view.status, view.status_at, view.latest_episode) == (None, None, None)
        assert (view.asked, view.answered, view.waiting) == (0, 0, 0)

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

    def test_unknown_experiment_raises_not_found(self, store):
        with pytest.raises(ExperimentNotFound, match="no experiment 'nothing'"):
            store.experiments.get("nothing")

    def test_instructions_and_target_can_be_changed(self, store, experiment_id):
        store.experiments.describe(experiment_id, "Leans back; ünï", 175)
        store.experiments.describe(experiment_id, "Leans forward", None)
        view = store.experiments.get("human-175")
        assert (view.instructions, view.target_labels) == ("Leans forward", None)

    def test_latest_status_is_stored_with_time(self, url):
        moments = iter(datetime(2026, 11, 3, tzinfo=UTC) + timedelta(hours=h) for h in range(9))
        with Store.open(url, now=lambda: next(moments)) as store:
            experiment_id = store.experiments.ensure("x", ENV_ID, {})
            store.experiments.set_status(experiment_id, {"phase": "random", "step": 0})
            store.experiments.set_status(experiment_id, {"phase": "training", "step": np.int64(7)})
            view = store.experiments.get("x")
        assert view.status == {"phase": "training", "step": 7}
        assert view.status_at == datetime(2026, 11, 3, 2, tzinfo=UTC)

    def test_latest_episode_accepts_numpy_numbers_and_nan(self, store, experiment_id):
        rewards = np.array([0.5, np.nan, -np.inf], np.float32)
        episode = {"clip": clip(1), "predicted_rewards": rewards, "true_return": np.float32("nan")}
        store.experiments.set_latest_episode(experiment_id, episode)
        assert store.experiments.get("human-175").latest_episode == {
            "clip": clip(1),
            "predicted_rewards": [0.5, None, None],
            "true_return": None,
        }

    def test_status_of_deleted_experiment_raises_not_found(self, store, experiment_id):
        store.experiments.delete("human-175")
        with pytest.raises(ExperimentNotFound, match="no longer in the store"):
            store.experiments.set_status(experiment_id, {})
        with pytest.raises(ExperimentNotFound, match="no longer in the store"):
            store.experiments.set_latest_episode(experiment_id, {})
        with pytest.raises(ExperimentNotFound, match="no longer in the store"):
            store.experiments.describe(experiment_id, "", None)
        with pytest.raises(ExperimentNotFound, match="no longer in the store"):
            store.metrics.append(experiment_id, 1, {})


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

    def test_non_finite_metric_becomes_null(self, store, experiment_id):
        metrics_row = {"loss": float("nan"), "return": np.float32(2.5), "steps": np.int64(3)}
        store.metrics.append(experiment_id, 3, metrics_row)
        [row] = store.metrics.after(experiment_id)
        assert row == MetricsRow(row.id, 3, {"loss": None, "return": 2.5, "steps": 3})

    def test_drop_after_keeps_earlier_steps_and_other_experiments(self, store, written):
        store.metrics.drop_after(written, 6)
        assert [row.step for row in store.metrics.after(written)] == list(range(7))
        assert len(store.metrics.after(store.experiments.get("other").id)) == 10

    def test_row_after_drop_has_new_id(self, store, written):
        seen = store.metrics.after(written)[-1].id
        store.metrics.drop_after(written, 6)
        store.metrics.append(written, 7, {})
        assert [row.step for row in store.metrics.after(written, after_id=seen)] == [7]

    def test_new_experiment_has_no_metrics(self, store, experiment_id):
        assert store.metrics.after(experiment_id, at_most=5) == []
        assert store.metrics.latest(experiment_id) is None

    def test_metrics_are_deleted_with_their_experiment(self, store, written):
        store.experiments.delete("human-175")
        assert store.metrics.after(written) == []


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

    def test_event_needs_neither_experiment_nor_labeler(self, store):
        store.events.record("started", {})
        assert rows_of(store, select(Event.experiment_id, Event.labeler_id)) == [(None, None)]


class TestServing:
    def test_store_returns_schema_version(self, store):
        assert store.schema_version() == versions()[0]

    @pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
    def test_sqlite_scans_no_table_except_experiments(self, path, statement):
        scanned = [step for step in read_plan(path, statement) if re.match(WHOLE_TABLE, step)]
        assert scanned in ([], ["SCAN experiments"])

    @pytest.mark.parametrize(
        ("statement", "indexes"),
        [
            (assignment.FREE, ["open"]),
            (assignment.UNFILLED, ["open"]),
            (assignment.FREE_GOLD, ["gold"]),
            (leases.PENDING, ["open", "gold"]),
            (labels.GOLD, ["gold"]),
            (comparisons.PRACTICE, ["gold"]),
        ],
        ids=["free", "unfilled", "free gold", "pending", "gold", "practice"],
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
    assert store.experiments.counts(experiment_id) == Counts(4, len(said))
    assert store.labels.count_of_labeler(experiment_id, "owner") == len(mine)
    labels = store.labels.of_labeler(experiment_id, "owner", 9)
    assert {label.comparison.id: label.answer for label in labels} == mine
