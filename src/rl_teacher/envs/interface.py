"""What every vector environment here can do beyond Gymnasium's."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv
from jaxtyping import Float, Int, Shaped

from rl_teacher.common.errors import BadConfig


class StatefulVectorEnv(VectorEnv):
    """N environments that can be drawn, saved and staggered.

    Beyond Gymnasium's SAME_STEP convention:

    * `infos["final_obs"]`, present where an episode ended, is a dense [N, ...] array: what every
      action led to, before any reset; `infos["_final_obs"]` says where an episode ended;
    * `reset(options={"elapsed_steps": ...})`, [N] integers, starts the step counters there, so that
      episodes that only time can end do not all end together;
    * `infos["ignores_action"]`, [N] booleans where an environment ever does so: the next step there
      ignores the agent's action, and belongs to no episode.
    """

    @abstractmethod
    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Shaped[np.ndarray, "env ..."], dict[str, Any]]:
        """Begin new episodes.

        Args:
            seed: one for all (environment i gets seed + i), one for each, or None to draw on.
            options: `elapsed_steps` (see above); others are Gymnasium's.
        """

    @property
    @abstractmethod
    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """[N, K] what a clip is drawn from now: MuJoCo's qpos, or which episode and step it is.

        It may be a live view: copy what you keep.
        """

    @property
    @abstractmethod
    def observations(self) -> Shaped[np.ndarray, "env ..."]:
        """[N, ...] what the last `reset`, `step` or `set_state` led to."""

    @abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that the future depends on, as plain arrays without pickle."""

    @abstractmethod
    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned, here or in another process."""


class SeededVectorEnv(StatefulVectorEnv):
    """One whose environments draw from generators that are its own, one each."""

    def __init__(self, num_envs: int) -> None:
        """Of N environments.

        Raises:
            BadConfig: N is less than 1.
        """
        if num_envs < 1:
            raise BadConfig(f"{num_envs} environments were asked for; ask for 1 or more.")
        self.num_envs = num_envs
        self.render_mode = None
        self._rngs: list[np.random.Generator] = []

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One generator per environment."""
        if not self._rngs:
            self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]
        return tuple(self._rngs)


def checked_elapsed(
    elapsed_steps: Any, num_envs: int, max_episode_steps: int
) -> Int[np.ndarray, " env"]:
    """The option `elapsed_steps` as [N] integers.

    Raises:
        BadConfig: they are not N, or an episode would start after its end.
    """
    elapsed = np.asarray(elapsed_steps)
    is_within = (elapsed >= 0) & (elapsed < max_episode_steps)
    if elapsed.shape != (num_envs,) or not is_within.all():
        raise BadConfig(
            f"elapsed_steps was {elapsed_steps!r}; {num_envs} integers from 0 to "
            f"{max_episode_steps - 1} are needed."
        )
    return elapsed.astype(np.int64)


def generator_at(state: dict[str, Any]) -> np.random.Generator:
    """A generator that draws on from a saved `bit_generator.state`."""
    rng = np.random.default_rng()
    rng.bit_generator.state = state
    return rng


def generators_after(
    rngs: Sequence[np.random.Generator], seed: int | Sequence[int | None] | None
) -> list[np.random.Generator]:
    """The generators after a reset with this seed; None lets a generator draw on."""
    if seed is None:
        return list(rngs)
    seeds = range(seed, seed + len(rngs)) if isinstance(seed, int | np.integer) else seed
    if len(seeds) != len(rngs):
        raise BadConfig(f"{len(seeds)} seeds were given for {len(rngs)} environments.")
    return [
        rng if one is None else seeding.np_random(int(one))[0]
        for rng, one in zip(rngs, seeds, strict=True)
    ]
