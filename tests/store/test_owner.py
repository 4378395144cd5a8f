"""Tests of the owner's paged views, on SQLite and on PostgreSQL."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.store.counters import recount
from rl_teacher.store.records import ComparisonFilter, NewLabel
from rl_teacher.store.tables import Comparison, Experiment, Tally
from tests.store.comparisons import ENV_ID, ask, ask_and_show, ids_of, pair, rows_of

PEOPLE = ("Ada", "Bob", "Eve")

"""Cursors; some say `[]`, `[1,2]`, `[-1]` and `[1e99]`."""


def walk(read):
    """Read all rows page by page."""
    rows, after = [], None
    while True:
        page = read(after)
        rows += page.rows
        after = page.next
        if after is None:
            return rows


class TestComparisons:
    @pytest.fixture
    def ids(self, store, experiment_id):
        """Answers: 0 none; 1 Ada left; 2 Ada left, Bob right; 3 Ada left, Bob cannot tell."""
        ids = ask_and_show(store, experiment_id, *range(4))
        for each in ids[1:]:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.labels.add(ids[2], Answer.RIGHT, "Bob")
        store.labels.add(ids[3], Answer.CANNOT_TELL, "Bob")
        return ids

    def found(self, store, experiment_id, ids, **wanted):
        page = store.comparisons.page(experiment_id, ComparisonFilter(**wanted))
        return [ids.index(each.id) for each in page.rows]

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({}, [3, 2, 1, 0]),
            ({"status": "answered"}, [3, 2, 1]),
            ({"status": "open"}, [0]),
            ({"answer": Answer.RIGHT}, [2]),
            ({"labeler": "Bob"}, [3, 2]),
            ({"labeler": "Bob", "answer": Answer.LEFT}, []),
            ({"labeler": "nobody"}, []),
            ({"is_disputed": True}, [2]),
            ({"is_disputed": False}, [3, 1, 0]),
            ({"is_gold": True}, [1]),
            ({"is_gold": False}, [3, 2, 0]),
        ],
    )
    def test_filter_selects_matching_comparisons(self, store, experiment_id, ids, wanted, expected):
        store.comparisons.set_gold(ids[1], Answer.LEFT)
        assert self.found(store, experiment_id, ids, **wanted) == expected

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_pages_contain_each_comparison_once(self, store, experiment_id, ids, limit):
        rows = walk(lambda after: store.comparisons.page(experiment_id, after=after, limit=limit))
        assert rows == store.comparisons.page(experiment_id).rows
        assert ids_of(rows) == ids[::-1]

    def test_comparisons_have_current_votes(self, store, experiment_id, ids):
        label = NewLabel(ids[2], Answer.EQUAL, "Bob", is_swapped=True, response_ms=850)
        store.labels.add_many([label])
        store.labelers.set_excluded("Ada", is_excluded=True)
        row = next(each for each in store.comparisons.page(experiment_id).rows if each.id == ids[2])
        assert [(vote.labeler, vote.answer, vote.is_excluded) for vote in row.votes] == [
            ("Ada", Answer.LEFT, True),
            ("Bob", Answer.EQUAL, False),
        ]
        assert (row.votes[1].response_ms, row.votes[1].is_swapped) == (850, True)
        assert (row.num_labels, row.is_disputed, row.is_open) == (1, False, False)
        assert (row.left.content_hash, row.right.content_hash) == pair(2)

    def test_ranking_reads_counting_votes_pairs_and_clips(self, store, experiment_id, ids):
        other = store.experiments.ensure("other", ENV_ID, {})
        ask(store, other, "elsewhere")
        before = store.labels.newest_id(experiment_id)
        store.labels.add(ids[2], Answer.EQUAL, "Bob")
        store.labelers.set_excluded("Ada", is_excluded=True)
        [(label_id, *rest)] = store.labels.since(experiment_id, before)
        assert rest == [ids[2], store.labelers.id_of("Bob"), Answer.EQUAL]
        assert store.labels.newest_id(experiment_id) == label_id
        assert store.labels.newest_id(other) == 0
        pairs = store.comparisons.asked(experiment_id)
        assert ids_of(pairs) == ids
        assert (pairs[2].left_hash, pairs[2].right_hash) == pair(2)
        [still_open] = ask_and_show(store, experiment_id, "later")
        pairs = store.comparisons.asked(experiment_id)
        open_ids = [each.id for each in pairs if each.is_open]
        assert still_open in open_ids
        assert ids[2] not in open_ids
        hashes = {end for each in pairs for end in (each.left_hash, each.right_hash)}
        assert store.clips.of_experiment(experiment_id).keys() == hashes
        assert store.comparisons.num_clips(experiment_id) == len(hashes)


class TestExport:
    def test_export_contains_all_labels_with_state(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add_many([NewLabel(comparison_id, Answer.LEFT, "Ada", response_ms=7)])
        store.labels.add(comparison_id, Answer.RIGHT, "Ada")
        store.labels.add(comparison_id, Answer.EQUAL, "Bob")
        store.labelers.set_excluded("Bob", is_excluded=True)
        rows = store.labels.export(experiment_id)
        assert [(row.labeler, row.answer, row.is_current, row.is_excluded) for row in rows] == [
            ("Ada", "left", False, False),
            ("Ada", "right", True, False),
            ("Bob", "equal", True, True),
        ]
        assert (rows[0].response_ms, rows[0].purpose, rows[0].lease) == (7, "answer", "none")
        assert (rows[0].left_hash, rows[0].right_hash) == pair(1)

    def test_export_pages_continue_after_last_label(self, store, experiment_id):
        ids = ask(store, experiment_id, *range(5))
        store.labels.add_many([NewLabel(each, Answer.LEFT, "Ada") for each in ids])
        seen, after = [], 0
        while page := store.labels.export(experiment_id, after, 2):
            seen += page
            after = page[-1].id
        assert [row.comparison_id for row in seen] == ids


class TestEvents:
    def test_event_pages_are_newest_first(self, store, experiment_id):
        for number in range(5):
            store.events.record(
                "export", {"n": number}, experiment_id, store.labelers.id_of("owner")
            )
        store.events.record("started", {})
        rows = walk(lambda after: store.events.page(experiment_id, after, 2))
        assert [row.details["n"] for row in rows] == [4, 3, 2, 1, 0]
        assert {(row.experiment, row.labeler) for row in rows} == {("human-175", "owner")}
        assert len(store.events.page().rows) == 6


actions = st.lists(
    st.tuples(
        st.sampled_from(["answer", "exclude", "include", "ask", "show"]),
        st.integers(0, 5),
        st.sampled_from([*Answer, None]),
        st.sampled_from(PEOPLE),
    ),
    max_size=20,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(done=actions)
def test_counters_match_rows_after_any_actions(store, done):
    """A recount changes nothing."""
    store.experiments.delete("model")
    experiment_id = store.experiments.ensure("model", ENV_ID, {})
    for name in PEOPLE:
        store.labelers.id_of(name)
        store.labelers.set_excluded(name, is_excluded=False)
    ids = ask_and_show(store, experiment_id, 0, 1, 2) + ask(store, experiment_id, 3, 4, 5)
    for action, number, answer, labeler in done:
        match action:
            case "answer":
                store.labels.add(ids[number], answer, labeler)
            case "exclude" | "include":
                store.labelers.set_excluded(labeler, is_excluded=action == "exclude")
            case "ask":
                ask(store, experiment_id, number, number + 10)
            case "show":
                ask_and_show(store, experiment_id, number)
    before = counted(store, experiment_id)
    assert before[1] == [
        (
            len(before[0]),
            sum(num_labels > 0 for _, num_labels, _, _ in before[0]),
            sum(is_open for _, _, is_open, _ in before[0]),
        )
    ]
    labels = [row for row in store.labels.export(experiment_id) if row.is_current]
    assert dict(before[2]) == {
        each.id: sum(row.labeler == each.name for row in labels)
        for each in store.labelers.all()
        if each.id in dict(before[2])
    }
    with store.database.writing() as connection:
        recount(connection, [comparison_id for comparison_id, *_ in before[0]])
    assert counted(store, experiment_id) == before


def counted(store, experiment_id):
    """Return the counters of the comparisons, the experiment and the labelers."""
    columns = (Comparison.id, Comparison.num_labels, Comparison.is_open, Comparison.is_disputed)
    return (
        rows_of(
            store,
            select(*columns)
            .where(Comparison.experiment_id == experiment_id)
            .order_by(Comparison.id),
        ),
        rows_of(
            store,
            select(Experiment.num_asked, Experiment.num_answered, Experiment.num_open).where(
                Experiment.id == experiment_id
            ),
        ),
        rows_of(
            store,
            select(Tally.labeler_id, Tally.num_labels).where(Tally.experiment_id == experiment_id),
        ),
    )
