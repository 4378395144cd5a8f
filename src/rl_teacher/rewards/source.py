"""The interface of reward sources, and the two sources that do not learn.

T: steps of a rollout, N: environments, M: ensemble members.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, Float32

from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.ensemble import RewardPredictor

Metrics = dict[str, float | int]


@dataclass(frozen=True)
class RewardedRollout:
    """The rewards of a rollout.

    Attributes:
        rewards: [T, N] rewards for the agent.
        metrics: metrics to log.
    """

    rewards: Float32[np.ndarray, "time env"]
    metrics: Metrics


class RewardSource(Protocol):
    """Computes the rewards that an agent learns from."""

    @property
    def predictor(self) -> RewardPredictor | None:
        """The reward predictor; None if the rewards are the environment's own."""
        ...

    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Compute the rewards of a rollout."""
        ...


class EnvironmentReward:
    """The environment's own reward: the baseline without labels."""

    predictor = None

    def __init__(self, clip: float = 0.0) -> None:
        """Initialise.

        Args:
            clip: rewards are clipped to [-clip, clip]; 0 disables clipping.
        """
        self._clip = clip

    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Return the rollout's own rewards."""
        rewards = rollout.rewards
        return RewardedRollout(rewards.clip(-self._clip, self._clip) if self._clip else rewards, {})


class FrozenPredictorReward:
    """A saved predictor without further fits; its reward scale is frozen too."""

    def __init__(self, predictor: RewardPredictor) -> None:
        self.predictor = predictor

    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Predict the rewards of a rollout."""
        rows = self.predictor.space.rows(rollout.observations, rollout.actions)
        members = self.predictor.member_rewards(rows)
        rewards = self.predictor.normalised(members)
        return RewardedRollout(rewards, prediction_metrics(rollout, members, rewards))


def prediction_metrics(
    rollout: Rollout,
    members: Float32[np.ndarray, "member time env"],
    rewards: Float32[np.ndarray, "time env"],
) -> Metrics:
    """Compare the predicted rewards of a rollout with the true ones and with each other.

    `correlation` and `disagreement` compare sums over each environment's part of the rollout, since
    labels compare returns of segments. `step_correlation` compares single steps, which is what the
    agent's advantages are made of: the predictor may rank the environments of a rollout correctly
    and still give the credit to the wrong steps. It is a function of the
    Pearson distance of both rewards, sqrt((1 - correlation) / 2) (Gleave et al. 2021).

    Args:
        rollout: steps of all environments.
        members: [M, T, N] raw rewards of its members.
        rewards: [T, N] normalised rewards.
    """
    is_valid = rollout.is_valid
    # Steps that belong to no episode have no reward.
    returns, predicted = (each.sum(-2, where=is_valid) for each in (members, rewards))
    metrics = _disagreement(returns)
    metrics |= _correlation("correlation", predicted, rollout.rewards.sum(0, where=is_valid))
    return metrics | _correlation("step_correlation", rewards[is_valid], rollout.rewards[is_valid])


def _disagreement(returns: Float[np.ndarray, "member item"]) -> Metrics:
    """Return the spread between members whose returns are standardised.

    Labels determine neither the zero nor the scale of a member's reward, and predictions normalise
    each member. Nothing is returned for a constant member or for two points, which are always at
    -1 and 1.
    """
    std = returns.std(1, keepdims=True)
    if returns.shape[1] <= 2 or not (std > 0).all():
        return {}
    standardised = (returns - returns.mean(1, keepdims=True)) / std
    return {"disagreement": float(standardised.std(0).mean())}


def _correlation(
    name: str, predicted: Float[np.ndarray, " item"], true: Float[np.ndarray, " item"]
) -> Metrics:
    """Return Pearson's correlation; nothing for a constant or for two points, where it is +-1."""
    if len(true) <= 2 or not (predicted.std() > 0 and true.std() > 0):
        return {}
    return {name: float(np.corrcoef(predicted, true)[0, 1])}
