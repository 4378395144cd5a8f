"""Base class of the on-policy agents: acting, normalisation, warm starts and saving.

T: steps of a rollout, N: environments, D: features of an observation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np
from jaxtyping import Float, Shaped, UInt8

from rl_teacher.agents.actions import ActionScale, EnvArray, Masks
from rl_teacher.agents.agent import (
    RewardFunction,
    agent_diverged,
    check_weights,
    learning_rate_setting,
)
from rl_teacher.agents.episode_stats import ReturnScaler
from rl_teacher.agents.numpy_policy import (
    VECTOR_COPIES,
    ImageVectorEncoder,
    NumpyPolicy,
    VectorNormaliser,
)
from rl_teacher.agents.policies import ActorCritic, load_networks, make_policy, numpy_head
from rl_teacher.agents.rollout_batch import BootstrapObservations, RolloutBatch
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.runtime import executor
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    arrays_to_tree,
    nest,
    part_of,
    rng_to_array,
    tree_to_arrays,
)
from rl_teacher.config.agents import OnPolicySettings
from rl_teacher.envs.rollout import Rollout
from rl_teacher.nn.conv import Identity, ImageEncoder
from rl_teacher.nn.encoders import image_layout_of
from rl_teacher.nn.image_layout import trailing_floats
from rl_teacher.nn.mlp import MLP
from rl_teacher.nn.numpy_networks import NumpyImageEncoder, NumpyMLP
from rl_teacher.nn.random_features import random_features_for

MAX_LOG_STD = 80.0
"""Its exponential is still finite in float32."""

Config = TypeVar("Config", bound=OnPolicySettings)


class OnPolicyAgent(ABC, Generic[Config]):
    """An agent that learns from each rollout once; subclasses define the update.

    Attributes:
        policy: the policy that acts.
    """

    _updates_acting_networks = True
    """True if the updated networks are those that acted."""
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
        """Create an agent.

        Args:
            observation_space: observation space of one environment; a Box, which is flattened.
            action_space: action space of one environment; Box or Discrete.
            config: the settings.
            total_steps: environment steps after which annealed settings reach their final value.
            seed: seed of the weights, the exploration and the minibatches.
        """
        self.config = config
        self.rollout_steps = config.rollout_steps
        self.extend(total_steps)
        self._steps = 0
        self._rng = np.random.default_rng([seed, 1])
        self._action_space = action_space
        self._action_shape = action_space.shape or ()
        self._scale = ActionScale.of(action_space)
        self._observation_shape = observation_space.shape or ()
        self._observation_size = math.prod(self._observation_shape)
        # Agents without a setting for an image encoder take images as vectors.
        self._encoder_name: Any = getattr(config, "image_encoder", None)
        layout = image_layout_of(observation_space) if self._encoder_name else None
        has_bands = self._encoder_name == "bands"
        self._bands_layout = layout if has_bands else None
        self._image_layout = None if has_bands else layout
        # The images of a CNN come on a known scale, or are standardised by it; vectors are not.
        size = self._observation_size if layout is None else layout.vector_size
        if self._bands_layout is not None:
            size = size * VECTOR_COPIES + random_features_for(self._bands_layout).num_bands
        self._observation_stats = RunningMeanStd((size or 1,), frozen=size == 0)
        self._scale_rewards = ReturnScaler(config.num_envs, config.gamma)
        self._threads = executor("update")
        self._actions: list[np.ndarray] = []
        self._features: list[np.ndarray] = []
        self.reinitialise()

    @abstractmethod
    def _init_optimisers(self) -> Any:
        """Return the state of the optimisers of new networks, a tree of arrays."""

    @abstractmethod
    def _update(self, rollout: RolloutBatch) -> Mapping[str, Any]:
        """Update `_networks` and `_optimisers`; return metrics by name."""

    def reinitialise(self) -> None:
        """Create new networks and optimisers; keep the statistics of observations and rewards."""
        encoder, size, hidden = Identity(), self._observation_stats.mean.size, self.config.hidden
        if self._image_layout is not None:
            encoder = ImageEncoder(self._image_layout, self._encoder_name, self._rng)
            # Policy and value function are one layer each on the features that they share.
            size, hidden = len(encoder.bias), ()
        self._networks = ActorCritic(
            make_policy(size, self._action_space, hidden, self._rng),
            MLP((size, *hidden, 1), "tanh", 1.0, self._rng),
            encoder,
        )
        self._optimisers = self._init_optimisers()
        self._refresh_policy()

    # --- acting ---

    def _refresh_policy(self) -> None:
        """Copy networks and statistics to the NumPy policy, which acts."""
        self._normaliser = VectorNormaliser.from_stats(
            self._observation_shape,
            self._observation_stats,
            self.config.observation_clip,
            self._bands_layout,
        )
        policy, _, encoder = self._networks
        network, head = numpy_head(policy, self._action_shape, self._scale)
        # Convolutions are worth the dispatch of a compiled call.
        acting = self._with_normaliser(encoder)
        self.policy = NumpyPolicy(acting, NumpyMLP.from_jax(network), head)

    def _with_normaliser(self, encoder: Identity | ImageEncoder | NumpyImageEncoder) -> Any:
        """Return an encoder with the normalisation of vectors, also of those with images."""
        if self._image_layout is None:
            return self._normaliser
        if not self._image_layout.vector_size:
            return encoder
        return ImageVectorEncoder(encoder, self._image_layout, self._normaliser)

    def numpy_policy(self) -> NumpyPolicy:
        """Return the current policy for inference without JAX."""
        encoder = self._networks.encoder
        if not isinstance(encoder, ImageEncoder):
            return self.policy
        acting = self._with_normaliser(NumpyImageEncoder.from_jax(encoder))
        return replace(self.policy, encoder=acting)

    def _rows(self, observations: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "... D"]:
        """Flatten vectors, compute bands, or cut images into tiles (see `ImageEncoder`)."""
        leading = observations.shape[: observations.ndim - len(self._observation_shape)]
        encoder, rows = self._networks.encoder, observations.reshape(-1, self._observation_size)
        if isinstance(encoder, ImageEncoder):
            rows = encoder.to_tiles(rows)
        elif self._bands_layout is not None:
            rows = self._normaliser.features(rows)
        return rows.reshape(*leading, -1)

    def _normalised(self, rows: Shaped[np.ndarray, "... D"]) -> Shaped[np.ndarray, "... D"]:
        """Normalise rows as the policy does; of tiles, the vectors at their end."""
        if self._image_layout is not None:
            encoder = self.policy.encoder
            return encoder.normalise(rows) if isinstance(encoder, ImageVectorEncoder) else rows
        own, clip = self._normaliser, np.float32(self._normaliser.clip)
        centred = rows.astype(np.float32, copy=False) - own.mean
        # Inverted twice, the last bit may change: recorded runs (benchmarks.golden) have it so.
        return np.clip(centred * (1 / (1 / own.inverse_std)), -clip, clip)

    @property
    def caches_features(self) -> bool:
        """True if image features computed while acting are valid in the update."""
        is_cnn = self._image_layout is not None
        return self._bands_layout is not None or (is_cnn and self._updates_acting_networks)

    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Sample actions; record them before scaling and clipping, for `learn`."""
        features = self.policy.encoder.features(observations)
        actions = self.policy.policy_actions(features, self._rng, masks)
        self._actions.append(actions)
        if self.caches_features:
            self._features.append(features)
        return self.policy.head.to_environment(actions)

    @property
    def generator_state(self) -> UInt8[np.ndarray, " byte"]:
        """State of the agent's random generator."""
        return rng_to_array(self._rng)

    def record(
        self,
        actions: Shaped[np.ndarray, "time env ..."] | None,
        features: Float[np.ndarray, "time env features"] | None,
        generator_state: UInt8[np.ndarray, " byte"],
    ) -> None:
        """Take over what other processes sampled from `policy` with this agent's generator.

        Args:
            actions: policy actions before scaling and clipping, for `learn`; None: it does not use
                them.
            features: image features, if `caches_features`.
            generator_state: state of the generator after the last action.
        """
        if actions is not None:
            self._actions = list(actions)
            self._features = [] if features is None else list(features)
        array_to_rng(self._rng, generator_state)

    def predict(
        self, observations: EnvArray, masks: Masks = None, *, deterministic: bool = False
    ) -> EnvArray:
        """Return actions for evaluation: the mode, or samples that `learn` does not use."""
        rng = None if deterministic else self._rng
        features = self.policy.encoder.features(observations)
        return self.policy.environment_actions(features, rng, masks)

    # --- learning ---

    def observe(self, rollout: Rollout) -> None:
        """Count a rollout of any policy, and update the observation statistics from it."""
        self._standardise_images(rollout)
        self._steps += rollout.num_steps
        if not self._observation_stats.frozen:
            if self._image_layout is not None:
                rows = trailing_floats(rollout.observations, self._image_layout.vector_size)
            else:
                features = self._features
                rows = np.stack(features) if features else self._rows(rollout.observations)
            self._observation_stats.update(rows[rollout.is_valid])
        self._features = []
        self._refresh_policy()

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Update on one rollout with the given rewards.

        Raises:
            Diverged: the standard deviation of the actions is infinite or NaN.
        """
        self._standardise_images(rollout)
        metrics = self._update(self.rollout_batch(rollout, rewards))
        # The update must normalise observations as the policy did while it acted, so the
        # statistics are updated only after it.
        self.observe(rollout)
        log_std = self.policy.head.log_std
        if log_std is not None and not (log_std < MAX_LOG_STD).all():
            reason = f"the log standard deviation of its actions is {log_std.max():g}"
            raise agent_diverged(reason, learning_rate_setting(self))
        return {name: float(value) for name, value in metrics.items()}

    def _standardise_images(self, rollout: Rollout) -> None:
        """Standardise the pixels of a small CNN by the first rollout of new networks."""
        encoder, layout = self._networks.encoder, self._image_layout
        if layout is not None and isinstance(encoder, ImageEncoder) and encoder.needs_images:
            rows = rollout.observations.reshape(-1, self._observation_size)
            encoder = encoder.standardised_by(rows[:, : layout.num_bytes])
            self._networks = self._networks._replace(encoder=encoder)
            self._refresh_policy()

    def rollout_batch(
        self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]
    ) -> RolloutBatch:
        """Join a rollout and what `act` recorded of it to the input of an update."""
        actions, self._actions = np.stack(self._actions), []
        features = np.stack(self._features) if self._features else None
        if self.caches_features and self._updates_acting_networks:
            bootstrap = BootstrapObservations.of(rollout)
            rows = self._normalised(self._rows(bootstrap.observations))
            following = bootstrap._replace(observations=rows)
        else:
            following = self._normalised(self._rows(rollout.next_observations))
        if features is None or self._image_layout is not None:
            rows = self._rows(rollout.observations)
        else:
            # The bands are the observations of policy and value function.
            rows, features = features, None
        # As in Mnih et al. 2015, returns end with the loss of a life.
        lost_life = rollout.lost_life
        terminated = rollout.terminated if lost_life is None else rollout.terminated | lost_life
        return RolloutBatch(
            observations=self._normalised(rows),
            next_observations=following,
            actions=actions,
            masks=rollout.action_masks,
            rewards=self._scale_rewards(rewards, rollout.ended, rollout.is_valid),
            terminated=terminated.astype(np.float32),
            ended=(rollout.ended | terminated | ~rollout.is_valid).astype(np.float32),
            weights=rollout.is_valid.astype(np.float32),
            features=features,
        )

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Do nothing: each rollout is used once, with the rewards of its time."""

    def extend(self, total_steps: int) -> None:
        """Change the number of steps after which annealed settings reach their final value."""
        self._total_steps = max(total_steps, 1)

    def _annealed(self, first: float, last: float | None) -> np.float32:
        """Interpolate a setting linearly from the first step of the run to the last.

        Args:
            first: value at the first step.
            last: value at the last step; None keeps the first.
        """
        if last is None:
            return np.float32(first)
        progress = min(self._steps / self._total_steps, 1.0)
        return np.float32(first + progress * (last - first))

    # --- warm starts and saving ---

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over networks and normalisers of another agent.

        Optimisers, random numbers and the learning rate schedule start afresh. The scale of
        returns is taken over because the value function predicts scaled returns.

        Raises:
            BadConfig: its networks have other sizes.
        """
        self._networks = load_networks(self._networks, part_of(state, "networks"))
        self._observation_stats.load_state(part_of(state, "observations"))
        self._scale_rewards.load_scale(part_of(state, "returns"))
        self._refresh_policy()

    def _latest(self) -> tuple[ActorCritic, tuple[Any, ...]]:
        """Return the most recently updated networks and the state of their optimisers."""
        return self._networks, self._optimisers

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts.

        Raises:
            Diverged: the weights are not finite.
        """
        networks, optimisers = self._latest()
        weights = {"networks": tree_to_arrays(networks), "optimisers": tree_to_arrays(optimisers)}
        check_weights(nest(weights), learning_rate_setting(self))
        return nest(
            {
                **weights,
                "observations": self._observation_stats.state(),
                "returns": self._scale_rewards.state(),
                "self": {"rng": rng_to_array(self._rng), "steps": np.asarray(self._steps)},
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._networks = arrays_to_tree(self._networks, part_of(state, "networks"))
        self._optimisers = arrays_to_tree(self._optimisers, part_of(state, "optimisers"))
        self._observation_stats.load_state(part_of(state, "observations"))
        self._scale_rewards.load_state(part_of(state, "returns"))
        array_to_rng(self._rng, state["self/rng"])
        self._steps = int(state["self/steps"])
        self._actions, self._features = [], []
        self._refresh_policy()
