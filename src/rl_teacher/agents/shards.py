"""Actions for a shard of a run's environments, bit-identical to those of a single process.

Results do not depend on how the environments are divided, because of two rules:

* Each process draws the random numbers of all environments, and uses those of its own.
* Each process computes the networks for batches of the same size and position as one process does,
  since the rounding of a matrix product depends on them. The rows of other environments are zeros.

N: environments of the run, S: environments of the shard.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.agents.numpy_policy import ActionHead, VectorNormaliser
from rl_teacher.envs.interface import Shard
from rl_teacher.nn.numpy_networks import BLOCK_ROWS, NumpyMLP


class ShardGenerator:
    """The rows of a shard among the random numbers that are drawn for all environments.

    It has the methods of `np.random.Generator` that acting needs, with S rows as the first axis of
    every result.
    """

    def __init__(self, rng: np.random.Generator, shard: Shard) -> None:
        self._rng, self._shard = rng, shard

    @property
    def bit_generator(self) -> np.random.BitGenerator:
        """The bit generator, whose state is that of one process with all environments."""
        return self._rng.bit_generator

    def _size(self, size: int | tuple[int, ...]) -> tuple[int, ...]:
        _, *others = size if isinstance(size, tuple) else (size,)
        return (self._shard.num_envs, *others)

    def random(self, size: Any) -> np.ndarray:
        """Draw floats from 0 to 1."""
        return self._rng.random(self._size(size))[self._shard.rows]

    def uniform(self, low: Any, high: Any, size: Any) -> np.ndarray:
        """Draw floats from `low` to `high`."""
        return self._rng.uniform(low, high, self._size(size))[self._shard.rows]

    def integers(self, low: Any, high: Any, size: Any) -> np.ndarray:
        """Draw integers from `low` to `high` - 1."""
        return self._rng.integers(low, high, self._size(size))[self._shard.rows]

    def gumbel(self, size: Any) -> np.ndarray:
        """Draw standard Gumbel numbers."""
        return self._rng.gumbel(size=self._size(size))[self._shard.rows]

    def standard_normal(self, size: Any, dtype: Any = np.float64) -> np.ndarray:
        """Draw standard normal numbers."""
        return self._rng.standard_normal(self._size(size), dtype=dtype)[self._shard.rows]


@dataclass(frozen=True)
class ActingPolicy:
    """Encoder, network and action head of an on-policy agent.

    Attributes:
        encoder: `VectorNormaliser`, or an image encoder in JAX (`ImageEncoder`).
        network: turns features into parameters of the action distribution.
        head: turns those into actions.
    """

    encoder: Any
    network: NumpyMLP
    head: ActionHead


class ShardPolicy:
    """The policy of an agent, acting in a shard of its environments.

    Attributes:
        actions: the policy actions of every step, before scaling and clipping.
        features: the image features of every step; empty with vector observations.
    """

    def __init__(self, policy: ActingPolicy, rng: np.random.Generator, shard: Shard) -> None:
        """Prepare to act.

        Args:
            policy: an agent's `acting_policy`.
            rng: the agent's generator, in its state before the rollout.
            shard: the environments.
        """
        self._policy = policy
        self._rng = ShardGenerator(rng, shard)
        self._encoder = encoder = policy.encoder
        self._has_images = not isinstance(encoder, VectorNormaliser)
        if self._has_images:
            from rl_teacher.nn.conv import ShardEncoder  # noqa: PLC0415 - JAX is slow to import

            self._encoder = ShardEncoder(encoder, shard.rows, shard.num_envs)
        # Networks are computed in blocks of rows; only those that the shard shares are needed.
        first = shard.start // BLOCK_ROWS * BLOCK_ROWS
        last = min(-(-shard.stop // BLOCK_ROWS) * BLOCK_ROWS, shard.num_envs)
        self._batch = np.zeros((last - first, self._encoder.num_features), np.float32)
        self._own_rows = slice(shard.start - first, shard.stop - first)
        self.actions: list[Shaped[np.ndarray, "env ..."]] = []
        self.features: list[Float[np.ndarray, "env features"]] = []

    def __call__(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Sample environment actions; see `OnPolicyAgent.act`."""
        features = self._encoder.features(observations)
        if self._has_images:
            self.features.append(features)
        self._batch[self._own_rows] = features
        outputs = self._policy.network(self._batch)[self._own_rows]
        actions = self._policy.head.sample(outputs, self._rng, masks)
        self.actions.append(actions)
        return self._policy.head.to_environment(actions)
