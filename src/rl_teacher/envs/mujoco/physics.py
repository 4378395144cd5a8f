"""Batched MuJoCo simulations of one task, on the engine's thread pool."""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_env import expand_model_path
from gymnasium.spaces import Box
from jaxtyping import Bool, Float, Inexact, Int, Shaped

from rl_teacher.common.errors import BadConfig
from rl_teacher.envs.mujoco.task import Physics, Task, check_mujoco

if TYPE_CHECKING:
    from mujoco.batch import Batch


class quiet_mujoco:  # noqa: N801
    """A context that keeps MuJoCo's warnings off the terminal and out of MUJOCO_LOG.TXT.

    MuJoCo warns of a deprecated keyword in Gymnasium's model files and of diverged physics.
    """

    # A class, because a generator-based context costs more, and this runs at every step.

    def __enter__(self) -> None:
        self._was = mujoco.MjLogConfig.get()
        _SILENCE.set()

    def __exit__(self, *_: object) -> None:
        self._was.set()


if hasattr(mujoco, "MjLogConfig"):
    _SILENCE = mujoco.MjLogConfig.get()
    _SILENCE.logto_console = False
    _SILENCE.logto_file = False
else:  # below MuJoCo 4
    quiet_mujoco = nullcontext  # pyright: ignore[reportAssignmentType]


def load_model(task: Task) -> mujoco.MjModel:
    """Load the task's model from Gymnasium's files."""
    with quiet_mujoco():
        return mujoco.MjModel.from_xml_path(expand_model_path(task.body.model_file))


class Simulations:
    """N simulations of one task, without episodes."""

    _computes_steps = True
    """False in a subclass that steps elsewhere, and uses the batch for initial states only."""

    def __init__(self, task: Task, num_envs: int, num_threads: int | None = None) -> None:
        if num_threads is not None and num_threads < 1:
            raise BadConfig(f"num_threads is {num_threads}; at least 1 is needed.")
        check_mujoco(task.id)
        from mujoco.batch import Batch  # noqa: PLC0415 - MuJoCo 4

        self.task = task
        self.num_envs = num_envs
        self.model = load_model(task)
        # 0 threads mean all CPUs. Contact forces are read from each simulation's own MjData, hence
        # `persistent`.
        recomputes_forces = self._computes_steps and "cfrc_ext" in task.derived
        self._batch = Batch(self.model, num_envs, num_threads or 0, persistent=recomputes_forces)
        self._batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._contact_forces = _ContactForces(self._batch) if recomputes_forces else None
        self.physics = self._live_views()
        # The whole integration state, so that a reset leaves neither time nor warm start behind.
        self._blank_row = self._batch.state[0].copy()
        self._init_qpos = self.physics.qpos[0].copy()
        self._init_qvel = self.physics.qvel[0].copy()
        stages = mujoco.mjtStage
        self._stage = (stages.mjSTAGE_VEL if task.body.is_current else stages.mjSTAGE_NONE).value
        self._step_seconds = self.model.opt.timestep * task.body.frame_skip
        self._tracked_x = np.zeros(num_envs)
        self._time = self._batch.bind("time")
        self._time_before = self._time.copy()
        self._dtype = np.float32 if task.is_suite else np.float64
        self._obs_shape = (num_envs, task.view.size)

    def _live_views(self) -> Physics:
        batch, model = self._batch, self.model
        derived = {name: batch.bind(name) for name in self.task.derived - {"cfrc_ext"}}
        if self._contact_forces is not None:
            derived["cfrc_ext"] = self._contact_forces.values
        return Physics(
            # qpos and qvel are adjacent in MuJoCo's state row, so one copy observes both.
            state=batch.state[:, 1 : 1 + model.nq + model.nv],
            qpos=batch.bind("qpos"),
            qvel=batch.bind("qvel"),
            ctrl=batch.bind("ctrl"),
            body_mass=model.body_mass,
            derived=derived,
        )

    @property
    def observation_space(self) -> Box:
        """The observation space of one environment."""
        return Box(-np.inf, np.inf, (self.task.view.size,), self._dtype)

    @property
    def action_space(self) -> Box:
        """The action space of one environment: the range of the model's motors."""
        low, high = self.model.actuator_ctrlrange.astype(np.float32).T
        return Box(low=low, high=high, dtype=np.float32)

    def restart(self, ids: Int[np.ndarray, " some"], rngs: Sequence[np.random.Generator]) -> None:
        """Reset simulations to initial states, each drawn from its own generator."""
        self._batch.state[ids] = self._blank_row
        for index, rng in zip(ids, rngs, strict=True):
            qpos, qvel = self.task.body.draw_start(rng, self._init_qpos, self._init_qvel)
            self.physics.qpos[index], self.physics.qvel[index] = qpos, qvel
        with quiet_mujoco():
            if self.task.body.settle is not None:
                self.task.body.settle(self._batch, ids)
            self._refresh_derived(ids)
        # Later than the end of a first step: otherwise, a simulation that MuJoCo resets to time 0
        # in this step would end it at the same time as others; see `_truncate_diverged`.
        self._time_before[ids] = self._time[ids] = 2 * self._step_seconds
        if self.task.body.track is not None:
            self._tracked_x[ids] = self.task.body.track(self.physics.rows(ids))

    def advance(
        self, actions: Shaped[np.ndarray, "env nu"]
    ) -> tuple[Float[np.ndarray, " env"], Bool[np.ndarray, " env"], Bool[np.ndarray, " env"]]:
        """Advance all simulations by one environment step.

        Returns:
            [N] rewards, [N] terminated by rules, [N] truncated because the physics diverged.
        """
        self.physics.ctrl[:] = actions
        with quiet_mujoco():
            self._step()
        # Zeros in tasks without a tracked position.
        velocity_x = self._tracked_x
        if self.task.body.track is not None:
            x_before = self._tracked_x
            self._tracked_x = self.task.body.track(self.physics).astype(np.float64)
            velocity_x = (self._tracked_x - x_before) / self._step_seconds
        rewards, terminated = self.task.score(self.physics, velocity_x, actions)
        # Physics of 32 bits may have rewards of 32 bits.
        rewards = rewards.astype(np.float64)
        if terminated is None:
            terminated = np.zeros(self.num_envs, dtype=np.bool_)
        return rewards, terminated, self._truncate_diverged(rewards)

    def observe(self) -> Inexact[np.ndarray, "env obs"]:
        """Return the [N, D] observations of all simulations as a new array."""
        observations = np.empty(self._obs_shape, self._dtype)
        self.task.view.observe(self.physics, observations)
        return observations

    def observe_some(self, ids: Int[np.ndarray, " some"]) -> Inexact[np.ndarray, "some obs"]:
        """Return the [len(ids), D] observations of some simulations."""
        some = np.empty((len(ids), self.task.view.size), self._dtype)
        self.task.view.observe(self.physics.rows(ids), some)
        return some

    def render_data(self, sim: int) -> mujoco.MjData:
        """Return the complete `MjData` of one simulation, for rendering."""
        shown = self._batch.get_data(sim)
        mujoco.mj_forward(self.model, shown)
        return shown

    def get_state(self) -> dict[str, np.ndarray]:
        """Return MuJoCo's integration state and the tracked x."""
        return {"physics": self._batch.state.copy(), "tracked_x": self._tracked_x.copy()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state from `get_state`, bit for bit."""
        self._batch.state[:] = state["physics"]
        self._tracked_x[:] = state["tracked_x"]
        self._time_before[:] = self._time

    def _step(self) -> None:
        """Advance all states, and the derived fields with them."""
        self._batch.step(nstep=self.task.body.frame_skip, stage=self._stage)
        if self._contact_forces is not None:
            self._contact_forces.refresh()

    def _refresh_derived(self, ids: Int[np.ndarray, " some"]) -> None:
        """Compute the derived fields of new states, for observations before the first step."""
        self._batch.forward(ids)
        if self._contact_forces is not None:
            self._contact_forces.clear(ids)

    def _truncate_diverged(self, rewards: Float[np.ndarray, " env"]) -> Bool[np.ndarray, " env"]:
        """Return [N] True for diverged simulations, and set their rewards to 0.

        MuJoCo resets a diverged simulation to the model's pose and to time 0 in mid-step. The jump
        is no motion, so suite tasks truncate the episode; plain tasks continue, as Gymnasium does.
        """
        if not self.task.is_suite:
            return np.zeros(self.num_envs, dtype=np.bool_)
        has_diverged = self._time <= self._time_before
        self._time_before = self._time.copy()
        if has_diverged.any():
            rewards[has_diverged] = 0.0
        return has_diverged


class _ContactForces:
    """The contact forces `cfrc_ext` of all simulations, which `Batch` does not compute.

    Gymnasium calls `mj_rnePostConstraint` after `mj_step`. This does the same on a copy of each
    simulation's MjData, at 10 microseconds each, about 10 % of Ant's physics.
    """

    def __init__(self, batch: "Batch") -> None:
        self._batch = batch
        self._scratch = mujoco.MjData(batch.model)
        self._scratch_forces = self._scratch.cfrc_ext
        self.values = np.zeros((batch.nsim, *self._scratch_forces.shape))

    def refresh(self) -> None:
        model, scratch = self._batch.model, self._scratch
        for sim in range(len(self.values)):
            self._batch.get_data(sim, scratch)
            mujoco.mj_rnePostConstraint(model, scratch)
            self.values[sim] = self._scratch_forces

    def clear(self, ids: Int[np.ndarray, " some"]) -> None:
        self.values[ids] = 0.0
