"""Address and access token of the running service, links to it, and sockets to listen on.

The service itself is not imported here.
"""

import errno
import hashlib
import hmac
import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from itsdangerous import URLSafeSerializer
from pydantic import Field, TypeAdapter, ValidationError

from rl_teacher.common.errors import BadInput, RunFolderUnusable
from rl_teacher.common.files import folder_errors, make_private_home, write_atomically
from rl_teacher.common.paths import user_path
from rl_teacher.config.fields import MAX_PORT
from rl_teacher.runs.folder import database_url, home

SERVICES_FOLDER = "services"
"""Folder with one file per running service."""
ACCESS_FILE_NAME = "access-token"
NUM_TOKEN_BYTES = 32
TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{43,}")
CODE_LIFETIME_S = 60.0
"""Seconds for which the link that a browser is started with is valid."""
HEALTH_TIMEOUT_S = 2.0
POLL_INTERVAL_S = 0.05
PORTS_TRIED = 20
BACKLOG = 1024
"""Connections that the system keeps until they are accepted."""


@dataclass(frozen=True)
class Address:
    """Address of a running service.

    Attributes:
        url: Base URL of the links.
        host: Host that this machine reaches it at.
        bound_host: Host that the socket is bound to, such as 0.0.0.0.
        port: TCP port.
        pid: Process id.
        instance: Unique name of the process, which `/healthz` returns as well.
        database: Identifier of the database, see `location_id`.
        media: Identifier of the folder of clips.
    """

    url: str
    host: str
    bound_host: str
    port: Annotated[int, Field(gt=0, le=MAX_PORT)]
    pid: int
    instance: str
    database: str
    media: str


def location_id(location: str | Path) -> str:
    """Return an identifier of a database or media folder that does not reveal passwords."""
    is_url = isinstance(location, str) and "://" in location
    # A relative path is another place in another working folder.
    place = location if is_url else user_path(location).absolute()
    return hashlib.sha256(str(place).encode()).hexdigest()[:16]


def database_id() -> str:
    """Return the identifier of the home's database."""
    return location_id(database_url())


def link(address: Address, path: str = "/", **query: str) -> str:
    """Return the link to a page of a service, with the access token if a person sees the output.

    Other outputs are logs of a daemon or a container, whose readers are not owners.
    """
    if sys.stdout.isatty():
        query["token"] = access_token(home())
    return f"{address.url}{path}" + (f"?{urlencode(query)}" if query else "")


def credential_path(credential: str, name: str | None = None) -> str:
    """Return the path of the page that signs a labeler in.

    Args:
        credential: Credential of the labeler.
        name: Experiment to label; None for the list of all experiments.
    """
    path = "/" if name is None else label_path(name)
    return f"{path}?{urlencode({'token': credential})}"


def invite_path(token: str, name: str | None = None) -> str:
    """Return the path of the page that redeems an invite; it shows the name of a personal one."""
    return f"/join?{urlencode({'invite': token} | ({'name': name} if name else {}))}"


def label_path(name: str) -> str:
    """Return the path of the labelling page."""
    return f"{experiment_path(name)}/label"


def experiment_path(name: str) -> str:
    """Return the path of an experiment's page."""
    return f"/e/{quote(name, safe='')}"


def one_time_link(address: Address, url: str) -> str:
    """Replace the access token of a link by a code that is valid once, for a minute.

    Every user of the machine can read the command line of a browser, which contains the link.
    """
    split = urlsplit(url)
    query = [each for each in parse_qsl(split.query) if each[0] != "token"]
    code = one_time_code(access_token(home()), address.database, time.time())
    return split._replace(query=urlencode([*query, ("code", code)])).geturl()


def one_time_code(token: str, database: str, now_s: float) -> str:
    """Return a new code with which a browser gets the owner's cookie.

    Args:
        token: Access token of the home.
        database: Identifier of the database, which remembers that the code was used.
        now_s: Time in seconds since the epoch.
    """
    return code_serializer(token, database).dumps([secrets.token_hex(16), now_s + CODE_LIFETIME_S])


def code_serializer(token: str, database: str) -> URLSafeSerializer:
    """Return the serializer of one-time codes."""
    return serializer(token, f"code {database}")


def serializer(token: str, purpose: str) -> URLSafeSerializer:
    """Return a serializer of values that are signed with the access token for a purpose."""
    return URLSafeSerializer(token, purpose, signer_kwargs={"digest_method": hashlib.sha256})


def running_service(database: str | None = None, media: str | None = None) -> Address | None:
    """Return the address of the newest running service, see `running_services`."""
    return next(running_services(database, media), None)


def running_services(database: str | None = None, media: str | None = None) -> Iterator[Address]:
    """Yield the addresses of the running services of this home, newest first.

    Args:
        database: Identifier of the database that they must serve; None for any.
        media: Identifier of the folder of clips that they must serve; None for any.
    """
    for path in address_files():
        address = read_address(path)
        if address is None or database not in (None, address.database):
            continue
        if media in (None, address.media) and is_running(address):
            yield address


def address_files() -> list[Path]:
    """Return the address files of this home, newest first; killed services leave theirs behind."""
    found: list[tuple[float, Path]] = []
    for path in (home() / SERVICES_FOLDER).glob("*.json"):
        with suppress(OSError):  # removed meanwhile
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def await_service(process: subprocess.Popen[bytes], timeout_s: float = 30.0) -> Address:
    """Wait until a child process that was started as the service listens.

    Raises:
        BadInput: The process ended, or did not listen in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        for address in filter(None, map(read_address, address_files())):
            if address.pid == process.pid and is_running(address):
                return address
        time.sleep(POLL_INTERVAL_S)
    failed = "did not respond" if process.poll() is None else f"exited with {process.returncode}"
    raise BadInput(
        f"The service of the labelling page {failed}. Run `rl-teacher serve` in another terminal "
        "to see the reason."
    )


@contextmanager
def published(address: Address) -> Iterator[None]:
    """Publish the address in the home and remove it at the end.

    Raises:
        RunFolderUnusable: The home cannot be written.
    """
    path = home() / SERVICES_FOLDER / f"{address.instance}.json"
    with folder_errors(home()):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(address)).encode(), is_synced=False)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def local_address(
    host: str, port: int, instance: str, database: str | Path, media: str | Path
) -> Address:
    """Return the address of a service in this process.

    Args:
        host: Host that the socket is bound to; wildcard addresses are reached through loopback.
        port: TCP port.
        instance: Unique name of the process.
        database: Location of the database.
        media: Location of the clips.
    """
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    url_host = f"[{reached}]" if ":" in reached else reached
    return Address(
        url=f"http://{url_host}:{port}",
        host=reached,
        bound_host=host,
        port=port,
        pid=os.getpid(),
        instance=instance,
        database=location_id(database),
        media=location_id(media),
    )


def base_url(url: str) -> str:
    """Return a URL that browsers open, without the slash at its end.

    Raises:
        BadInput: It is not `http` or `https` with a host, or has more than a host and a port.
    """
    base = url.removesuffix("/")
    try:
        split = urlsplit(url)
        is_valid = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
        is_valid = is_valid and base == f"{split.scheme}://{split.netloc}" and "@" not in base
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadInput(
            f"--public-url {url} was given. Give the address that browsers open, without a path, "
            "such as https://label.example.org."
        )
    return base


def read_address(path: Path) -> Address | None:
    """Read an address file; None if it is missing or invalid."""
    try:
        return TypeAdapter(Address).validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError):
        return None


def is_running(address: Address) -> bool:
    """Return whether the service answers at its address, and proves that it belongs to this home.

    After a service was killed, the port may belong to anybody's program, which must not be sent the
    access token.
    """
    nonce = secrets.token_hex(16)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", f"/healthz?nonce={nonce}")
        answer = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    proof = answer.get("proof") if isinstance(answer, dict) else None
    expected = service_proof(access_token(home()), address.instance, nonce)
    return isinstance(proof, str) and secrets.compare_digest(proof.encode(), expected.encode())


def service_proof(token: str, instance: str, nonce: str) -> str:
    """Return the HMAC by which a service proves that it knows the home's token.

    It includes the instance, so that a program cannot pass the nonce on to another service of the
    home.
    """
    message = f"service {instance} {nonce}".encode(errors="replace")
    return hmac.new(token.encode(), message, hashlib.sha256).hexdigest()


def access_token(home: Path) -> str:
    """Return the token of a home, created at the first call and readable by its owner only.

    Raises:
        RunFolderUnusable: The file cannot be read or written, or does not contain a token.
    """
    path = home / ACCESS_FILE_NAME
    with folder_errors(home):
        make_private_home(home)
        if not path.exists():
            _create_token_file(path)
        # A file that was copied or restored may be readable by others.
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        token = path.read_text(encoding="ascii", errors="replace").strip()
    if not TOKEN_PATTERN.fullmatch(token):
        raise RunFolderUnusable(
            f"{path} does not contain an access token. Delete it to create a new one; links that "
            "were printed earlier stop working then."
        )
    return token


def _create_token_file(path: Path) -> None:
    """Write a new token to a temporary file, then link it to its place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.unfinished")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(NUM_TOKEN_BYTES) + "\n")
        try:
            # Of two processes that link, one fails; neither reads a half-written file.
            path.hardlink_to(temporary)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open a listening socket at this port or the next free one; 0 for any.

    Raises:
        BadInput: The port is out of range, no port is free, or the address is unavailable.
    """
    if not 0 <= port <= MAX_PORT:
        raise BadInput(f"--port {port} was given; it must be between 0 and {MAX_PORT}.")
    tried = [0] if port == 0 else range(port, min(port + PORTS_TRIED, MAX_PORT + 1))
    for free_port in tried:
        try:
            family = socket.getaddrinfo(host, free_port, type=socket.SOCK_STREAM)[0][0]
            is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            place = (host, free_port)
            listener = socket.create_server(
                place, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
            )
        except (OSError, UnicodeError) as error:
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                continue
            raise BadInput(
                f"Cannot listen on {host} port {port}: {error}. Use --host 127.0.0.1 for this "
                "machine only or --host 0.0.0.0 for all its networks, and a port above 1023."
            ) from error
        with listener:
            yield listener
            return
    raise BadInput(
        f"Ports {port} to {tried[-1]} of {host} are all in use. Choose another with --port, or "
        "any free one with --port 0."
    )
