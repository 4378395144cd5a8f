"""Private PostgreSQL server for the duration of the tests."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

INSTALL = "apt-get install postgresql, and pip install 'psycopg[binary]'"

PATIENCE_S = 60.0

# The server stops when its standard input is closed, so that it does not outlive a test run, even
# a killed one.
UNTIL_STDIN_ENDS = """
"$@" &
server=$!
cat > /dev/null
kill -INT $server
wait $server
"""

# Without the timeout the call returns before the connections have ended.
DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Only tables with rows: TRUNCATE recreates the files of every table that it is given.
EMPTY_ALL_TABLES = """
DO $$
DECLARE
    each record;
    has_rows boolean;
    filled text := '';
BEGIN
    FOR each IN
        SELECT oid::regclass AS name FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND relname <> 'alembic_version'
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', each.name) INTO has_rows;
        IF has_rows THEN filled := filled || ', ' || each.name; END IF;
    END LOOP;
    IF filled <> '' THEN
        EXECUTE 'TRUNCATE ' || substr(filled, 3) || ' CASCADE';
    END IF;
END $$
"""
# Those of empty tables, too: a row may have been deleted or rolled back.
RESTART_IDENTITIES = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence"


@dataclass
class Server:
    """Running server that trusts all connections to its socket.

    Attributes:
        folder: folder of the socket.
        user: name of the superuser.
    """

    folder: Path
    user: str
    _num_made: int = field(default=0)

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{self.user}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Create a database and return its URL."""
        self._num_made += 1
        name = f"test_{self._num_made}"
        self.run(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    def empty(self, url: str) -> None:
        """Disconnect all clients, delete all rows but the schema version, and restart all ids."""
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(DISCONNECT_OTHERS.encode())
            connection.execute(EMPTY_ALL_TABLES)
            connection.execute(RESTART_IDENTITIES)

    def drop(self, url: str) -> None:
        """Drop a database and disconnect its clients."""
        self.run(f"DROP DATABASE {name_of(url)} WITH (FORCE)")

    def run(self, statement: str) -> None:
        """Run a statement outside any transaction."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


def name_of(url: str) -> str:
    """Return the name of the database in a URL."""
    return url.split("@/")[1].split("?", maxsplit=1)[0]


def missing() -> str | None:
    """Return what is not installed, None if a server can run."""
    if binaries() is None:
        return f"PostgreSQL is not installed: {INSTALL}"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return f"psycopg is not installed: {INSTALL}"
    return None


def require_postgres() -> None:
    """Skip the test if PostgreSQL is not installed, or fail it in continuous integration."""
    reason = missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def binaries() -> Path | None:
    """Return the folder with the programs of the newest installed server."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(debian, key=lambda path: int(path.parent.parent.name), default=None)
    found = newest or shutil.which("postgres")
    return Path(found).resolve().parent if found else None


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Run a private server as an ordinary user: PostgreSQL refuses to run as root."""
    programs = binaries()
    assert programs is not None
    user = server_user()
    with private_folder(user) as folder:
        make_cluster(programs, folder, user)
        with server_process(programs, folder, user) as process:
            server = Server(folder, user)
            wait_for_connection(server, process, folder)
            yield server


def server_user() -> str:
    """Return the current user; for root, the user that Debian's package creates."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return "postgres"


@contextlib.contextmanager
def private_folder(user: str) -> Iterator[Path]:
    """Create a folder of the user in /tmp: a socket's path is limited to about 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix="rl-teacher-pg-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_cluster(programs: Path, folder: Path, user: str) -> None:
    """Create the data folder of the server."""
    command = [programs / "initdb", "-D", folder / "data", "-U", user, "-A", "trust"]
    options = ["--no-sync", "--no-instructions", "-E", "UTF8", "--locale", "C"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        check=False,
        **process_options(user, folder),
    )
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def server_process(programs: Path, folder: Path, user: str) -> Iterator[subprocess.Popen[str]]:
    """Start the server on a socket only and without durability."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": folder,
        "fsync": "off",
        "full_page_writes": "off",
        "max_connections": 200,
    }
    options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
    command = [programs / "postgres", "-D", folder / "data", *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", UNTIL_STDIN_ENDS, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            **process_options(user, folder),
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_S)


def process_options(user: str, folder: Path) -> dict:
    """Return options of a child process of the user, who may not access the current folder."""
    place = {"cwd": folder, "env": {**os.environ, "HOME": str(folder), "LC_ALL": "C"}}
    if os.geteuid() != 0:
        return place
    return {**place, "user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def wait_for_connection(server: Server, process: subprocess.Popen[str], folder: Path) -> None:
    """Wait for the first connection; on failure show the log of the server."""
    import psycopg

    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return server.run("SELECT 1")
        except psycopg.OperationalError:
            log = (folder / "log").read_text(errors="replace")
            assert process.poll() is None, log
            assert time.monotonic() < deadline_s, log
            time.sleep(0.05)


class RestartableServer:
    """Private server that can be killed, and started again."""

    def __init__(self):
        programs = binaries()
        assert programs is not None
        self._stack = contextlib.ExitStack()
        self._programs, self._user = programs, server_user()
        self._folder = self._stack.enter_context(private_folder(self._user))
        make_cluster(self._programs, self._folder, self._user)
        self._process = contextlib.ExitStack()
        self.server = Server(self._folder, self._user)
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        process = self._process.enter_context(
            server_process(self._programs, self._folder, self._user)
        )
        wait_for_connection(self.server, process, self._folder)

    def stop(self) -> None:
        """Kill the server with all its processes."""
        pid_file = self._folder / "data" / "postmaster.pid"
        server = int(pid_file.read_text().splitlines()[0])
        killed = [server, *children_of(server)]
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline_s = time.monotonic() + PATIENCE_S
        while any(Path(f"/proc/{pid}/stat").exists() for pid in killed[1:]):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        # The shell around the killed server.
        self._process.close()
        self._process = contextlib.ExitStack()

    def kill(self) -> None:
        """Kill the server, and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server, and delete its data."""
        self._process.close()
        self._stack.close()


def children_of(parent: int) -> list[int]:
    """Return the ids of the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = stat.read_text().split(" ", 1)
            if int(rest.rpartition(")")[2].split()[1]) == parent:
                found.append(int(pid))
    return found
