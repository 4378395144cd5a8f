"""Proximal policy optimisation (Schulman et al. 2017), after Stable-Baselines3's settings.

Two things differ from the usual code, both for speed:

* Actions are drawn in NumPy between two steps of physics; log-probabilities and values are worked
  out once for the whole rollout.
* Policy and value function share no weights, so their updates do not wait for each other: they
  are two compiled calls that run side by side on two cores. Each is clipped by its own norm.

T: steps of a rollout, N: environments, B = T * N.
"""

import functools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped

from rl_teacher.agents.normalise import ReturnScaler
from rl_teacher.agents.on_policy import ActionScale, advantages_of, make_policy, shuffled_epochs
from rl_teacher.agents.policies import HostPolicy, Policy
from rl_teacher.config import PPOConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.errors import BadConfig
from rl_teacher.moments import RunningMoments
from rl_teacher.named_arrays import (
    NamedArrays,
    array_to_rng,
    arrays_to_tree,
    nest,
    part_of,
    rng_to_array,
    tree_to_arrays,
)
from rl_teacher.networks import MLP


def _optimiser(config: PPOConfig) -> optax.GradientTransformation:
    # Note: flattened, since for arrays this small each operation costs more than its arithmetic.
    return optax.flatten(
        optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5))
    )


def policy_loss(
    policy: Policy,
    batch: Mapping[str, Array],
    config: PPOConfig,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The clipped surrogate (eq. 7) less the entropy bonus, over the valid steps of a minibatch."""
    weights = batch["weights"]
    total = jnp.maximum(weights.sum(), 1.0)

    def mean(x: Array) -> Array:
        return jnp.sum(weights * x) / total

    advantages = batch["advantages"] - mean(batch["advantages"])
    advantages = advantages / (jnp.sqrt(mean(advantages**2)) + 1e-8)
    log_ratio = policy.log_prob(batch["observations"], batch["actions"]) - batch["log_probs"]
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    surrogate = mean(jnp.minimum(ratio * advantages, clipped * advantages))
    entropy = mean(policy.entropy(batch["observations"]))
    figures = {
        "policy_loss": -surrogate,
        "entropy": entropy,
        # Source: Schulman, "Approximating KL divergence" (2020), the estimator k3.
        "kl": mean(ratio - 1 - log_ratio),
        "clipped": mean(jnp.abs(ratio - 1) > config.clip),
    }
    return -surrogate - config.entropy_bonus * entropy, figures


def value_loss(value: MLP, batch: Mapping[str, Array]) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Half the squared error against the returns, over the valid steps of a minibatch."""
    errors = value(batch["observations"])[:, 0] - batch["returns"]
    loss = jnp.sum(batch["weights"] * errors**2) / jnp.maximum(batch["weights"].sum(), 1.0)
    return 0.5 * loss, {"value_loss": loss}


def _descend(loss, optimiser, learning_rate, network, optimiser_state, batch, order):  # noqa: ANN001, ANN202, PLR0913
    """All epochs of minibatches as one compiled scan; then the figures, on the whole rollout.

    Args:
        loss: (network, minibatch) -> (loss, figures).
        order: [E, K, M] the samples of each minibatch, epoch by epoch.
    """

    def minibatch_step(carry, minibatch):  # noqa: ANN001, ANN202
        network, optimiser_state = carry
        gradients, _ = jax.grad(loss, has_aux=True)(network, minibatch)
        updates, optimiser_state = optimiser.update(gradients, optimiser_state)
        network = jax.tree.map(lambda p, u: p - learning_rate * u, network, updates)
        return (network, optimiser_state), None

    def epoch(carry, order):  # noqa: ANN001, ANN202
        minibatches = {name: column[order] for name, column in batch.items()}
        return jax.lax.scan(minibatch_step, carry, minibatches)

    (network, optimiser_state), _ = jax.lax.scan(epoch, (network, optimiser_state), order)
    _, figures = loss(network, batch)
    return network, optimiser_state, figures


@functools.partial(jax.jit, static_argnames="config")
def _prepare(policy, value, moments, rollout, config):  # noqa: ANN001, ANN202
    """Normalise the observations once; work out old log-probabilities, advantages and returns."""
    mean, std = moments

    def normalise(observations: Array) -> Array:
        z = (observations - mean) / std
        return jnp.clip(z, -config.observation_limit, config.observation_limit)

    def flat(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    observations = normalise(rollout["observations"])
    values = value(observations)[..., 0]
    advantages = advantages_of(
        rollout["rewards"],
        values,
        value(normalise(rollout["next_observations"]))[..., 0],
        rollout["terminated"],
        rollout["ended"],
        discount=config.discount,
        trace=config.trace,
    )
    shared = {"observations": flat(observations), "weights": flat(rollout["weights"])}
    actions = flat(rollout["actions"])
    for_policy = shared | {
        "actions": actions,
        "advantages": flat(advantages),
        "log_probs": policy.log_prob(shared["observations"], actions),
    }
    for_value = shared | {"returns": flat(advantages + values)}
    return for_policy, for_value


@functools.partial(jax.jit, static_argnames="config")
def _improve_policy(policy, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN202
    loss = functools.partial(policy_loss, config=config)
    return _descend(loss, _optimiser(config), learning_rate, policy, state, batch, order)


@functools.partial(jax.jit, static_argnames="config")
def _improve_value(value, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN202
    return _descend(value_loss, _optimiser(config), learning_rate, value, state, batch, order)


def check_shapes(own: NamedArrays, other: NamedArrays) -> None:
    """Refuse networks of other sizes.

    Raises:
        BadConfig: says which sizes.
    """
    wanted = [array.shape for array in own.values()]
    given = [other[name].shape if name in other else None for name in own]
    if given != wanted:
        raise BadConfig(
            f"The agent to begin with has networks of {given}, and this one of {wanted}. Give the "
            "--ppo.hidden that it had, and an environment with its observations and actions."
        )


class PPO:
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
        """Make a new agent.

        Args:
            observation_space: of one environment; a Box, which is flattened.
            action_space: of one environment; Box or Discrete.
            config: the settings.
            total_steps: environment steps after which the learning rate has reached its end.
            seed: of the weights, the exploration and the minibatches.
        """
        self.config = config
        self.rollout_steps = config.rollout_steps
        self._total_steps = max(total_steps, 1)
        self._steps = 0
        self._rng = np.random.default_rng([seed, 1])
        self._action_shape = action_space.shape or ()
        self._scale = ActionScale.of(action_space)
        self._action_space = action_space
        self._size = int(np.prod(observation_space.shape or ()))
        self._observation_moments = RunningMoments((self._size,))
        self._scale_rewards = ReturnScaler(config.num_envs, config.discount)
        self._sampled: list[np.ndarray] = []
        self._second_core = ThreadPoolExecutor(1, thread_name_prefix="value-update")
        self.begin_anew()

    def begin_anew(self) -> None:
        """New weights and a new optimiser; what is known of observations and rewards stays."""
        config, size = self.config, self._size
        self._policy = make_policy(size, self._action_space, config.hidden, self._rng)
        self._value = MLP((size, *config.hidden, 1), "tanh", 1.0, self._rng)
        begin = jax.jit(_optimiser(config).init)
        self._policy_state, self._value_state = begin(self._policy), begin(self._value)
        self._refresh_host()

    def _refresh_host(self) -> None:
        """Bring the NumPy twins, which act, up to date."""
        self._host_policy = HostPolicy(self._policy)
        self._mean = self._observation_moments.mean.astype(np.float32)
        self._inverse_std = (1 / self._observation_moments.std).astype(np.float32)

    def _normalise(
        self, observations: Shaped[np.ndarray, "env ..."]
    ) -> Float[np.ndarray, "env features"]:
        flat = observations.reshape(len(observations), -1).astype(np.float32, copy=False)
        limit = self.config.observation_limit
        return np.clip((flat - self._mean) * self._inverse_std, -limit, limit)

    def act(self, observations: Shaped[np.ndarray, "env ..."]) -> Shaped[np.ndarray, "env ..."]:
        """Draw actions; remembers what was drawn, before it is clipped, for `learn`."""
        sampled = self._host_policy.sample(self._normalise(observations), self._rng)
        self._sampled.append(sampled)
        return self._scale.to_environment(sampled.reshape(-1, *self._action_shape))

    def try_out(self, observations: Shaped[np.ndarray, "env ..."]) -> Shaped[np.ndarray, "env ..."]:
        """Draw actions that nothing is going to be learned from."""
        sampled = self._host_policy.sample(self._normalise(observations), self._rng)
        return self._scale.to_environment(sampled.reshape(-1, *self._action_shape))

    def act_best(
        self, observations: Shaped[np.ndarray, "env ..."]
    ) -> Shaped[np.ndarray, "env ..."]:
        """The most likely actions, without exploration."""
        actions = self._host_policy.best(self._normalise(observations))
        return self._scale.to_environment(actions.reshape(-1, *self._action_shape))

    def observe(self, rollout: Rollout) -> None:
        """Learn only what observations look like, from a rollout of any policy."""
        valid = rollout.observations[rollout.is_valid]
        self._observation_moments.update(valid.reshape(len(valid), -1))
        self._refresh_host()

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """One PPO update on one rollout, rewarded as told.

        Note: the policy's observations were normalised by the moments known while it acted. The
        update must see the same numbers, so the moments move on only after it.
        """
        config = self.config
        for_policy, for_value = _prepare(
            self._policy,
            self._value,
            (self._mean, 1 / self._inverse_std),
            self._columns(rollout, rewards),
            config,
        )
        order = self._order(rollout.ended.size)
        learning_rate = np.float32(self._learning_rate())
        value_update = self._second_core.submit(
            lambda: jax.block_until_ready(
                _improve_value(
                    self._value, self._value_state, for_value, order, learning_rate, config
                )
            )
        )
        self._policy, self._policy_state, figures = _improve_policy(
            self._policy, self._policy_state, for_policy, order, learning_rate, config
        )
        self._value, self._value_state, value_figures = value_update.result()
        self._steps += rollout.num_steps
        self.observe(rollout)
        return {name: float(value) for name, value in (figures | value_figures).items()}

    def _columns(
        self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]
    ) -> dict[str, np.ndarray]:
        shape = rollout.ended.shape
        sampled, self._sampled = np.stack(self._sampled), []
        return {
            "observations": rollout.observations.reshape(*shape, -1),
            "next_observations": rollout.next_observations.reshape(*shape, -1),
            "actions": sampled,
            "rewards": self._scale_rewards(rewards, rollout.ended, rollout.is_valid),
            "terminated": rollout.terminated.astype(np.float32),
            "ended": (rollout.ended | ~rollout.is_valid).astype(np.float32),
            "weights": rollout.is_valid.astype(np.float32),
        }

    def _order(self, batch_size: int) -> np.ndarray:
        """[E, K, M] the samples of each minibatch; what does not fill one is left out."""
        size = min(self.config.minibatch_size, batch_size)
        order = shuffled_epochs(self._rng, batch_size, self.config.num_epochs)
        whole = batch_size // size * size
        return order[:, :whole].reshape(self.config.num_epochs, -1, size)

    def _learning_rate(self) -> float:
        done = min(self._steps / self._total_steps, 1.0)
        config = self.config
        return config.learning_rate + done * (config.final_learning_rate - config.learning_rate)

    def begin_with(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin with another agent's networks and normalisers.

        Optimisers, exploration and the learning rate's schedule are new. The scale of returns
        comes along, since the value function speaks in it.

        Raises:
            BadConfig: it has networks of other sizes.
        """
        networks = self._policy, self._value
        saved = part_of(state, "networks")
        check_shapes(tree_to_arrays(networks), saved)
        self._policy, self._value = arrays_to_tree(networks, saved)
        self._observation_moments.load_state(part_of(state, "observations"))
        self._scale_rewards.adopt(part_of(state, "returns"))
        self._refresh_host()

    def _trees(self) -> tuple:
        return self._policy, self._value, self._policy_state, self._value_state

    def state(self) -> NamedArrays:
        """Everything needed to go on exactly, between two rollouts."""
        return nest(
            {
                "networks": tree_to_arrays(self._trees()),
                "observations": self._observation_moments.state(),
                "returns": self._scale_rewards.state(),
                "self": {"rng": rng_to_array(self._rng), "steps": np.asarray(self._steps)},
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        trees = arrays_to_tree(self._trees(), part_of(state, "networks"))
        self._policy, self._value, self._policy_state, self._value_state = trees
        self._observation_moments.load_state(part_of(state, "observations"))
        self._scale_rewards.load_state(part_of(state, "returns"))
        array_to_rng(self._rng, state["self/rng"])
        self._steps = int(state["self/steps"])
        self._sampled = []
        self._refresh_host()
