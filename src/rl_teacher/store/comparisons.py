"""Comparisons: adding them, and reading them as the trainer, labelers and the owner need them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ComparisonNotFound
from rl_teacher.store import sql
from rl_teacher.store.counters import recount
from rl_teacher.store.database import Database
from rl_teacher.store.events import EventLog
from rl_teacher.store.experiments import hash_uniform, read_assignment
from rl_teacher.store.labelers import OWNER, Labelers
from rl_teacher.store.records import (
    AskedComparison,
    ComparisonDetails,
    ComparisonFilter,
    ComparisonView,
    ExportedLabel,
    Page,
)
from rl_teacher.store.tables import Clip, Comparison, Experiment, Label, Labeler, Lease

NUM_ASKED = select(Experiment.num_asked).where(Experiment.id == bindparam("experiment_id"))

INSERT = insert(Comparison).returning(
    Comparison.id, Comparison.left_hash, Comparison.right_hash, sort_by_parameter_order=True
)

COMPARISON_IDS = select(Comparison.id, Comparison.left_hash, Comparison.right_hash).where(
    sql.OF_EXPERIMENT,
    tuple_(Comparison.left_hash, Comparison.right_hash).in_(bindparam("pairs", expanding=True)),
)

ASKED = (
    select(
        *sql.columns_of(
            AskedComparison,
            Comparison,
            is_rendered=and_(sql.Left.kind.is_not(None), sql.Right.kind.is_not(None)),
            is_answered=Comparison.num_labels > 0,
            is_withdrawn=Comparison.wanted == 0,
        )
    )
    .join(sql.Left, sql.Left.content_hash == Comparison.left_hash)
    .join(sql.Right, sql.Right.content_hash == Comparison.right_hash)
    .where(sql.OF_EXPERIMENT)
    .order_by(Comparison.id)
)

NUM_CLIPS = select(func.count()).select_from(
    select(Comparison.left_hash)
    .where(sql.OF_EXPERIMENT)
    .union(select(Comparison.right_hash).where(sql.OF_EXPERIMENT))
    .subquery()
)

# A withdrawn comparison wants no label. One that has a label is not withdrawn.
WITHDRAW = (
    update(Comparison)
    .where(sql.THESE, Comparison.num_labels == 0)
    .values(wanted=0)
    .returning(Comparison.id)
)

END_LEASES = delete(Lease).where(
    Lease.comparison_id.in_(select(Comparison.id).where(sql.THESE, Comparison.wanted == 0))
)

ASK_AGAIN = (
    update(Comparison)
    .where(sql.THESE, Comparison.wanted == 0)
    .values(wanted=1)
    .returning(Comparison.id)
)

DETAILS = (
    select(*sql.columns_of(ComparisonDetails, Comparison), *sql.CLIP_COLUMNS)
    .select_from(Comparison)
    .join(sql.Left, sql.Left.content_hash == Comparison.left_hash)
    .join(sql.Right, sql.Right.content_hash == Comparison.right_hash)
)

DETAILS_BY_ID = DETAILS.where(sql.THESE)

CURRENT_LABELS = sql.EXPORTED_LABELS.where(sql.OF_THESE, sql.IS_CURRENT)


class Comparisons:
    """The comparisons of all experiments."""

    def __init__(self, database: Database, labelers: Labelers, events: EventLog) -> None:
        self._database = database
        self._labelers = labelers
        self._events = events
        self._insert_clip = sql.insert_or_skip(database.dialect, Clip, "content_hash")

    def add(
        self,
        experiment_id: int,
        pairs: Sequence[tuple[str, str]],
        env_id: str,
        num_steps: int | Mapping[str, int],
        step: int,
    ) -> list[int]:
        """Add comparisons in one transaction.

        Args:
            experiment_id: Experiment.
            pairs: Content hashes of the left and the right clip.
            env_id: Environment of the clips.
            num_steps: Length of the clips; by content hash if lengths differ.
            step: Environment steps taken so far.

        Returns:
            One id per pair. A pair that was added before, in the same order, keeps its id; if it
            was withdrawn, it is asked again.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        if not pairs:
            return []
        hashes = sorted({content_hash for pair in pairs for content_hash in pair})
        steps_of = num_steps if isinstance(num_steps, Mapping) else dict.fromkeys(hashes, num_steps)
        shared = {"env_id": env_id, "created_at": self._database.now()}
        clips = [{"content_hash": each, "num_steps": steps_of[each], **shared} for each in hashes]
        with self._database.writing() as connection:
            num_asked = read_num_asked(connection, experiment_id)
            id_of = find_ids(connection, experiment_id, pairs)
            ask_again(connection, experiment_id, id_of.values())
            new_pairs = [pair for pair in dict.fromkeys(pairs) if pair not in id_of]
            if new_pairs:
                connection.execute(self._insert_clip, clips)
                asked = {"asked_at_step": step, "created_at": shared["created_at"]}
                id_of |= insert_pairs(connection, experiment_id, new_pairs, num_asked, asked)
        return [id_of[pair] for pair in pairs]

    def withdraw(self, comparison_ids: Sequence[int]) -> list[int]:
        """Stop asking comparisons that have no label, and end their leases.

        Returns:
            The ids of those that were withdrawn.
        """
        withdrawn: list[int] = []
        if comparison_ids:
            with self._database.writing() as connection:
                for chunk in sql.in_chunks(comparison_ids):
                    parameters = {"comparison_ids": chunk}
                    withdrawn += connection.execute(WITHDRAW, parameters).scalars()
                    connection.execute(END_LEASES, parameters)
                recount(connection, withdrawn)
        return withdrawn

    def get(self, comparison_id: int) -> ComparisonView:
        """Return one comparison, answered or not.

        Raises:
            ComparisonNotFound: The comparison does not exist.
        """
        for row in self._database.rows(sql.COMPARISONS_BY_ID, comparison_ids=[comparison_id]):
            return sql.comparison_view(row)
        raise ComparisonNotFound([comparison_id])

    def asked(self, experiment_id: int) -> list[AskedComparison]:
        """Return every comparison of an experiment, oldest first."""
        rows = self._database.rows(ASKED, experiment_id=experiment_id)
        return [AskedComparison(**row) for row in rows]

    def num_clips(self, experiment_id: int) -> int:
        """Return the number of clips that an experiment compares."""
        return self._database.scalar(NUM_CLIPS, experiment_id=experiment_id) or 0

    def page(
        self,
        experiment_id: int,
        conditions: ComparisonFilter = ComparisonFilter(),  # noqa: B008 - frozen
        after: int | None = None,
        limit: int = 50,
    ) -> Page[ComparisonDetails]:
        """Return a page of comparisons, newest first, with the current answer of every labeler.

        Args:
            experiment_id: Experiment.
            conditions: Conditions on the comparisons.
            after: `next` of the previous page.
            limit: Maximum number of rows.
        """
        before_id = sql.MAX_ID if after is None else after
        query = (
            DETAILS.where(
                Comparison.experiment_id == experiment_id,
                Comparison.id < before_id,
                *where(conditions),
            )
            .order_by(Comparison.id.desc())
            .limit(limit + 1)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
            # The row beyond the limit only shows that there is a next page.
            votes = read_votes(connection, [row["id"] for row in rows[:limit]])
        found = [details_of(row, votes.get(row["id"], [])) for row in rows]
        return sql.page_of(found, limit)

    def details(self, comparison_ids: Sequence[int]) -> list[ComparisonDetails]:
        """Return comparisons, each with the current answer of every labeler, in the order given.

        Comparisons that do not exist are left out.
        """
        found: dict[int, ComparisonDetails] = {}
        with self._database.reading() as connection:
            for chunk in sql.in_chunks(comparison_ids):
                rows = connection.execute(DETAILS_BY_ID, {"comparison_ids": chunk}).mappings()
                votes = read_votes(connection, chunk)
                found.update({row["id"]: details_of(row, votes.get(row["id"], [])) for row in rows})
        return [found[each] for each in comparison_ids if each in found]

    def set_gold(self, comparison_id: int, answer: Answer | None, *, by: str = OWNER) -> None:
        """Set the known answer of a comparison, against which labelers are measured.

        Raises:
            ComparisonNotFound: The comparison does not exist.
        """
        by_id = self._labelers.id_of(by)
        gold = None if answer is None else Answer(answer).value
        with self._database.writing() as connection:
            is_meant = Comparison.id == comparison_id
            columns = (Comparison.gold, Comparison.number, Comparison.experiment_id)
            before = connection.execute(select(*columns).where(is_meant)).one_or_none()
            if before is None:
                raise ComparisonNotFound([comparison_id])
            connection.execute(update(Comparison).where(is_meant).values(gold=gold))
            details = {"comparison": before.number, "answer": {"from": before.gold, "to": gold}}
            self._events.append(connection, "gold", details, by_id, before.experiment_id)


def read_num_asked(connection: Connection, experiment_id: int) -> int:
    """Return the number of comparisons of an experiment.

    Raises:
        ExperimentNotFound: The experiment was deleted.
    """
    num_asked = connection.execute(NUM_ASKED, {"experiment_id": experiment_id}).scalar()
    if num_asked is None:
        raise sql.experiment_deleted(experiment_id)
    return num_asked


def insert_pairs(
    connection: Connection,
    experiment_id: int,
    pairs: Sequence[tuple[str, str]],
    num_asked: int,
    asked: Mapping[str, Any],
) -> dict[tuple[str, str], int]:
    """Insert comparisons of known clips and return the id of each pair.

    Args:
        connection: Connection of the transaction.
        experiment_id: Experiment.
        pairs: Content hashes of the left and the right clip; none has a comparison.
        num_asked: Result of `read_num_asked`.
        asked: `asked_at_step` and `created_at`.
    """
    rows = [
        {
            "experiment_id": experiment_id,
            "number": number,
            "left_hash": left,
            "right_hash": right,
            **asked,
        }
        for number, (left, right) in enumerate(pairs, num_asked + 1)
    ]
    new = {(row[1], row[2]): row[0] for row in connection.execute(INSERT, rows)}
    change = update(Experiment).where(Experiment.id == experiment_id)
    connection.execute(change.values(num_asked=num_asked + len(new)))
    set_wanted(connection, experiment_id, sorted(new.values()))
    return new


def find_ids(
    connection: Connection, experiment_id: int, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return the id of each pair that exists."""
    id_of: dict[tuple[str, str], int] = {}
    for chunk in sql.in_chunks(pairs):
        parameters = {"experiment_id": experiment_id, "pairs": chunk}
        rows = connection.execute(COMPARISON_IDS, parameters)
        id_of.update({(row.left_hash, row.right_hash): row.id for row in rows})
    return id_of


def ask_again(connection: Connection, experiment_id: int, comparison_ids: Iterable[int]) -> None:
    """Ask those of some comparisons again that were withdrawn."""
    withdrawn: list[int] = []
    for chunk in sql.in_chunks(sorted(comparison_ids)):
        withdrawn += connection.execute(ASK_AGAIN, {"comparison_ids": chunk}).scalars()
    set_wanted(connection, experiment_id, withdrawn)


def set_wanted(connection: Connection, experiment_id: int, comparison_ids: Sequence[int]) -> None:
    """Set the number of labelers for comparisons that want one, and open them."""
    policy = read_assignment(connection, experiment_id)
    shared = [each for each in comparison_ids if hash_uniform("overlap", each) < policy.overlap]
    for chunk in sql.in_chunks(shared):
        change = update(Comparison).where(Comparison.id.in_(chunk))
        connection.execute(change.values(wanted=policy.overlap_labelers))
    recount(connection, comparison_ids)


def where(conditions: ComparisonFilter) -> list[ColumnElement[bool]]:
    """Convert a filter to SQL conditions."""
    found: list[ColumnElement[bool]] = []
    if conditions.status == "answered":
        found.append(Comparison.num_labels > 0)
    if conditions.status == "open":
        found.append(Comparison.is_open.is_(True))
    if conditions.is_disputed is not None:
        found.append(Comparison.is_disputed.is_(conditions.is_disputed))
    if conditions.is_gold is not None:
        is_gold = Comparison.gold.is_not(None)
        found.append(is_gold if conditions.is_gold else Comparison.gold.is_(None))
    if conditions.answer is not None or conditions.labeler is not None:
        label = [Label.comparison_id == Comparison.id, sql.IS_CURRENT]
        if conditions.answer is not None:
            label.append(Label.answer == Answer(conditions.answer).value)
        if conditions.labeler is not None:
            by_name = select(Labeler.id).where(Labeler.name == conditions.labeler)
            label.append(Label.labeler_id == by_name.scalar_subquery())
        found.append(exists().where(*label))
    return found


def read_votes(
    connection: Connection, comparison_ids: Sequence[int]
) -> dict[int, list[ExportedLabel]]:
    """Return the current labels of comparisons, oldest first."""
    votes: dict[int, list[ExportedLabel]] = {}
    parameters = {"comparison_ids": list(comparison_ids)}
    for row in connection.execute(CURRENT_LABELS, parameters).mappings():
        votes.setdefault(row["comparison_id"], []).append(sql.exported_label(row))
    return votes


def details_of(row: Mapping[Any, Any], votes: Sequence[ExportedLabel]) -> ComparisonDetails:
    """Convert a row of `DETAILS`."""
    gold = sql.as_answer(row["gold"])
    return sql.record_of(
        ComparisonDetails, row, **sql.clip_pair(row), gold=gold, votes=tuple(votes)
    )
