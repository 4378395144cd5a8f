"""A database for each test: SQLite, and PostgreSQL where it is installed."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rl_teacher.store.store import Store
from tests.store import postgres

BOTH = pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])


@pytest.fixture(scope="session")
def postgres_server():
    missing = postgres.missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def _made_on_postgres(postgres_server):
    url = postgres_server.new_database()
    Store.open(url).close()
    return url


@pytest.fixture
def made_postgres_url(postgres_server, _made_on_postgres):
    """Of an empty database of this version.

    All tests have the same one, one after the other: to make and drop a database takes five times
    as long as to empty it.
    """
    yield _made_on_postgres
    postgres_server.empty(_made_on_postgres)


@pytest.fixture
def postgres_url(postgres_server):
    """Of a database that has no tables yet."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.sqlite"


@BOTH
def url(request):
    """Of an empty database of this version; a test that asks for this runs on both."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('database')}"
    return request.getfixturevalue("made_postgres_url")


@BOTH
def new_url(request):
    """Of a database that has no tables yet, on both."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('path')}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def clock():
    """A moment that passes only when told to."""
    return RunTimer(datetime(2026, 11, 21, tzinfo=UTC))


@pytest.fixture
def timed_store(url, clock):
    """A store that goes by that clock."""
    with Store.open(url, now=clock) as opened:
        yield opened


@dataclass
class RunTimer:
    """A clock that stands still."""

    moment: datetime

    def __call__(self) -> datetime:
        return self.moment

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.moment += timedelta(seconds=seconds)
