"""Connection of the learner to a Ray cluster."""

import contextlib
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from rl_teacher.common.errors import BadConfig, ClusterUnavailable, MissingExtra

CONNECT_TIMEOUT_S = 5.0
"""Time in which the head node must accept a connection."""


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
        raise ClusterUnavailable(
            f"--cluster {address} was given, and the connection failed: "
            f"{' '.join(str(error).split())[:400]}. Start a cluster with `ray start --head`, with "
            "the versions of Ray and Python that are installed here, or leave --cluster out."
        ) from error
    if is_main_thread:
        # Ray exits on SIGTERM; a run stops after the current rollout, and saves.
        signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
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
