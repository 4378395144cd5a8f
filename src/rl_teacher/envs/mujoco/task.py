"""The definition of a MuJoCo task: a body, an observation and a reward.

A task consists of small functions on whole batches: `rules` has the functions, `suite` the tasks,
and `physics` steps them. The first two import NumPy only, so that listing tasks is fast.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from rl_teacher.common.errors import BadInput


@dataclass(frozen=True)
class Physics:
    """Live views of N simulations of one model, for the functions of a task.

    Attributes:
        state: [N, nq + nv] positions, then velocities.
        qpos: [N, nq] positions.
        qvel: [N, nv] velocities.
        ctrl: [N, nu] motor inputs.
        body_mass: mass of each body in kg.
        derived: further `MjData` fields; see `Body.is_current`.
    """

    state: Float[np.ndarray, "env state"]
    qpos: Float[np.ndarray, "env nq"]
    qvel: Float[np.ndarray, "env nv"]
    ctrl: Float[np.ndarray, "env nu"]
    body_mass: Float[np.ndarray, " body"]
    derived: dict[str, np.ndarray]

    def rows(self, rows: slice | Int[np.ndarray, " some"]) -> "Physics":
        """Select simulations: live views with a slice, copies with indices."""
        return Physics(
            state=self.state[rows],
            qpos=self.qpos[rows],
            qvel=self.qvel[rows],
            ctrl=self.ctrl[rows],
            body_mass=self.body_mass,
            derived={name: values[rows] for name, values in self.derived.items()},
        )


Start = tuple[Float[np.ndarray, " nq"], Float[np.ndarray, " nv"]]
Score = tuple[Float[np.ndarray, " env"], Bool[np.ndarray, " env"] | None]

DrawStart = Callable[[np.random.Generator, np.ndarray, np.ndarray], Start]
Observe = Callable[[Physics, np.ndarray], None]
ScoreStep = Callable[[Physics, np.ndarray, np.ndarray], Score]
Track = Callable[[Physics], np.ndarray]
Settle = Callable[[Any, np.ndarray], None]


@dataclass(frozen=True)
class Body:
    """Properties that all tasks of one body share.

    Attributes:
        model_file: name among Gymnasium's assets, or absolute path.
        frame_skip: physics steps per environment step.
        fps: environment steps per second of a clip.
        draw_start: (rng, init_qpos, init_qvel) -> the first qpos and qvel of an episode.
        settle: (batch, ids) -> None changes the drawn states by simulation, or None.
        track: [N] the x position whose change per second is the forward velocity, or None.
        derived: the `MjData` fields that `track` and the scores read.
        camera: settings of MuJoCo's free camera, for rendering.
        is_current: whether derived fields describe the state after a step, as in dm_control, or the
            one before its last physics step, as in Gymnasium.
    """

    model_file: str
    frame_skip: int
    fps: float
    draw_start: DrawStart
    settle: Settle | None = None
    track: Track | None = None
    derived: tuple[str, ...] = ()
    camera: Mapping[str, float | int] = field(default_factory=dict)
    is_current: bool = False


@dataclass(frozen=True)
class View:
    """An observation.

    Attributes:
        size: D.
        observe: (physics, out) writes [N, D] into `out`.
        derived: the `MjData` fields that `observe` reads; `cfrc_ext` costs 10 %.
    """

    size: int
    observe: Observe
    derived: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """One environment.

    Attributes:
        id: the id.
        body: the body.
        view: the observation.
        score: (physics, velocity_x, actions) -> [N] rewards, [N] terminated or None for "never".
        max_episode_steps: time limit.
        can_terminate: whether `score` may end an episode.
        is_suite: whether observations are float32 and diverged episodes are truncated.
    """

    id: str
    body: Body
    view: View
    score: ScoreStep
    max_episode_steps: int = 1000
    can_terminate: bool = False
    is_suite: bool = True

    @property
    def derived(self) -> frozenset[str]:
        """The `MjData` fields that the functions read besides qpos, qvel and ctrl."""
        return frozenset((*self.body.derived, *self.view.derived))

    @property
    def description(self) -> str:
        """The reward in one line."""
        return (self.score.__doc__ or "").strip().splitlines()[0].removesuffix(".")


@cache
def mujoco_version() -> str:
    """Return the installed version of MuJoCo without importing it, which is slow."""
    return version("mujoco")


def check_mujoco(env_id: str) -> None:
    """Refuse a task where MuJoCo has no batch.

    Raises:
        BadInput: the installed version is below 4.0.
    """
    if (installed := mujoco_version()).startswith("3."):
        raise BadInput(f"{env_id} needs MuJoCo 4.0 or newer, and {installed} is installed here.")
