"""The interface of reward sources, and the two sources that do not learn.

T: steps of a rollout, N: environments, M: ensemble members.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Shaped

from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import Diagnostics, clipped_share
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.queries.queue import RecentEpisodes
from rl_teacher.queries.schedules import Progress

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


class RewardSource(ABC):
    """Base class of reward sources. By default nothing is asked, fitted or saved."""

    @property
    def predictor(self) -> RewardPredictor | None:
        """The reward predictor; None if the rewards are the environment's own."""
        return None

    @property
    def num_asked(self) -> int:
        """Number of comparisons asked so far."""
        return 0

    @property
    def num_answered(self) -> int:
        """Number of comparisons whose answer has been read from the store."""
        return 0

    @property
    def num_waiting(self) -> int:
        """Number of comparisons without an answer."""
        return 0

    @property
    def num_fits(self) -> int:
        """Number of completed fits."""
        return 0

    @abstractmethod
    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Record a rollout and compute its rewards."""

    def plan(self, progress: Progress, seconds_between: float | None, total: int | None) -> None:  # noqa: B027
        """Change the rate or the number of comparisons; None keeps the current value."""

    def restore_plan(self, progress: Progress, *, rate: bool, total: bool) -> None:  # noqa: B027
        """Return to the run's own rate or number of comparisons."""

    def extend(self, progress: Progress, total: int | None, num_steps: int) -> None:  # noqa: B027
        """Extend the run to more labels, `total` in all, or to more environment steps."""

    def num_labels_missing(self, progress: Progress) -> int:  # noqa: ARG002
        """Return how many of the labels that are due by now have not been given."""
        return 0

    def ask(
        self,
        progress: Progress,  # noqa: ARG002
        recent: RecentEpisodes,  # noqa: ARG002
        limit: int | None = None,  # noqa: ARG002
        *,
        are_last: bool = False,  # noqa: ARG002
    ) -> int:
        """Ask the comparisons that are due; return how many were asked."""
        return 0

    def read_answers(self) -> int:
        """Read new answers from the store; return how many comparisons are answered."""
        return self.num_answered

    def recover_queries(self) -> None:  # noqa: B027
        """Take over comparisons that an earlier run asked after its last checkpoint."""

    def withdraw_hidden(self) -> None:  # noqa: B027
        """Withdraw waiting comparisons whose clips cannot be shown; others are asked instead."""

    def fit(self, *, force: bool = False) -> bool:  # noqa: ARG002
        """Fit to the labels; return whether a fit was completed.

        Args:
            force: fit even if there are no new labels.
        """
        return False

    def finish_fit(self) -> bool:
        """Wait for a fit in the background; return whether there was one."""
        return False

    def fit_remaining(self) -> bool:
        """Fit to answers that no fit has used yet; return whether a fit was completed."""
        return False

    def metrics(self) -> Metrics:
        """Return the numbers of labels and fits, and the quality of the last fit."""
        return {}

    def diagnostics(self, shown: Set[str]) -> Diagnostics | None:  # noqa: ARG002
        """Evaluate the predictor on clips that can be shown; None before the first fit.

        Args:
            shown: content hashes of these clips.
        """
        return None

    def state(self) -> StateDict:
        """Return everything needed to resume exactly."""
        return {}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:  # noqa: B027
        """Restore a saved state."""

    def close(self) -> None:  # noqa: B027
        """Stop background threads."""


class EnvironmentReward(RewardSource):
    """The environment's own reward: the baseline without labels."""

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


class FrozenPredictorReward(RewardSource):
    """A saved predictor without further fits; its reward scale is frozen too."""

    def __init__(self, predictor: RewardPredictor) -> None:
        self._predictor = predictor

    @property
    def predictor(self) -> RewardPredictor:
        """The reward predictor."""
        return self._predictor

    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Predict the rewards of a rollout."""
        rows = self._predictor.space.rows(rollout.observations, rollout.actions)
        members = self._predictor.member_rewards(rows)
        rewards = self._predictor.normalised(members)
        metrics = prediction_metrics(rollout, self._predictor, rows, members, rewards)
        return RewardedRollout(rewards, metrics)


def prediction_metrics(
    rollout: Rollout,
    predictor: RewardPredictor,
    rows: Shaped[np.ndarray, "time env features"],
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
        predictor: the predictor.
        rows: [T, N, F] its input rows.
        members: [M, T, N] raw rewards of its members.
        rewards: [T, N] normalised rewards.
    """
    is_valid = rollout.is_valid
    # Steps that belong to no episode have no reward.
    returns, predicted = (each.sum(-2, where=is_valid) for each in (members, rewards))
    metrics = _disagreement(returns)
    metrics |= _correlation("correlation", predicted, rollout.rewards.sum(0, where=is_valid))
    metrics |= _correlation("step_correlation", rewards[is_valid], rollout.rewards[is_valid])
    if not predictor.space.has_byte_rows and is_valid.any():
        metrics["clipped_inputs"] = clipped_share(rows[is_valid], predictor.normaliser)
    return metrics


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
