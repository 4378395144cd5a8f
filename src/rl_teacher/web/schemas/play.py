"""Schemas of `rl-teacher play`, and the interface of the component that plays episodes."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from rl_teacher.web.schemas.shared import Clip, Number


class PlayedAgent(BaseModel):
    """An agent whose episodes are played."""

    name: str
    env_id: str
    agent: str
    step: int
    place: str
    is_training: bool
    notes: list[str]


class PlaySession(BaseModel):
    """The agents that play, alone or side by side; episodes are numbered from 0."""

    players: list[PlayedAgent]
    num_episodes: int
    seed: int
    is_exploring: bool


class PlayedSide(BaseModel):
    """One agent's episode; each reward is the mean over the steps of one frame."""

    clip: Clip
    num_steps: int
    end: Literal["terminated", "truncated", "cut"]
    predicted_rewards: list[Number] | None
    true_rewards: list[Number] | None
    predicted_return: Number
    true_return: Number


class PlayedEpisode(BaseModel):
    """One episode of each agent, from the same initial state."""

    number: int
    seed: int
    sides: list[PlayedSide]


@dataclass(frozen=True)
class ClipContent:
    """Encoded clip.

    Attributes:
        kind: Encoding of the content.
        content: The encoded bytes.
    """

    kind: Literal["poses", "video"]
    content: bytes


@runtime_checkable
class EpisodePlayer(Protocol):
    """Component that plays episodes and encodes their clips."""

    def session(self) -> PlaySession:
        """Return the agents that play."""
        ...

    def episode(self, number: int, timeout_s: float) -> PlayedEpisode | None:
        """Return an episode and start the next one; None if it is not ready in time.

        Raises:
            RlTeacherError: The episode could not be played.
        """
        ...

    def clip(self, content_hash: str) -> ClipContent | None:
        """Return an encoded clip."""
        ...

    def scene(self, scene_hash: str) -> bytes | None:
        """Return the scene that clips of poses animate."""
        ...
