"""Databases for tests: SQLite, and PostgreSQL where it is installed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rl_teacher.store.store import Store
from tests.store.comparisons import ENV_ID

BOTH = pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.sqlite"


@BOTH
def url(request):
    """Return the URL of an empty database with the current schema, on both systems."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('database')}"
    return request.getfixturevalue("shared_postgres_url")


@BOTH
def new_url(request):
    """Return the URL of a database without tables, on both systems."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('path')}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def experiment_id(store):
    return store.experiments.ensure("human-175", ENV_ID, {"seed": 3})


@pytest.fixture
def clock():
    """Return a clock that only the test advances."""
    return ManualClock(datetime(2026, 11, 21, tzinfo=UTC))


@pytest.fixture
def timed_store(url, clock):
    """Open a store that uses `clock`."""
    with Store.open(url, now=clock) as opened:
        yield opened


@dataclass
class ManualClock:
    """Clock that only `advance` moves."""

    moment: datetime

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.moment += timedelta(seconds=seconds)
