"""Soft actor-critic (Haarnoja et al. 2018) with an adaptive temperature and PEBBLE's extensions.

PEBBLE (Lee, Smith, Abbeel 2021) adds two things for learning from labels:

* Before the first labels, the agent explores: it learns to reach states that are far from those in
  the replay buffer (see explore.py). The critics of that time are discarded once there are rewards.
* After every fit of the predictor, all rewards in the replay buffer are recomputed (see replay.py),
  so that nothing is learned from outdated predictions.

T: steps of a rollout, N: environments, D: features of an observation, A: action dimensions,
U: gradient steps after a rollout, M: samples of a minibatch.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from rl_teacher.agents.actions import ActionScale, EnvArray, Masks
from rl_teacher.agents.agent import RewardFunction, check_weights, learning_rate_setting
from rl_teacher.agents.explore import StateEntropy
from rl_teacher.agents.numpy_policy import NumpyPolicy, VectorNormaliser
from rl_teacher.agents.policies import SquashedGaussianPolicy, load_networks, numpy_head
from rl_teacher.agents.replay import ReplayBuffer
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    arrays_to_tree,
    nest,
    part_of,
    rng_to_array,
    tree_to_arrays,
)
from rl_teacher.config.agents import SACConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.nn.mlp import MLP
from rl_teacher.nn.numpy_networks import NumpyMLP

STEPS_AFTER_CRITIC_RESET = 100
"""Gradient steps on new critics before the agent acts again; `reset_update` in PEBBLE."""
# Unlike those of the other agents, these matrix products are large enough for several cores.
COMPILER_OPTIONS: dict[str, Any] = {"xla_cpu_multi_thread_eigen": True}
ADAM = optax.scale_by_adam()


# --- the update ---


class Critics(NamedTuple):
    """Two Q-functions, of which the lower estimate is used."""

    first: MLP
    second: MLP

    def __call__(
        self, observations: Float[Array, "batch features"], actions: Float[Array, "batch action"]
    ) -> Float[Array, "critic batch"]:
        """Compute [2, M] the estimates of both."""
        inputs = jnp.concatenate([observations, actions], axis=-1)
        return jnp.stack([critic(inputs)[:, 0] for critic in self])


class Networks(NamedTuple):
    """All learned parameters."""

    actor: SquashedGaussianPolicy
    critics: Critics
    targets: Critics
    log_temperature: Float[Array, ""]


class Optimisers(NamedTuple):
    """State of Adam for each part of the networks."""

    actor: Any
    critics: Any
    temperature: Any


class Minibatch(NamedTuple):
    """Samples of one gradient step; with a leading axis U, those of a whole rollout.

    Attributes:
        observations: [M, D]
        actions: [M, A] in [-1, 1].
        rewards: [M]
        next_observations: [M, D] before any reset.
        terminated: [M] 1 where the episode terminated.
        noise: [M, A] standard normal noise of the actions at `observations`.
        next_noise: [M, A] standard normal noise of the actions at `next_observations`.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminated: Any
    noise: Any
    next_noise: Any


def new_critics(
    num_features: int, num_actions: int, config: SACConfig, rng: np.random.Generator
) -> Critics:
    """Create two critics."""
    sizes = (num_features + num_actions, *config.hidden, 1)
    return Critics(MLP(sizes, "relu", 1.0, rng), MLP(sizes, "relu", 1.0, rng))


def initial_log_temperature(config: SACConfig) -> Float[Array, ""]:
    """Return log alpha at the start; its logarithm is learned, so that alpha stays positive."""
    return jnp.asarray(np.log(np.float32(config.initial_temperature)))


def new_networks(
    num_features: int, num_actions: int, config: SACConfig, rng: np.random.Generator
) -> Networks:
    """Create all networks; the small output weights of the actor give widely spread actions."""
    actor = MLP((num_features, *config.hidden, 2 * num_actions), "relu", 0.01, rng)
    critics = new_critics(num_features, num_actions, config, rng)
    # Target networks start equal to the critics.
    return Networks(
        SquashedGaussianPolicy(actor), critics, critics, initial_log_temperature(config)
    )


@jax.jit
def new_optimisers(networks: Networks) -> Optimisers:
    """Return the initial state of all optimisers."""
    # Type checkers take optax's `init` for a method of unknown parameters.
    init: Any = ADAM.init
    return Optimisers(*map(init, (networks.actor, networks.critics, networks.log_temperature)))


def soft_q_target(
    rewards: Float[Array, " batch"],
    terminated: Float[Array, " batch"],
    next_values: Float[Array, "critic batch"],
    next_log_probs: Float[Array, " batch"],
    temperature: Float[Array, ""],
    gamma: float,
) -> Float[Array, " batch"]:
    """Compute [M] targets of the critics (Haarnoja et al. 2018, eq. 3 and 6)."""
    # y = r + gamma * (min Q'(o', a') - alpha * log pi(a' | o'))
    soft_values = next_values.min(0) - temperature * next_log_probs
    return rewards + gamma * (1 - terminated) * soft_values


def critic_loss(
    critics: Critics, batch: Minibatch, targets: Float[Array, " batch"]
) -> Float[Array, ""]:
    """Compute 1/2 (Q - y)^2, averaged over samples and summed over both critics (eq. 5)."""
    # J_Q = 1/2 E[(Q(o, a) - y)^2]; y is a constant.
    errors = critics(batch.observations, batch.actions) - targets
    return 0.5 * jnp.sum(jnp.mean(errors**2, axis=-1))


def actor_loss(
    actor: SquashedGaussianPolicy,
    critics: Critics,
    temperature: Float[Array, ""],
    batch: Minibatch,
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """Compute alpha * log pi(a | o) - min Q(o, a) (eq. 9); also return the log-densities."""
    actions, log_probs = actor(batch.observations, batch.noise)
    # J_pi = E[alpha * log pi(a | o) - min Q(o, a)]; the lower estimate counters overestimation.
    values = critics(batch.observations, actions).min(0)
    return jnp.mean(temperature * log_probs - values), log_probs


def temperature_loss(
    log_temperature: Float[Array, ""], log_probs: Float[Array, " batch"], target_entropy: float
) -> Float[Array, ""]:
    """Compute -alpha * (log pi + H) (eq. 18), whose slope is positive above the target entropy."""
    # J_alpha = -alpha * E[log pi + H]
    return -jnp.exp(log_temperature) * jnp.mean(log_probs + target_entropy)


def _adam_step(parameters: Any, gradients: Any, state: Any, config: SACConfig) -> tuple[Any, Any]:
    updates, state = ADAM.update(gradients, state)
    # theta <- theta - learning rate * Adam(gradient)
    return jax.tree.map(lambda p, u: p - config.learning_rate * u, parameters, updates), state


def _critic_step(
    networks: Networks, optimisers: Optimisers, batch: Minibatch, config: SACConfig
) -> tuple[Networks, Optimisers, dict[str, Array]]:
    """Update the critics by one gradient step, then their target networks."""
    temperature = jnp.exp(networks.log_temperature)
    # a' is a fresh sample of the current policy, not an action of the buffer.
    next_actions, next_log_probs = networks.actor(batch.next_observations, batch.next_noise)
    targets = soft_q_target(
        batch.rewards,
        batch.terminated,
        networks.targets(batch.next_observations, next_actions),
        next_log_probs,
        temperature,
        config.gamma,
    )
    loss, gradients = jax.value_and_grad(critic_loss)(networks.critics, batch, targets)
    critics, critics_state = _adam_step(networks.critics, gradients, optimisers.critics, config)
    # Polyak averaging: target <- target + tau * (critic - target)
    averaged = jax.tree.map(lambda t, q: t + config.tau * (q - t), networks.targets, critics)
    metrics = {
        "critic_loss": loss,
        "value": targets.mean(),
        "entropy": -next_log_probs.mean(),
        "temperature": temperature,
    }
    networks = networks._replace(critics=critics, targets=averaged)
    return networks, optimisers._replace(critics=critics_state), metrics


def _actor_step(
    networks: Networks, optimisers: Optimisers, batch: Minibatch, config: SACConfig
) -> tuple[Networks, Optimisers]:
    """Update the actor and the temperature by one gradient step."""
    temperature = jnp.exp(networks.log_temperature)
    gradients, log_probs = jax.grad(actor_loss, has_aux=True)(
        networks.actor, networks.critics, temperature, batch
    )
    actor, actor_state = _adam_step(networks.actor, gradients, optimisers.actor, config)
    # The target entropy is -A, the heuristic of the paper's appendix D.
    target_entropy = -float(batch.actions.shape[-1])
    slope = jax.grad(temperature_loss)(networks.log_temperature, log_probs, target_entropy)
    log_temperature, temperature_state = _adam_step(
        networks.log_temperature, slope, optimisers.temperature, config
    )
    return (
        networks._replace(actor=actor, log_temperature=log_temperature),
        optimisers._replace(actor=actor_state, temperature=temperature_state),
    )


@functools.partial(jax.jit, static_argnames="config", compiler_options=COMPILER_OPTIONS)
def update(
    networks: Networks, optimisers: Optimisers, batches: Minibatch, config: SACConfig
) -> tuple[Networks, Optimisers, dict[str, Array]]:
    """Take U gradient steps in sequence; return metrics as means over them.

    Args:
        networks: all networks.
        optimisers: state of their optimisers.
        batches: [U, M, ...]
        config: the settings.
    """

    def gradient_step(carry, batch):  # noqa: ANN001, ANN202
        networks, optimisers = carry
        networks, optimisers, metrics = _critic_step(networks, optimisers, batch, config)
        return _actor_step(networks, optimisers, batch, config), metrics

    carry, metrics = jax.lax.scan(gradient_step, (networks, optimisers), batches)
    return *carry, jax.tree.map(jnp.mean, metrics)


# --- the agent ---


def check_action_space(space: gym.Space) -> None:
    """Refuse action spaces other than bounded Boxes.

    Raises:
        BadConfig: the space is another one.
    """
    if ActionScale.of(space).middle is not None:
        return
    bounded = (
        ", or bound the actions with gymnasium.wrappers.TransformAction(env, lambda action: "
        f"action, gymnasium.spaces.Box(-1, 1, {space.shape}))"
    )
    raise BadConfig(
        f"The action space is {space}, but SAC needs a Box of continuous actions with bounds. Use "
        f"another agent, such as -a ppo{bounded if isinstance(space, gym.spaces.Box) else ''}."
    )


class SAC:
    """The SAC agent; see the module's docstring."""

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: SACConfig,
        *,
        total_steps: int,  # noqa: ARG002 - no setting depends on progress
        seed: int,
    ) -> None:
        """Create an agent.

        Args:
            observation_space: observation space of one environment; a Box, which is flattened.
            action_space: action space of one environment; a bounded Box.
            config: the settings.
            total_steps: environment steps of the run.
            seed: seed of the weights, the exploration and the minibatches.

        Raises:
            BadConfig: the actions are discrete or unbounded.
        """
        check_action_space(action_space)
        self.config = config
        self.rollout_steps = config.rollout_steps
        self._rng = np.random.default_rng([seed, 1])
        self._action_shape = action_space.shape or ()
        self._num_actions = math.prod(self._action_shape)
        self._scale = ActionScale.of(action_space)
        self._observation_shape = observation_space.shape or ()
        self._observation_stats = RunningMeanStd((math.prod(self._observation_shape),))
        self._buffer = ReplayBuffer(
            config.buffer_steps, self._observation_shape, self._action_shape
        )
        self._entropy = StateEntropy(config.compared_states)
        self._num_random_steps = config.learning_starts
        self._is_exploring = False
        self._has_explored = False
        self._has_unrewarded = False
        self.reinitialise()

    @property
    def _num_updates(self) -> int:
        """Gradient steps U of a rollout, always the same, so that one program is compiled."""
        steps = self.config.num_envs * self.config.rollout_steps
        return max(round(self.config.updates_per_step * steps), 1)

    @property
    def _is_warming_up(self) -> bool:
        """True while the buffer holds too few steps to learn from."""
        return self._buffer.num_added < self._num_random_steps

    def reinitialise(self) -> None:
        """Create new networks and optimisers; keep replay buffer and observation statistics."""
        num_features = len(self._observation_stats.mean)
        self._networks = new_networks(num_features, self._num_actions, self.config, self._rng)
        self._optimisers: Optimisers = new_optimisers(self._networks)
        self._refresh_policy()

    def _refresh_policy(self) -> None:
        """Copy networks and statistics to the NumPy policy, which acts."""
        self._normaliser = VectorNormaliser.from_stats(
            self._observation_shape, self._observation_stats, self.config.observation_clip
        )
        network, head = numpy_head(self._networks.actor, self._action_shape, self._scale)
        self._policy = NumpyPolicy(self._normaliser, NumpyMLP.from_jax(network), head)

    def numpy_policy(self) -> NumpyPolicy:
        """Return the current policy for NumPy inference."""
        return self._policy

    # --- acting ---

    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Sample actions of the actor; uniform ones until there are enough steps to learn from."""
        if self._is_warming_up:
            return self._random_actions(len(observations))
        return self.predict(observations, masks)

    def _random_actions(self, num_envs: int) -> np.ndarray:
        sampled = self._rng.uniform(-1, 1, (num_envs, self._num_actions))
        return self._policy.head.to_environment(sampled.astype(np.float32))

    def predict(
        self,
        observations: EnvArray,
        masks: Masks = None,  # noqa: ARG002 - only discrete actions can be masked
        *,
        deterministic: bool = False,
    ) -> EnvArray:
        """Return actions of the actor: the squashed mean, or samples."""
        rng = None if deterministic else self._rng
        return self._policy.environment_actions(self._normaliser.features(observations), rng)

    def explore(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Return actions as `act` does, to be rewarded for their novelty in `observe`."""
        if self.config.no_explore:
            return self._random_actions(len(observations))
        self._is_exploring = True
        return self.act(observations, masks)

    # --- learning ---

    def observe(self, rollout: Rollout) -> None:
        """Store a rollout; after `explore`, also learn from intrinsic rewards.

        The stored rewards are 0 until `relabel_buffer` replaces them.
        """
        self._store(rollout, np.zeros(rollout.ended.shape, np.float32))
        self._has_unrewarded = True
        if self._is_exploring and not self._is_warming_up:
            states = self._buffer.observations.reshape(len(self._buffer), -1)
            indices = self._sample_indices()
            # Intrinsic rewards change with the buffer, so they are computed for each minibatch.
            intrinsic = self._entropy(self._normaliser.normalise(states), indices, self._rng)
            self._update(indices, intrinsic)
            self._has_explored = True
        self._is_exploring = False

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Store a rollout with its rewards, and update on samples of the replay buffer."""
        self._store(rollout, rewards)
        if self._is_warming_up:
            return {}
        return self._update(self._sample_indices())

    def _store(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> None:
        self._buffer.add(rollout, rewards)
        valid = rollout.observations[rollout.is_valid]
        self._observation_stats.update(valid.reshape(-1, len(self._observation_stats.mean)))
        self._refresh_policy()

    def _sample_indices(self) -> Int[np.ndarray, "update sample"]:
        """Sample [U, M] buffer indices, one row per minibatch."""
        shape = self._num_updates, self.config.minibatch_size
        return self._rng.integers(len(self._buffer), size=shape)

    def _update(
        self,
        indices: Int[np.ndarray, "update sample"],
        rewards: Float[np.ndarray, "update sample"] | None = None,
    ) -> dict[str, float]:
        """Take U gradient steps.

        Args:
            indices: [U, M] buffer indices.
            rewards: [U, M] rewards instead of the stored ones.
        """
        steps = self._buffer.gather(indices)
        observations, next_observations = (
            self._normaliser.normalise(steps[name].reshape(*indices.shape, -1))
            for name in ("observations", "next_observations")
        )
        actions = self._scale.from_environment(steps["actions"]).reshape(*indices.shape, -1)
        batches = Minibatch(
            observations=observations,
            actions=actions,
            rewards=steps["rewards"] if rewards is None else rewards,
            next_observations=next_observations,
            terminated=steps["terminated"].astype(np.float32),
            noise=self._rng.standard_normal(actions.shape, dtype=np.float32),
            next_noise=self._rng.standard_normal(actions.shape, dtype=np.float32),
        )
        self._networks, self._optimisers, metrics = update(
            self._networks, self._optimisers, batches, self.config
        )
        self._refresh_policy()
        return {name: float(value) for name, value in metrics.items()}

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Recompute all stored rewards.

        The first time after exploration, the critics and the temperature are reset too, because
        they learned from intrinsic rewards.
        """
        if self._has_unrewarded or not self.config.no_relabel:
            self._buffer.relabel(reward_fn)
        self._has_unrewarded = False
        if not self._has_explored:
            return
        self._has_explored = False
        num_features = len(self._observation_stats.mean)
        critics = new_critics(num_features, self._num_actions, self.config, self._rng)
        # The actor is kept, so that the agent continues to visit diverse states.
        self._networks = Networks(
            self._networks.actor, critics, critics, initial_log_temperature(self.config)
        )
        self._optimisers = new_optimisers(self._networks)._replace(actor=self._optimisers.actor)
        for _ in range(math.ceil(STEPS_AFTER_CRITIC_RESET / self._num_updates)):
            self._update(self._sample_indices())

    # --- warm starts and saving ---

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over networks and normaliser of another agent, with an empty replay buffer.

        Raises:
            BadConfig: its networks have other sizes.
        """
        self._networks: Networks = load_networks(self._networks, part_of(state, "networks"))
        self._optimisers = new_optimisers(self._networks)
        self._observation_stats.load_state(part_of(state, "observations"))
        # The policy is trained already, so it acts from the first step on.
        self._num_random_steps = 0
        self._refresh_policy()

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts.

        Raises:
            Diverged: the weights are not finite.
        """
        weights = {
            "networks": tree_to_arrays(self._networks),
            "optimisers": tree_to_arrays(self._optimisers),
        }
        check_weights(nest(weights), learning_rate_setting(self))
        own = {
            "rng": rng_to_array(self._rng),
            "random_steps": np.asarray(self._num_random_steps),
            "has_explored": np.asarray(self._has_explored),
            "has_unrewarded": np.asarray(self._has_unrewarded),
        }
        return nest(
            {
                **weights,
                "observations": self._observation_stats.state(),
                "entropy": self._entropy.state(),
                "buffer": self._buffer.state(),
                "self": own,
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._networks = arrays_to_tree(self._networks, part_of(state, "networks"))
        self._optimisers = arrays_to_tree(self._optimisers, part_of(state, "optimisers"))
        self._observation_stats.load_state(part_of(state, "observations"))
        self._entropy.load_state(part_of(state, "entropy"))
        self._buffer.load_state(part_of(state, "buffer"))
        array_to_rng(self._rng, state["self/rng"])
        self._num_random_steps = int(state["self/random_steps"])
        self._has_explored = bool(state["self/has_explored"])
        self._has_unrewarded = bool(state["self/has_unrewarded"])
        self._refresh_policy()
