"""GA3C (Babaeizadeh et al. 2017) with a fixed lag: updates run while the environments are stepped.

The environments never wait for the learner. While they collect rollout k with the latest finished
policy, the learner updates on rollout k-1:

    acting    | rollout k-1, policy k-1 | rollout k, policy k  | rollout k+1, policy k+1
    learning  | k-2: policy k-1 -> k    | k-1: policy k -> k+1 | k: policy k+1 -> k+2

So every rollout is learned from by the successor of the policy that collected it. In the original,
this lag is random and its error is ignored. Here the lag is fixed, which makes runs reproducible,
and V-trace (Espeholt et al. 2018) corrects for it.

Actions of all environments are computed in one batch, like those of GA3C's predictors. Updates use
smaller batches with one gradient step each, like those of GA3C's trainers: the learner has the
time, and more gradient steps learn faster.

T: steps of a rollout, N: environments, K: batches of an update, P: parameters.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rl_teacher.agents.a2c import ParameterLayout, gradient_step, init_optimiser
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.policies import ActorCritic
from rl_teacher.agents.rollout_batch import (
    Batch,
    RolloutBatch,
    flatten_time,
    weighted_mean,
)
from rl_teacher.common.state_dict import StateDict, nest
from rl_teacher.config.agents import GA3CConfig

METRICS = ("entropy", "policy_loss", "ratio", "value_error", "value_loss")


class PendingUpdate(NamedTuple):
    """Result of an update that may still be running; reading the arrays waits for it.

    Attributes:
        networks: [P] parameters of an `ActorCritic`.
        optimiser: state of the optimiser.
        metrics: metrics in the order of `METRICS`; empty before the first update.
    """

    networks: Any
    optimiser: Any
    metrics: Any


@functools.partial(jax.jit, static_argnames=("layout", "config"))
def _compiled_update(packed, state, behaviour, rollout, learning_rate, layout, config):  # noqa: ANN001, ANN202, PLR0913
    """Take one gradient step per batch of environments."""
    behaviour = layout.unpack(behaviour)

    def step(carry, batch):  # noqa: ANN001, ANN202
        packed, state = carry
        # Ratios are computed again for each batch, since the previous step changed the networks.
        samples, ratio = prepare_off_policy(layout.unpack(packed), behaviour, batch, config)
        packed, state, metrics = gradient_step(
            packed, state, samples, learning_rate, layout, config
        )
        return (packed, state), [(metrics | {"ratio": ratio})[name] for name in METRICS]

    # Batches contain whole rollouts of some environments, because V-trace sums along time.
    batches = split_envs(rollout, num_batches(rollout.weights.shape[1], config.batch_envs))
    (packed, state), metrics = jax.lax.scan(step, (packed, state), batches)
    return PendingUpdate(packed, state, jnp.stack(metrics).mean(axis=1))


def num_batches(num_envs: int, min_envs: int) -> int:
    """Return the largest number of equal batches with at least `min_envs` environments each."""
    return max(m for m in range(1, max(num_envs // min_envs, 1) + 1) if num_envs % m == 0)


def split_envs(rollout: RolloutBatch, num: int) -> RolloutBatch:
    """Split [T, N, ...] into [K, T, N/K, ...], with all steps of an environment in one batch."""

    def split(column: Array) -> Array:
        time, num_envs, *rest = column.shape
        return jnp.moveaxis(column.reshape(time, num, num_envs // num, *rest), 1, 0)

    return jax.tree.map(split, rollout)


def prepare_off_policy(
    networks: ActorCritic, behaviour: ActorCritic, rollout: RolloutBatch, config: GA3CConfig
) -> tuple[Batch, Float[Array, ""]]:
    """Prepare the batch of a rollout that other networks collected.

    Args:
        networks: networks that learn, pi.
        behaviour: networks that acted, mu.
        rollout: the rollout.
        config: the settings.

    Returns:
        The batch, and the mean of pi / mu.
    """
    actions = flatten_time(rollout.actions)
    masks = None if rollout.masks is None else flatten_time(rollout.masks)
    features = networks.encoder(rollout.observations)
    log_probs = networks.policy.log_prob(flatten_time(features), actions, masks)
    behaviour_features = flatten_time(behaviour.encoder(rollout.observations))
    behaviour_log_probs = behaviour.policy.log_prob(behaviour_features, actions, masks)
    # log(pi(a | o) / mu(a | o))
    log_ratios = log_probs - behaviour_log_probs
    corrected = vtrace(
        log_ratios.reshape(rollout.weights.shape),
        rollout.rewards,
        networks.value(features)[..., 0],
        networks.value(networks.encoder(rollout.next_observations))[..., 0],
        rollout.terminated,
        rollout.ended,
        gamma=config.gamma,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
    )
    observations, weights = flatten_time(rollout.observations), flatten_time(rollout.weights)
    # The policy gradient is E[rho_s * (r_s + gamma * v_{s+1} - V(x_s)) * grad log pi].
    advantages, returns = flatten_time(corrected.advantages), flatten_time(corrected.targets)
    batch = Batch(observations, weights, actions, masks, log_probs, advantages, returns)
    return batch, weighted_mean(jnp.exp(log_ratios), weights)


class VTrace(NamedTuple):
    """Off-policy corrected targets and advantages.

    Attributes:
        targets: [T, N] v_s, targets of the value function.
        advantages: [T, N] rho_s * (r_s + gamma * v_{s+1} - V(x_s)), for the policy gradient.
    """

    targets: Float[Array, "time env"]
    advantages: Float[Array, "time env"]


def vtrace(  # noqa: PLR0913 - one array each
    log_rho_t: Float[Array, "time env"],
    r_t: Float[Array, "time env"],
    v_t: Float[Array, "time env"],
    v_tp1: Float[Array, "time env"],
    terminated_t: Float[Array, "time env"],
    ended_t: Float[Array, "time env"],
    *,
    gamma: float,
    rho_bar: float,
    c_bar: float,
) -> VTrace:
    """Compute V-trace (Espeholt et al. 2018, "IMPALA", section 4.1).

    Args:
        log_rho_t: [T, N] log pi(a|x) - log mu(a|x), where mu is the policy that acted.
        r_t: [T, N] rewards.
        v_t: [T, N] V(x_s).
        v_tp1: [T, N] V(x_{s+1}) of the observation before any reset.
        terminated_t: [T, N] 1 where the episode terminated: V(x_{s+1}) counts as 0.
        ended_t: [T, N] 1 where the episode terminated or was truncated: the sum stops there.
        gamma: discount.
        rho_bar: clip of the ratios in the temporal differences; it decides between which of the
            two policies the fixed point lies.
        c_bar: clip of the ratios in the trace; it decides the speed of convergence.
    """
    # rho_s = min(rho_bar, pi / mu),  c_s = min(c_bar, pi / mu)
    rho = jnp.minimum(jnp.exp(log_rho_t), rho_bar)
    c = jnp.minimum(jnp.exp(log_rho_t), c_bar)
    is_bootstrapped, continues = 1 - terminated_t, 1 - ended_t
    # delta_s = rho_s * (r_s + gamma * V(x_{s+1}) - V(x_s))
    deltas = rho * (r_t + gamma * is_bootstrapped * v_tp1 - v_t)

    def backward(correction_tp1: Array, step: tuple) -> tuple[Array, tuple[Array, Array]]:
        delta, c_s, continues_s = step
        # v_s - V(x_s) = delta_s + gamma * c_s * (v_{s+1} - V(x_{s+1}))
        following = continues_s * correction_tp1
        correction = delta + gamma * c_s * following
        return correction, (correction, following)

    _, (corrections, following) = jax.lax.scan(
        backward, jnp.zeros_like(deltas[0]), (deltas, c, continues), reverse=True
    )
    # v_{s+1} = V(x_{s+1}) + (v_{s+1} - V(x_{s+1}))
    next_targets = is_bootstrapped * v_tp1 + following
    advantages = rho * (r_t + gamma * next_targets - v_t)
    return VTrace(v_t + corrections, advantages)


class GA3C(OnPolicyAgent[GA3CConfig]):
    """The GA3C agent; see the module's docstring.

    `_networks` are the networks that act; `_pending` is the update on the latest rollout.
    """

    _updates_acting_networks = False

    def _init_optimisers(self) -> tuple[Any, ...]:
        self._layout = ParameterLayout.of(self._networks)
        self._acting = self._layout.pack(self._networks)
        state = init_optimiser(self._acting, self.config)
        self._pending = PendingUpdate(self._acting, state, np.empty(0, np.float32))
        return state

    def _update(self, rollout: RolloutBatch) -> dict[str, float]:
        """Wait for the previous update, start the next one, and act with the finished networks.

        Returns:
            Metrics of the previous update; none before the first.
        """
        config = self.config
        learning_rate = self._annealed(config.learning_rate, config.final_learning_rate)
        finished = jax.block_until_ready(self._pending)
        # A compiled call returns at once and is executed by a thread of JAX.
        self._pending = _compiled_update(
            *(finished.networks, finished.optimiser, self._acting, rollout),
            *(learning_rate, self._layout, config),
        )
        # The update just started takes `finished.networks` as input; acting only reads them.
        self._act_with(finished.networks)
        return dict(zip(METRICS, np.asarray(finished.metrics).tolist(), strict=False))

    def _act_with(self, packed: Any) -> None:
        self._acting = np.asarray(packed)
        self._networks = self._layout.unpack(self._acting)
        self._refresh_policy()

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over networks and normalisers of another agent; see `OnPolicyAgent`."""
        super().warm_start_from(state)
        packed = self._layout.pack(self._networks)
        self._pending = self._pending._replace(networks=packed)
        self._act_with(packed)

    def _latest(self) -> tuple[ActorCritic, tuple[Any, ...]]:
        networks = self._layout.unpack(np.asarray(self._pending.networks))
        return networks, tuple(self._pending.optimiser)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly; waits for the pending update."""
        pending = {"acting": self._acting, "metrics": np.asarray(self._pending.metrics)}
        return super().state() | nest({"pending": pending})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        packed = self._layout.pack(self._networks)
        self._pending = PendingUpdate(packed, self._optimisers, state["pending/metrics"])
        self._act_with(state["pending/acting"])
