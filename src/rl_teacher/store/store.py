"""Comparisons asked and labels given: one place for synthetic teachers and for people."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import Connection, Delete, Insert, bindparam, delete, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from rl_teacher.clips.answer import Answer
from rl_teacher.errors import BadInput, ConfigMismatch, ExperimentNotFound
from rl_teacher.store.database import BUSY_TIMEOUT_S, Database, open_database
from rl_teacher.store.tables import Base, Clip, Comparison, Experiment, Label

Item = TypeVar("Item")

CHUNK = 1_000
"""Rows named in one statement; a database takes some ten thousand parameters, not more."""


@dataclass(frozen=True)
class NewLabel:
    """An answer on its way into the store.

    Attributes:
        comparison_id: what was asked.
        answer: what was said.
        labeler: who said it, a person or the name of a synthetic teacher.
        request_id: made by whoever answers; sending it a second time changes nothing.
    """

    comparison_id: int
    answer: Answer
    labeler: str
    request_id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True)
class AnsweredComparison:
    """A question and its current answer."""

    id: int
    left_hash: str
    right_hash: str
    answer: Answer


@dataclass(frozen=True)
class Counts:
    """How many comparisons of an experiment were asked, and how many of them have an answer."""

    asked: int
    answered: int


FIND_EXPERIMENT = select(Experiment.id, Experiment.env_id).where(
    Experiment.name == bindparam("name")
)

FIND_COMPARISONS = select(Comparison.id, Comparison.left_hash, Comparison.right_hash).where(
    Comparison.experiment_id == bindparam("experiment_id"),
    tuple_(Comparison.left_hash, Comparison.right_hash).in_(bindparam("pairs", expanding=True)),
)

ANSWERS_OLDEST_FIRST = (
    select(Label.comparison_id, Label.answer)
    .where(Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)))
    .order_by(Label.id)
)

NEWEST_LABELS = (
    select(func.max(Label.id))
    .join(Comparison, Comparison.id == Label.comparison_id)
    .where(Comparison.experiment_id == bindparam("experiment_id"))
    .group_by(Label.comparison_id)
)

ANSWERED_COMPARISONS = (
    select(Comparison.id, Comparison.left_hash, Comparison.right_hash, Label.answer)
    .join(Label, Label.comparison_id == Comparison.id)
    .where(Label.id.in_(NEWEST_LABELS))
    .order_by(Comparison.id)
)

COUNTS = (
    select(func.count(Comparison.id.distinct()), func.count(Label.comparison_id.distinct()))
    .select_from(Comparison)
    .outerjoin(Label, Label.comparison_id == Comparison.id)
    .where(Comparison.experiment_id == bindparam("experiment_id"))
)


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class Store:
    """The labels of every experiment, behind SQLite or PostgreSQL.

    Threads may share it; a forked process must open its own. What a method wrote is committed
    when it returns.
    """

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now
        self._add_experiment = insert_or_skip(database.dialect, Experiment)
        self._add_clip = insert_or_skip(database.dialect, Clip)
        self._add_comparison = insert_or_skip(database.dialect, Comparison)
        self._add_label = insert_or_skip(database.dialect, Label)

    @classmethod
    def open(
        cls,
        url_or_path: str | Path,
        *,
        is_synced: bool = True,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        now: Callable[[], datetime] = utc_now,
    ) -> "Store":
        """Open a database, making it or bringing it to this version first.

        Args:
            url_or_path: the path of an SQLite file, or an SQLAlchemy URL.
            is_synced: whether what was written outlives a power cut, as a person's labels must;
                otherwise it outlives SIGKILL and costs less, which is enough for a teacher that
                can be asked again. PostgreSQL has its own setting for this.
            busy_timeout_s: how long a transaction waits for another process's.
            now: the clock.

        Raises:
            StoreUnavailable: locked, read-only, damaged, unreachable, or of a newer version.
        """
        return cls(open_database(url_or_path, busy_timeout_s, is_synced=is_synced), now)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def ensure_experiment(self, name: str, env_id: str, config: Mapping[str, Any]) -> int:
        """The id of the experiment of this name, new or not.

        Raises:
            ConfigMismatch: it is about another environment.
        """
        row = {"name": name, "env_id": env_id, "config": dict(config), "created_at": self._now()}
        with self._database.writing() as connection:
            connection.execute(self._add_experiment, row)
            found = connection.execute(FIND_EXPERIMENT, {"name": name}).one()
        if found.env_id != env_id:
            raise ConfigMismatch(
                f"The store knows experiment {name!r} with environment {found.env_id}, not "
                f"{env_id}. Choose another name with -n, or start over with --force-new."
            )
        return found.id

    def delete_experiment(self, name: str) -> None:
        """Forget an experiment with its comparisons and labels; clips are shared, and stay."""
        with self._database.writing() as connection:
            connection.execute(forget_experiment(name))

    def ask(
        self,
        experiment_id: int,
        pairs: Sequence[tuple[str, str]],
        env_id: str,
        num_steps: int | Mapping[str, int],
        step: int,
    ) -> list[int]:
        """Ask which is better of each pair, in one transaction.

        Args:
            experiment_id: from `ensure_experiment`.
            pairs: content hashes of the left and of the right clip.
            env_id: the environment that the clips were lived in.
            num_steps: the clips' length; by content hash where they differ.
            step: environment steps taken when the question came up.

        Returns:
            An id for each pair; that of the earlier question where this very pair, left and
            right as they are, was asked before.

        Raises:
            ExperimentNotFound: the experiment was deleted.
        """
        moment = self._now()
        lengths = num_steps if isinstance(num_steps, Mapping) else None
        clips = [
            {
                "content_hash": each,
                "env_id": env_id,
                "num_steps": num_steps if lengths is None else lengths[each],
                "created_at": moment,
            }
            # Note: sorted, so that two processes that ask about the same clips cannot deadlock.
            for each in sorted({content_hash for pair in pairs for content_hash in pair})
        ]
        comparisons = [
            {
                "experiment_id": experiment_id,
                "left_hash": left_hash,
                "right_hash": right_hash,
                "asked_at_step": step,
                "created_at": moment,
            }
            for left_hash, right_hash in pairs
        ]
        if not pairs:
            return []
        try:
            with self._database.writing() as connection:
                connection.execute(self._add_clip, clips)
                connection.execute(self._add_comparison, comparisons)
                id_of = find_comparisons(connection, experiment_id, pairs)
        except IntegrityError as error:
            raise ExperimentNotFound(
                f"Experiment {experiment_id} is no longer in the store: it was deleted, perhaps "
                "by --force-new in another terminal. Start this one again."
            ) from error
        return [id_of[pair] for pair in pairs]

    def answer(
        self,
        comparison_id: int,
        answer: Answer,
        labeler: str,
        request_id: UUID | None = None,
    ) -> None:
        """Keep one label; see `answer_many`."""
        self.answer_many([NewLabel(comparison_id, answer, labeler, request_id or uuid4())])

    def answer_many(self, labels: Sequence[NewLabel]) -> None:
        """Keep labels, all or none; a request_id that is known already changes nothing.

        Raises:
            BadInput: an answer to a comparison that was never asked, or was deleted.
        """
        if not labels:
            return
        moment = self._now()
        rows = [as_row(label, moment) for label in labels]
        try:
            with self._database.writing() as connection:
                connection.execute(self._add_label, rows)
        except IntegrityError as error:
            raise BadInput(
                f"No label was kept: of the comparisons {ids_in_words(labels)} at least one is "
                "not in the store. Ask again for the next comparison."
            ) from error

    def answers(self, comparison_ids: Iterable[int]) -> dict[int, Answer]:
        """The newest answer to each of these comparisons; those without one are left out."""
        current: dict[int, Answer] = {}
        with self._database.reading() as connection:
            for chunk in in_chunks(list(comparison_ids)):
                rows = connection.execute(ANSWERS_OLDEST_FIRST, {"comparison_ids": chunk})
                current.update({row.comparison_id: Answer(row.answer) for row in rows})
        return current

    def answered_comparisons(self, experiment_id: int) -> list[AnsweredComparison]:
        """Every comparison that has an answer, oldest question first."""
        with self._database.reading() as connection:
            rows = connection.execute(ANSWERED_COMPARISONS, {"experiment_id": experiment_id})
            return [
                AnsweredComparison(row.id, row.left_hash, row.right_hash, Answer(row.answer))
                for row in rows
            ]

    def counts(self, experiment_id: int) -> Counts:
        """How many were asked, and how many of them answered."""
        with self._database.reading() as connection:
            asked, answered = connection.execute(COUNTS, {"experiment_id": experiment_id}).one()
        return Counts(asked, answered)


def insert_or_skip(dialect: str, table: type[Base]) -> Insert:
    """An insert that leaves a row alone which is there already: SQL has no common word for it."""
    insert = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect]
    return insert(table).on_conflict_do_nothing()


def forget_experiment(name: str) -> Delete:
    """Delete an experiment; the database's foreign keys take its comparisons and labels along."""
    return delete(Experiment).where(Experiment.name == name)


def find_comparisons(
    connection: Connection, experiment_id: int, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """The id of each pair that was asked."""
    id_of: dict[tuple[str, str], int] = {}
    for chunk in in_chunks(pairs):
        sought = {"experiment_id": experiment_id, "pairs": chunk}
        rows = connection.execute(FIND_COMPARISONS, sought)
        id_of.update({(row.left_hash, row.right_hash): row.id for row in rows})
    return id_of


def in_chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The same items, at most `CHUNK` at a time."""
    for start in range(0, len(items), CHUNK):
        yield list(items[start : start + CHUNK])


def as_row(label: NewLabel, moment: datetime) -> dict[str, Any]:
    """A label as the table has it."""
    return {
        "comparison_id": label.comparison_id,
        "answer": Answer(label.answer).value,
        "labeler": label.labeler,
        "request_id": label.request_id,
        "created_at": moment,
    }


def ids_in_words(labels: Sequence[NewLabel]) -> str:
    """The first few comparisons' ids."""
    ids = [str(label.comparison_id) for label in labels]
    return ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
