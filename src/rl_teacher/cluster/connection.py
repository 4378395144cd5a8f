"""Connection of the learner to a Ray cluster."""

import atexit
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

from rl_teacher.common.errors import BadConfig, ClusterUnavailable, MissingExtra

CONNECT_TIMEOUT_S = 5.0
"""Time in which the head node must accept a connection."""
LOST_AFTER_S = 20.0
"""Time without the head node after which the cluster is lost. Ray ends the process after 60 s."""


class ClusterLost(ClusterUnavailable):
    """A cluster that has ended during a run; any further call of Ray would end this process."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The cluster was lost: {reason}. The last checkpoint was kept. Start the cluster "
            "again, and repeat the command to continue."
        )


def import_ray() -> Any:
    """Import Ray.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import ray  # noqa: PLC0415 - optional, and slow
        import ray.exceptions  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("--cluster needs Ray", "ray", error) from error
    return ray


def check_address(address: str) -> None:
    """Check the form of an address.

    Raises:
        BadConfig: it is none of local, auto and HOST:PORT.
    """
    if address.startswith("ray://"):
        raise BadConfig(
            f"--cluster {address} was given, an address of Ray Client, which would copy every "
            "rollout through one connection. Run the learner inside the cluster: with `ray job "
            "submit -- rl-teacher teach --cluster auto ...`, or on a node of it with --cluster "
            "auto or HOST:PORT."
        )
    host, _, port = address.rpartition(":")
    if address not in ("local", "auto") and not (host and port.isdecimal()):
        raise BadConfig(
            f"--cluster {address} was given; local, auto or the HOST:PORT of the head node is "
            "needed, for example 10.0.0.1:6379."
        )


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect this process to a cluster, or start one on this machine; disconnect afterwards.

    Args:
        address: local starts a cluster; auto finds the one of this node, or of RAY_ADDRESS; or the
            HOST:PORT of the head node.

    Raises:
        RlTeacherError: there is no such cluster, or it has another version of Ray or Python.
    """
    check_address(address)
    if address == "auto":
        # Set by `ray job submit`, among others.
        address = os.environ.get("RAY_ADDRESS") or address
        check_address(address)
    ray = import_ray()
    if ray.is_initialized():
        # The caller's connection, for example in a notebook.
        yield
        return
    if ":" in address and not is_listening(address):
        raise ClusterUnavailable(
            f"--cluster {address} was given, but nothing accepts connections there. Start the head "
            "node with `ray start --head --port 6379`, join others with `ray start --address "
            "HOST:6379`, and give the address that the first command prints."
        )
    settings: dict[str, Any] = {"address": address}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        settings |= {"num_cpus": num_available_cpus(), "include_dashboard": False}
    is_main_thread = threading.current_thread() is threading.main_thread()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            # JAX warns about forks, after which Ray executes other programs at once.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(
                **settings,
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
            )
    # Such as a token that the cluster refuses.
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise ClusterUnavailable(_refusal(address, error)) from error
    if is_main_thread:
        # Ray exits on SIGTERM; a run stops after the current rollout, and saves.
        signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    except ClusterLost:
        # The destructors of Ray end the process with a segmentation fault then.
        atexit.register(_exit_without_ray)
        raise
    except BaseException:
        ray.shutdown()
        raise
    ray.shutdown()


def num_available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_listening(address: str) -> bool:
    """Return whether HOST:PORT accepts connections."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError, UnicodeError):  # the last one for a host such as 10..0.1
        return False
    return True


class LivenessCheck:
    """A check of the two processes without which Ray ends the learner's process.

    It connects to their sockets, since Ray itself offers no call that survives their end.
    """

    def __init__(self, ray: Any) -> None:
        context = ray.get_runtime_context()
        [own] = [node for node in ray.nodes() if node["NodeID"] == context.get_node_id()]
        self._store: str = own["ObjectStoreSocketName"]
        self._head: str = context.gcs_address
        # Time of the first connection that failed after the last one that did not.
        self._silent_since_s: float | None = None

    def is_head_alive(self) -> bool:
        """Return whether the head node answers.

        Raises:
            ClusterLost: it has not for `LOST_AFTER_S`.
        """
        # Not the last success: the learner may have waited for labels for hours since then.
        began_s = time.monotonic()
        if is_listening(self._head):
            self._silent_since_s = None
            return True
        if self._silent_since_s is None:
            self._silent_since_s = began_s
        if time.monotonic() - self._silent_since_s > LOST_AFTER_S:
            raise ClusterLost(f"{self._head} has not answered for {LOST_AFTER_S:.0f} s")
        return False

    def check_own_node(self) -> None:
        """Check that the object store of the learner's node is alive.

        Raises:
            ClusterLost: it is not.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(self._store)
            except OSError as error:
                raise ClusterLost(
                    f"Ray's processes on the learner's node ended ({error})"
                ) from error


def _exit_without_ray() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ClusterLost.exit_code)


def _refusal(address: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:400]
    if "ersion mismatch" in reason:
        return (
            f"--cluster {address} was given, and the cluster runs other versions of Ray or Python "
            f"({reason}). Install the same versions on all nodes and here."
        )
    advice = "Start a cluster with `ray start --head`, or use --cluster local."
    if address == "local":
        advice = "Free memory or disk space, or leave --cluster out."
    return f"--cluster {address} was given, and the connection failed: {reason}. {advice}"
