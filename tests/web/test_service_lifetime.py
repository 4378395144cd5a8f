"""Lifetime of a service that a run has started."""

import shutil
from types import SimpleNamespace

import pytest

from rl_teacher.web.service_process import Lifetime, exclusive_page_lock, shared_page_lock


@pytest.fixture
def home(home):
    home.mkdir()
    return home


@pytest.fixture
def clock():
    return SimpleNamespace(s=100.0)


@pytest.fixture
def lifetime(home, clock):
    running = Lifetime(home, end_after_s=60.0, now=lambda: clock.s)
    yield running
    running.close()


def set_time(clock, seconds):
    clock.s = seconds


def test_lifetime_ends_after_timeout_without_runs(lifetime, clock):
    set_time(clock, 159.9)
    assert not lifetime.is_over()
    set_time(clock, 160.0)
    assert lifetime.is_over()


def test_run_restarts_the_timeout(lifetime, clock, home):
    run = shared_page_lock(home)
    assert run.acquire()
    set_time(clock, 1000.0)
    assert not lifetime.is_over()
    run.release()
    set_time(clock, 1059.9)
    assert not lifetime.is_over()
    set_time(clock, 1060.0)
    assert lifetime.is_over()


def test_ended_lifetime_blocks_new_runs_until_close(lifetime, clock, home):
    set_time(clock, 160.0)
    assert lifetime.is_over()
    run = shared_page_lock(home)
    assert not run.acquire(timeout_s=0.0)
    assert not exclusive_page_lock(home).acquire(timeout_s=0.0)
    lifetime.close()
    assert run.acquire(timeout_s=0.0)
    run.release()


def test_lifetime_ends_if_home_is_deleted(lifetime, clock, home):
    shutil.rmtree(home)
    assert not lifetime.is_over()
    set_time(clock, 160.0)
    assert lifetime.is_over()
