"""Locks of experiments in the database, which exclude trainers of other homes and machines.

    acquired --heartbeat every 2 s--> released
        |
        `-- process killed --> taken over by the next trainer: at once on the same machine, 60 s
                               after the last heartbeat from another one

The lock of the run folder excludes trainers of the same home only, and is lost if its file is
deleted.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from platform import node
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from rl_teacher.common.errors import ExperimentInUse, StoreUnavailable
from rl_teacher.common.timer import repeated
from rl_teacher.store.database import Database
from rl_teacher.store.tables import ExperimentLock

HEARTBEAT_S = 2.0

STALE_AFTER = timedelta(seconds=60)
"""Time after the last heartbeat from another machine until a lock can be taken over."""

Holder = dict[str, Any]
"""Process that holds a lock: `host`, `machine`, `pid` and `start`."""


class HeldLock:
    """Lock of an experiment that this process holds."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        self.token = uuid.uuid4()
        self._database = database
        self._row = (ExperimentLock.name == name) & (ExperimentLock.token == self.token)
        self._lost: ExperimentInUse | None = None

    def check(self) -> None:
        """Check that no other trainer has taken the lock over.

        Raises:
            ExperimentInUse: One has, because there was no heartbeat for `STALE_AFTER`.
        """
        if self._lost is not None:
            raise self._lost

    def renew(self) -> None:
        """Write a heartbeat, unless the lock was lost.

        The lock is acquired again if its row was lost with a restored backup.
        """
        if self._lost is not None:
            return
        try:
            with self._database.writing() as connection:
                moment = self._time(connection)
                beat = update(ExperimentLock).where(self._row).values(heartbeat_at=moment)
                if not connection.execute(beat).rowcount:
                    self.acquire(connection)
        except ExperimentInUse as error:
            self._lost = error
        except StoreUnavailable:
            pass  # The trainer reports it when it writes.

    def acquire(self, connection: Connection) -> None:
        """Acquire the lock within a transaction.

        Raises:
            ExperimentInUse: Another process holds it.
        """
        moment = self._time(connection)
        row = {
            "name": self.name,
            "token": self.token,
            "holder": this_process(),
            "acquired_at": moment,
            "heartbeat_at": moment,
        }
        of_name = ExperimentLock.name == self.name
        found = connection.execute(select(*ExperimentLock.__table__.columns).where(of_name)).first()
        if found is not None and not is_over(found.holder, moment - found.heartbeat_at):
            raise in_use(self.name, found.holder, found.acquired_at)
        connection.execute(delete(ExperimentLock).where(of_name))
        connection.execute(insert(ExperimentLock), row)

    def release(self) -> None:
        """Release the lock; one that stays is taken over from the ended process."""
        with suppress(StoreUnavailable), self._database.writing() as connection:
            connection.execute(delete(ExperimentLock).where(self._row))

    def _time(self, connection: Connection) -> datetime:
        """Return the time of the server, because the clocks of two machines may differ."""
        if self._database.dialect == "postgresql":
            return connection.execute(select(func.clock_timestamp())).scalar_one()
        return self._database.now()


class ExperimentLocks:
    """The locks of a store, by the name of the experiment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def hold(self, name: str, heartbeat_s: float = HEARTBEAT_S) -> Iterator[HeldLock]:
        """Hold the lock of an experiment within the context; the experiment need not exist.

        Args:
            name: Name of the experiment.
            heartbeat_s: Time between two heartbeats, which a thread writes.

        Raises:
            ExperimentInUse: Another process holds it.
        """
        lock = HeldLock(self._database, name)
        with self._database.writing() as connection:
            lock.acquire(connection)
        try:
            with repeated(lock.renew, heartbeat_s, "experiment-lock"):
                yield lock
        finally:
            lock.release()


def is_over(holder: Holder, silence: timedelta) -> bool:
    """Return whether a lock can be taken over from its holder.

    Args:
        holder: Process that acquired the lock.
        silence: Time since its last heartbeat.
    """
    # A run of this process that could not release its lock writes no heartbeat any more.
    if holder["machine"] == machine() and holder != this_process():
        if (start := start_time(holder["pid"])) is not None:
            # The same process lives, even if it was suspended and wrote no heartbeat.
            return start != holder["start"]
        if has_ended(holder["pid"]):
            return True
    # In the future, the heartbeat was written before the clock was set back.
    return abs(silence) > STALE_AFTER


def in_use(name: str, holder: Holder, since: datetime) -> ExperimentInUse:
    """Return the error for an experiment that another process has locked."""
    return ExperimentInUse(
        f"Experiment {name!r} is being run by process {holder['pid']} on {holder['host']} since "
        f"{since:%Y-%m-%d %H:%M} UTC. Stop it first (it saves), wait until it ends, or choose "
        f"another name. If it was killed on another machine, try again "
        f"{STALE_AFTER.total_seconds():.0f} s later."
    )


def this_process() -> Holder:
    """Return this process as a holder."""
    pid = os.getpid()
    return {"host": node(), "machine": machine(), "pid": pid, "start": start_time(pid)}


@cache
def machine() -> str:
    """Return a text that is equal for processes which see each other's process ids.

    Containers may share the name of their host, but not its process ids.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        processes = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return f"{node()}/{uuid.getnode()}"
    return f"{node()}/{boot}/{processes}"


def start_time(pid: int) -> str | None:
    """Return a text that tells a process from a later one of its number; None if unknown."""
    try:
        # The name of the program, in parentheses, may contain spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # there is no such process, it is another user's, or this is not Linux
        return None
    state, start_ticks = fields[0], fields[19]
    return "ended" if state in ("Z", "X") else start_ticks


def has_ended(pid: int) -> bool:
    """Return whether there is no process of this number; False if that is unknown."""
    if os.name != "posix":
        return False  # On Windows, signal 0 would interrupt the process.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
