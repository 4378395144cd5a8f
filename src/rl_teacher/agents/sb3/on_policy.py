"""Adapter for on-policy algorithms of other libraries, such as PPO, A2C and TRPO.

T: steps of a rollout, N: environments.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Float, Shaped

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.episode_stats import ReturnScaler
from rl_teacher.agents.sb3.adapter import LibraryAgent
from rl_teacher.agents.sb3.libraries import NORMALISE
from rl_teacher.agents.sb3.weights import is_sbx
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.envs.rollout import Rollout

OBSERVATION_CLIP = 10.0
"""Bound of normalised observations, as in VecNormalize."""


class StepOutputs(NamedTuple):
    """Outputs of the algorithm in one step.

    Attributes:
        observations: [N, ...] normalised observations.
        actions: [N, ...] actions before clipping.
        values: [N] values of the observations.
        log_probs: [N] log-probabilities of the actions.
        masks: [N, A] actions that were allowed; None: all.
    """

    observations: np.ndarray
    actions: np.ndarray
    values: np.ndarray
    log_probs: np.ndarray
    masks: Masks


class OnPolicyLibraryAgent(LibraryAgent):
    """Adapter that fills the rollout buffer of an algorithm and calls its `train`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create an agent; see `LibraryAgent`."""
        super().__init__(*args, **kwargs)
        self.rollout_steps = self.algorithm.n_steps
        space = self._observation_space
        is_float = space.dtype is not None and space.dtype.kind == "f"
        self._normalises = bool(self._arguments[NORMALISE]) and is_float
        self._stats = RunningMeanStd(space.shape or ())
        self._scale_rewards = ReturnScaler(self._num_envs, float(self.algorithm.gamma))
        self._starts = np.ones(self._num_envs, bool)
        self._outputs: list[StepOutputs] = []

    def normalise(self, observations: Shaped[np.ndarray, "..."]) -> np.ndarray:
        """Normalise observations by their running mean and standard deviation, if enabled."""
        if not self._normalises or self._stats.frozen:
            return super().normalise(observations)
        normalised = (observations - self._stats.mean) / self._stats.std
        return np.clip(normalised, -OBSERVATION_CLIP, OBSERVATION_CLIP).astype(np.float32)

    # --- acting ---

    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Sample actions; record the outputs of the networks for `learn`."""
        self.resample_exploration(len(self._outputs))
        outputs = self._sample(observations, masks)
        self._outputs.append(outputs)
        return self._within_bounds(outputs.actions)

    def predict(
        self, observations: EnvArray, masks: Masks = None, *, deterministic: bool = False
    ) -> EnvArray:
        """Return actions for evaluation: the mode, or samples that `learn` does not use."""
        if deterministic:
            return super().predict(observations, masks, deterministic=True)
        return self._within_bounds(self._sample(observations, masks).actions)

    def _sample(self, observations: np.ndarray, masks: Masks) -> StepOutputs:
        normalised, masking = self.normalise(observations), self.mask_arguments(masks)
        algorithm, policy = self.algorithm, self.algorithm.policy
        with self.running():
            if is_sbx(algorithm):
                if not algorithm.use_sde or isinstance(self._action_space, gym.spaces.Discrete):
                    policy.reset_noise()
                sampled = policy.predict_all(normalised, policy.noise_key)
                # Copied, since torch needs arrays that it may write to.
                actions, log_probs, values = map(np.array, sampled)
            else:
                policy.set_training_mode(False)
                with torch.no_grad():
                    sampled = policy(self._tensor(normalised), **masking)
                actions, values, log_probs = (each.cpu().numpy() for each in sampled)
        return StepOutputs(normalised, actions, values.reshape(-1), log_probs.reshape(-1), masks)

    def _within_bounds(self, actions: np.ndarray) -> np.ndarray:
        space = self._action_space
        if isinstance(space, gym.spaces.Box):
            if self.algorithm.policy.squash_output:
                actions = self.algorithm.policy.unscale_action(actions)
            else:
                actions = np.clip(actions, space.low, space.high)
        return self.to_environment(actions)

    # --- learning ---

    def observe(self, rollout: Rollout) -> None:
        """Count a rollout of any policy, and update the observation statistics from it."""
        self._advance(rollout.num_steps)
        self._update_stats(rollout)

    def _update_stats(self, rollout: Rollout) -> None:
        if self._normalises:
            self._stats.update(rollout.observations[rollout.is_valid])

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Update on one rollout with the given rewards; then update the observation statistics."""
        if self._normalises:
            rewards = self._scale_rewards(rewards, rollout.ended, rollout.is_valid)
        with self.running():
            self._fill(rollout, rewards.astype(np.float32))
            self._advance(rollout.num_steps)
            self.algorithm.train()
        self.check_parameters()
        self._update_stats(rollout)
        return self._metrics()

    def _fill(self, rollout: Rollout, rewards: np.ndarray) -> None:
        """Fill the rollout buffer of the algorithm, and compute advantages."""
        buffer, outputs = self.algorithm.rollout_buffer, self._outputs
        cut = rollout.truncated & ~rollout.terminated & rollout.is_valid
        values = np.zeros(cut.shape, np.float32)
        for t in np.flatnonzero(cut.any(axis=1)):
            values[t] = np.where(cut[t], self._values(rollout.next_observations[t]), 0.0)
        # These buffers do not know truncation: as in the training loops of the libraries, the value
        # of the last observation is added to the reward, r_t + gamma * V(o_{t+1}).
        bootstrapped = rewards + self.algorithm.gamma * values
        ended = rollout.ended | ~rollout.is_valid
        buffer.reset()
        for t, step in enumerate(outputs):
            masking = {} if step.masks is None else {"action_masks": step.masks}
            buffer.add(
                step.observations,
                step.actions.reshape(self._num_envs, -1),
                bootstrapped[t],
                self._starts,
                torch.as_tensor(step.values),
                torch.as_tensor(step.log_probs),
                **masking,
            )
            self._starts = ended[t]
        last = self._values(rollout.next_observations[-1])
        buffer.compute_returns_and_advantage(last_values=torch.as_tensor(last), dones=ended[-1])
        is_valid = rollout.is_valid
        if not is_valid.all():
            # Steps that only reset get the mean advantage and a value error of 0.
            mean = buffer.advantages[is_valid].mean() if is_valid.any() else 0.0
            buffer.advantages[~is_valid] = mean
            buffer.returns[~is_valid] = buffer.values[~is_valid]
        self._outputs = []

    def _values(self, observations: np.ndarray) -> Float[np.ndarray, " env"]:
        """Compute [N] values of observations."""
        normalised, algorithm = self.normalise(observations), self.algorithm
        if is_sbx(algorithm):
            values = algorithm.vf.apply(algorithm.policy.vf_state.params, normalised)
            return np.array(values).reshape(-1)
        with torch.no_grad():
            return (
                algorithm.policy.predict_values(self._tensor(normalised)).cpu().numpy().reshape(-1)
            )

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Do nothing: each rollout is used once, with the rewards of its time."""

    # --- saving ---

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over networks and normalisers of another agent; see `LibraryAgent`.

        Raises:
            BadConfig: its networks have other names or sizes, or its observations were normalised
                and those of this agent are not, or the reverse.
        """
        super().warm_start_from(state)
        self._stats.load_state(part_of(state, "observations"))
        self._scale_rewards.load_scale(part_of(state, "returns"))
        # With frozen statistics, those of a model file, nothing is normalised in either case.
        was_normalised = self._stats.count >= 1
        if not self._stats.frozen and was_normalised != self._normalises:
            before = "normalised" if was_normalised else "unnormalised"
            raise BadConfig(
                f"The networks of the saved agent were trained on {before} observations. Give "
                f"--other.arguments {NORMALISE}={was_normalised}."
            )

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts."""
        parts = {
            "observations": self._stats.state(),
            "returns": self._scale_rewards.state(),
            "episodes": {"starts": self._starts},
        }
        return {**super().state(), **nest(parts)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        self._stats.load_state(part_of(state, "observations"))
        self._scale_rewards.load_state(part_of(state, "returns"))
        self._starts = state["episodes/starts"].copy()
        self._outputs = []
