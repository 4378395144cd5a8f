"""Databases for tests: SQLite, and PostgreSQL where it is installed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rl_teacher.store.store import Store
from tests.store.comparisons import ENV_ID

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
"""Parameters of the fixture `url` in the tests of the contract that both databases fulfil."""


def new_database(request):
    """Return the URL of an empty database with the current schema, for a parameter of `BOTH`."""
    fixture = "shared_postgres_url" if request.param == "postgres" else "database"
    found = request.getfixturevalue(fixture)
    return found if request.param == "postgres" else f"sqlite:///{found}"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.sqlite"


@pytest.fixture
def url(database):
    """Return the URL of an empty SQLite file with the current schema."""
    return f"sqlite:///{database}"


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
