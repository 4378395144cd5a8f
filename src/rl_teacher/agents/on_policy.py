"""What every on-policy agent shares: spaces, advantages, minibatches.

T: steps of a rollout, N: environments, B = T * N.
"""

from dataclasses import dataclass

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, Shaped

from rl_teacher.agents.policies import CategoricalPolicy, GaussianPolicy, Policy
from rl_teacher.errors import BadConfig
from rl_teacher.networks import MLP


@dataclass(frozen=True)
class ActionScale:
    """From the agent's actions, which live around [-1, 1], to the environment's.

    Attributes:
        middle: [A] or None when actions are discrete.
        half_range: [A] or None.
    """

    middle: np.ndarray | None
    half_range: np.ndarray | None

    @staticmethod
    def of(space: gym.Space) -> "ActionScale":
        """The scale of one environment's action space; unbounded boxes are left as they are."""
        if not isinstance(space, gym.spaces.Box):
            return ActionScale(None, None)
        if not np.all(np.isfinite(space.low)) or not np.all(np.isfinite(space.high)):
            return ActionScale(np.zeros(space.shape), np.full(space.shape, np.inf))
        return ActionScale((space.low + space.high) / 2, (space.high - space.low) / 2)

    def to_environment(self, actions: Shaped[np.ndarray, "env ..."]) -> np.ndarray:
        """What the environment is given: clipped to its bounds."""
        if self.middle is None or self.half_range is None:
            return actions
        if np.isinf(self.half_range).any():
            return actions
        clipped = np.clip(actions, -1.0, 1.0)
        return (self.middle + self.half_range * clipped).astype(np.float32)


def make_policy(
    observation_size: int, space: gym.Space, hidden: tuple[int, ...], rng: np.random.Generator
) -> Policy:
    """A Gaussian for Box actions, a softmax for Discrete ones.

    Raises:
        BadConfig: for any other action space.
    """
    if isinstance(space, gym.spaces.Box):
        size = int(np.prod(space.shape))
        mean = MLP((observation_size, *hidden, size), "tanh", 0.01, rng)
        return GaussianPolicy(mean, jnp.asarray(np.zeros(size, np.float32)))
    if isinstance(space, gym.spaces.Discrete):
        return CategoricalPolicy(MLP((observation_size, *hidden, int(space.n)), "tanh", 0.01, rng))
    raise BadConfig(
        f"The action space is {space}, but this agent needs Box or Discrete actions. "
        "Wrap the environment so that its actions are one of the two."
    )


def advantages_of(  # noqa: PLR0913 - one array each
    rewards: Float[Array, "time env"],
    values: Float[Array, "time env"],
    next_values: Float[Array, "time env"],
    terminated: Float[Array, "time env"],
    ended: Float[Array, "time env"],
    *,
    discount: float,
    trace: float,
) -> Float[Array, "time env"]:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16).

    Args:
        rewards: [T, N].
        values: [T, N] V(o_t).
        next_values: [T, N] V(o_{t+1}) of the observation *before* any reset, so that an episode
            cut by its time limit bootstraps from where it really stood.
        terminated: [T, N] 1 where the episode ended by the environment's rules: nothing follows.
        ended: [T, N] 1 where it ended for any reason: no trace runs across.
        discount: gamma.
        trace: lambda.

    Returns:
        [T, N].
    """
    # delta_t = r_t + gamma * V(o_{t+1}) - V(o_t)
    deltas = rewards + discount * (1 - terminated) * next_values - values

    def backward(advantage_tp1: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, ended_t = step
        # A_t = delta_t + gamma * lambda * A_{t+1}
        advantage_t = delta_t + discount * trace * (1 - ended_t) * advantage_tp1
        return advantage_t, advantage_t

    _, advantages = jax.lax.scan(backward, jnp.zeros_like(deltas[0]), (deltas, ended), reverse=True)
    return advantages


def shuffled_epochs(
    rng: np.random.Generator, batch_size: int, num_epochs: int
) -> Int32[np.ndarray, "epoch batch"]:
    """[E, B] for each epoch, every sample once, in a random order."""
    order = np.tile(np.arange(batch_size, dtype=np.int32), (num_epochs, 1))
    return rng.permuted(order, axis=1)
