"""State that the processes of a service share: rate limits, one-time codes, streams and counts.

It is an SQLite database that is not synced: in memory for one process, in a file for several.
SQLite takes back what a killed process has half written, and releases its lock. A statement takes
10 microseconds, but waits while another process writes, so frequent ones share a transaction.
"""

import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_teacher.common.errors import StoreUnavailable

BUSY_TIMEOUT_S = 5.0
MAX_BUCKETS = 20_000
"""Token buckets that are kept for each rate limit."""
PRUNE_EVERY = 1_000
"""Requests of a process after which it deletes buckets that are full or too many."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS buckets (rate TEXT, key TEXT, full_at_s REAL, "
    "PRIMARY KEY (rate, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS codes (code TEXT PRIMARY KEY, expires_s REAL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS streams (id INTEGER PRIMARY KEY, process INTEGER, labeler TEXT)",
    "CREATE TABLE IF NOT EXISTS requests (status INTEGER PRIMARY KEY, num INTEGER, total_s REAL)",
)

TAKE = """
INSERT INTO buckets SELECT :rate, :key, :now_s + :cost_s WHERE :room_s >= 0
ON CONFLICT DO UPDATE SET full_at_s = max(full_at_s, :now_s) + :cost_s
WHERE full_at_s - :now_s - :room_s <= 0
RETURNING full_at_s
"""

COUNT = """
INSERT INTO requests VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET num = num + excluded.num, total_s = total_s + excluded.total_s
"""

KEEP_EMPTIEST = """
DELETE FROM buckets WHERE rate = :rate AND full_at_s < (
    SELECT full_at_s FROM buckets WHERE rate = :rate
    ORDER BY full_at_s DESC LIMIT 1 OFFSET :max_buckets - 1
)
"""


@dataclass(frozen=True)
class Take:
    """A request that takes from a token bucket, which is stored as the time when it will be full.

    Attributes:
        rate: Name of the rate limit.
        key: Key of the bucket.
        now_s: Monotonic time, which all processes of a machine share.
        cost_s: Time in which the bucket refills what the request takes.
        room_s: Longest time until the bucket would have been full.
    """

    rate: str
    key: str
    now_s: float
    cost_s: float
    room_s: float


class SharedState:
    """State that the processes of a service share."""

    def __init__(self, path: str | Path = ":memory:", process: int = 0) -> None:
        """Open the state, and forget the streams of a killed process of the same number.

        Args:
            path: Database file; by default, the state is that of one process.
            process: Number of the process.
        """
        self._process = process
        self._num_taken = 0
        self._counted: dict[int, tuple[int, float]] = {}
        self._lock = threading.Lock()
        # Another one, so that the event loop never waits for a statement in order to count.
        self._counting = threading.Lock()
        self._connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)
        pragmas = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF")
        for statement in (*pragmas, *TABLES):
            self._execute(statement)
        self._execute("DELETE FROM streams WHERE process = :process", process=process)

    # --- rate limits ---

    def take(self, takes: Sequence[Take]) -> list[float]:
        """Take from token buckets, in order and in one transaction.

        Returns:
            0 for each, or the seconds to wait if nothing was taken.
        """
        if not takes:
            return []
        before, self._num_taken = self._num_taken, self._num_taken + len(takes)
        with self._transaction():
            if before // PRUNE_EVERY < self._num_taken // PRUNE_EVERY:
                self._prune(takes[-1].rate, takes[-1].now_s)
            return [self._take(each) for each in takes]

    def _take(self, take: Take) -> float:
        if self._connection.execute(TAKE, asdict(take)).fetchall():
            return 0.0
        found = self._connection.execute(
            "SELECT full_at_s FROM buckets WHERE rate = ? AND key = ?", (take.rate, take.key)
        ).fetchone()
        full_at_s = found[0] if found else take.now_s
        return full_at_s - take.now_s - take.room_s

    def refund(self, rate: str, key: str, cost_s: float) -> None:
        """Return to a bucket what a request has taken."""
        self._execute(
            "UPDATE buckets SET full_at_s = full_at_s - :cost_s WHERE rate = :rate AND key = :key",
            rate=rate,
            key=key,
            cost_s=cost_s,
        )

    def _prune(self, rate: str, now_s: float) -> None:
        """Delete full buckets and, over the limit, the fullest of the others."""
        self._connection.execute("DELETE FROM buckets WHERE full_at_s <= ?", (now_s,))
        self._connection.execute(KEEP_EMPTIEST, {"rate": rate, "max_buckets": MAX_BUCKETS})

    # --- one-time codes ---

    def use_code(self, code: str, expires_s: float, forget_before_s: float) -> bool:
        """Remember a code as used; return False if it was used before.

        Args:
            code: The code.
            expires_s: Time of its expiry, in seconds since the epoch.
            forget_before_s: Codes that have expired before this time are forgotten.
        """
        self._execute("DELETE FROM codes WHERE expires_s <= :before_s", before_s=forget_before_s)
        added = self._execute(
            "INSERT OR IGNORE INTO codes VALUES (:code, :expires_s) RETURNING code",
            code=code,
            expires_s=expires_s,
        )
        return bool(added)

    # --- event streams ---

    def add_stream(self, labeler: str, limit: int) -> int | None:
        """Count an event stream of a labeler; return its id, or None if there are too many."""
        added = self._execute(
            "INSERT INTO streams (process, labeler) SELECT :process, :labeler "
            "WHERE (SELECT count(*) FROM streams WHERE labeler = :labeler) < :limit RETURNING id",
            process=self._process,
            labeler=labeler,
            limit=limit,
        )
        return added[0][0] if added else None

    def remove_stream(self, stream_id: int) -> None:
        """Forget a stream that has ended."""
        self._execute("DELETE FROM streams WHERE id = :id", id=stream_id)

    # --- numbers of requests ---

    def count_request(self, status: int, took_s: float) -> None:
        """Count an answered request; other processes see it after `write_counts`."""
        self._count(status, 1, took_s)

    def write_counts(self) -> None:
        """Write the requests counted since the last call.

        Raises:
            StoreUnavailable: The file cannot be written; the next call writes them.
        """
        with self._counting:
            counted, self._counted = self._counted, {}
        try:
            with self._transaction():
                for status, (num, total_s) in counted.items():
                    self._connection.execute(COUNT, (status, num, total_s))
        except StoreUnavailable:
            for status, (num, total_s) in counted.items():
                self._count(status, num, total_s)
            raise

    def _count(self, status: int, num: int, took_s: float) -> None:
        with self._counting:
            before, before_s = self._counted.get(status, (0, 0.0))
            self._counted[status] = (before + num, before_s + took_s)

    def requests(self) -> list[tuple[int, int, float]]:
        """Return status, number and total duration in seconds of the requests, by status."""
        self.write_counts()
        return self._execute("SELECT status, num, total_s FROM requests ORDER BY status")

    def _execute(self, statement: str, **values: Any) -> list[Any]:
        """Execute a statement in a transaction of its own, and return its rows.

        Raises:
            StoreUnavailable: The file cannot be written.
        """
        with self._access():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Execute the statements of a block in one transaction.

        Raises:
            StoreUnavailable: The file cannot be written.
        """
        with self._access(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _access(self) -> Iterator[None]:
        """Use the connection in one thread at a time.

        Raises:
            StoreUnavailable: The file cannot be written.
        """
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"The state that the processes of the service share cannot be used: {error}. Free "
                "some space in RL_TEACHER_HOME, or restart the service."
            ) from error
