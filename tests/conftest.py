"""Every test has a home of its own, and computes as the product does."""

import os
import shutil
from pathlib import Path

import hypothesis
import jaxtyping
import pytest

from tests import shapes

shapes.check()

# Note: only what is imported from here on is checked.
from rl_teacher.common import runtime  # noqa: E402
from rl_teacher.report import plot as report_plot  # noqa: E402
from rl_teacher.report.plot import plot  # noqa: E402
from rl_teacher.store import database as store_database  # noqa: E402
from rl_teacher.store.store import Store  # noqa: E402

os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "xla")
)
runtime.prepare()

# Note: the machines that run this are shared, so a slow example is no failure.
hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")


@pytest.fixture(scope="session")
def _made_database(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "labels.sqlite"
    Store.open(path).close()
    return path


@pytest.fixture
def make_database(_made_database):
    """A function that puts an empty database of this version somewhere, and says where.

    A copy takes a tenth of the time that the migrations take, which tests/store tests.
    """

    def make(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_made_database, path)
        return path

    return make


@pytest.fixture
def database(make_database, tmp_path):
    """The path of an empty database of this version."""
    return make_database(tmp_path / "labels.sqlite")


@pytest.fixture
def as_nobody():
    """A function that gives up root's right to write anywhere, until the test ends."""

    def become_nobody():
        if os.geteuid() == 0:
            os.seteuid(65534)

    before = os.geteuid()
    yield become_nobody
    os.seteuid(before)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Nobody pulls the plug: what the system has taken is safe, even from SIGKILL."""
    set_up = store_database.set_up_sqlite

    def set_up_unsynced(connection, *, is_synced):
        set_up(connection, is_synced=is_synced)
        connection.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(store_database, "set_up_sqlite", set_up_unsynced)


@pytest.fixture
def _shapes_unchecked(monkeypatch):
    """For whole runs, which would check the same shapes at every step of them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    """Nobody looks at the picture of a small run, and to draw it takes as long as the run."""
    monkeypatch.setattr(report_plot, "plot", lambda curves, path: path)


@pytest.fixture
def draws_pictures(_no_picture, monkeypatch):
    """For a test that does look."""
    monkeypatch.setattr(report_plot, "plot", plot)


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "rl-teacher"))
    monkeypatch.setenv("HOME", str(tmp_path))
