"""The interface of vector environments: Gymnasium's, plus saved state and clips."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv
from jaxtyping import Bool, Float, Int, Shaped, UInt8

from rl_teacher.common.errors import BadConfig, CorruptCheckpoint
from rl_teacher.common.state_dict import array_to_lines, lines_to_array

ACTION_MASK = "action_mask"
"""Key of an environment's info for the actions that it allows now."""
BIT_GENERATORS: dict[str, Any] = {
    name: getattr(np.random, name) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
}
"""Sources of random bits whose state can be restored, by name."""


def sample_allowed(space: gym.Space, mask: Any) -> Any:
    """Sample an action that the environment allows.

    Args:
        space: action space of one environment.
        mask: latest value of `ACTION_MASK` in its infos; None if it allows all actions.
    """
    if mask is None or not isinstance(space, gym.spaces.Discrete):
        return space.sample()
    return space.sample(mask=np.asarray(mask, bool).astype(np.int8))


@dataclass(frozen=True)
class Shard:
    """Consecutive environments of a run, which one process steps.

    Attributes:
        start: number of the first one.
        stop: number after the last one.
        num_envs: N, environments of the whole run.
    """

    start: int
    stop: int
    num_envs: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def rows(self) -> slice:
        """The rows of these environments among those of all."""
        return slice(self.start, self.stop)


def environment_seeds(seed: int, num_envs: int) -> list[int]:
    """Derive the seeds of N environments from the seed of a run.

    Gymnasium gives environment i the seed + i, so that runs of adjacent seeds would share all but
    one of their streams.

    Returns:
        N seeds from 0 to 2^31 - 1, the range that every environment accepts. The first ones do not
        depend on N.
    """
    # 8 is the purpose of these seeds; docs/reproducibility.md lists those of the other streams.
    words = np.random.SeedSequence([seed, 8]).generate_state(num_envs)
    return (words >> 1).tolist()


LINES = ("rng", "running", "histories")
"""Names in the state of environments of lines of JSON; the other arrays have a row for each."""


class StatefulVectorEnv(VectorEnv):
    """N environments whose state can be saved, rendered and staggered.

    In addition to Gymnasium's SAME_STEP autoreset:

    * `infos["final_obs"]`, present if any episode ended, is a dense [N, ...] array of next
      observations before any reset, valid where `infos["_final_obs"]` is True: where an episode
      ended;
    * `reset(options={"elapsed_steps": ...})`, [N] integers, sets the initial step counts, so
      that episodes which only a time limit ends do not all end together;
    * `infos["ignores_action"]`, [N] booleans, if an environment ever does: the next step there
      ignores the agent's action and belongs to no episode.
    """

    @abstractmethod
    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Shaped[np.ndarray, "env ..."], dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: one seed (environment i gets seed + i), one per environment, or None to continue
                the generators.
            options: `elapsed_steps` (see above) and Gymnasium's.
        """

    @property
    @abstractmethod
    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """[N, K] what clips are rendered from: MuJoCo's qpos, or numbers of episode and step.

        It may be a live view; copy it to keep it.
        """

    @property
    @abstractmethod
    def observations(self) -> Shaped[np.ndarray, "env ..."]:
        """[N, ...] the observations after the last `reset`, `step` or `set_state`.

        Later steps do not overwrite the array.
        """

    @abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Return the full state as arrays, without pickle.

        Those of several vectors of environments can be concatenated, and sliced with
        `episode_replay.slice_state`, so that a run may be divided among processes.
        """

    @abstractmethod
    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state from `get_state`, of this or another process."""


class SeededVectorEnv(StatefulVectorEnv):
    """A vector environment with one random generator per environment."""

    def __init__(self, num_envs: int) -> None:
        """Create generators for N environments.

        Raises:
            BadConfig: N is less than 1.
        """
        if num_envs < 1:
            raise BadConfig(f"num_envs is {num_envs}; at least 1 is needed.")
        self.num_envs = num_envs
        self.render_mode = None
        self._rngs: list[np.random.Generator] = []

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One generator per environment."""
        if not self._rngs:
            self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]
        return tuple(self._rngs)

    def reseed(
        self, seed: int | Sequence[int | None] | None, is_reset: Bool[np.ndarray, " env"]
    ) -> None:
        """Start new generators in the environments that are reset.

        Args:
            seed: one seed (environment i gets seed + i), or one or None for each; None continues a
                generator.
            is_reset: [N] the environments that are reset; others keep their generators.
        """
        seeds: Sequence[int | None] = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            seeds = range(int(seed), int(seed) + self.num_envs)
        elif seed is not None:
            seeds = seed
        if len(seeds) != self.num_envs:
            raise BadConfig(f"{len(seeds)} seeds were given for {self.num_envs} environments.")
        self._rngs = [
            seeding.np_random(int(one))[0] if starts and one is not None else rng
            for rng, one, starts in zip(self.np_random, seeds, is_reset, strict=True)
        ]

    def begin_reset(
        self,
        seed: int | Sequence[int | None] | None,
        options: Mapping[str, Any] | None,
        max_episode_steps: int,
    ) -> tuple[Bool[np.ndarray, " env"], Int[np.ndarray, " env"]]:
        """Start new generators where needed.

        Returns:
            [N] the environments that are reset, and their initial step counts.
        """
        options = options or {}
        is_reset = np.array(options.get("reset_mask", np.ones(self.num_envs)), np.bool_)
        self.reseed(seed, is_reset)
        elapsed = options.get("elapsed_steps", np.zeros(self.num_envs))
        return is_reset, checked_elapsed(elapsed, self.num_envs, max_episode_steps)

    def pack_generators(self) -> UInt8[np.ndarray, " byte"]:
        """Return the states of the generators as one array."""
        return lines_to_array(rng.bit_generator.state for rng in self.np_random)

    def unpack_generators(self, packed: UInt8[np.ndarray, " byte"]) -> None:
        """Restore generators from `pack_generators`."""
        self._rngs = [generator_at(state) for state in array_to_lines(packed)]


def final_infos(
    observations: Shaped[np.ndarray, "env ..."], ended: Bool[np.ndarray, " env"]
) -> dict[str, Any]:
    """Return Gymnasium's infos about ended episodes, with their last observations."""
    finals = {"final_obs": observations, "_final_obs": ended}
    return finals | {"final_info": {}, "_final_info": ended}


def check_saved_state(saved: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> None:
    """Check that a saved state has the arrays of these environments.

    Raises:
        CorruptCheckpoint: it does not.
    """
    for name, array in own.items():
        shape = saved[name].shape if name in saved else "missing"
        # Lines vary in length.
        if shape == "missing" or (shape != array.shape and name not in LINES):
            raise CorruptCheckpoint(
                f"The environments' saved {name} is {shape}; {array.shape} is needed. It was "
                "saved for another environment, for another number of them, with other "
                "preprocessing (-f, --frame-size), or by another version."
            )


def checked_elapsed(
    elapsed_steps: Any, num_envs: int, max_episode_steps: int
) -> Int[np.ndarray, " env"]:
    """Validate the option `elapsed_steps` and return it as [N] integers.

    Raises:
        BadConfig: there are not N values, or an episode would start after its end.
    """
    elapsed = np.asarray(elapsed_steps)
    is_within = (elapsed >= 0) & (elapsed < max_episode_steps)
    if elapsed.shape != (num_envs,) or not is_within.all():
        raise BadConfig(
            f"elapsed_steps is {elapsed_steps!r}; {num_envs} integers from 0 to "
            f"{max_episode_steps - 1} are needed."
        )
    return elapsed.astype(np.int64)


def generator_at(state: Mapping[str, Any]) -> np.random.Generator:
    """Return a generator with a saved `bit_generator.state`."""
    bits = BIT_GENERATORS[state["bit_generator"]]()
    bits.state = state
    return np.random.Generator(bits)
