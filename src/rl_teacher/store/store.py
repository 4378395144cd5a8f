"""Comparisons asked and labels given: one place for synthetic teachers and for people."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.exc import IntegrityError

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import (
    ComparisonNotFound,
    ConfigMismatch,
    ExperimentNotFound,
    StoreUnavailable,
)
from rl_teacher.store import label_queries, metrics_sql
from rl_teacher.store.access import AccessStore
from rl_teacher.store.counters import (
    COMPARISONS_WITH_CLIPS,
    NEWEST_COMPARISON,
    add_to_experiment,
    recount,
    reopen,
    tally_from,
)
from rl_teacher.store.database import BUSY_TIMEOUT_S, Database, open_database
from rl_teacher.store.hash_random import drawn
from rl_teacher.store.jsonable import plain
from rl_teacher.store.label_queries import MAX_ID
from rl_teacher.store.leases import LeaseStore, end_leases, forget_leases
from rl_teacher.store.owner import OwnerReader
from rl_teacher.store.records import (
    AnsweredComparison,
    ClipView,
    ComparisonView,
    Counts,
    ExperimentView,
    LabelRow,
    LabelView,
    MetricsRow,
    NewLabel,
    ShownClip,
)
from rl_teacher.store.study import StudyStore, deletion_in_words, experiment_of, study_of
from rl_teacher.store.tables import Clip, Comparison, Experiment, Label
from rl_teacher.store.writer import OWNER, utc_now
from rl_teacher.store.writing import (
    ADD_METRICS,
    as_row,
    forget_experiment,
    forget_unused_clip,
    in_order,
    insert_or_show,
    insert_or_skip,
)

__all__ = [
    "AnsweredComparison",
    "ClipView",
    "ComparisonView",
    "Counts",
    "ExperimentView",
    "LabelRow",
    "LabelView",
    "MetricsRow",
    "NewLabel",
    "ShownClip",
    "Store",
]

BETWEEN_FORGETTING = timedelta(minutes=10)
"""Of leases that expired long ago; nobody has to wait for it with each answer."""

FIND_EXPERIMENT = select(Experiment.id, Experiment.env_id).where(
    Experiment.name == bindparam("name")
)


class Store(AccessStore, LeaseStore, StudyStore, OwnerReader):
    """The labels of every experiment, behind SQLite or PostgreSQL.

    Threads may share it; a forked process must open its own. What a method wrote is committed
    when it returns.
    """

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(database, now)
        self._forgotten_at = datetime.min.replace(tzinfo=UTC)
        self._add_experiment = insert_or_skip(database.dialect, Experiment, "name")
        self._add_clip = insert_or_skip(database.dialect, Clip, "content_hash")
        self._add_comparison = insert_or_skip(
            database.dialect, Comparison, "experiment_id", "left_hash", "right_hash"
        )
        add_label = insert_or_skip(database.dialect, Label, "request_id")
        self._add_label = add_label.returning(Label.id)
        self._show_clip = insert_or_show(database.dialect)
        self._tally_from = tally_from(database.dialect)

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
        """Write what is still to be written, and close every connection."""
        self._write_uses()
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
                in_order(connection)
                connection.execute(self._add_clip, clips)
                newest_before = connection.execute(NEWEST_COMPARISON).scalar_one()
                connection.execute(self._add_comparison, comparisons)
                id_of = label_queries.find_comparisons(connection, experiment_id, pairs)
                new = sorted({each for each in id_of.values() if each > newest_before})
                self._count_in(connection, experiment_id, new)
        except IntegrityError as error:
            raise ExperimentNotFound(deletion_in_words(experiment_id)) from error
        return [id_of[pair] for pair in pairs]

    def _count_in(
        self, connection: Connection, experiment_id: int, comparison_ids: Sequence[int]
    ) -> None:
        """Say how many labelers shall answer new comparisons, and count them."""
        study = study_of(connection, experiment_id)
        shared = [each for each in comparison_ids if drawn("overlap", each) < study.overlap]
        for chunk in label_queries.in_chunks(shared):
            want = update(Comparison).where(Comparison.id.in_(chunk))
            connection.execute(want.values(wanted=study.overlap_labelers))
        add_to_experiment(connection, experiment_id, asked=len(comparison_ids))
        reopen(connection, comparison_ids)

    def answer(
        self,
        comparison_id: int,
        answer: Answer | None,
        labeler: str,
        request_id: UUID | None = None,
    ) -> None:
        """Keep one label; see `answer_many`."""
        self.answer_many([NewLabel(comparison_id, answer, labeler, request_id or uuid4())])

    def answer_many(self, labels: Sequence[NewLabel]) -> None:
        """Keep labels, all or none; a request_id that is known already changes nothing.

        A lease that a label names ends with it; a label whose lease had ended before is kept too.

        Raises:
            ComparisonNotFound: an answer to a comparison that was never asked, or was deleted;
                says which.
        """
        if not labels:
            return
        if any(not 0 < label.comparison_id <= MAX_ID for label in labels):
            raise ComparisonNotFound(self._unknown_among(labels))
        moment = self._now()
        labeler_ids = self._ids_of_labelers({label.labeler for label in labels})
        rows = [as_row(label, labeler_ids[label.labeler], moment) for label in labels]
        try:
            with self._database.writing() as connection:
                in_order(connection)
                self._keep(connection, rows, labels, moment)
        except IntegrityError as error:
            self._labeler_ids.clear()
            if unknown := self._unknown_among(labels):
                raise ComparisonNotFound(unknown) from error
            raise StoreUnavailable(
                f"The database {self._database.label} refused the labels: {error.orig}. If it was "
                "put back from a backup, restore that one whole, and send them again."
            ) from error

    def _keep(
        self,
        connection: Connection,
        rows: list[dict[str, Any]],
        labels: Sequence[NewLabel],
        moment: datetime,
    ) -> bool:
        """Write labels, end the leases that they answer, and count; whether any is new."""
        if moment - self._forgotten_at >= BETWEEN_FORGETTING:
            forget_leases(connection, moment)
            self._forgotten_at = moment
        end_leases(connection, rows, labels, moment)
        new = connection.execute(self._add_label, rows).scalars().all()
        if new:
            connection.execute(self._tally_from, {"first_new": min(new)})
            recount(connection, sorted({label.comparison_id for label in labels}))
        return bool(new)

    def adjudicate(
        self,
        comparison_id: int,
        answer: Answer,
        *,
        by: str = OWNER,
        request_id: UUID | None = None,
    ) -> None:
        """Keep the owner's own label of a comparison, and write down that they decided.

        Raises:
            ComparisonNotFound: it was never asked, or was deleted.
        """
        label = NewLabel(comparison_id, Answer(answer), by, request_id or uuid4())
        by_id = self._id_of_labeler(by)
        moment = self._now()
        with self._database.writing() as connection:
            in_order(connection)
            experiment_id = experiment_of(connection, comparison_id)
            if self._keep(connection, [as_row(label, by_id, moment)], [label], moment):
                told = {"comparison": comparison_id, "answer": label.answer}
                self._write_down(connection, "adjudicate", told, by_id, experiment_id)

    def _unknown_among(self, labels: Sequence[NewLabel]) -> list[int]:
        """The comparisons that are answered here and are not in the store."""
        with self._database.reading() as connection:
            return label_queries.unknown_among(
                connection, (label.comparison_id for label in labels)
            )

    def describe_experiment(
        self, experiment_id: int, instructions: str, target_labels: int | None
    ) -> None:
        """Say what whoever labels is told, and how many labels are wanted in all.

        Raises:
            ExperimentNotFound: the experiment was deleted.
        """
        self._update_experiment(
            experiment_id, instructions=instructions, target_labels=target_labels
        )

    def set_status(self, experiment_id: int, status: Mapping[str, Any]) -> None:
        """Say what the trainer is doing now.

        Raises:
            ExperimentNotFound: the experiment was deleted.
        """
        self._update_experiment(experiment_id, status=plain(status), status_at=self._now())

    def set_latest_episode(self, experiment_id: int, episode: Mapping[str, Any]) -> None:
        """Say what the agent did last.

        Raises:
            ExperimentNotFound: the experiment was deleted.
        """
        self._update_experiment(experiment_id, latest_episode=plain(episode))

    def _update_experiment(self, experiment_id: int, **columns: Any) -> None:
        change = update(Experiment).where(Experiment.id == experiment_id).values(columns)
        with self._database.writing() as connection:
            num_changed = connection.execute(change).rowcount
        if not num_changed:
            raise ExperimentNotFound(deletion_in_words(experiment_id))

    def append_metrics(self, experiment_id: int, step: int, row: Mapping[str, Any]) -> None:
        """Add a trainer's figures; what is not finite becomes null.

        Raises:
            ExperimentNotFound: the experiment was deleted.
        """
        figures_now = {
            "experiment_id": experiment_id,
            "step": step,
            "row": plain(row),
            "created_at": self._now(),
        }
        try:
            with self._database.writing() as connection:
                connection.execute(ADD_METRICS, figures_now)
        except IntegrityError as error:
            raise ExperimentNotFound(deletion_in_words(experiment_id)) from error

    def drop_metrics_after(self, experiment_id: int, step: int) -> None:
        """Forget the figures of steps that a resumed run is going to take again."""
        with self._database.writing() as connection:
            connection.execute(
                metrics_sql.DROP_AFTER, {"of_experiment": experiment_id, "last_step": step}
            )

    def show_clips(self, clips: Mapping[str, ShownClip]) -> None:
        """Say how clips, by content hash, are shown: their comparisons wait from now on.

        Clips that nobody has asked about yet are added.
        """
        if not clips:
            return
        moment = self._now()
        rows = [
            {"content_hash": content_hash, "created_at": moment, **vars(clips[content_hash])}
            for content_hash in sorted(clips)
        ]
        with self._database.writing() as connection:
            in_order(connection)
            connection.execute(self._show_clip, rows)
            found: set[int] = set()
            for chunk in label_queries.in_chunks(sorted(clips)):
                found.update(
                    connection.execute(COMPARISONS_WITH_CLIPS, {"hashes": chunk}).scalars()
                )
            reopen(connection, sorted(found))

    def forget_unused_clip(self, content_hash: str) -> str | None:
        """Forget a clip that no comparison is about, and that is no experiment's latest episode.

        Returns:
            The key of its file, which nobody needs any more; None where it is kept.
        """
        forget = forget_unused_clip(content_hash).returning(Clip.media_key)
        try:
            with self._database.writing() as connection:
                return connection.execute(forget).scalar_one_or_none()
        except IntegrityError:  # somebody asked about it at this very moment
            return None

    def record_event(
        self,
        kind: str,
        details: Mapping[str, Any],
        experiment_id: int | None = None,
        labeler: str | None = None,
    ) -> None:
        """Write down that something was done, and by whom."""
        labeler_id = None if labeler is None else self._id_of_labeler(labeler)
        with self._database.writing() as connection:
            self._write_down(connection, kind, details, labeler_id, experiment_id)
