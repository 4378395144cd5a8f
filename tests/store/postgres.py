"""A private PostgreSQL from Debian's packages, for as long as the tests run."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

INSTALL = "apt-get install postgresql, and pip install 'psycopg[binary]'"

PATIENCE_S = 60.0

# Note: the server ends when its standard input does, so that it outlives no test run, not even
# one that was killed.
UNTIL_STDIN_ENDS = """
"$@" &
server=$!
cat > /dev/null
kill -INT $server
wait $server
"""

# Note: waits for the end of each connection, which otherwise is only asked for.
DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Note: only those with rows, since TRUNCATE makes the files of every table anew.
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
        EXECUTE 'TRUNCATE ' || substr(filled, 3) || ' RESTART IDENTITY CASCADE';
    END IF;
END $$
"""


@dataclass
class Server:
    """A running server that trusts whoever reaches its socket.

    Attributes:
        folder: of its socket.
        user: the superuser.
    """

    folder: Path
    user: str
    _num_made: int = field(default=0)

    def url(self, database: str) -> str:
        """The URL of a database, as a person would give it."""
        return f"postgresql://{self.user}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of a database that nobody has used."""
        self._num_made += 1
        name = f"test_{self._num_made}"
        self.run(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    def empty(self, url: str) -> None:
        """Let go of all rows of a database but its version, whoever is still connected to it."""
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(DISCONNECT_OTHERS.encode())
            connection.execute(EMPTY_ALL_TABLES)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is still connected to it."""
        self.run(f"DROP DATABASE {name_of(url)} WITH (FORCE)")

    def run(self, statement: str) -> None:
        """Run a statement outside any transaction."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


def name_of(url: str) -> str:
    """The name of the database that has this URL."""
    return url.split("@/")[1].split("?", maxsplit=1)[0]


def missing() -> str | None:
    """What is missing for a server, or None."""
    if binaries() is None:
        return f"PostgreSQL is not installed: {INSTALL}"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return f"psycopg is not installed: {INSTALL}"
    return None


def binaries() -> Path | None:
    """The folder of the newest server's programs."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(debian, key=lambda path: int(path.parent.parent.name), default=None)
    found = newest or shutil.which("postgres")
    return Path(found).resolve().parent if found else None


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server of one's own, as an ordinary user: PostgreSQL refuses to run as root."""
    programs = binaries()
    assert programs is not None
    user = server_user()
    with private_folder(user) as folder:
        make_cluster(programs, folder, user)
        with server_process(programs, folder, user) as process:
            server = Server(folder, user)
            wait_until_it_answers(server, process, folder)
            yield server


def server_user() -> str:
    """Ourselves; where that is root, the user that Debian's package made."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return "postgres"


@contextlib.contextmanager
def private_folder(user: str) -> Iterator[Path]:
    """A folder of that user; in /tmp, since a socket's path has room for some 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix="rl-teacher-pg-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_cluster(programs: Path, folder: Path, user: str) -> None:
    """Make the folder of databases."""
    command = [programs / "initdb", "-D", folder / "data", "-U", user, "-A", "trust"]
    options = ["--no-sync", "--no-instructions", "-E", "UTF8", "--locale", "C"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, **becoming(user, folder)
    )
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def server_process(programs: Path, folder: Path, user: str) -> Iterator[subprocess.Popen[str]]:
    """The server, on a socket only; nothing in it needs to outlive a power cut."""
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
            **becoming(user, folder),
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_S)


def becoming(user: str, folder: Path) -> dict:
    """How a child process becomes another user, who cannot stand where we stand."""
    place = {"cwd": folder, "env": {**os.environ, "HOME": str(folder), "LC_ALL": "C"}}
    if os.geteuid() != 0:
        return place
    return {**place, "user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def wait_until_it_answers(server: Server, process: subprocess.Popen[str], folder: Path) -> None:
    """Wait for the first connection, or say what the server said."""
    import psycopg

    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return server.run("SELECT 1")
        except psycopg.OperationalError:
            said = (folder / "log").read_text(errors="replace")
            assert process.poll() is None, said
            assert time.monotonic() < deadline_s, said
            time.sleep(0.05)
