"""Ray clusters of several nodes on this machine."""

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

SIZE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 1024 * 1024}
"""Ray's minimum is 75 MiB."""
FAST_CHECKS = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2_000,
    "health_check_failure_threshold": 3,
}
"""Dead nodes are noticed in two seconds; by default it takes fifteen."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # The token is in a home folder, which each test has its own of.
    "RAY_AUTH_MODE": "disabled",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_MEMORY_MONITOR": "1",
    "RAY_memory_monitor_refresh_ms": "0",
}


FORKS = r"ignore:os.fork\(\) was called:RuntimeWarning"
"""Nodes are started by forking, about which JAX warns in a process that uses it."""


class Nodes:
    """A cluster whose nodes have one CPU each, and the head node as many as given."""

    def __init__(self, num_nodes=2, head_cpus=1):
        from ray.cluster_utils import Cluster

        # Ray writes the address of the latest cluster there.
        Path(tempfile.gettempdir(), "ray").mkdir(exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        arguments = {
            "include_dashboard": False,
            "temp_dir": self._folder.name,
            "_system_config": FAST_CHECKS,
        }
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={**SIZE, "num_cpus": head_cpus, **arguments},
            shutdown_at_exit=False,
        )
        self.address = self.cluster.address
        self.added = [self.add() for _ in range(num_nodes - 1)]

    def add(self):
        return self.cluster.add_node(**SIZE)

    def kill(self, node):
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self):
        self.cluster.shutdown()
        self._folder.cleanup()


@contextlib.contextmanager
def environment():
    """Set Ray's environment variables."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def running(num_nodes=2, head_cpus=1):
    """Start a cluster, and end it afterwards."""
    with environment():
        nodes = Nodes(num_nodes, head_cpus)
        try:
            yield nodes
        finally:
            nodes.close()


def wait_until(holds, timeout_s=30.0):
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
