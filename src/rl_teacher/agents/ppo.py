"""Proximal policy optimisation (Schulman et al. 2017), after Stable-Baselines3's settings.

Two things differ from the usual code, both for speed:

* Actions are drawn in NumPy between two steps of physics; log-probabilities and values are worked
  out once for the whole rollout.
* Policy and value function share no weights, so their updates do not wait for each other: they
  are two compiled calls that run side by side on two cores. Each is clipped by its own norm.

Of pictures both see the same features, since those are what costs; then there is one loss for
everything, one optimiser, and one norm; and the cores share each minibatch instead.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp

from rl_teacher.agents.on_policy import (
    ActorCritic,
    Lived,
    OnPolicyAgent,
    flat,
    minibatches,
    prepare,
)
from rl_teacher.agents.ppo_update import (
    improve_by_sight,
    improve_policy,
    improve_value,
    optimiser,
)
from rl_teacher.config.agents import PPOConfig


class PPO(OnPolicyAgent[PPOConfig]):
    """The agent: see the module's text."""

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: PPOConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        """Make a new agent; see `OnPolicyAgent`."""
        self._cores = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="ppo-update")
        super().__init__(
            observation_space, action_space, config, total_steps=total_steps, seed=seed
        )

    def _begin_optimisers(self) -> tuple[Any, ...]:
        begin = jax.jit(optimiser(self.config).init)
        if self._picture is not None:
            return (begin(self._networks),)
        return begin(self._networks.policy), begin(self._networks.value)

    def _improve(self, lived: Lived) -> dict[str, Any]:
        config = self.config
        order = minibatches(self._rng, lived.weights.size, config.num_epochs, config.minibatch_size)
        rate = self._falling(config.learning_rate, config.final_learning_rate)
        if self._picture is not None:
            # Note: pictures are large, and were looked at while acting; nothing more is prepared.
            pictures = jnp.asarray(flat(lived.observations))
            lived = lived._replace(observations=lived.observations[..., :0])
            batch = prepare(self._networks, lived, config)
            (state,) = self._optimisers
            self._networks, state, figures = improve_by_sight(
                self._networks, state, pictures, batch, order, rate, config, self._cores
            )
            self._optimisers = (state,)
            return figures
        for_policy, for_value = prepare(self._networks, lived, config)
        policy, value, _ = self._networks
        policy_state, value_state = self._optimisers
        value_update = self._cores.submit(
            lambda: jax.block_until_ready(
                improve_value(value, value_state, for_value, order, rate, config)
            )
        )
        policy, policy_state, figures = improve_policy(
            policy, policy_state, for_policy, order, rate, config
        )
        value, value_state, value_figures = value_update.result()
        self._networks = ActorCritic(policy, value)
        self._optimisers = policy_state, value_state
        return figures | value_figures
