"""Many MuJoCo simulations under the rules of one task, on the engine's thread-pooled batch."""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_env import expand_model_path
from gymnasium.spaces import Box
from jaxtyping import Bool, Float, Inexact, Int, Shaped
from mujoco.batch import Batch

from rl_teacher.common.errors import BadConfig
from rl_teacher.envs.mujoco.task import Physics, Task


class quiet_mujoco:  # noqa: N801
    """A context that keeps MuJoCo's warnings off the terminal and out of MUJOCO_LOG.TXT.

    It warns of an old word in Gymnasium's own model files, and of physics that blew up.
    """

    # Note: a class, because a generator's context would cost more in the hottest place there is.

    def __enter__(self) -> None:
        self._was = mujoco.MjLogConfig.get()
        _SILENCE.set()

    def __exit__(self, *_: object) -> None:
        self._was.set()


def _silence() -> mujoco.MjLogConfig:
    config = mujoco.MjLogConfig.get()
    config.logto_console = False
    config.logto_file = False
    return config


_SILENCE = _silence()


def load_model(task: Task) -> mujoco.MjModel:
    """The task's body, from Gymnasium's model files."""
    with quiet_mujoco():
        return mujoco.MjModel.from_xml_path(expand_model_path(task.body.model_file))


class Simulations:
    """N simulations under the rules of one task; they know no episodes."""

    def __init__(self, task: Task, num_envs: int, num_threads: int | None = None) -> None:
        self.task = task
        self.num_envs = num_envs
        self.model = load_model(task)
        # Note: contact forces are read from each simulation's own MjData, hence `persistent`.
        self._batch = Batch(
            self.model, num_envs, _batch_threads(num_threads), persistent="cfrc_ext" in task.derived
        )
        self._batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._contact_forces = _ContactForces(self._batch) if "cfrc_ext" in task.derived else None
        self.physics = self._live_views()
        self._blank_row = self._batch.state[0].copy()
        self._init_qpos = self.physics.qpos[0].copy()
        self._init_qvel = self.physics.qvel[0].copy()
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
            # Note: qpos and qvel are neighbours in MuJoCo's state row: one copy observes both.
            state=batch.state[:, 1 : 1 + model.nq + model.nv],
            qpos=batch.bind("qpos"),
            qvel=batch.bind("qvel"),
            ctrl=batch.bind("ctrl"),
            body_mass=model.body_mass,
            derived=derived,
        )

    @property
    def observation_space(self) -> Box:
        """Of one environment."""
        return Box(-np.inf, np.inf, (self.task.view.size,), self._dtype)

    @property
    def action_space(self) -> Box:
        """Of one environment: the range of the model's motors."""
        low, high = self.model.actuator_ctrlrange.astype(np.float32).T
        return Box(low=low, high=high, dtype=np.float32)

    def restart(self, ids: Int[np.ndarray, " some"], rngs: Sequence[np.random.Generator]) -> None:
        """Put simulations at the start of an episode, one generator for each."""
        self._batch.state[ids] = self._blank_row
        for index, rng in zip(ids, rngs, strict=True):
            qpos, qvel = self.task.body.draw_start(rng, self._init_qpos, self._init_qvel)
            self.physics.qpos[index], self.physics.qvel[index] = qpos, qvel
        with quiet_mujoco():
            self._batch.forward(ids)
        if self._contact_forces is not None:
            self._contact_forces.clear(ids)
        self._time_before[ids] = self._time[ids]
        if self.task.body.track is not None:
            self._tracked_x[ids] = self.task.body.track(self.physics)[ids]

    def advance(
        self, actions: Shaped[np.ndarray, "env nu"]
    ) -> tuple[Float[np.ndarray, " env"], Bool[np.ndarray, " env"], Bool[np.ndarray, " env"]]:
        """One environment step.

        Returns:
            [N] rewards, [N] terminated by the rules, [N] cut because the physics blew up.
        """
        self.physics.ctrl[:] = actions
        with quiet_mujoco():
            self._batch.step(nstep=self.task.body.frame_skip)
        if self._contact_forces is not None:
            self._contact_forces.refresh()
        rewards, terminated = self.task.score(self.physics, self._velocity_x(), actions)
        if terminated is None:
            terminated = np.zeros(self.num_envs, dtype=np.bool_)
        return rewards, terminated, self._cut_blow_ups(rewards)

    def observe(self) -> Inexact[np.ndarray, "env obs"]:
        """[N, D] a fresh array."""
        out = np.empty(self._obs_shape, self._dtype)
        self.task.view.observe(self.physics, out)
        return out

    def render_data(self, sim: int) -> mujoco.MjData:
        """A complete `MjData` of one simulation, to draw from."""
        shown = self._batch.get_data(sim)
        mujoco.mj_forward(self.model, shown)
        return shown

    def get_state(self) -> dict[str, np.ndarray]:
        """All that the next step depends on: MuJoCo's integration state, and the tracked x."""
        return {"physics": self._batch.state.copy(), "tracked_x": self._tracked_x.copy()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned, bit for bit."""
        self._batch.state[:] = state["physics"]
        self._tracked_x[:] = state["tracked_x"]
        self._time_before[:] = self._time

    def _velocity_x(self) -> Float[np.ndarray, " env"]:
        if self.task.body.track is None:
            return self._tracked_x
        x_before, self._tracked_x = self._tracked_x, self.task.body.track(self.physics)
        return (self._tracked_x - x_before) / self._step_seconds

    def _cut_blow_ups(self, rewards: Float[np.ndarray, " env"]) -> Bool[np.ndarray, " env"]:
        """[N] simulations that MuJoCo put back to their model's pose, and to time 0, in mid-step.

        Such a jump is no motion: a suite task gives it no reward and cuts the episode. The plain
        tasks go on, because Gymnasium does.
        """
        if not self.task.is_suite:
            return np.zeros(self.num_envs, dtype=np.bool_)
        is_cut = self._time <= self._time_before
        self._time_before = self._time.copy()
        if is_cut.any():
            rewards[is_cut] = 0.0
        return is_cut


def _batch_threads(num_threads: int | None) -> int:
    """As `Batch` wants it: 0 means all CPUs."""
    if num_threads is not None and num_threads < 1:
        raise BadConfig(f"{num_threads} threads were asked for; ask for 1 or more.")
    return num_threads or 0


class _ContactForces:
    """`cfrc_ext` of every simulation, which `Batch` does not refresh.

    Gymnasium calls `mj_rnePostConstraint` after `mj_step`. The same is done here on a copy of each
    simulation's MjData, at 10 microseconds each, some 10 % of Ant's physics.
    """

    def __init__(self, batch: Batch) -> None:
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
