"""Soft actor-critic (Haarnoja et al. 2018), with a temperature that adapts, as PEBBLE has it.

What PEBBLE (Lee, Smith, Abbeel 2021) adds for learning from labels:

* Before the first labels it explores: it learns to reach states that are far from those it
  remembers (see explore.py). The critics of that time are given up once there are rewards.
* After every fit of the predictor all that is remembered gets the reward that it is worth by now
  (see replay.py), so that nothing is learned from an opinion that was changed.

T: steps of a rollout, N: environments, D: features of an observation, A: action dimensions,
U: gradient steps after a rollout, M: samples of a minibatch.
"""

import math
from collections.abc import Mapping

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from rl_teacher.agents.actions import ActionScale, Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.explore import StateEntropy
from rl_teacher.agents.numpy_policy import NumpyPolicy, acted_by, layers_of, observed_by
from rl_teacher.agents.on_policy import check_shapes
from rl_teacher.agents.replay import ReplayBuffer
from rl_teacher.agents.sac_update import (
    Minibatch,
    Networks,
    Optimisers,
    improve,
    new_critics,
    new_networks,
    new_optimisers,
)
from rl_teacher.agents.squashed_gaussian import HostSquashedGaussian
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

STEPS_AFTER_RESET = 100
"""Gradient steps of new critics before they are acted by; PEBBLE's `reset_update`."""


def check_actions(space: gym.Space) -> None:
    """Refuse actions without bounds.

    Raises:
        BadConfig: says what is needed, and which agents can do without.
    """
    is_box = isinstance(space, gym.spaces.Box)
    if is_box and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        return
    raise BadConfig(
        f"The action space is {space}, but SAC needs a Box of continuous actions with bounds. Take "
        "another agent, such as -a ppo"
        + (", or bound the actions with gymnasium.wrappers.ClipAction." if is_box else ".")
    )


class SAC:
    """Acts, remembers, and learns from what it remembers: see the module's text."""

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: SACConfig,
        *,
        total_steps: int,  # noqa: ARG002 - nothing here goes by it
        seed: int,
    ) -> None:
        """Make a new agent.

        Args:
            observation_space: of one environment; a Box, which is flattened.
            action_space: of one environment; a Box with bounds.
            config: the settings.
            total_steps: of the run.
            seed: of the weights, the exploration and the minibatches.

        Raises:
            BadConfig: the actions are discrete, or have no bounds.
        """
        check_actions(action_space)
        self.config = config
        self.rollout_steps = config.rollout_steps
        self._rng = np.random.default_rng([seed, 1])
        self._action_shape = action_space.shape or ()
        self._num_actions = int(np.prod(self._action_shape))
        self._scale = ActionScale.of(action_space)
        self._observation_shape = observation_space.shape or ()
        self._observation_moments = RunningMeanStd((math.prod(self._observation_shape),))
        self._buffer = ReplayBuffer(
            config.buffer_steps, self._observation_shape, self._action_shape
        )
        self._entropy = StateEntropy(config.compared_states)
        self._random_steps = config.learning_starts
        self._is_exploring = False
        self._has_explored = False
        self._has_unrewarded = False
        self.reinitialise()

    @property
    def _updates(self) -> int:
        """U: the same after every rollout, so that nothing is compiled twice."""
        steps = self.config.num_envs * self.config.rollout_steps
        return max(round(self.config.updates_per_step * steps), 1)

    @property
    def _acts_at_random(self) -> bool:
        return self._buffer.num_added < self._random_steps

    def reinitialise(self) -> None:
        """New networks and optimisers; what is remembered and known of observations stays."""
        num_features = len(self._observation_moments.mean)
        self._networks = new_networks(num_features, self._num_actions, self.config, self._rng)
        self._optimisers: Optimisers = new_optimisers(self._networks)
        self._refresh_host()

    def _refresh_host(self) -> None:
        """Bring the NumPy twin, which acts, up to date."""
        self._host_policy = HostSquashedGaussian(self._networks.actor)
        self._mean = self._observation_moments.mean.astype(np.float32)
        self._inverse_std = (1 / self._observation_moments.std).astype(np.float32)

    def _normalise(
        self, observations: Shaped[np.ndarray, "*batch"]
    ) -> Float[np.ndarray, "*batch_and_features"]:
        """Flattened observations as the networks see them."""
        limit = self.config.observation_clip
        centred = observations.astype(np.float32, copy=False) - self._mean
        centred *= self._inverse_std
        return np.clip(centred, -limit, limit, out=centred)

    def _to_environment(self, actions: Float[np.ndarray, "env action"]) -> np.ndarray:
        return self._scale.to_environment(actions.reshape(-1, *self._action_shape))

    def act(
        self,
        observations: Shaped[np.ndarray, "env ..."],
        masks: Masks = None,
    ) -> Shaped[np.ndarray, "env ..."]:
        """Draw actions; any that are possible, until enough is remembered to learn from."""
        if self._acts_at_random:
            return self._at_random(len(observations))
        return self.predict(observations, masks)

    def _at_random(self, num_envs: int) -> np.ndarray:
        drawn = self._rng.uniform(-1, 1, (num_envs, self._num_actions))
        return self._to_environment(drawn.astype(np.float32))

    def predict(
        self,
        observations: Shaped[np.ndarray, "env ..."],
        masks: Masks = None,  # noqa: ARG002 - only discrete actions can be forbidden
        *,
        deterministic: bool = False,
    ) -> Shaped[np.ndarray, "env ..."]:
        """Return actions for evaluation: tanh of the mean, or samples of the actor."""
        seen = self._normalise(observations.reshape(len(observations), -1))
        if deterministic:
            return self._to_environment(self._host_policy.best(seen))
        return self._to_environment(self._host_policy.sample(seen, self._rng))

    def acting(self) -> NumpyPolicy:
        """What of it acts, alone: it needs nothing but NumPy."""
        limit = self.config.observation_clip
        return NumpyPolicy(
            observed_by(self._observation_shape, self._mean, self._inverse_std, limit),
            layers_of(self._networks.actor.network),
            acted_by("squashed_gaussian", self._action_shape, self._scale),
        )

    def explore(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Draw actions as `act` does; `observe` then rewards them for where they led."""
        if self.config.no_explore:
            return self._at_random(len(observations))
        self._is_exploring = True
        return self.act(observations, masks)

    def observe(self, rollout: Rollout) -> None:
        """Remember a rollout; after `explore`, learn to reach what is far from all remembered.

        Note: it is remembered as worth nothing, until `relabel_buffer` says more.
        """
        self._remember(rollout, np.zeros(rollout.ended.shape, np.float32))
        self._has_unrewarded = True
        if self._is_exploring and not self._acts_at_random:
            seen = self._buffer.observations.reshape(len(self._buffer), -1)
            places = self._draw()
            intrinsic = self._entropy(self._normalise(seen), places, self._rng)
            self._improve(places, intrinsic)
            self._has_explored = True
        self._is_exploring = False

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Remember a rollout with its rewards, and learn from all that is remembered."""
        self._remember(rollout, rewards)
        if self._acts_at_random:
            return {}
        return self._improve(self._draw())

    def _remember(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> None:
        self._buffer.add(rollout, rewards)
        valid = rollout.observations[rollout.is_valid]
        self._observation_moments.update(valid.reshape(len(valid), -1))
        self._refresh_host()

    def _draw(self) -> Int[np.ndarray, "update sample"]:
        """[U, M] the samples of each minibatch."""
        shape = self._updates, self.config.minibatch_size
        return self._rng.integers(len(self._buffer), size=shape)

    def _improve(
        self,
        places: Int[np.ndarray, "update sample"],
        rewards: Float[np.ndarray, "update sample"] | None = None,
    ) -> dict[str, float]:
        """Take U gradient steps on what is remembered in these places.

        Args:
            places: [U, M]
            rewards: [U, M] in place of those that are remembered.
        """
        batches = self._minibatches(places, rewards)
        self._networks, self._optimisers, figures = improve(
            self._networks, self._optimisers, batches, self.config
        )
        self._refresh_host()
        return {name: float(value) for name, value in figures.items()}

    def _minibatches(
        self,
        places: Int[np.ndarray, "update sample"],
        rewards: Float[np.ndarray, "update sample"] | None,
    ) -> Minibatch:
        steps = self._buffer.gather(places)
        actions = self._scale.from_environment(steps["actions"]).reshape(*places.shape, -1)
        return Minibatch(
            observations=self._normalise(steps["observations"].reshape(*places.shape, -1)),
            actions=actions,
            rewards=steps["rewards"] if rewards is None else rewards,
            next_observations=self._normalise(
                steps["next_observations"].reshape(*places.shape, -1)
            ),
            terminated=steps["terminated"].astype(np.float32),
            noise=self._rng.standard_normal(actions.shape, dtype=np.float32),
            next_noise=self._rng.standard_normal(actions.shape, dtype=np.float32),
        )

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Everything remembered is worth what the predictor says by now.

        The first time after exploring, the critics begin anew: what they knew was another reward.
        """
        if self._has_unrewarded or not self.config.no_relabel:
            self._buffer.relabel_buffer(reward_fn)
        self._has_unrewarded = False
        if not self._has_explored:
            return
        self._has_explored = False
        self._reset_critics()
        for _ in range(math.ceil(STEPS_AFTER_RESET / self._updates)):
            self._improve(self._draw())

    def _reset_critics(self) -> None:
        """New critics and their optimiser; the actor stays, and the temperature begins anew."""
        num_features = len(self._observation_moments.mean)
        sizes = (num_features + self._num_actions, *self.config.hidden, 1)
        critics = new_critics(sizes, self._rng)
        log_temperature = jnp.asarray(np.log(np.float32(self.config.initial_temperature)))
        self._networks = self._networks._replace(
            critics=critics, targets=critics, log_temperature=log_temperature
        )
        fresh = new_optimisers(self._networks)
        self._optimisers = fresh._replace(actor=self._optimisers.actor)

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin with another agent's networks and normaliser; nothing is remembered.

        Raises:
            BadConfig: it has networks of other sizes.
        """
        saved = part_of(state, "networks")
        check_shapes(tree_to_arrays(self._networks), saved)
        self._networks: Networks = arrays_to_tree(self._networks, saved)
        self._optimisers = new_optimisers(self._networks)
        self._observation_moments.load_state(part_of(state, "observations"))
        self._random_steps = 0
        self._refresh_host()

    def state(self) -> StateDict:
        """Everything needed to go on exactly, between two rollouts."""
        own = {
            "rng": rng_to_array(self._rng),
            "random_steps": np.asarray(self._random_steps),
            "has_explored": np.asarray(self._has_explored),
            "has_unrewarded": np.asarray(self._has_unrewarded),
        }
        return nest(
            {
                "networks": tree_to_arrays(self._networks),
                "optimisers": tree_to_arrays(self._optimisers),
                "observations": self._observation_moments.state(),
                "entropy": self._entropy.state(),
                "buffer": self._buffer.state(),
                "self": own,
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._networks = arrays_to_tree(self._networks, part_of(state, "networks"))
        self._optimisers = arrays_to_tree(self._optimisers, part_of(state, "optimisers"))
        self._observation_moments.load_state(part_of(state, "observations"))
        self._entropy.load_state(part_of(state, "entropy"))
        self._buffer.load_state(part_of(state, "buffer"))
        array_to_rng(self._rng, state["self/rng"])
        self._random_steps = int(state["self/random_steps"])
        self._has_explored = bool(state["self/has_explored"])
        self._has_unrewarded = bool(state["self/has_unrewarded"])
        self._refresh_host()
