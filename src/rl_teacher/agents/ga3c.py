"""GA3C (Babaeizadeh et al. 2017), brought to today: learning goes on beside acting.

The environments never wait for the learner. While they live rollout k under the policy that was
ready, rollout k-1 is learned from beside them:

    acts      | rollout k-1, by policy k-1 | rollout k, by policy k | rollout k+1, by policy k+1
    learns    | k-2: policy k-1 -> k       | k-1: policy k -> k+1   | k: policy k+1 -> k+2

so a rollout is always learned from by the policy that came after the one which lived it. GA3C left
that lag to chance, and its error in. Here the lag is fixed, which makes runs repeatable, and
V-trace (Espeholt et al. 2018) corrects it.

All environments are acted for in one batch, as GA3C's predictor does; more of them cost little.
They are learned from in smaller batches, as GA3C's trainers do, a gradient step each: the learner
has time for that, and the more steps there are, the sooner it learns.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rl_teacher.agents.actor_critic import begun, step
from rl_teacher.agents.flat_params import Layout
from rl_teacher.agents.on_policy import (
    ActorCritic,
    Lived,
    OnPolicyAgent,
    PolicyBatch,
    ValueBatch,
    flat,
    weighted_mean,
)
from rl_teacher.agents.vtrace import vtrace
from rl_teacher.common.state_dict import StateDict, nest
from rl_teacher.config.agents import GA3CConfig

FIGURES = ("entropy", "policy_loss", "ratio", "value_error", "value_loss")


class Learned(NamedTuple):
    """What an update leaves behind; perhaps it is not done yet, and then whoever reads it waits.

    Attributes:
        networks: [P] an `ActorCritic`, packed.
        optimiser: its state.
        figures: [F] of the update, in the order of `FIGURES`.
    """

    networks: Any
    optimiser: Any
    figures: Any


@functools.partial(jax.jit, static_argnames=("layout", "config"))
def _improve(packed, state, acted, lived, learning_rate, layout, config):  # noqa: ANN001, ANN202, PLR0913
    """A gradient step for each batch of environments, one after the other."""
    acted = layout.unpack(acted)

    def learn(carry, batch):  # noqa: ANN001, ANN202
        packed, state = carry
        for_policy, for_value, ratio = prepare_late(layout.unpack(packed), acted, batch, config)
        packed, state, figures = step(
            packed, state, for_policy, for_value, learning_rate, layout, config
        )
        return (packed, state), [(figures | {"ratio": ratio})[name] for name in FIGURES]

    batches = in_batches(lived, num_batches(lived.weights.shape[1], config.batch_envs))
    (packed, state), figures = jax.lax.scan(learn, (packed, state), batches)
    return Learned(packed, state, jnp.stack(figures).mean(axis=1))


def num_batches(num_envs: int, least: int) -> int:
    """Into how many equal batches, of at least so many environments, N can be divided."""
    return max(m for m in range(1, max(num_envs // least, 1) + 1) if num_envs % m == 0)


def in_batches(lived: Lived, num: int) -> Lived:
    """[K, T, N/K, ...] in place of [T, N, ...]: environment by environment, all of their steps."""

    def divided(column: Array) -> Array:
        time, num_envs, *rest = column.shape
        return jnp.moveaxis(column.reshape(time, num, num_envs // num, *rest), 1, 0)

    by_env = {
        name: divided(column)
        for name, column in lived._asdict().items()
        if column is not None and name not in ("mean", "std")
    }
    repeated = {name: jnp.tile(getattr(lived, name), (num, 1)) for name in ("mean", "std")}
    return lived._replace(**by_env, **repeated)


def prepare_late(
    networks: ActorCritic, acted: ActorCritic, lived: Lived, config: GA3CConfig
) -> tuple[PolicyBatch, ValueBatch, Float[Array, ""]]:
    """What networks learn from a rollout that others lived, and the mean of pi / mu on it."""
    observations = lived.normalised(lived.observations, config.observation_clip)
    following = lived.normalised(lived.next_observations, config.observation_clip)
    seen, actions = flat(observations), flat(lived.actions)
    masks = None if lived.masks is None else flat(lived.masks)
    features = networks.encoder(observations)
    log_probs = networks.policy.log_prob(flat(features), actions, masks)
    acted_features = flat(acted.encoder(observations))
    acted_log_probs = acted.policy.log_prob(acted_features, actions, masks)
    log_ratios = log_probs - acted_log_probs
    corrected = vtrace(
        log_ratios.reshape(lived.weights.shape),
        lived.rewards,
        networks.value(features)[..., 0],
        networks.value(networks.encoder(following))[..., 0],
        lived.terminated,
        lived.ended,
        discount=config.gamma,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
    )
    weights = flat(lived.weights)
    for_policy = PolicyBatch(seen, weights, actions, masks, log_probs, flat(corrected.advantages))
    for_value = ValueBatch(seen, weights, flat(corrected.targets))
    return for_policy, for_value, weighted_mean(jnp.exp(log_ratios), weights)


class GA3C(OnPolicyAgent[GA3CConfig]):
    """The agent: see the module's text.

    `_networks` are those that act; `_learned` is what comes of the last rollout.
    """

    _learns_as_a_whole = False

    def _begin_optimisers(self) -> tuple[Any, ...]:
        self._layout = Layout.of(self._networks)
        self._acting = self._layout.pack(self._networks)
        state = begun(self._acting, self.config)
        self._learned = Learned(self._acting, state, np.full(len(FIGURES), np.nan, np.float32))
        return state

    def _improve(self, lived: Lived) -> dict[str, float]:
        """Wait for the last update, begin the next one, and act by what the last one left.

        Note: a compiled call comes back at once, and is worked on by a thread of JAX's own.

        Returns:
            Metrics of the last update; no numbers before there is one.
        """
        config = self.config
        rate = self._falling(config.learning_rate, config.final_learning_rate)
        ready = jax.block_until_ready(self._learned)
        self._learned = _improve(
            ready.networks, ready.optimiser, self._acting, lived, rate, self._layout, config
        )
        self._act_by(ready.networks)
        return dict(zip(FIGURES, np.asarray(ready.figures).tolist(), strict=True))

    def _act_by(self, packed: Any) -> None:
        self._acting = np.asarray(packed)
        self._networks = self._layout.unpack(self._acting)
        self._refresh_host()

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin with what another agent had learned; see `OnPolicyAgent`."""
        super().warm_start_from(state)
        packed = self._layout.pack(self._networks)
        self._learned = self._learned._replace(networks=packed)
        self._act_by(packed)

    def _newest(self) -> tuple[ActorCritic, tuple[Any, ...]]:
        networks = self._layout.unpack(np.asarray(self._learned.networks))
        return networks, tuple(self._learned.optimiser)

    def state(self) -> StateDict:
        """Everything needed to go on exactly: what acts, and what it leads to; waits for that."""
        late = {"acting": self._acting, "figures": np.asarray(self._learned.figures)}
        return super().state() | nest({"late": late})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        super().load_state(state)
        packed = self._layout.pack(self._networks)
        self._learned = Learned(packed, self._optimisers, state["late/figures"])
        self._act_by(state["late/acting"])
