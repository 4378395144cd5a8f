"""The append-only label log."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ComparisonNotFound
from rl_teacher.common.files import jsonable
from rl_teacher.store import sql
from rl_teacher.store.counters import recount, tally_from
from rl_teacher.store.database import Database
from rl_teacher.store.labelers import Labelers
from rl_teacher.store.leases import KEPT_AFTER_EXPIRY, read_leases
from rl_teacher.store.records import (
    ExportedLabel,
    GivenAnswer,
    LabelView,
    NewLabel,
)
from rl_teacher.store.tables import Comparison, Label, Labeler, Lease, Tally

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

# Not ordered: with ORDER BY, SQLite would scan all labels of these labelers.
RELATED = select(
    Label.id,
    Label.request_id,
    Label.comparison_id,
    Label.labeler_id,
    Label.purpose,
    Label.answer,
).where(
    or_(
        sql.WITH_REQUEST_IDS,
        and_(sql.OF_THESE, Label.labeler_id.in_(bindparam("labeler_ids", expanding=True))),
    )
)

INSERT = insert(Label).returning(Label.id)

END = delete(Lease).where(Lease.token.in_(bindparam("tokens", expanding=True)))

DELETE_EXPIRED = delete(Lease).where(Lease.expires_at <= bindparam("moment"))

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

GOLD = (
    select(Comparison.id, Comparison.gold)
    .where(sql.OF_EXPERIMENT, Comparison.gold.is_not(None))
    .order_by(Comparison.id.desc())
    .limit(MAX_GOLD)
)


class Labels:
    """The labels of all experiments."""

    def __init__(self, database: Database, labelers: Labelers) -> None:
        self._database = database
        self._labelers = labelers
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
        # Before the transaction, since it may need one of its own.
        id_of = self._labelers.ids_of({label.labeler for label in labels})
        try:
            with self._database.writing() as connection:
                return self.write(connection, labels, id_of)
        except IntegrityError as error:
            if unknown := self._unknown_comparisons(labels):
                raise ComparisonNotFound(unknown) from error
            raise

    def write(
        self, connection: Connection, labels: Sequence[NewLabel], id_of: Mapping[str, int]
    ) -> dict[UUID, Answer | None]:
        """Insert labels, end their leases and update the counts, within a transaction.

        Args:
            connection: Connection of the transaction.
            labels: The labels, which are stored as if one came after the other.
            id_of: Ids of the labelers by name.

        Returns:
            The refused labels, as in `add_many`.
        """
        moment = self._database.now()
        before = read_before(connection, labels, sorted(id_of.values()))
        rows: list[dict[str, Any]] = []
        refused: dict[UUID, Answer | None] = {}
        for label in labels:
            row = row_of(label, id_of[label.labeler], moment)
            answer = before.refusal(row, label.lease)
            if answer is not None:
                refused |= answer
                continue
            before.follow(row, label.lease, moment)
            rows.append(row)
        connection.execute(DELETE_EXPIRED, {"moment": moment - KEPT_AFTER_EXPIRY})
        if before.ended:
            connection.execute(END, {"tokens": before.ended})
        if rows:
            new = connection.execute(INSERT, rows).scalars().all()
            connection.execute(self._tally_from, {"first_new": min(new)})
            recount(connection, sorted({row["comparison_id"] for row in rows}))
        return refused

    def _unknown_comparisons(self, labels: Sequence[NewLabel]) -> list[int]:
        """Return the ids of comparisons that do not exist, each once."""
        ids = dict.fromkeys(label.comparison_id for label in labels)
        known: set[int] = set()
        with self._database.reading() as connection:
            for chunk in sql.in_chunks([*ids]):
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
            for chunk in sql.in_chunks([*comparison_ids]):
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
        returned.
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

    def count_by_experiment(self, labelers: Collection[str]) -> dict[tuple[int, str], int]:
        """Return the numbers of comparisons that labelers currently answer; without zeros.

        The keys are the id of an experiment and the name of a labeler.
        """
        if not labelers:
            return {}
        rows = self._database.rows(NUM_LABELS_OF_LABELERS, names=sorted(labelers))
        return {(row["experiment_id"], row["name"]): row["num_labels"] for row in rows}

    def export(
        self, experiment_id: int, after_id: int = 0, limit: int = 1000
    ) -> list[ExportedLabel]:
        """Return labels of an experiment after an id, oldest first, replaced ones included."""
        parameters = {"experiment_id": experiment_id, "after_id": after_id, "limit": limit}
        return [sql.exported_label(row) for row in self._database.rows(EXPORT, **parameters)]


@dataclass
class Before:
    """State of the store before a label is added, by ids of comparison and labeler.

    Attributes:
        contents: Stored labels by request id, see `content_of`.
        newest: Purpose and answer of the newest label.
        leases: Rows of `read_leases`.
        ended: Tokens of the leases that labels have ended.
    """

    contents: dict[UUID, tuple[Any, ...]]
    newest: dict[tuple[int, int], tuple[str, str | None]]
    leases: dict[tuple[int, int], Any]
    ended: list[UUID] = field(default_factory=list)

    def refusal(
        self, row: Mapping[str, Any], token: UUID | None
    ) -> dict[UUID, Answer | None] | None:
        """Return the result for a label that is not to be stored; None for one that is.

        It was stored before, has the request id of a different label, or its lease was used up or
        replaced by another tab in which its labeler has given an answer.
        """
        request_id, key = row["request_id"], (row["comparison_id"], row["labeler_id"])
        if request_id in self.contents:
            return {} if self.contents[request_id] == content_of(row) else {request_id: None}
        lease = self.leases.get(key)
        is_stale = token is not None and (lease is None or lease.token != token)
        _, stored = self.newest.get(key, ("answer", None))
        if not is_stale or row["answer"] is None or stored is None:
            return None
        return {} if stored == row["answer"] else {request_id: Answer(stored)}

    def follow(self, row: dict[str, Any], token: UUID | None, moment: datetime) -> None:
        """Set `purpose` and `lease` of a new label's row, and take it into account.

        A label without a lease answers the comparison itself: a repeat stays to be answered. A
        labeler who withdraws their newest label of a comparison withdraws the repeat, if it was
        one, and the label that follows is the new answer to the repeat.
        """
        key = row["comparison_id"], row["labeler_id"]
        lease = self.leases.get(key)
        purpose, answer = self.newest.get(key, ("answer", None))
        if lease is not None and lease.token == token:
            row["purpose"] = lease.purpose
            row["lease"] = "held" if lease.expires_at > moment else "late"
            self.ended.append(self.leases.pop(key).token)
        else:
            if (row["answer"] is None) != (answer is None):
                row["purpose"] = purpose
            if lease is not None and lease.purpose == "answer" and row["answer"] is not None:
                self.ended.append(self.leases.pop(key).token)
        self.contents[row["request_id"]] = content_of(row)
        self.newest[key] = row["purpose"], row["answer"]


def read_before(
    connection: Connection, labels: Sequence[NewLabel], labeler_ids: Sequence[int]
) -> Before:
    """Read what is known before labels are stored."""
    stored: list[Any] = []
    leases: dict[tuple[int, int], Any] = {}
    for chunk in sql.in_chunks(labels):
        parameters = {
            "comparison_ids": sorted({label.comparison_id for label in chunk}),
            "labeler_ids": labeler_ids,
            "request_ids": [label.request_id for label in chunk],
        }
        stored += connection.execute(RELATED, parameters)
        leases |= read_leases(connection, parameters)
    contents = {
        label.request_id: (label.comparison_id, label.labeler_id, label.answer) for label in stored
    }
    newest = {
        (label.comparison_id, label.labeler_id): (label.purpose, label.answer)
        for label in sorted(stored, key=lambda label: label.id)
    }
    return Before(contents, newest, leases)


def content_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what distinguishes a label from another one under the same request id."""
    return row["comparison_id"], row["labeler_id"], row["answer"]


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
        # Unless `Before.follow` finds the lease that the label refers to.
        "purpose": "answer",
        "lease": "none" if label.lease is None else "late",
        "is_too_fast": label.is_too_fast,
        "imported": None if label.imported is None else jsonable(label.imported),
    }
