"""The store: labels and everything around them, behind SQLite or PostgreSQL."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from rl_teacher.store.access import Access
from rl_teacher.store.clips import Clips
from rl_teacher.store.comparisons import Comparisons
from rl_teacher.store.database import BUSY_TIMEOUT_S, REWRITE_VERSION, Database, open_database
from rl_teacher.store.episodes import Episodes
from rl_teacher.store.events import EventLog
from rl_teacher.store.experiment_locks import ExperimentLocks
from rl_teacher.store.experiments import Experiments
from rl_teacher.store.labelers import Labelers
from rl_teacher.store.labels import Labels
from rl_teacher.store.leases import Leases
from rl_teacher.store.metrics import MetricsLog
from rl_teacher.store.rankings import Rankings
from rl_teacher.store.waiting import DatabaseWait

# Asking Alembic takes five times as long.
SCHEMA_VERSION = text("SELECT version_num FROM alembic_version")


def utc_now() -> datetime:
    """Return the wall-clock time in UTC."""
    return datetime.now(UTC)


class Store:
    """A database, divided into parts with one responsibility each.

    Threads may share a store; a forked process must open its own. Every method of a part is a
    transaction, which is committed when the method returns.

    Attributes:
        database: Connections and transactions.
        experiments: Configuration, status, assignment policy and the owner's commands.
        locks: Locks of experiments.
        comparisons: Questions to labelers.
        labels: Answers.
        leases: Comparisons claimed by labelers.
        rankings: Orderings of several clips.
        clips: Segments and their media.
        episodes: Episodes of earlier agents.
        metrics: Logged metrics.
        labelers: People and synthetic teachers.
        access: Credentials and invites.
        events: Audit log.
    """

    def __init__(self, database: Database, wait: DatabaseWait | None = None) -> None:
        self.database = database
        self.events = EventLog(database)
        self.labelers = Labelers(database, self.events)
        self.access = Access(database, self.labelers, self.events)
        self.experiments = Experiments(database, self.labelers, self.events)
        self.locks = ExperimentLocks(database)
        self.comparisons = Comparisons(database, self.labelers, self.events)
        self.labels = Labels(database, self.labelers)
        self.leases = Leases(database, self.labelers)
        self.rankings = Rankings(database, self.labelers, self.labels, self.leases)
        self.clips = Clips(database)
        self.episodes = Episodes(database)
        self.metrics = MetricsLog(database)
        if wait is not None:
            for name, part in vars(self).items():
                if name != "database":
                    wait.repeat_methods(part)

    @classmethod
    def open(
        cls,
        url_or_path: str | Path,
        *,
        is_synced: bool = True,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        now: Callable[[], datetime] = utc_now,
        wait: DatabaseWait | None = None,
    ) -> "Store":
        """Open a database; create it or migrate it to the current version if needed.

        Args:
            url_or_path: Path of an SQLite file, or an SQLAlchemy URL.
            is_synced: A commit survives a power failure, as labels of people must. Otherwise it
                survives SIGKILL and is faster, which is enough for a teacher that can be asked
                again. PostgreSQL has a setting of its own for this.
            busy_timeout_s: Time to wait for a transaction of another process.
            now: Clock.
            wait: Repeats the methods of all parts while an open database does not answer; None to
                raise an error at once.

        Raises:
            StoreUnavailable: It is locked, read-only, damaged, unreachable or of a newer version.
        """
        return cls(open_database(url_or_path, busy_timeout_s, now, is_synced=is_synced), wait)

    def close(self) -> None:
        """Close every connection."""
        self.database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_writable(self) -> None:
        """Write to the database without changing anything.

        Raises:
            StoreUnavailable: It cannot be written: locked, read-only, or on a full disk.
        """
        with self.database.writing() as connection:
            connection.execute(REWRITE_VERSION)

    def schema_version(self) -> str:
        """Return the version of the database schema.

        Raises:
            StoreUnavailable: The database does not answer, or its file was deleted or replaced.
        """
        try:
            return self.database.scalar(SCHEMA_VERSION) or "none"
        except ProgrammingError:
            return "none"
