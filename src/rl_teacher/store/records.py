"""What the store takes in and gives back, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from rl_teacher.clips.answer import Answer


@dataclass(frozen=True)
class NewLabel:
    """An answer on its way into the store.

    Attributes:
        comparison_id: what was asked.
        answer: what was said, in the comparison's own order, whatever side was shown; None takes
            back what was said before.
        labeler: who said it, a person or the name of a synthetic teacher.
        request_id: made by whoever answers; sending it a second time changes nothing.
        is_swapped: whether the left clip was shown on the right.
        response_ms: how long the answer took.
        details: what else was recorded.
    """

    comparison_id: int
    answer: Answer | None
    labeler: str
    request_id: UUID = field(default_factory=uuid4)
    is_swapped: bool = False
    response_ms: int | None = None
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class LabelRow:
    """A label as it was given; None took the answer back."""

    id: int
    comparison_id: int
    answer: Answer | None


@dataclass(frozen=True)
class ShownClip:
    """A clip that can be shown from now on.

    Attributes:
        env_id: the environment that it was lived in.
        num_steps: its length in steps of the environment.
        kind: `poses` or `video`.
        media_key: of its file in the media.
        scene_hash: of the scene that its poses move; None for a video.
        num_frames: its length in frames.
        fps: frames a second.
    """

    env_id: str
    num_steps: int
    kind: str
    media_key: str
    scene_hash: str | None
    num_frames: int
    fps: float


@dataclass(frozen=True)
class AnsweredComparison:
    """A question and its current answer."""

    id: int
    left_hash: str
    right_hash: str
    answer: Answer


@dataclass(frozen=True)
class AskedComparison:
    """A question, whether both its clips can be shown, and whether it has an answer now."""

    id: int
    left_hash: str
    right_hash: str
    is_shown: bool
    is_answered: bool


@dataclass(frozen=True)
class Counts:
    """How many comparisons of an experiment were asked, and how many of them have an answer."""

    asked: int
    answered: int


@dataclass(frozen=True)
class ClipView:
    """A clip as whoever shows it needs it; None where it cannot be shown yet.

    Attributes:
        content_hash: of its segment.
        kind: `poses` or `video`.
        media_key: of its file in the media.
        scene_hash: of the scene that its poses move; None for a video too.
        num_frames: its length in frames.
        fps: frames a second.
        num_steps: its length in steps of the environment.
    """

    content_hash: str
    kind: str | None
    media_key: str | None
    scene_hash: str | None
    num_frames: int | None
    fps: float | None
    num_steps: int


@dataclass(frozen=True)
class ComparisonView:
    """A question as whoever answers it needs it; `answer` is the current one."""

    id: int
    experiment_name: str
    asked_at_step: int
    left: ClipView
    right: ClipView
    answer: Answer | None


@dataclass(frozen=True)
class LabelView:
    """A current label, and what it is about."""

    request_id: UUID
    comparison: ComparisonView
    answer: Answer
    created_at: datetime


@dataclass(frozen=True)
class ExperimentView:
    """An experiment and how far it has come.

    Attributes:
        id: in the store.
        name: what its person calls it.
        env_id: what is taught.
        config: its settings.
        instructions: what whoever labels is told.
        target_labels: how many are wanted in all, if anybody said.
        status: what the trainer said last, if it ever did.
        status_at: when it said so.
        latest_episode: what the trainer shows of the agent.
        created_at: when it began.
        asked: comparisons asked.
        answered: those that have an answer now.
        waiting: those that can be shown and have none.
    """

    id: int
    name: str
    env_id: str
    config: Mapping[str, Any]
    instructions: str
    target_labels: int | None
    status: Mapping[str, Any] | None
    status_at: datetime | None
    latest_episode: Mapping[str, Any] | None
    created_at: datetime
    asked: int
    answered: int
    waiting: int


@dataclass(frozen=True)
class MetricsRow:
    """A trainer's figures at one step; a later row has a higher id."""

    id: int
    step: int
    row: Mapping[str, Any]
