"""What is said of who plays, and what makes it."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from rl_teacher.web.shapes import Clip, Figure


class Played(BaseModel):
    """Somebody whose episodes are shown."""

    name: str
    env_id: str
    agent: str
    step: int
    checkpoint: str
    is_training: bool
    notes: list[str]


class PlaySession(BaseModel):
    """Who plays: one, or two side by side. Episodes are numbered from 0."""

    actors: list[Played]
    num_episodes: int
    seed: int
    explores: bool


class Side(BaseModel):
    """An episode of one of them; rewards are the mean of the steps of each frame."""

    clip: Clip
    num_steps: int
    end: Literal["terminated", "truncated", "cut"]
    predicted_rewards: list[Figure] | None
    true_rewards: list[Figure] | None
    predicted_return: Figure
    true_return: Figure


class PlayedEpisode(BaseModel):
    """An episode of each, begun alike."""

    number: int
    seed: int
    sides: list[Side]


@dataclass(frozen=True)
class Picture:
    """The bytes of a clip.

    Attributes:
        kind: what they are.
        content: all of them.
    """

    kind: Literal["poses", "video"]
    content: bytes


@runtime_checkable
class EpisodePlayer(Protocol):
    """Makes what is played."""

    def session(self) -> PlaySession:
        """Who plays."""
        ...

    def episode(self, number: int, patience_s: float) -> PlayedEpisode | None:
        """An episode; the one after it is begun too. None while it is not ready.

        Raises:
            RlTeacherError: it could not be made.
        """
        ...

    def picture(self, content_hash: str) -> Picture | None:
        """A clip of one of them."""
        ...

    def scene(self, scene_hash: str) -> bytes | None:
        """What its poses move."""
        ...
