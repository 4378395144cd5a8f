"""Functions that are called on the nodes of a cluster."""

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rl_teacher.cluster.connection import import_ray
from rl_teacher.common.errors import BadInput, ClusterUnavailable
from rl_teacher.runs.folder import home

Item = TypeVar("Item")
Result = TypeVar("Result")

SHARED_VARIABLES = ("RL_TEACHER_DATABASE_URL", "RL_TEACHER_MEDIA_URL")
"""Environment variables of this process that the calls have, too, as the home."""


class ClusterFunction(Generic[Item, Result]):
    """A function that is executed on a node with free CPUs, and waited for."""

    def __init__(self, function: Callable[[Item], Result], num_cpus: int) -> None:
        """Prepare the calls.

        Args:
            function: function of one argument, which can be pickled as its result can.
            num_cpus: CPUs that a call occupies.

        Raises:
            BadInput: no node has as many.
        """
        self._ray = import_ray()
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        largest = max(int(node["Resources"].get("CPU", 0)) for node in nodes)
        if num_cpus > largest:
            raise BadInput(
                f"--cpus {num_cpus} was given, and the largest node of the cluster has {largest}. "
                "Give a smaller number, or add a larger node."
            )
        # Absolute, since processes of the nodes have another working directory.
        variables = {"RL_TEACHER_HOME": str(home())}
        variables |= {name: os.environ[name] for name in SHARED_VARIABLES if name in os.environ}
        self._remote = self._ray.remote(function).options(
            num_cpus=num_cpus,
            max_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": variables},
        )
        self._calls: list[Any] = []

    def __call__(self, item: Item) -> Result:
        """Call the function; may be used by several threads at once.

        Raises:
            ClusterUnavailable: its node or process ended.
            Exception: the function raised it.
        """
        call = self._remote.remote(item)
        self._calls.append(call)
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except self._ray.exceptions.RayError as error:
            raise ClusterUnavailable(
                f"Its node or process ended: {' '.join(str(error).split())[:400]}. Give the nodes "
                "more memory, or repeat the command after a minute."
            ) from error

    def cancel(self) -> None:
        """End the processes of all calls, and the processes that they started."""
        for call in self._calls:
            self._ray.cancel(call, force=True)


def num_cluster_cpus() -> int:
    """Return the number of CPUs of all nodes."""
    return int(import_ray().cluster_resources().get("CPU", 0))
