"""Functions that are called on the nodes of a cluster."""

import os
from collections.abc import Callable
from typing import TypeVar

from rl_teacher.cluster.connection import import_ray
from rl_teacher.common.errors import BadInput

Item = TypeVar("Item")
Result = TypeVar("Result")

SHARED_VARIABLES = ("RL_TEACHER_HOME", "RL_TEACHER_DATABASE_URL", "RL_TEACHER_MEDIA_URL")
"""Environment variables of this process that the calls have, too."""


def on_cluster(function: Callable[[Item], Result], num_cpus: int) -> Callable[[Item], Result]:
    """Return a function that calls another one on a node with free CPUs, and waits for its result.

    A call whose node dies is repeated on another one, at most three times.

    Args:
        function: function of one argument, which can be pickled as its result can.
        num_cpus: CPUs that a call occupies.

    Raises:
        BadInput: no node has as many.
    """
    ray = import_ray()
    largest = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    if num_cpus > largest:
        raise BadInput(
            f"--cpus {num_cpus} was given, and the largest node of the cluster has {largest}. Give "
            "a smaller number, or add a larger node."
        )
    variables = {name: os.environ[name] for name in SHARED_VARIABLES if name in os.environ}
    remote = ray.remote(function).options(
        num_cpus=num_cpus,
        max_retries=3,
        scheduling_strategy="SPREAD",
        runtime_env={"env_vars": variables},
    )

    def call(item: Item) -> Result:
        try:
            return ray.get(remote.remote(item))
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None

    return call


def num_cluster_cpus() -> int:
    """Return the number of CPUs of all nodes."""
    return int(import_ray().cluster_resources().get("CPU", 0))
