"""Environments of other packages."""

import importlib
import warnings
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # dm_control warns where there is no display
            module = importlib.import_module(name)
    except ImportError as error:
        raise BadInput(
            f"{env_id} needs a package that is not installed here ({error}). Install it with "
            f"`{command}`."
        ) from error
    # Meta-World registers one id, whose argument is the task.
    for task in getattr(module, "ALL_V3_ENVIRONMENTS", ()):
        if f"{prefix}/{task}" not in gymnasium.registry:
            gymnasium.register(f"{prefix}/{task}", MetaWorldTask, kwargs={"name": task})


class MetaWorldTask(gymnasium.Wrapper):
    """A task of Meta-World with 50 goals, among which each reset draws one by its seed."""

    def __init__(self, name: str, **arguments: Any) -> None:
        import metaworld  # noqa: PLC0415 # pyright: ignore[reportMissingImports] - optional

        # The goals are the same in all environments of a run.
        super().__init__(metaworld.make_mt_envs(name, seed=0, **arguments))
        own: Any = self.unwrapped
        # From behind, the arm hides what it works on.
        own.mujoco_renderer.default_cam_config = {"azimuth": -130, "elevation": -30}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; Meta-World's own `reset` ignores the seed."""
        if seed is not None:
            own: Any = self.unwrapped
            own.seed(seed)
        return super().reset(seed=seed, options=options)
