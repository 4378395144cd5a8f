"""Address of the running service, and links to it; the service itself is not imported here."""

import hashlib
import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import home
from rl_teacher.store.files import folder_errors, write_atomically
from rl_teacher.web.token import access_token

FILE_NAME = "service.json"
HEALTH_TIMEOUT_S = 2.0
POLL_INTERVAL_S = 0.05
PLAY_PATH = "/play"


@dataclass(frozen=True)
class Address:
    """Address of a running service.

    Attributes:
        url: Base URL for a browser on this machine.
        host: Host in the URL.
        port: TCP port.
        pid: Process id.
        instance: Unique name of the process, which `/healthz` returns as well.
        serves: Identifier of the store and the media, see `serves`.
    """

    url: str
    host: str
    port: int
    pid: int
    instance: str
    serves: str


def serves(database: str | Path, media: str | Path) -> str:
    """Return an identifier of a database and a media folder that does not reveal passwords."""
    return hashlib.sha256(f"{database}\n{media}".encode()).hexdigest()[:16]


def link(address: Address, name: str | None = None, *, labels: bool = True) -> str:
    """Return the link to an experiment with the access token; without a name, to all experiments.

    Args:
        address: Address of the service.
        name: Name of an experiment.
        labels: Whether to link to the labelling page instead of the experiment's page.
    """
    if name is None:
        return with_token(address, "/")
    return with_token(address, label_path(name) if labels else experiment_path(name))


def play_link(address: Address) -> str:
    """Return the link to the played episodes."""
    return with_token(address, PLAY_PATH)


def comparison_link(address: Address, name: str, comparison_id: int) -> str:
    """Return the link to one comparison.

    Args:
        address: Address of the service.
        name: Name of the experiment.
        comparison_id: Id of the comparison in the store.
    """
    return with_token(address, label_path(name), comparison=str(comparison_id))


def credential_link(address: Address, credential: str, name: str | None = None) -> str:
    """Return the login link of a labeler.

    Args:
        address: Address of the service.
        credential: Credential of the labeler.
        name: Experiment to label; None for the list of all experiments.
    """
    path = "/" if name is None else label_path(name)
    return f"{address.url}{path}?{urlencode({'token': credential})}"


def label_path(name: str) -> str:
    """Return the path of the labelling page."""
    return f"{experiment_path(name)}/label"


def experiment_path(name: str) -> str:
    """Return the path of an experiment's page."""
    return f"/e/{quote(name, safe='')}"


def with_token(address: Address, path: str, **query: str) -> str:
    """Return an address with the access token."""
    return f"{address.url}{path}?{urlencode({**query, 'token': access_token(home())})}"


def running_service(store_and_media: str | None = None) -> Address | None:
    """Return the address of the running service of this home, or None.

    Args:
        store_and_media: Result of `serves`; services of other databases or media are ignored.
    """
    address = _read(home() / FILE_NAME)
    if address is None or store_and_media not in (None, address.serves):
        return None
    return address if _instance_at(address) == address.instance else None


def await_service(
    process: subprocess.Popen[bytes],
    timeout_s: float = 30.0,
    store_and_media: str | None = None,
) -> Address:
    """Wait until a child process that was started as the service listens.

    Args:
        process: The child process.
        timeout_s: Time to wait.
        store_and_media: Result of `serves`; another service of these is accepted as well. Two runs
            that start at the same time both start one, and only one of them stays published.

    Raises:
        BadInput: The process ended, or did not listen in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        address = running_service(store_and_media)
        if address is not None and (store_and_media or address.pid == process.pid):
            return address
        time.sleep(POLL_INTERVAL_S)
    ended = "does not answer" if process.poll() is None else f"ended with {process.returncode}"
    raise BadInput(
        f"The labelling page's service {ended}. Start `rl-teacher serve` in another terminal: "
        "it says why."
    )


@contextmanager
def published(address: Address) -> Iterator[None]:
    """Publish the address in the home and remove it at the end, unless another service replaced it.

    Raises:
        RunFolderUnusable: The home cannot be written.
    """
    path = home() / FILE_NAME
    with folder_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(address)).encode(), is_synced=False)
    try:
        yield
    finally:
        if _read(path) == address:
            path.unlink(missing_ok=True)


def local_address(host: str, port: int, instance: str, store_and_media: str) -> Address:
    """Return the address of a service in this process.

    Args:
        host: Host that the socket is bound to; wildcard addresses are reached through loopback.
        port: TCP port.
        instance: Unique name of the process.
        store_and_media: Result of `serves`.
    """
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    url_host = f"[{reached}]" if ":" in reached else reached
    return Address(
        f"http://{url_host}:{port}", reached, port, os.getpid(), instance, store_and_media
    )


def _read(path: Path) -> Address | None:
    """Read an address file; None if it is missing or invalid."""
    try:
        address = Address(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return address if isinstance(address.port, int) and isinstance(address.host, str) else None


def _instance_at(address: Address) -> str | None:
    """Return the instance that answers at an address, or None."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        answered = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return answered.get("instance") if isinstance(answered, dict) else None
