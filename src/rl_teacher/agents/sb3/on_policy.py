"""PPO, A2C, TRPO and the like of other libraries, driven by our loop.

T: steps of a rollout, N: environments.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped

from rl_teacher.agents.actions import Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.reward_scaling import ReturnScaler
from rl_teacher.agents.sb3.adapter import LibraryAgent
from rl_teacher.agents.sb3.libraries import NORMALISE
from rl_teacher.agents.sb3.weights import is_sbx
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.config.agents import OtherAgentConfig
from rl_teacher.envs.rollout import Rollout

OBSERVATION_LIMIT = 10.0
"""Normalised observations are clipped to this, as VecNormalize does."""


class Drawn(NamedTuple):
    """What was thought while acting in one step; arrays of N.

    Attributes:
        seen: [N, ...] observations as the algorithm was given them.
        actions: [N, ...] as they were drawn, before they were clipped.
        values: [N] of the observations.
        log_probs: [N] of the actions.
        masks: [N, A] which actions were allowed; None: all.
    """

    seen: np.ndarray
    actions: np.ndarray
    values: np.ndarray
    log_probs: np.ndarray
    masks: Masks


class OnPolicyLibraryAgent(LibraryAgent):
    """Fills the algorithm's rollout buffer with what it is told, and has it train on that."""

    def __init__(
        self,
        name: str,
        observation_space: gym.Space,
        action_space: gym.Space,
        settings: OtherAgentConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        """Make a new agent; see `LibraryAgent`."""
        super().__init__(
            name, observation_space, action_space, settings, total_steps=total_steps, seed=seed
        )
        self.rollout_steps = int(self.algorithm.n_steps)
        is_float = observation_space.dtype is not None and observation_space.dtype.kind == "f"
        self._normalises = bool(self._arguments[NORMALISE]) and is_float
        self._stats = RunningMeanStd(observation_space.shape or ())
        self._scale_rewards = ReturnScaler(settings.num_envs, float(self.algorithm.gamma))
        self._starts = np.ones(settings.num_envs, bool)
        self._drawn: list[Drawn] = []

    def _constructor_arguments(self) -> Mapping[str, Any]:
        return {name: value for name, value in self._arguments.items() if name != NORMALISE}

    def _seen(self, observations: Shaped[np.ndarray, "..."]) -> np.ndarray:
        if not self._normalises or self._stats.frozen:
            return observations
        normalised = (observations - self._stats.mean) / self._stats.std
        return np.clip(normalised, -OBSERVATION_LIMIT, OBSERVATION_LIMIT).astype(np.float32)

    # --- acting ---

    def act(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Draw actions; remembers what was thought, for `learn`."""
        self._refresh_exploration(len(self._drawn))
        drawn = self._draw(observations, masks)
        self._drawn.append(drawn)
        return self._within_bounds(drawn.actions)

    def predict(
        self,
        observations: Shaped[np.ndarray, "env ..."],
        masks: Masks = None,
        *,
        deterministic: bool = False,
    ) -> Shaped[np.ndarray, "env ..."]:
        """Return actions for evaluation: the mode, or samples that `learn` does not use."""
        if deterministic:
            return super().predict(observations, masks, deterministic=True)
        return self._within_bounds(self._draw(observations, masks).actions)

    def _refresh_exploration(self, t: int) -> None:
        """With state-dependent exploration: another matrix, where the library takes another."""
        algorithm = self.algorithm
        every = algorithm.sde_sample_freq
        if algorithm.use_sde and (t == 0 or (every > 0 and t % every == 0)):
            with self._randomness.in_use():
                algorithm.policy.reset_noise(self._num_envs)

    def _draw(self, observations: np.ndarray, masks: Masks) -> Drawn:
        seen, masking = self._seen(observations), self._masking(masks)
        with self._randomness.in_use():
            if is_sbx(self.algorithm):
                actions, values, log_probs = self._draw_with_jax(seen)
            else:
                self.algorithm.policy.set_training_mode(False)
                with torch.no_grad():
                    drawn = self.algorithm.policy(self._tensor(seen), **masking)
                actions, values, log_probs = (each.cpu().numpy() for each in drawn)
        return Drawn(seen, actions, values.reshape(-1), log_probs.reshape(-1), masks)

    def _draw_with_jax(self, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        policy = self.algorithm.policy
        if not self.algorithm.use_sde or isinstance(self._action_space, gym.spaces.Discrete):
            policy.reset_noise()
        actions, log_probs, values = policy.predict_all(seen, policy.noise_key)
        return np.array(actions), np.array(values), np.array(log_probs)  # torch must own them

    def _within_bounds(self, actions: np.ndarray) -> np.ndarray:
        space = self._action_space
        if isinstance(space, gym.spaces.Box):
            if self.algorithm.policy.squash_output:
                actions = self.algorithm.policy.unscale_action(actions)
            else:
                actions = np.clip(actions, space.low, space.high)
        return self._to_environment(actions)

    # --- learning ---

    def observe(self, rollout: Rollout) -> None:
        """Learn only what observations look like, from a rollout of any policy."""
        if self._normalises:
            self._stats.update(rollout.observations[rollout.is_valid])

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Improve on one rollout, rewarded as told.

        Note: the moments of observations move on only after it, as for our own agents.
        """
        with self._randomness.in_use():
            self._fill(rollout, self._scaled(rollout, rewards))
            self._advance(rollout.num_steps)
            self.algorithm.train()
        self.observe(rollout)
        return self._figures()

    def _scaled(self, rollout: Rollout, rewards: np.ndarray) -> np.ndarray:
        if not self._normalises:
            return rewards.astype(np.float32)
        return self._scale_rewards(rewards, rollout.ended, rollout.is_valid)

    def _fill(self, rollout: Rollout, rewards: np.ndarray) -> None:
        """Fill the algorithm's rollout buffer, and have it work out advantages."""
        buffer, drawn = self.algorithm.rollout_buffer, self._drawn
        cut = rollout.truncated & ~rollout.terminated & rollout.is_valid
        worth = rewards + self.algorithm.gamma * self._values_after(rollout, cut)
        over = rollout.ended | ~rollout.is_valid
        buffer.reset()
        for t, step in enumerate(drawn):
            masking = {} if step.masks is None else {"action_masks": step.masks}
            buffer.add(
                step.seen,
                step.actions.reshape(self._num_envs, -1),
                worth[t],
                self._starts,
                torch.as_tensor(step.values),
                torch.as_tensor(step.log_probs),
                **masking,
            )
            self._starts = over[t]
        last = self._values(rollout.next_observations[-1])
        buffer.compute_returns_and_advantage(last_values=torch.as_tensor(last), dones=over[-1])
        self._pass_over_resets(rollout.is_valid)
        self._drawn = []

    def _values_after(
        self, rollout: Rollout, cut: Bool[np.ndarray, "time env"]
    ) -> Float[np.ndarray, "time env"]:
        """[T, N] values of where time limits cut episodes, and 0 elsewhere."""
        values = np.zeros(cut.shape, np.float32)
        for t in np.flatnonzero(cut.any(axis=1)):
            values[t] = np.where(cut[t], self._values(rollout.next_observations[t]), 0.0)
        return values

    def _values(self, observations: np.ndarray) -> Float[np.ndarray, " env"]:
        """[N] what the algorithm's value function says."""
        seen, algorithm = self._seen(observations), self.algorithm
        if is_sbx(algorithm):
            values = algorithm.vf.apply(algorithm.policy.vf_state.params, seen)
            return np.array(values).reshape(-1)
        with torch.no_grad():
            return algorithm.policy.predict_values(self._tensor(seen)).cpu().numpy().reshape(-1)

    def _pass_over_resets(self, is_valid: Bool[np.ndarray, "time env"]) -> None:
        """Steps that only reset: no advantage beyond the mean, and values as they are."""
        if is_valid.all():
            return
        buffer = self.algorithm.rollout_buffer
        buffer.advantages[~is_valid] = buffer.advantages[is_valid].mean()
        buffer.returns[~is_valid] = buffer.values[~is_valid]

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Nothing: rollouts are learned from once, with the rewards of their time."""

    def reinitialise(self) -> None:
        """New networks and optimisers; what is known of observations and rewards stays."""
        self._make_anew()

    # --- saving ---

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin with another agent's networks and normalisers; see `LibraryAgent`."""
        super().warm_start_from(state)
        self._stats.load_state(part_of(state, "observations"))
        self._scale_rewards.load_scale(part_of(state, "returns"))

    def state(self) -> StateDict:
        """Everything needed to go on exactly, between two rollouts."""
        parts = {
            "observations": self._stats.state(),
            "returns": self._scale_rewards.state(),
            "episodes": {"starts": self._starts},
        }
        return {**super().state(), **nest(parts)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        super().load_state(state)
        self._stats.load_state(part_of(state, "observations"))
        self._scale_rewards.load_state(part_of(state, "returns"))
        self._starts = state["episodes/starts"].copy()
        self._drawn = []
