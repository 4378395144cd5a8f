"""Advantage actor-critic in step (Mnih et al. 2016), after OpenAI baselines and Stable-Baselines3.

Few steps in many environments, one gradient step on all of them, and on. A rollout is so short
that what is done once per rollout counts: everything from observations to new weights is one
compiled call, and both networks go in and out as one vector.
"""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from rl_teacher.agents.actor_critic import begun, step
from rl_teacher.agents.flat_params import Layout
from rl_teacher.agents.on_policy import Lived, OnPolicyAgent, prepare
from rl_teacher.config.agents import A2CConfig


@functools.partial(jax.jit, static_argnames=("layout", "config"))
def _improve(packed, state, lived, learning_rate, layout, config):  # noqa: ANN001, ANN202
    for_policy, for_value = prepare(layout.unpack(packed), lived, config)
    return step(packed, state, for_policy, for_value, learning_rate, layout, config)


class A2C(OnPolicyAgent[A2CConfig]):
    """The agent: see the module's text."""

    def _begin_optimisers(self) -> tuple[Any, ...]:
        self._layout = Layout.of(self._networks)
        return begun(self._layout.pack(self._networks), self.config)

    def _improve(self, lived: Lived) -> dict[str, Array]:
        config = self.config
        rate = self._falling(config.learning_rate, config.final_learning_rate)
        packed = self._layout.pack(self._networks)
        packed, self._optimisers, figures = _improve(
            packed, self._optimisers, lived, rate, self._layout, config
        )
        self._networks = self._layout.unpack(np.asarray(packed))
        return figures
