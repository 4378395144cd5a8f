"""How long a service lives that a run began."""

import shutil
from types import SimpleNamespace

import pytest

from rl_teacher.web.lifetime import Lifetime, exclusive_page_lock, shown


@pytest.fixture
def home(home):
    home.mkdir()
    return home


@pytest.fixture
def clock():
    return SimpleNamespace(s=100.0)


@pytest.fixture
def lifetime(home, clock):
    begun = Lifetime(home, end_after_s=60.0, now=lambda: clock.s)
    yield begun
    begun.close()


def at(clock, seconds):
    clock.s = seconds


def test_it_is_over_when_no_run_has_shown_the_page_for_so_long(lifetime, clock):
    at(clock, 159.9)
    assert not lifetime.is_over()
    at(clock, 160.0)
    assert lifetime.is_over()


def test_the_time_begins_anew_whenever_a_run_shows_the_page(lifetime, clock, home):
    run = shown(home)
    assert run.acquire()
    at(clock, 1000.0)
    assert not lifetime.is_over()
    run.release()
    at(clock, 1059.9)
    assert not lifetime.is_over()
    at(clock, 1060.0)
    assert lifetime.is_over()


def test_it_is_not_over_while_one_of_two_runs_shows_the_page(lifetime, clock, home):
    one, two = shown(home), shown(home)
    assert one.acquire()
    assert two.acquire()
    one.release()
    at(clock, 1000.0)
    assert not lifetime.is_over()
    two.release()


def test_once_it_is_over_no_run_begins_to_show_the_page(lifetime, clock, home):
    at(clock, 160.0)
    assert lifetime.is_over()
    run = shown(home)
    assert not run.acquire(timeout_s=0.0)
    assert not exclusive_page_lock(home).acquire(timeout_s=0.0)
    lifetime.close()
    assert run.acquire(timeout_s=0.0)
    run.release()


def test_looking_keeps_no_run_from_showing_the_page(lifetime, clock, home):
    assert not lifetime.is_over()
    run = shown(home)
    assert run.acquire(timeout_s=0.0)
    run.release()


def test_it_is_over_in_a_home_that_was_deleted(lifetime, clock, home):
    shutil.rmtree(home)
    assert not lifetime.is_over()
    at(clock, 160.0)
    assert lifetime.is_over()
