"""What every on-policy agent shares: acting, advantages, minibatches, saving.

T: steps of a rollout, N: environments, D: features of an observation, A: actions, B = T * N.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, Shaped

from rl_teacher.agents.actions import ActionScale, Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.numpy_policy import NumpyPolicy, acted_by, layers_of, observed_by, seen_by
from rl_teacher.agents.policies import CategoricalPolicy, GaussianPolicy, HostPolicy, Policy
from rl_teacher.agents.reward_scaling import ReturnScaler
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.running_stats import RunningMeanStd, unmoving
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    arrays_to_tree,
    nest,
    part_of,
    rng_to_array,
    tree_to_arrays,
)
from rl_teacher.config.agents import A2CConfig, OnPolicyConfig, PPOConfig, TRPOConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.nn.agent_encoders import Encoder, Identity, ImageEncoder
from rl_teacher.nn.conv import applied
from rl_teacher.nn.encoders import NetworkSize, image_layout_of
from rl_teacher.nn.mlp import MLP


class Elsewhere(NamedTuple):
    """What steps led to, of those steps alone after which the rollout does not simply go on.

    Pictures are dear to look at, and of most steps the next observation is looked at anyway.

    Attributes:
        places: [E] which of the T * N steps; some may be there several times.
        observations: [E, ...] before any reset.
    """

    places: Any
    observations: Any

    @staticmethod
    def of(rollout: Rollout) -> "Elsewhere":
        """Ends of episodes, and the last steps; as many as make a multiple of N."""
        is_elsewhere = rollout.ended | ~rollout.is_valid
        is_elsewhere[-1] = True
        places = np.flatnonzero(is_elsewhere)
        num_envs = rollout.ended.shape[1]
        # Note: few lengths, so that few programs are compiled.
        padded = np.resize(places, -(-len(places) // num_envs) * num_envs)
        time, env = np.unravel_index(padded, rollout.ended.shape)
        return Elsewhere(padded, rollout.next_observations[time, env])


class Lived(NamedTuple):
    """A rollout as a compiled update takes it: NumPy arrays outside, traced ones inside.

    Attributes:
        observations: [T, N, D] as the environment gave them; pictures as bytes, tile by tile.
        next_observations: [T, N, D] before any reset; or what of them is not in the rollout.
        actions: [T, N, ...] as they were drawn, before they were clipped.
        masks: [T, N, A] which actions were allowed; None: all of them.
        rewards: [T, N] what is learned from, scaled.
        terminated: [T, N] 1 where the episode ended by the environment's rules: nothing follows.
        ended: [T, N] 1 where it ended for any reason: no trace runs across.
        weights: [T, N] 1 where a step counts.
        mean: [D] by which observations were normalised while the policy acted.
        std: [D]
        features: [T, N, F] what the encoder made of pictures while the policy acted; None where it
            is another's by now, or of vectors.
    """

    observations: Any
    next_observations: Any
    actions: Any
    masks: Any
    rewards: Any
    terminated: Any
    ended: Any
    weights: Any
    mean: Any
    std: Any
    features: Any = None

    def normalised(self, observations: Array, limit: float) -> Array:
        """Observations as the policy sees them; bytes of pictures stay as they are."""
        if observations.dtype == jnp.uint8:
            return observations
        return jnp.clip((observations - self.mean) / self.std, -limit, limit)


class ActorCritic(NamedTuple):
    """Who acts, and who says what that is worth.

    Attributes:
        policy: of features.
        value: of features.
        encoder: makes features of observations; of vectors nothing but those themselves, so that
            the two share no weights.
    """

    policy: Policy
    value: MLP
    encoder: Encoder = Identity()


class PolicyBatch(NamedTuple):
    """What a policy learns from, step by step.

    Attributes:
        observations: [B, D] normalised; bytes where they are pictures.
        weights: [B] 1 where a step counts.
        actions: [B, ...]
        masks: [B, A] which actions were allowed; None: all of them.
        log_probs: [B] of the actions, by the policy that is going to be improved.
        advantages: [B]
    """

    observations: Array
    weights: Array
    actions: Array
    masks: Array | None
    log_probs: Array
    advantages: Array


class ValueBatch(NamedTuple):
    """What a value function learns from, step by step.

    Attributes:
        observations: [B, D] normalised; bytes where they are pictures.
        weights: [B] 1 where a step counts.
        returns: [B] what it is to say.
    """

    observations: Array
    weights: Array
    returns: Array


def weighted_mean(x: Shaped[Array, " batch"], weights: Float[Array, " batch"]) -> Float[Array, ""]:
    """The mean over the steps that count."""
    return jnp.sum(weights * x) / jnp.maximum(weights.sum(), 1.0)


def standardised(x: Float[Array, " batch"], weights: Float[Array, " batch"]) -> Array:
    """[B] with mean 0 and standard deviation 1 over the steps that count."""
    centred = x - weighted_mean(x, weights)
    return centred / (jnp.sqrt(weighted_mean(centred**2, weights)) + 1e-8)


def flat(x: Shaped[Any, "time env ..."]) -> Shaped[Any, "batch ..."]:
    """[B, ...] all steps, one after the other."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


@functools.partial(jax.jit, static_argnames="config")
def prepare(
    networks: ActorCritic, lived: Lived, config: PPOConfig | TRPOConfig | A2CConfig
) -> tuple[PolicyBatch, ValueBatch]:
    """Normalise the observations once; work out log-probabilities, advantages and returns."""
    policy, value, encoder = networks
    observations = lived.normalised(lived.observations, config.observation_clip)
    features = encoder(observations) if lived.features is None else lived.features
    values = value(features)[..., 0]
    advantages = advantages_of(
        lived.rewards,
        values,
        next_values_of(networks, lived, values, config.observation_clip),
        lived.terminated,
        lived.ended,
        discount=config.gamma,
        trace=config.gae_lambda,
    )
    seen, actions = flat(observations), flat(lived.actions)
    masks = None if lived.masks is None else flat(lived.masks)
    for_policy = PolicyBatch(
        observations=seen,
        weights=flat(lived.weights),
        actions=actions,
        masks=masks,
        log_probs=policy.log_prob(flat(features), actions, masks),
        advantages=flat(advantages),
    )
    return for_policy, ValueBatch(seen, for_policy.weights, flat(advantages + values))


def next_values_of(
    networks: ActorCritic, lived: Lived, values: Float[Array, "time env"], limit: float
) -> Float[Array, "time env"]:
    """[T, N] V(o_{t+1}) of the observation before any reset.

    Args:
        networks: of which the value function says it.
        lived: the rollout.
        values: [T, N] V(o_t), which need not be worked out again.
        limit: of normalised observations.
    """
    following = lived.next_observations
    if not isinstance(following, Elsewhere):
        return networks.value(networks.encoder(lived.normalised(following, limit)))[..., 0]
    elsewhere = networks.value(networks.encoder(following.observations))[:, 0]
    gone_on = jnp.concatenate([values[1:], values[-1:]]).reshape(-1)
    return gone_on.at[following.places].set(elsewhere).reshape(values.shape)


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


def minibatches(
    rng: np.random.Generator, batch_size: int, num_epochs: int, minibatch_size: int
) -> Int32[np.ndarray, "epoch minibatch sample"]:
    """[E, K, M] the samples of each minibatch; what does not fill one is left out."""
    size = min(minibatch_size, batch_size)
    order = shuffled_epochs(rng, batch_size, num_epochs)
    return order[:, : batch_size // size * size].reshape(num_epochs, -1, size)


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


def check_shapes(own: StateDict, other: StateDict) -> None:
    """Refuse networks of other sizes.

    Raises:
        BadConfig: says which sizes.
    """
    wanted = [array.shape for array in own.values()]
    given = [other[name].shape if name in other else None for name in own]
    if given != wanted:
        raise BadConfig(
            f"The agent to begin with has networks of {given}, and this one of {wanted}. Give the "
            "`hidden` that it had, and an environment with its observations and actions."
        )


def _encoder_from(like: Encoder, state: Mapping[str, np.ndarray]) -> Encoder:
    """The encoder of another agent's state, or of an earlier one of the same.

    Raises:
        BadConfig: it has layers of other sizes.
    """
    saved = part_of(state, "encoder")
    check_shapes(tree_to_arrays(like), saved)
    return arrays_to_tree(like, saved)


Config = TypeVar("Config", bound=OnPolicyConfig)


class OnPolicyAgent(ABC, Generic[Config]):
    """Acts, and learns from each rollout once; how it improves is its own."""

    _learns_as_a_whole = True
    """Whether a rollout is learned from in one piece, and by those who lived it."""
    _networks: ActorCritic
    _optimisers: tuple[Any, ...]

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: Config,
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
        self._observation_shape = observation_space.shape or ()
        self._size = int(np.prod(self._observation_shape))
        can_see = self._network_size is not None
        self._picture = image_layout_of(observation_space) if can_see else None
        self._observation_moments = self._new_moments()
        self._scale_rewards = ReturnScaler(config.num_envs, config.gamma)
        self._sampled: list[np.ndarray] = []
        self._features: list[np.ndarray] = []
        self.reinitialise()

    @property
    def _network_size(self) -> NetworkSize | None:
        """Of the network for pictures; None where pictures are so many numbers."""
        return getattr(self.config, "image_encoder", None)

    @property
    def _looks_once(self) -> bool:
        """Whether what was seen while acting need not be looked at again to learn from it."""
        return self._picture is not None and self._learns_as_a_whole

    def _new_moments(self) -> RunningMeanStd:
        """Of observations; pictures come on a known scale."""
        if self._picture is None:
            return RunningMeanStd((self._size,))
        moments = RunningMeanStd((1,))
        moments.load_state(unmoving((1,)))
        return moments

    @abstractmethod
    def _begin_optimisers(self) -> Any:
        """What the optimisers of the new networks begin with: a tree of arrays."""

    @abstractmethod
    def _improve(self, lived: Lived) -> Mapping[str, Any]:
        """Replace `_networks` and `_optimisers` by better ones; figures, by name."""

    def reinitialise(self) -> None:
        """New weights and new optimisers; what is known of observations and rewards stays."""
        encoder, size, hidden = Identity(), self._size, self.config.hidden
        if self._picture is not None and self._network_size is not None:
            encoder = ImageEncoder(self._picture, self._network_size, self._rng)
            # Note: policy and value function are one layer each on what they see together.
            size, hidden = len(encoder.bias), ()
        self._networks = ActorCritic(
            make_policy(size, self._action_space, hidden, self._rng),
            MLP((size, *hidden, 1), "tanh", 1.0, self._rng),
            encoder,
        )
        self._optimisers = self._begin_optimisers()
        self._refresh_host()

    def _refresh_host(self) -> None:
        """Bring the NumPy twins, which act, up to date."""
        self._host_policy = HostPolicy(self._networks.policy)
        self._mean = self._observation_moments.mean.astype(np.float32)
        self._inverse_std = (1 / self._observation_moments.std).astype(np.float32)

    def _rows(self, observations: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "... D"]:
        """[..., D] one row each; pictures in the order in which they are looked at."""
        leading = observations.shape[: observations.ndim - len(self._observation_shape)]
        encoder, rows = self._networks.encoder, observations.reshape(-1, self._size)
        if isinstance(encoder, ImageEncoder):
            rows = encoder.in_tiles(rows)
        return rows.reshape(*leading, -1)

    def _seen(
        self, observations: Shaped[np.ndarray, "env ..."]
    ) -> Float[np.ndarray, "env features"]:
        """What the policy is a function of."""
        if self._picture is not None:
            return np.asarray(applied(self._networks.encoder, self._rows(observations)))
        rows = self._rows(observations).astype(np.float32, copy=False)
        limit = self.config.observation_clip
        return np.clip((rows - self._mean) * self._inverse_std, -limit, limit)

    def act(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Draw actions; remembers what was drawn, before it is clipped, for `learn`."""
        features = self._seen(observations)
        sampled = self._host_policy.sample(features, self._rng, masks)
        self._sampled.append(sampled)
        if self._looks_once:
            self._features.append(features)
        return self._scale.to_environment(sampled.reshape(-1, *self._action_shape))

    def predict(
        self,
        observations: Shaped[np.ndarray, "env ..."],
        masks: Masks = None,
        *,
        deterministic: bool = False,
    ) -> Shaped[np.ndarray, "env ..."]:
        """Return actions for evaluation: the mode, or samples that `learn` does not use."""
        features = self._seen(observations)
        if deterministic:
            actions = self._host_policy.best(features, masks)
        else:
            actions = self._host_policy.sample(features, self._rng, masks)
        return self._scale.to_environment(actions.reshape(-1, *self._action_shape))

    def acting(self) -> NumpyPolicy:
        """What of it acts, alone: it needs nothing but NumPy."""
        policy, limit = self._networks.policy, self.config.observation_clip
        encoder = self._networks.encoder
        if isinstance(encoder, ImageEncoder):
            observed = seen_by(encoder)
        else:
            observed = observed_by(self._observation_shape, self._mean, self._inverse_std, limit)
        if isinstance(policy, GaussianPolicy):
            layers, kind, log_std = layers_of(policy.mean), "gaussian", policy.log_std
        else:
            layers, kind, log_std = layers_of(policy.logits), "categorical", None
        acted = acted_by(kind, self._action_shape, self._scale, log_std)
        return NumpyPolicy(observed, layers, acted)

    def observe(self, rollout: Rollout) -> None:
        """Learn only what observations look like, from a rollout of any policy."""
        if self._picture is not None:
            self._refresh_host()
            return
        valid = rollout.observations[rollout.is_valid]
        self._observation_moments.update(valid.reshape(len(valid), -1))
        self._refresh_host()

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Improve on one rollout, rewarded as told.

        Note: the policy's observations were normalised by the moments known while it acted. The
        update must see the same numbers, so the moments move on only after it.
        """
        figures = self._improve(self._lived(rollout, rewards))
        self._steps += rollout.num_steps
        self.observe(rollout)
        return {name: float(value) for name, value in figures.items()}

    def _lived(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> Lived:
        sampled, self._sampled = np.stack(self._sampled), []
        features, self._features = self._features, []
        if self._looks_once:
            elsewhere = Elsewhere.of(rollout)
            following = elsewhere._replace(observations=self._rows(elsewhere.observations))
        else:
            following = self._rows(rollout.next_observations)
        return Lived(
            observations=self._rows(rollout.observations),
            next_observations=following,
            actions=sampled,
            masks=rollout.action_masks,
            rewards=self._scale_rewards(rewards, rollout.ended, rollout.is_valid),
            terminated=rollout.terminated.astype(np.float32),
            ended=(rollout.ended | ~rollout.is_valid).astype(np.float32),
            weights=rollout.is_valid.astype(np.float32),
            mean=self._mean,
            std=1 / self._inverse_std,
            features=np.stack(features) if features else None,
        )

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Nothing: rollouts are learned from once, with the rewards of their time."""

    def _falling(self, first: float, last: float) -> np.float32:
        """A setting that goes linearly from the first step of the run to the last."""
        done = min(self._steps / self._total_steps, 1.0)
        return np.float32(first + done * (last - first))

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin with another agent's networks and normalisers.

        Optimisers, exploration and the learning rate's schedule are new. The scale of returns
        comes along, since the value function speaks in it.

        Raises:
            BadConfig: it has networks of other sizes.
        """
        saved = part_of(state, "networks")
        policy, value, encoder = self._networks
        check_shapes(tree_to_arrays((policy, value)), saved)
        policy, value = arrays_to_tree((policy, value), saved)
        self._networks = ActorCritic(policy, value, _encoder_from(encoder, state))
        self._load_moments(state)
        self._scale_rewards.adopt(part_of(state, "returns"))
        self._refresh_host()

    def restore_checkpoint(self, state: Mapping[str, np.ndarray]) -> None:
        """Know what it knew at an earlier step; random numbers and rates go on from here."""
        steps, rng = self._steps, rng_to_array(self._rng)
        self.load_state(state)
        self._steps = steps
        array_to_rng(self._rng, rng)

    def _load_moments(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over moments; one that saw observations as they are sees them unclipped too."""
        self._observation_moments.load_state(part_of(state, "observations"))
        if self._observation_moments.is_unmoving:
            self.config = replace(self.config, observation_clip=math.inf)

    def _newest(self) -> tuple[ActorCritic, tuple[Any, ...]]:
        """The networks that were improved last, and what their optimisers go on with."""
        return self._networks, self._optimisers

    def _trees(self) -> tuple:
        networks, optimisers = self._newest()
        return networks.policy, networks.value, *optimisers

    def state(self) -> StateDict:
        """Everything needed to go on exactly, between two rollouts."""
        return nest(
            {
                "networks": tree_to_arrays(self._trees()),
                "encoder": tree_to_arrays(self._newest()[0].encoder),
                "observations": self._observation_moments.state(),
                "returns": self._scale_rewards.state(),
                "self": {"rng": rng_to_array(self._rng), "steps": np.asarray(self._steps)},
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        trees = arrays_to_tree(self._trees(), part_of(state, "networks"))
        policy, value, *optimisers = trees
        self._networks = ActorCritic(policy, value, _encoder_from(self._networks.encoder, state))
        self._optimisers = tuple(optimisers)
        self._load_moments(state)
        self._scale_rewards.load_state(part_of(state, "returns"))
        array_to_rng(self._rng, state["self/rng"])
        self._steps = int(state["self/steps"])
        self._sampled, self._features = [], []
        self._refresh_host()
