"""Tests of the locks of experiments in the database."""

import os
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from sqlalchemy import delete, select, update

from rl_teacher.common.errors import ExperimentInUse
from rl_teacher.store.experiment_locks import STALE_AFTER
from rl_teacher.store.store import Store
from rl_teacher.store.tables import ExperimentLock
from tests.store.test_processes import PREAMBLE, read_line

HOLD = (
    PREAMBLE
    + """
import time
with Store.open(sys.argv[1]) as store, store.locks.hold("mine"):
    say("held")
    time.sleep(60)
"""
)


def read_lock(store):
    with store.database.reading() as connection:
        return connection.execute(select(ExperimentLock.__table__)).one_or_none()


def change_lock(store, **columns):
    with store.database.writing() as connection:
        connection.execute(update(ExperimentLock).values(columns))


def move_to_other_machine(store):
    """Make the holder of the lock a process of another machine."""
    found = read_lock(store)
    assert found is not None
    change_lock(store, holder=found.holder | {"host": "elsewhere", "machine": "another"})
    return found.heartbeat_at


def hold(store, name="mine"):
    with store.locks.hold(name):
        pass


def test_lock_is_exclusive_until_it_is_released(store, url):
    with Store.open(url) as other:
        with store.locks.hold("mine"):
            with pytest.raises(ExperimentInUse):
                hold(other)
            hold(other, "another")
        hold(other)
    assert read_lock(store) is None


def test_lock_of_killed_process_of_this_machine_is_taken_over_at_once(store, url):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert read_line(process) == "held\n"
        with pytest.raises(ExperimentInUse, match=f"process {process.pid} "):
            hold(store)
        process.kill()
        process.wait()
        hold(store)


def test_lock_of_process_whose_number_was_reused_is_taken_over(store):
    with store.locks.hold("mine") as earlier:
        change_lock(store, holder=read_lock(store).holder | {"start": "0"})
        with store.locks.hold("mine") as later:
            earlier.renew()
            with pytest.raises(ExperimentInUse):
                earlier.check()
            later.renew()
            later.check()
            assert read_lock(store).token == later.token
        assert read_lock(store) is None


def test_suspended_process_of_this_machine_keeps_its_lock(store, url):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert read_line(process) == "held\n"
        change_lock(store, heartbeat_at=read_lock(store).heartbeat_at - 2 * STALE_AFTER)
        with pytest.raises(ExperimentInUse):
            hold(store)
        process.kill()


def test_silent_lock_of_other_machine_is_taken_over_after_a_minute(store):
    with store.locks.hold("mine") as held:
        heartbeat_at = move_to_other_machine(store)
        change_lock(store, heartbeat_at=heartbeat_at - STALE_AFTER + timedelta(seconds=20))
        with pytest.raises(ExperimentInUse, match="on elsewhere since"):
            hold(store)
        change_lock(store, heartbeat_at=heartbeat_at - STALE_AFTER)
        with store.locks.hold("mine"):
            held.renew()
            with pytest.raises(ExperimentInUse, match=f"process {os.getpid()} "):
                held.check()


def test_heartbeats_are_written_while_the_lock_is_held(store):
    with store.locks.hold("mine", heartbeat_s=0.02):
        first = read_lock(store).heartbeat_at
        deadline_s = time.monotonic() + 10
        while read_lock(store).heartbeat_at == first:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def test_lock_whose_row_was_lost_is_claimed_again(store):
    with store.locks.hold("mine") as held:
        with store.database.writing() as connection:
            connection.execute(delete(ExperimentLock))
        held.renew()
        held.check()
        assert read_lock(store).token == held.token


def test_lock_of_ended_machine_is_taken_over_after_the_clock_was_set_back(store):
    with store.locks.hold("mine"):
        heartbeat_at = move_to_other_machine(store)
        change_lock(store, heartbeat_at=heartbeat_at + timedelta(hours=1))
        with store.locks.hold("mine"):
            pass
