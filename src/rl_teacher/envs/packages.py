"""Environments of other packages."""

import importlib
from typing import Any

import gymnasium

from rl_teacher.common.errors import BadInput

PACKAGES = {
    # dm_control 1.0.50 reads fields that MuJoCo 4 has removed.
    "dm_control": ("shimmy", "pip install 'shimmy[dm-control]' 'mujoco<4'"),
    "Meta-World": ("metaworld", "pip install metaworld"),
}
"""By the prefix of ids: the module that registers them, and the command that installs it."""


def register_package(env_id: str) -> None:
    """Register the environments of the package that an id's prefix means, if any.

    Raises:
        BadInput: the package is not installed.
    """
    prefix = env_id.partition("/")[0]
    if prefix not in PACKAGES:
        return
    name, command = PACKAGES[prefix]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise BadInput(f"{env_id} needs a package ({error}). Run `{command}`.") from error
    # Meta-World registers one id, whose argument is the task.
    for task in getattr(module, "ALL_V3_ENVIRONMENTS", ()):
        if f"{prefix}/{task}" not in gymnasium.registry:
            gymnasium.register(f"{prefix}/{task}", MetaWorldTask, kwargs={"name": task})


class MetaWorldTask(gymnasium.Wrapper):
    """A task of Meta-World with 50 goals, among which each reset draws one by its seed."""

    def __init__(self, name: str, **arguments: Any) -> None:
        # The goals are the same in all environments of a run.
        task = importlib.import_module("metaworld").make_mt_envs(name, seed=0, **arguments)
        # From behind, the arm hides what it works on.
        task.unwrapped.mujoco_renderer.default_cam_config = {"azimuth": -130, "elevation": -30}
        super().__init__(task)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; Meta-World's own `reset` ignores the seed."""
        if seed is not None:
            self.unwrapped.seed(seed)  # pyright: ignore[reportAttributeAccessIssue]
        return super().reset(seed=seed, options=options)
