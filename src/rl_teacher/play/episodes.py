"""Recording of whole episodes with a fixed agent.

T: steps of the episode.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.play.actors import Actor

CHUNK_STEPS = 50
MAX_EPISODE_STEPS = 5_000
"""Limit for episodes that neither rules nor a time limit end."""

End = Literal["terminated", "truncated", "cut"]
"""The end of an episode: by rules, by the time limit, or at MAX_EPISODE_STEPS."""


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode.

    Attributes:
        segment: its steps.
        predicted_rewards: [T]; None where nothing predicts them.
        end: what ended it.
    """

    segment: Segment
    predicted_rewards: Float32[np.ndarray, " time"] | None
    end: End

    @property
    def true_rewards(self) -> Float32[np.ndarray, " time"] | None:
        """[T] the environment's own rewards; None if all are 0, as in environments without any."""
        rewards = self.segment.rewards
        return rewards if rewards.any() else None


def record_episode(actor: Actor, seed: int, *, explore: bool) -> RecordedEpisode:
    """Record one episode from start to end.

    Raises:
        BadObservation: the environment returned numbers that are not finite.
    """
    collector = Collector(actor.venv, seed=seed)
    act = actor.policy(explore=explore)
    parts: list[dict[str, np.ndarray]] = []
    num_steps, end = 0, None
    while end is None:
        rollout = collector.collect(act, min(CHUNK_STEPS, MAX_EPISODE_STEPS - num_steps))
        ends = np.flatnonzero(rollout.ended[:, 0])
        # The collector has gone on to the next episode, whose steps are cut off.
        taken = int(ends[0]) + 1 if len(ends) else len(rollout.rewards)
        valid = np.flatnonzero(rollout.is_valid[:taken, 0])
        parts.append({name: getattr(rollout, name)[valid, 0] for name in SEGMENT_ARRAYS})
        num_steps += len(valid)
        if len(ends):
            end = "terminated" if rollout.terminated[ends[0], 0] else "truncated"
        elif num_steps >= MAX_EPISODE_STEPS:
            end = "cut"
    whole = {name: np.concatenate([part[name] for part in parts]) for name in SEGMENT_ARRAYS}
    segment = Segment(actor.env_info.id, **whole)
    predicted = None
    if actor.predictor is not None:
        predicted = actor.predictor(segment.observations, segment.actions)
    return RecordedEpisode(segment, predicted, end)


def per_frame(
    rewards: Float32[np.ndarray, " time"], steps: Int64[np.ndarray, " frame"]
) -> Shaped[np.ndarray, " frame"]:
    """Return [F] the mean reward over the steps of each frame.

    Args:
        rewards: [T] reward of each step.
        steps: [F] first step of each frame.
    """
    counts = np.diff(np.append(steps, len(rewards)))
    return np.add.reduceat(rewards.astype(np.float64), steps) / counts
