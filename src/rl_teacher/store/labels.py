"""The append-only label log."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, bindparam, exists, func, select
from sqlalchemy.exc import IntegrityError

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ComparisonNotFound, StoreUnavailable
from rl_teacher.common.files import jsonable
from rl_teacher.store import sql
from rl_teacher.store.counters import recount, tally_from
from rl_teacher.store.database import Database
from rl_teacher.store.events import EventLog
from rl_teacher.store.labelers import OWNER, Labelers
from rl_teacher.store.leases import delete_old_leases, end_leases
from rl_teacher.store.records import (
    ExportedLabel,
    GivenAnswer,
    LabelSample,
    LabelView,
    NewLabel,
    SampledLabel,
)
from rl_teacher.store.tables import Comparison, Label, Labeler, Tally

LEASE_CLEANUP_INTERVAL = timedelta(minutes=10)
"""Old leases are deleted with a label now and then, so that most labels do not wait for it."""

MAX_RESPONSE_MS = 2**31 - 1
"""Some 24 days; a longer time does not fit PostgreSQL's INTEGER."""

RANKING = "ranking"
"""Key of the ranking's id in the details of its labels."""

MAX_GOLD = 1_000
"""Gold comparisons by which labelers' reliability is estimated."""

VOTES = (
    select(Label.comparison_id, Label.labeler_id, Label.answer)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(sql.OF_THESE, sql.IS_CURRENT, sql.IS_NOT_EXCLUDED)
    .order_by(Label.id)
)

NEWEST_ID = select(func.max(Tally.last_label_id)).where(
    Tally.experiment_id == bindparam("experiment_id")
)

KNOWN_COMPARISONS = select(Comparison.id).where(sql.THESE)

BY_REQUEST_IDS = select(
    Label.request_id, Label.comparison_id, Label.labeler_id, Label.answer
).where(sql.WITH_REQUEST_IDS)

# A subquery on the label; with a join, SQLite might start with all comparisons.
EXPERIMENT_OF_LABEL = (
    select(Comparison.experiment_id)
    .where(Comparison.id == Label.comparison_id)
    .correlate(Label)
    .scalar_subquery()
)

SINCE = (
    select(Label.id, Label.comparison_id, Label.labeler_id, Label.answer)
    .where(
        Label.id > bindparam("label_id"),
        bindparam("experiment_id") == EXPERIMENT_OF_LABEL,
        Label.purpose == "answer",
    )
    .order_by(Label.id)
)

EXPORT = sql.EXPORTED_LABELS.where(
    Label.id > bindparam("after_id"), bindparam("experiment_id") == EXPERIMENT_OF_LABEL
).limit(bindparam("limit"))

LABELER_ID = select(Labeler.id).where(Labeler.name == bindparam("labeler")).scalar_subquery()

LABELS_OF_LABELER = (
    sql.COMPARISONS.add_columns(Label.request_id, Label.created_at, Label.answer, Label.details)
    .join(Label, Label.comparison_id == Comparison.id)
    .where(sql.OF_EXPERIMENT, Label.labeler_id == LABELER_ID, sql.IS_CURRENT)
    .order_by(Label.id.desc())
    .limit(bindparam("limit"))
)

NUM_LABELS_OF_LABELERS = (
    select(Tally.experiment_id, Labeler.name, Tally.num_labels)
    .join(Labeler, Labeler.id == Tally.labeler_id)
    .where(Labeler.name.in_(bindparam("names", expanding=True)))
)

NUM_LABELS_IN_EXPERIMENT = NUM_LABELS_OF_LABELERS.where(
    Tally.experiment_id == bindparam("experiment_id")
)

TOO_FAST = select(Labeler.name).where(
    Labeler.name.in_(bindparam("names", expanding=True)),
    exists().where(Label.labeler_id == Labeler.id, Label.is_too_fast),
)

# --- statements of a sample ---

NUM_LABELS_OF_COMPARISON = (
    select(func.count())
    .select_from(Label)
    .where(Label.comparison_id == Comparison.id)
    .correlate(Comparison)
    .scalar_subquery()
)

NEWEST_LABELLED = (
    select(Comparison.id, NUM_LABELS_OF_COMPARISON.label("num_labels"))
    .where(sql.OF_EXPERIMENT, exists().where(Label.comparison_id == Comparison.id))
    .order_by(Comparison.id.desc())
    .limit(bindparam("limit"))
)

GOLD = (
    select(Comparison.id, Comparison.gold)
    .where(sql.OF_EXPERIMENT, Comparison.gold.is_not(None))
    .order_by(Comparison.id.desc())
    .limit(MAX_GOLD)
)

SAMPLED_LABELS = select(
    *sql.columns_of(SampledLabel, Label, is_ranked=Label.details[RANKING].as_string().is_not(None))
)

LABELS_FROM = SAMPLED_LABELS.join(Comparison, Comparison.id == Label.comparison_id).where(
    sql.OF_EXPERIMENT, Comparison.id >= bindparam("from_id")
)

LABELS_OF_COMPARISONS = SAMPLED_LABELS.where(sql.OF_THESE)

NUM_ANSWERED = select(Tally.labeler_id, Tally.num_labels).where(
    Tally.experiment_id == bindparam("experiment_id")
)


class Labels:
    """The labels of all experiments."""

    def __init__(self, database: Database, labelers: Labelers, events: EventLog) -> None:
        self._database = database
        self._labelers = labelers
        self._events = events
        self._leases_cleaned_at = datetime.min.replace(tzinfo=UTC)
        self._insert = sql.insert_or_skip(database.dialect, Label, "request_id").returning(Label.id)
        self._tally_from = tally_from(database.dialect)

    # --- writing ---

    def add(
        self,
        comparison_id: int,
        answer: Answer | None,
        labeler: str,
        request_id: UUID | None = None,
    ) -> None:
        """Store one label; see `add_many`."""
        self.add_many([NewLabel(comparison_id, answer, labeler, request_id or uuid4())])

    def add_many(self, labels: Sequence[NewLabel]) -> dict[UUID, Answer | None]:
        """Store labels; those that were stored before are skipped.

        A label ends the lease that it refers to, and is stored even if that has expired.

        Returns:
            The labels that were refused, by request id: with the stored answer, if the labeler has
            given another one under the same lease, as happens in two tabs; with None, if the
            request id belongs to a different label.

        Raises:
            ComparisonNotFound: A comparison does not exist; the error lists which. No label is
                stored.
        """
        if not labels:
            return {}
        if any(not 0 < label.comparison_id <= sql.MAX_ID for label in labels):
            raise ComparisonNotFound(self._unknown_comparisons(labels))
        moment = self._database.now()
        # Before the transaction, since it may need one of its own.
        labeler_ids = self._labelers.ids_of({label.labeler for label in labels})
        rows = [row_of(label, labeler_ids[label.labeler], moment) for label in labels]
        try:
            with self._database.writing() as connection:
                sql.lock_labels(connection)
                refused = self.write(connection, rows, labels, moment)
        except IntegrityError as error:
            # A restored database may have other ids for the same names.
            self._labelers.forget_ids()
            if unknown := self._unknown_comparisons(labels):
                raise ComparisonNotFound(unknown) from error
            raise StoreUnavailable(
                f"The database {self._database.label} refused the labels: {error.orig}. If it was "
                "restored from a backup, restore all of it, and send them again."
            ) from error
        return refused

    def adjudicate(self, comparison_id: int, answer: Answer | None, *, by: str = OWNER) -> None:
        """Store the owner's own label of a comparison, with an event in the audit log.

        None withdraws an earlier one.

        Raises:
            ComparisonNotFound: The comparison does not exist.
        """
        label = NewLabel(comparison_id, answer, by)
        by_id = self._labelers.id_of(by)
        moment = self._database.now()
        with self._database.writing() as connection:
            sql.lock_labels(connection)
            experiment_id = sql.experiment_of(connection, comparison_id)
            self.write(connection, [row_of(label, by_id, moment)], [label], moment)
            details = {"comparison": comparison_id, "answer": answer}
            self._events.append(connection, "adjudicate", details, by_id, experiment_id)

    def write(
        self,
        connection: Connection,
        rows: list[dict[str, Any]],
        labels: Sequence[NewLabel],
        moment: datetime,
    ) -> dict[UUID, Answer | None]:
        """Insert labels, end their leases and update the counts, within a transaction.

        Args:
            connection: Connection of the transaction, which holds `sql.lock_labels`.
            rows: `row_of` each label.
            labels: The labels.
            moment: Time of the labels.

        Returns:
            The refused labels, as in `add_many`.
        """
        rows, labels, reused = without_repetitions(rows, labels)
        reused |= read_reused(connection, rows)
        if reused:
            rows = [row for row in rows if row["request_id"] not in reused]
            labels = [label for label in labels if label.request_id not in reused]
        if moment - self._leases_cleaned_at >= LEASE_CLEANUP_INTERVAL:
            delete_old_leases(connection, moment)
            self._leases_cleaned_at = moment
        # Before the insert, because it sets `purpose` and `lease` of the rows.
        answered = end_leases(connection, rows, labels, moment)
        kept = [row for row in rows if row["request_id"] not in answered]
        new = connection.execute(self._insert, kept).scalars().all() if kept else []
        if new:
            # Ids rise under the lock, so that exactly the new labels have these ids.
            connection.execute(self._tally_from, {"first_new": min(new)})
            recount(connection, sorted({label.comparison_id for label in labels}))
        answer_of = {label.request_id: label.answer for label in labels}
        refused = {each: stored for each, stored in answered.items() if stored != answer_of[each]}
        return refused | dict.fromkeys(reused)

    def _unknown_comparisons(self, labels: Sequence[NewLabel]) -> list[int]:
        """Return the ids of comparisons that do not exist, each once."""
        ids = dict.fromkeys(label.comparison_id for label in labels)
        known: set[int] = set()
        with self._database.reading() as connection:
            for chunk in sql.in_chunks(sql.valid_ids(ids)):
                parameters = {"comparison_ids": chunk}
                known.update(connection.execute(KNOWN_COMPARISONS, parameters).scalars())
        return [each for each in ids if each not in known]

    # --- reading ---

    def answers(self, comparison_ids: Iterable[int]) -> dict[int, Answer]:
        """Return the newest current answer to each comparison that has one, from any labeler."""
        return {
            comparison_id: list(votes.values())[-1]
            for comparison_id, votes in self.votes(comparison_ids).items()
        }

    def votes(self, comparison_ids: Iterable[int]) -> dict[int, dict[int, Answer]]:
        """Return the current answers by comparison and labeler, without excluded labelers.

        The answers to a comparison are in the order given.
        """
        votes: dict[int, dict[int, Answer]] = {}
        with self._database.reading() as connection:
            for chunk in sql.in_chunks(sql.valid_ids(comparison_ids)):
                for row in connection.execute(VOTES, {"comparison_ids": chunk}):
                    votes.setdefault(row.comparison_id, {})[row.labeler_id] = Answer(row.answer)
        return votes

    def newest_id(self, experiment_id: int) -> int:
        """Return the id of an experiment's newest label; 0 if there is none."""
        return self._database.scalar(NEWEST_ID, experiment_id=experiment_id) or 0

    def gold(self, experiment_id: int) -> dict[int, Answer]:
        """Return the known answers to gold comparisons, the newest if there are many."""
        rows = self._database.rows(GOLD, experiment_id=experiment_id)
        return {row["id"]: Answer(row["gold"]) for row in rows}

    def since(self, experiment_id: int, label_id: int) -> list[GivenAnswer]:
        """Return the answers of an experiment after a label's id, oldest first, without repeats.

        Labels commit in the order of their ids, so none can appear later before one that was
        returned; see `sql.lock_labels`.
        """
        parameters = {"experiment_id": experiment_id, "label_id": label_id}
        with self._database.reading() as connection:
            rows = connection.execute(SINCE, parameters).all()
        return [GivenAnswer(*row[:3], sql.as_answer(row[3])) for row in rows]

    def of_labeler(self, experiment_id: int, labeler: str, limit: int) -> list[LabelView]:
        """Return the current labels of one labeler, newest first."""
        parameters = {"experiment_id": experiment_id, "labeler": labeler, "limit": limit}
        return [
            LabelView(
                row["request_id"],
                sql.comparison_view(row),
                Answer(row["answer"]),
                row["created_at"],
                ranking_of(row["details"]),
            )
            for row in self._database.rows(LABELS_OF_LABELER, **parameters)
        ]

    def count_of_labeler(self, experiment_id: int, labeler: str) -> int:
        """Return the number of comparisons that a labeler currently answers."""
        return self.count_of_each(experiment_id, {labeler}).get(labeler, 0)

    def count_of_each(self, experiment_id: int, labelers: Collection[str]) -> dict[str, int]:
        """Return the numbers of comparisons that labelers currently answer; without zeros."""
        if not labelers:
            return {}
        parameters = {"experiment_id": experiment_id, "names": sorted(labelers)}
        rows = self._database.rows(NUM_LABELS_IN_EXPERIMENT, **parameters)
        return {row["name"]: row["num_labels"] for row in rows}

    def count_by_experiment(self, labelers: Collection[str]) -> dict[tuple[int, str], int]:
        """Return the same numbers for all experiments, by the id of each and the labeler."""
        if not labelers:
            return {}
        rows = self._database.rows(NUM_LABELS_OF_LABELERS, names=sorted(labelers))
        return {(row["experiment_id"], row["name"]): row["num_labels"] for row in rows}

    def with_too_fast(self, labelers: Collection[str]) -> set[str]:
        """Return those of some labelers who have given a label too fast before."""
        if not labelers:
            return set()
        return {row["name"] for row in self._database.rows(TOO_FAST, names=sorted(labelers))}

    def export(
        self, experiment_id: int, after_id: int = 0, limit: int = 1000
    ) -> list[ExportedLabel]:
        """Return labels of an experiment after an id, oldest first, replaced ones included."""
        parameters = {"experiment_id": experiment_id, "after_id": after_id, "limit": limit}
        return [sql.exported_label(row) for row in self._database.rows(EXPORT, **parameters)]

    def sample(self, experiment_id: int, at_most: int) -> LabelSample:
        """Return the newest labels of an experiment for quality estimates.

        Comparisons are complete, each with all its labels, so that agreement among labelers can be
        computed. At least one comparison is included.
        """
        parameters = {"experiment_id": experiment_id}
        with self._database.reading() as connection:
            newest = connection.execute(NEWEST_LABELLED, parameters | {"limit": at_most}).all()
            from_id, num_labels, num_taken = 0, 0, 0
            for comparison_id, num in newest:
                if num_taken and num_labels + num > at_most:
                    break
                from_id, num_labels, num_taken = comparison_id, num_labels + num, num_taken + 1
            gold = {row.id: Answer(row.gold) for row in connection.execute(GOLD, parameters)}
            older_gold = [each for each in gold if each < from_id]
            rows = [
                *connection.execute(LABELS_FROM, parameters | {"from_id": from_id}).mappings(),
                *connection.execute(
                    LABELS_OF_COMPARISONS, {"comparison_ids": older_gold}
                ).mappings(),
            ]
            tallies = connection.execute(NUM_ANSWERED, parameters)
            num_answered = {row.labeler_id: row.num_labels for row in tallies}
        return LabelSample(
            labels=sorted(map(sampled_label, rows), key=lambda label: label.id),
            from_id=from_id,
            gold=gold,
            num_answered=num_answered,
            # As many comparisons as the limit of the query: there may be more.
            is_all=num_taken == len(newest) < at_most,
        )


def without_repetitions(
    rows: Sequence[dict[str, Any]], labels: Sequence[NewLabel]
) -> tuple[list[dict[str, Any]], list[NewLabel], set[UUID]]:
    """Leave out labels that are given again, as when a page is reloaded while it sends them.

    Returns:
        The other rows and labels, and the request ids under which different labels are given.
    """
    contents: dict[UUID, tuple[Any, ...]] = {}
    kept: list[tuple[dict[str, Any], NewLabel]] = []
    reused: set[UUID] = set()
    for row, label in zip(rows, labels, strict=True):
        request_id, content = row["request_id"], content_of(row)
        if request_id not in contents:
            contents[request_id] = content
            kept.append((row, label))
        elif contents[request_id] != content:
            reused.add(request_id)
    return [row for row, _ in kept], [label for _, label in kept], reused


def content_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what distinguishes a label from another one under the same request id."""
    return row["comparison_id"], row["labeler_id"], row["answer"]


def read_reused(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    """Return the request ids of labels under which a different label was stored before."""
    stored: dict[UUID, tuple[Any, ...]] = {}
    for chunk in sql.in_chunks([row["request_id"] for row in rows]):
        for known in connection.execute(BY_REQUEST_IDS, {"request_ids": chunk}):
            stored[known.request_id] = tuple(known)[1:]
    return {
        row["request_id"]
        for row in rows
        if content_of(row) != stored.get(row["request_id"], content_of(row))
    }


def sampled_label(row: Mapping[Any, Any]) -> SampledLabel:
    """Convert a row of `SAMPLED_LABELS`."""
    return SampledLabel(**{**row, "answer": sql.as_answer(row["answer"])})


def ranking_of(details: Mapping[str, Any] | None) -> UUID | None:
    """Return the id of the ranking that a label belongs to."""
    try:
        return UUID((details or {})[RANKING])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def row_of(label: NewLabel, labeler_id: int, moment: datetime) -> dict[str, Any]:
    """Convert a label to a row of the table."""
    return {
        "comparison_id": label.comparison_id,
        "answer": None if label.answer is None else Answer(label.answer).value,
        "labeler_id": labeler_id,
        "request_id": label.request_id,
        "created_at": moment,
        "is_swapped": label.is_swapped,
        "response_ms": (
            None if label.response_ms is None else min(label.response_ms, MAX_RESPONSE_MS)
        ),
        "details": None if label.details is None else jsonable(label.details),
        # Unless `end_leases` finds the lease that the label refers to.
        "purpose": "answer",
        "lease": "none" if label.lease is None else "late",
        "is_too_fast": label.is_too_fast,
        "imported": None if label.imported is None else jsonable(label.imported),
    }
