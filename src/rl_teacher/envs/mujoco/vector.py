"""MuJoCo tasks as Gymnasium environments, vectorised or single."""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Float, Inexact, Int, Shaped

from rl_teacher.envs.interface import SeededVectorEnv, check_saved_state, final_infos
from rl_teacher.envs.mujoco.physics import Simulations
from rl_teacher.envs.mujoco.suite import TASKS
from rl_teacher.envs.mujoco.task import Task

if TYPE_CHECKING:
    from rl_teacher.config.experiment import PhysicsBackend

Infos = dict[str, Any]

RENDER_SIZE = 480  # Pixels, as Gymnasium's.


def make_simulations(
    task: Task, num_envs: int, num_threads: int | None, physics: "PhysicsBackend"
) -> Simulations:
    """Create N simulations of a task: MuJoCo's, or MuJoCo Warp's on a GPU.

    Raises:
        BadInput: MuJoCo Warp cannot be used here.
    """
    if physics == "cpu":
        return Simulations(task, num_envs, num_threads)
    from rl_teacher.envs.mujoco.warp import WarpSimulations, find_gpu  # noqa: PLC0415 - optional

    return WarpSimulations(task, num_envs, num_threads, find_gpu())


class MujocoVectorEnv(SeededVectorEnv):
    """N environments of one task; a finished episode is reset in the same step.

    Equal to Gymnasium's `SyncVectorEnv` with SAME_STEP autoreset and the same seeds.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        task: Task,
        num_envs: int,
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        physics: "PhysicsBackend" = "cpu",
    ) -> None:
        super().__init__(num_envs)
        self._simulations = make_simulations(task, num_envs, num_threads, physics)
        self._max_episode_steps = max_episode_steps or task.max_episode_steps
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._env_indices = np.arange(num_envs, dtype=np.int32)
        self.single_observation_space = self._simulations.observation_space
        self.single_action_space = self._simulations.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._action_shape = (num_envs, self._simulations.model.nu)
        # After `set_state` only: fields that observations are computed from are not saved.
        self._restored: np.ndarray | None = None

    @property
    def model(self) -> mujoco.MjModel:
        """The model, for rendering clips."""
        return self._simulations.model

    @property
    def scene_states(self) -> Float[np.ndarray, "env nq"]:
        """[N, nq] current positions, for rendering. A live view: copy it to keep it."""
        return self._simulations.physics.qpos

    @property
    def observations(self) -> Inexact[np.ndarray, "env obs"]:
        """[N, D] the latest observations, which later steps do not overwrite."""
        if self._restored is not None:
            return self._restored.copy()
        return self._simulations.observe()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Inexact[np.ndarray, "env obs"], Infos]:
        """Start new episodes.

        Args:
            seed: one seed (environment i gets seed + i), one per environment, or None to continue
                the generators.
            options: `elapsed_steps`, [N] initial step counts; `reset_mask`, [N] booleans, the
                environments to reset (Gymnasium's).
        """
        is_reset, elapsed = self.begin_reset(seed, options, self._max_episode_steps)
        ids = self._env_indices[is_reset]
        self._start_episodes(ids)
        self._elapsed[ids] = elapsed[ids]
        if self._restored is not None:
            self._restored[ids] = self._simulations.observe_some(ids)
        return self.observations, {}

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, actions: Shaped[np.ndarray, "env nu"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Step all environments; finished episodes are reset in the same step.

        Raises:
            ValueError: the actions have another shape.
        """
        actions = np.asarray(actions)
        if actions.shape != self._action_shape:
            raise ValueError(
                f"The actions have shape {actions.shape}; {self._action_shape} is needed."
            )
        simulations = self._simulations
        rewards, terminated, truncated = simulations.advance(actions)
        self._elapsed += 1
        truncated |= self._elapsed >= self._max_episode_steps
        observations, infos = simulations.observe(), {}
        ended = terminated | truncated
        if ended.any():
            ids = self._env_indices[ended]
            # Pages of zeros cost nothing until they are written to.
            final = np.zeros(observations.shape, observations.dtype)
            final[ids] = observations[ids]
            infos = final_infos(final, ended)
            self._start_episodes(ids)
            observations[ids] = simulations.observe_some(ids)
        self._restored = None
        return observations, rewards, terminated, truncated, infos

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the full state as arrays, see `set_state`."""
        return {
            **self._simulations.get_state(),
            "elapsed": self._elapsed.copy(),
            "observations": self.observations,
            "rng": self.pack_generators(),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state from `get_state` of this or another process, bit for bit."""
        check_saved_state(state, self.get_state())
        self._simulations.set_state(state)
        self._elapsed[:] = state["elapsed"]
        self._restored = state["observations"].copy()
        self.unpack_generators(state["rng"])

    def _start_episodes(self, ids: Int[np.ndarray, " some"]) -> None:
        self._simulations.restart(ids, [self._rngs[index] for index in ids])
        self._elapsed[ids] = 0


class MujocoSingleEnv(gymnasium.Env):
    """One environment of a task, without a time limit; `gymnasium.make` adds it."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        self._simulations = Simulations(task, num_envs=1, num_threads=1)
        self.observation_space = self._simulations.observation_space
        self.action_space = self._simulations.action_space
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": task.body.fps}
        self._renderer: Any = None
        self._only = np.zeros(1, dtype=np.int32)

    @property
    def model(self) -> mujoco.MjModel:
        """The model."""
        return self._simulations.model

    @property
    def scene_state(self) -> Float[np.ndarray, " nq"]:
        """[nq] current positions, as a live view."""
        return self._simulations.physics.qpos[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Inexact[np.ndarray, " obs"], Infos]:
        """Start a new episode."""
        super().reset(seed=seed, options=options)
        self._simulations.restart(self._only, [self.np_random])
        return self._simulations.observe()[0], {}

    def step(
        self, action: Shaped[np.ndarray, " nu"]
    ) -> tuple[Inexact[np.ndarray, " obs"], float, bool, bool, Infos]:
        """Take one step."""
        rewards, terminated, truncated = self._simulations.advance(np.asarray(action)[None])
        obs = self._simulations.observe()[0]
        return obs, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Any:
        """Return the image [height, width, 3] if `render_mode` is "rgb_array", else None.

        Rendering needs OpenGL but no display: MUJOCO_GL=egl or osmesa.
        """
        if self.render_mode is None:
            return None
        shown = self._simulations.render_data(0)
        if self._renderer is None:
            from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer  # noqa: PLC0415

            camera = dict(self._simulations.task.body.camera)
            self._renderer = MujocoRenderer(self.model, shown, camera, RENDER_SIZE, RENDER_SIZE)
        self._renderer.data = shown
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def make_single(env_id: str, render_mode: str | None = None) -> MujocoSingleEnv:
    """Create a single environment: Gymnasium's entry point."""
    return MujocoSingleEnv(TASKS[env_id], render_mode)


def make_vector(
    env_id: str,
    num_envs: int = 1,
    num_threads: int | None = None,
    max_episode_steps: int | None = None,
    physics: "PhysicsBackend" = "cpu",
) -> MujocoVectorEnv:
    """Create a vector environment: Gymnasium's vector entry point."""
    return MujocoVectorEnv(TASKS[env_id], num_envs, num_threads, max_episode_steps, physics)
