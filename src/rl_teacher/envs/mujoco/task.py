"""What a MuJoCo task is: a body, what the agent sees of it, and what counts.

A task is a record of small functions on whole batches: `mujoco_rules` has the functions,
`mujoco_suite` the tasks, and `mujoco_physics` steps them. Only NumPy is imported by the first two,
so that listing the tasks costs nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True)
class Physics:
    """What the rules of a task may look at: live views of N simulations of one model.

    Attributes:
        state: [N, nq + nv] positions, then velocities.
        qpos: [N, nq] its first part.
        qvel: [N, nv] its second part.
        ctrl: [N, nu] the motors' inputs.
        body_mass: of each body, in kg.
        derived: `MjData` fields as `mj_step` leaves them, which is what Gymnasium sees.
    """

    state: Float[np.ndarray, "env state"]
    qpos: Float[np.ndarray, "env nq"]
    qvel: Float[np.ndarray, "env nv"]
    ctrl: Float[np.ndarray, "env nu"]
    body_mass: Float[np.ndarray, " body"]
    derived: dict[str, np.ndarray]


Start = tuple[Float[np.ndarray, " nq"], Float[np.ndarray, " nv"]]
Score = tuple[Float[np.ndarray, " env"], Bool[np.ndarray, " env"] | None]

DrawStart = Callable[[np.random.Generator, np.ndarray, np.ndarray], Start]
Observe = Callable[[Physics, np.ndarray], None]
ScoreStep = Callable[[Physics, np.ndarray, np.ndarray], Score]
Track = Callable[[Physics], np.ndarray]


@dataclass(frozen=True)
class Body:
    """What all tasks of one body share.

    Attributes:
        model_file: among Gymnasium's assets.
        frame_skip: physics steps per environment step.
        fps: environment steps that a clip shows per second.
        draw_start: (rng, init_qpos, init_qvel) -> the first qpos and qvel of an episode.
        track: [N] the x position whose change per second is the forward velocity, or None.
        derived: the `MjData` fields that `track` and the scores read.
        camera: settings of MuJoCo's free camera, for rendering.
    """

    model_file: str
    frame_skip: int
    fps: float
    draw_start: DrawStart
    track: Track | None = None
    derived: tuple[str, ...] = ()
    camera: Mapping[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """What an agent sees.

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
        id: as people type it.
        body: what moves.
        view: what the agent sees.
        score: (physics, velocity_x, actions) -> [N] rewards, [N] terminated or None for "never".
        max_episode_steps: where an episode is cut.
        can_terminate: whether `score` may end an episode.
        is_suite: float32 observations, and an episode whose physics blew up is cut.
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
        """The `MjData` fields that its functions read besides qpos, qvel and ctrl."""
        return frozenset((*self.body.derived, *self.view.derived))

    @property
    def description(self) -> str:
        """One line: what is rewarded."""
        return (self.score.__doc__ or "").strip().splitlines()[0].removesuffix(".")
