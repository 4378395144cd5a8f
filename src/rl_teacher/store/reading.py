"""Everything that is read from a store."""

from collections.abc import Collection, Iterable

from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from rl_teacher.clips.answer import Answer
from rl_teacher.store import label_queries, metrics_sql, views
from rl_teacher.store.database import Database
from rl_teacher.store.records import (
    AnsweredComparison,
    AskedComparison,
    ClipView,
    ComparisonView,
    Counts,
    ExperimentView,
    LabelRow,
    LabelView,
    MetricsRow,
)

VERSION = text("SELECT version_num FROM alembic_version")
"""As Alembic keeps it; to ask Alembic itself takes five times as long."""


class StoreReader:
    """What trainer, service and page ask of a database; every method is a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def answers(self, comparison_ids: Iterable[int]) -> dict[int, Answer]:
        """The newest current answer to each of these comparisons, whoever gave it.

        Those without one are left out.
        """
        with self._database.reading() as connection:
            return label_queries.answers(connection, comparison_ids)

    def votes(self, comparison_ids: Iterable[int]) -> dict[int, dict[int, Answer]]:
        """What every labeler, not excluded, says of each now, by comparison and labeler."""
        with self._database.reading() as connection:
            return label_queries.votes(connection, comparison_ids)

    def excluded_ids(self) -> frozenset[int]:
        """The labelers whose labels nothing learns from."""
        with self._database.reading() as connection:
            return label_queries.excluded_ids(connection)

    def labels_since(self, experiment_id: int, label_id: int) -> list[LabelRow]:
        """An experiment's labels that came after one, oldest first; repeats are left out.

        Note: none turns up later behind one that was given here; see `writing.in_order`.
        """
        with self._database.reading() as connection:
            return label_queries.labels_since(connection, experiment_id, label_id)

    def answered_comparisons(self, experiment_id: int) -> list[AnsweredComparison]:
        """Every comparison that has an answer, oldest question first."""
        with self._database.reading() as connection:
            return label_queries.answered_comparisons(connection, experiment_id)

    def asked_comparisons(self, experiment_id: int) -> list[AskedComparison]:
        """Every comparison of an experiment, in the order asked."""
        with self._database.reading() as connection:
            return views.asked_comparisons(connection, experiment_id)

    def counts(self, experiment_id: int) -> Counts:
        """How many were asked, and how many of them answered."""
        with self._database.reading() as connection:
            return views.counts(connection, experiment_id)

    def experiments(self) -> list[ExperimentView]:
        """Every experiment, the newest first."""
        with self._database.reading() as connection:
            return views.experiments(connection)

    def experiment(self, name: str) -> ExperimentView:
        """One experiment.

        Raises:
            ExperimentNotFound: there is none of this name.
        """
        with self._database.reading() as connection:
            return views.experiment(connection, name)

    def waiting(
        self, experiment_id: int, limit: int, exclude: Collection[int] = ()
    ) -> list[ComparisonView]:
        """The comparisons to answer next: those of the latest step first, then in the order asked.

        Args:
            experiment_id: whose.
            limit: so many at most.
            exclude: ids that whoever answers has already.
        """
        with self._database.reading() as connection:
            return views.waiting(connection, experiment_id, limit, exclude)

    def comparison(self, comparison_id: int) -> ComparisonView:
        """One comparison, answered or not.

        Raises:
            ComparisonNotFound: it was never asked, or was deleted.
        """
        with self._database.reading() as connection:
            return views.comparison(connection, comparison_id)

    def clip(self, content_hash: str) -> ClipView:
        """One clip, whether it can be shown or not.

        Raises:
            MediaNotFound: the store does not know it.
        """
        with self._database.reading() as connection:
            return views.clip(connection, content_hash)

    def labels_of(self, experiment_id: int, labeler: str, limit: int) -> list[LabelView]:
        """The newest labels of one labeler; of each comparison the one that counts now."""
        with self._database.reading() as connection:
            return views.labels_of(connection, experiment_id, labeler, limit)

    def counts_of(self, experiment_id: int, labeler: str) -> int:
        """How many comparisons have this labeler's answer now."""
        with self._database.reading() as connection:
            return views.counts_of(connection, experiment_id, labeler)

    def shared_clips(self, env_id: str, num_steps: int, *, only_shown: bool = False) -> list[str]:
        """Content hashes of an environment's clips of one length, whoever asked about them.

        Args:
            env_id: the environment.
            num_steps: their length.
            only_shown: leave out those that nobody has made to be looked at.
        """
        with self._database.reading() as connection:
            return views.shared_clips(connection, env_id, num_steps, only_shown=only_shown)

    def metrics(
        self, experiment_id: int, after_id: int = 0, at_most: int | None = None
    ) -> list[MetricsRow]:
        """A trainer's figures, oldest first.

        Args:
            experiment_id: whose.
            after_id: only rows that came after this one.
            at_most: so many rows, evenly spread and ending with the newest, where there are more.
        """
        with self._database.reading() as connection:
            return metrics_sql.metrics(connection, experiment_id, after_id, at_most)

    def latest_metrics(self, experiment_id: int) -> MetricsRow | None:
        """A trainer's newest figures, if it has any."""
        with self._database.reading() as connection:
            return metrics_sql.latest_metrics(connection, experiment_id)

    def ping(self) -> None:
        """Prove that the database answers.

        Raises:
            StoreUnavailable: it does not, or its file was deleted or replaced.
        """
        self.schema_version()

    def schema_version(self) -> str:
        """The version that the database's tables have."""
        try:
            with self._database.reading() as connection:
                return connection.execute(VERSION).scalar() or "none"
        except ProgrammingError:
            return "none"
