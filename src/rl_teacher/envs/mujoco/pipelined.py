"""Environments in groups: a GPU steps one group while the CPU ends the step of another."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from jaxtyping import Float, Inexact, Shaped

from rl_teacher.common.array_pool import ArrayPool
from rl_teacher.common.errors import BadConfig, CorruptCheckpoint
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.interface import Shard, StatefulVectorEnv, final_infos
from rl_teacher.envs.mujoco.vector import Infos, MujocoVectorEnv, checked_actions


class PipelinedVectorEnv(StatefulVectorEnv):
    """N environments of one task in groups, whose steps begin together and end in turn.

    Equal to one group of all environments.
    """

    metadata = MujocoVectorEnv.metadata
    split_state = staticmethod(MujocoVectorEnv.split_state)
    join_states = staticmethod(MujocoVectorEnv.join_states)

    def __init__(self, groups: Sequence[MujocoVectorEnv]) -> None:
        self._groups = groups
        bounds = np.cumsum([0, *(group.num_envs for group in groups)]).tolist()
        self.num_envs: int = bounds[-1]
        self.render_mode = None
        self._shards = [Shard(start, stop, self.num_envs) for start, stop in pairwise(bounds)]
        self.single_observation_space = groups[0].single_observation_space
        self.single_action_space = groups[0].single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._action_shape = self.num_envs, groups[0].model.nu
        self._pool = ArrayPool()

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One generator per environment."""
        return tuple(rng for group in self._groups for rng in group.np_random)

    @property
    def scene_states(self) -> Float[np.ndarray, "env nq"]:
        """[N, nq] current positions, for rendering."""
        return np.concatenate([group.scene_states for group in self._groups])

    @property
    def observations(self) -> Inexact[np.ndarray, "env obs"]:
        """[N, D] the latest observations."""
        return np.concatenate([group.observations for group in self._groups])

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Inexact[np.ndarray, "env obs"], Infos]:
        """Start new episodes; see `MujocoVectorEnv.reset`."""
        if isinstance(seed, int | np.integer):
            seed = range(int(seed), int(seed) + self.num_envs)
        given = {"seed": seed} if seed is not None else {}
        values = {name: np.asarray(value) for name, value in (options or {}).items()}
        for name, rows in {**values, **given}.items():
            if len(rows) != self.num_envs:
                raise BadConfig(
                    f"{len(rows)} values of {name} were given for {self.num_envs} environments."
                )
        observations = [
            group.reset(
                seed=None if seed is None else seed[shard.rows],
                options={name: value[shard.rows] for name, value in values.items()},
            )[0]
            for group, shard in zip(self._groups, self._shards, strict=True)
        ]
        return np.concatenate(observations), {}

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, actions: Shaped[np.ndarray, "env nu"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Step all environments; finished episodes are reset in the same step."""
        self.begin_step(actions)
        return self.end_step()

    def begin_step(self, actions: Shaped[np.ndarray, "env nu"]) -> None:
        """Begin a step of all groups; see `MujocoVectorEnv.begin_step`."""
        actions = checked_actions(actions, self._action_shape)
        for group, shard in zip(self._groups, self._shards, strict=True):
            group.begin_step(actions[shard.rows])

    def end_step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Wait for the step that was begun, group by group; return the same as `step`."""
        shape, dtype = self.observation_space.shape or (), self.observation_space.dtype
        observations, final = (self._pool.empty(shape, dtype) for _ in range(2))
        results = [
            group.end_step(observations[shard.rows], final[shard.rows])
            for group, shard in zip(self._groups, self._shards, strict=True)
        ]
        _, rewards, terminated, truncated, _ = zip(*results, strict=True)
        rewards, terminated, truncated = map(np.concatenate, (rewards, terminated, truncated))
        ended = terminated | truncated
        infos = final_infos(final, ended) if ended.any() else {}
        return observations, rewards, terminated, truncated, infos

    def get_state(self) -> StateDict:
        """Return the full state as arrays, see `set_state`."""
        return self.join_states([group.get_state() for group in self._groups])

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state from `get_state` of this or another process."""
        num_saved = len(state["elapsed"]) if "elapsed" in state else 0
        if num_saved != self.num_envs:
            raise CorruptCheckpoint(
                f"The state of {num_saved} environments was saved; there are {self.num_envs}."
            )
        for group, each in zip(self._groups, self.split_state(state, self._shards), strict=True):
            group.set_state(each)
