"""Fixtures for all tests: separate home folders and the runtime settings of the product."""

import ctypes
import gc
import os
import shutil
import signal
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import gymnasium
import hypothesis
import jaxtyping
import pytest
from packaging.version import Version

from tests import shapes

shapes.check()

# Only modules that are imported after this line are checked.
from rl_teacher.common import runtime  # noqa: E402
from rl_teacher.report import plot as report_plot  # noqa: E402
from rl_teacher.report.plot import plot  # noqa: E402
from rl_teacher.store import database as store_database  # noqa: E402
from rl_teacher.store.store import Store  # noqa: E402
from rl_teacher.web.address import Address  # noqa: E402
from rl_teacher.web.service_process import PageService  # noqa: E402
from tests.store import postgres  # noqa: E402
from tests.store.s3 import (  # noqa: E402
    BUCKET,
    KEY_ID,
    SECRET,
    S3Server,
    forget_connections,
    require_s3,
)

os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "xla")
)
os.environ.setdefault(
    "WARP_CACHE_PATH", str(Path(__file__).parent.parent / ".pytest_cache" / "warp")
)
# Otherwise each process that plots searches for fonts: every test has a home folder of its own.
os.environ.setdefault(
    "MPLCONFIGDIR", str(Path(__file__).parent.parent / ".pytest_cache" / "matplotlib")
)
# Tests compile hundreds of small programs. That takes half the time without fusion emitters, which
# make them no faster, and without splitting programs for cores that are busy. XLA of JAX 0.12 ends
# the process at the first flag, which it does not know any more.
has_flag = Version(version("jax")) < Version("0.12")
fewer_emitters = "--xla_cpu_use_fusion_emitters=false " if has_flag else ""
os.environ.setdefault(
    "XLA_FLAGS",
    f"{fewer_emitters}--xla_cpu_parallel_codegen_split_count=1 {runtime.XLA_FLAGS}",
)
runtime.prepare()

# By default, Python collects garbage so often that it takes a tenth of the tests' processor time.
gc.set_threshold(10_000)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells let background jobs ignore Ctrl-C; the processes that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run on shared machines, so a slow example is no failure.
hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude what is imported and collected from garbage collection.

    A worker has about a million such objects. Visiting them all takes more than half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    """Give slow tests more time than the timeout of the configuration."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def _empty_database(tmp_path_factory):
    path = tmp_path_factory.mktemp("empty") / "labels.sqlite"
    Store.open(path).close()
    return path


@pytest.fixture
def make_database(_empty_database):
    """Function that creates an empty database at a path and returns the path.

    A copy takes a tenth of the time of the migrations, which tests/store covers.
    """

    def make(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_empty_database, path)
        return path

    return make


@pytest.fixture
def database(make_database, tmp_path):
    """Path of an empty database."""
    return make_database(tmp_path / "labels.sqlite")


NEXT_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9000"
down_revision = "{latest}"


def upgrade():
    op.add_column("labels", sa.Column("note", sa.String))
    op.execute("UPDATE labels SET note = 'of an older version'")
"""


@pytest.fixture
def add_migration(tmp_path, monkeypatch):
    """Function that adds a migration of the labels, and returns the folder of all migrations."""

    def add():
        folder = tmp_path / "migrations"
        shutil.copytree(store_database.MIGRATIONS, folder)
        migration = NEXT_MIGRATION.format(latest=store_database.versions()[0])
        (folder / "versions" / "v9000_note.py").write_text(migration)
        monkeypatch.setattr(store_database, "MIGRATIONS", folder)
        store_database.versions.cache_clear()
        return folder

    yield add
    store_database.versions.cache_clear()


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server for all tests of a worker."""
    postgres.require_postgres()
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def _shared_postgres_url(postgres_server):
    url = postgres_server.new_database()
    Store.open(url).close()
    return url


@pytest.fixture
def shared_postgres_url(postgres_server, _shared_postgres_url):
    """Return the URL of an empty PostgreSQL database with the current schema.

    All tests use the same database in turn: creating and dropping one takes five times as long as
    emptying it.
    """
    yield _shared_postgres_url
    postgres_server.empty(_shared_postgres_url)


@pytest.fixture
def postgres_url(postgres_server):
    """Return the URL of a PostgreSQL database without tables."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Function that writes an importable module; afterwards it and its environments are unknown."""
    names = set()
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        names.add(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)
    for env_id, spec in list(gymnasium.registry.items()):
        if getattr(spec.entry_point, "__module__", None) in names:
            del gymnasium.registry[env_id]


@pytest.fixture
def s3(monkeypatch):
    """Server of S3 with a bucket, whose address and credentials are in the environment."""
    require_s3()
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    server = S3Server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    forget_connections()
    server.request("PUT", f"/{BUCKET}")
    yield server
    server.stop()
    forget_connections()


@pytest.fixture
def as_nobody():
    """Function that drops root privileges until the test ends."""

    def drop_privileges():
        if os.geteuid() == 0:
            os.seteuid(65534)

    before = os.geteuid()
    yield drop_privileges
    os.seteuid(before)


CAPABILITIES_VERSION = 0x20080522
OVERRIDES_PERMISSIONS = 0b110
"""The capabilities CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of capabilities(7)."""


@pytest.fixture
def bound_by_permissions():
    """Let permissions of files apply to root, in this thread and in those that it starts."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~OVERRIDES_PERMISSIONS
    assert libc.capset(header, sets) == 0
    yield
    sets[0] = effective
    assert libc.capset(header, sets) == 0


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Disable fsync: tests kill processes, but never the operating system."""
    set_up = store_database.set_up_sqlite

    def set_up_unsynced(connection, *, is_synced):
        set_up(connection, is_synced=is_synced)
        connection.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(store_database, "set_up_sqlite", set_up_unsynced)


@pytest.fixture
def _shapes_unchecked(monkeypatch):
    """Disable shape checks, for whole runs that would repeat them at every step."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    """Disable plots, which take as long as a small run."""
    monkeypatch.setattr(report_plot, "plot", lambda curves, path: path)


@pytest.fixture
def draws_pictures(_no_picture, monkeypatch):
    """Enable plots."""
    monkeypatch.setattr(report_plot, "plot", plot)


class NoPage:
    """Stand-in for the page of a run whose labels are given through the store."""

    def __init__(self, options):
        pass

    def address(self):
        host = "127.0.0.1"
        return Address(f"http://{host}", host, host, 80, os.getpid(), "page", "store", "media")

    def link(self, name, labels):
        return f"http://127.0.0.1/e/{name}"

    def close(self):
        pass


@pytest.fixture
def _no_page(monkeypatch):
    """Start no service, which takes as long as a small run."""
    monkeypatch.setattr(import_module("rl_teacher.teach"), "PageService", NoPage)


@pytest.fixture
def _prompt_control(monkeypatch):
    """Let runs read commands and labels, and report, several times as often as in practice."""
    monkeypatch.setattr("rl_teacher.runs.control.CHECK_EVERY_S", 0.1)
    monkeypatch.setattr("rl_teacher.session.REPORT_EVERY_S", 0.2)
    monkeypatch.setattr("rl_teacher.session.WAITING_POLL_S", 0.05)


@pytest.fixture
def serves_page(_no_page, monkeypatch):
    """Start the service in a test of a file that starts none."""
    monkeypatch.setattr(import_module("rl_teacher.teach"), "PageService", PageService)


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "rl-teacher"))
    monkeypatch.setenv("HOME", str(tmp_path))
