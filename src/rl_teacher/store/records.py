"""What the store takes in and gives back, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID, uuid4

from rl_teacher.clips.answer import Answer

Row = TypeVar("Row")

Role = Literal["owner", "labeler", "teacher"]

Purpose = Literal["answer", "repeat"]


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
        lease: of the comparison, if whoever answers had claimed it.
    """

    comparison_id: int
    answer: Answer | None
    labeler: str
    request_id: UUID = field(default_factory=uuid4)
    is_swapped: bool = False
    response_ms: int | None = None
    details: Mapping[str, Any] | None = None
    lease: UUID | None = None


@dataclass(frozen=True)
class LabelRow:
    """A label as it was given; None took this labeler's answer back."""

    id: int
    comparison_id: int
    answer: Answer | None
    labeler_id: int


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
        waiting: those that can be shown and are not answered by as many as shall.
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


@dataclass(frozen=True)
class LabelerView:
    """Somebody who answers.

    Attributes:
        id: in the store.
        name: theirs alone.
        role: what they may do.
        created_at: when they first came.
        excluded_at: since when nothing learns from their labels.
        num_labels: comparisons that have their answer now.
        last_label_at: when they last answered.
    """

    id: int
    name: str
    role: Role
    created_at: datetime
    excluded_at: datetime | None
    num_labels: int
    last_label_at: datetime | None


@dataclass(frozen=True)
class Identity:
    """Who a credential belongs to.

    Attributes:
        labeler_id: in the store.
        name: theirs.
        role: what they may do.
        experiment: the only one that they see, by name; None for all.
    """

    labeler_id: int
    name: str
    role: Role
    experiment: str | None = None

    def sees(self, experiment: str) -> bool:
        """Whether an experiment of this name is there for them."""
        return self.experiment is None or self.experiment == experiment


@dataclass(frozen=True)
class CredentialView:
    """A credential without its secret; `hint` is how it begins."""

    id: int
    hint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True)
class InviteView:
    """An invite without its secret; `status` is `open`, `used`, `expired` or `revoked`."""

    id: int
    hint: str
    name: str | None
    role: Role
    experiment: str | None
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    used_by: str | None
    revoked_at: datetime | None
    status: str


@dataclass(frozen=True)
class NewInvite:
    """An invite that was just made.

    Attributes:
        token: lets one person in; nobody can read it again.
        invite: the same without its secret.
    """

    token: str = field(repr=False)
    invite: InviteView


@dataclass(frozen=True)
class InQuestion:
    """A comparison that a labeler has answered.

    Attributes:
        comparison: what was asked.
        lease: that the labeler has of it, expired or not; None where they have none, or had
            answered under it.
        purpose: of the lease.
    """

    comparison: ComparisonView
    lease: UUID | None
    purpose: Purpose | None


@dataclass(frozen=True)
class Claimed:
    """A comparison in one labeler's hands.

    Attributes:
        comparison: what is asked.
        lease: what the answer names it by.
        expires_at: when others may have it, unless it is renewed.
        purpose: `repeat` asks again what this labeler has answered; they are not told.
    """

    comparison: ComparisonView
    lease: UUID
    expires_at: datetime
    purpose: Purpose


@dataclass(frozen=True)
class Study:
    """Who answers what how often.

    Attributes:
        overlap: share of comparisons that several labelers answer.
        overlap_labelers: how many answer those.
        repeats: chance that the next comparison is one that the labeler has answered.
        gold: chance that it is one whose answer is known.
    """

    overlap: float = 0.0
    overlap_labelers: int = 2
    repeats: float = 0.0
    gold: float = 0.0


@dataclass(frozen=True)
class Control:
    """What the owner wants of the trainer; None leaves as it is.

    Attributes:
        state: `run`, `pause` or `stop`; as read never None.
        seconds_between: labels, of a constant schedule.
        target_labels: how many are wanted in all.
        instructions: what whoever labels is told.
    """

    state: Literal["run", "pause", "stop"] | None = None
    seconds_between: float | None = None
    target_labels: int | None = None
    instructions: str | None = None


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows of a list, and what to ask for to get those after them; None at the end."""

    rows: list[Row]
    next: str | None


class Sort(StrEnum):
    """The order of a list of comparisons; whatever is equal has the newest first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LABELS = "labels"
    DISPUTED = "disputed"


@dataclass(frozen=True)
class ComparisonFilter:
    """Which comparisons; None asks nothing.

    Attributes:
        answer: somebody says so now.
        labeler: it has this labeler's answer now; with `answer`, that one.
        is_disputed: two labelers contradict each other.
        is_gold: the answer is known.
        status: `answered` by somebody, or `open` for more.
    """

    answer: Answer | None = None
    labeler: str | None = None
    is_disputed: bool | None = None
    is_gold: bool | None = None
    status: Literal["any", "answered", "open"] = "any"


@dataclass(frozen=True)
class Vote:
    """What one labeler says of a comparison now."""

    labeler_id: int
    labeler: str
    answer: Answer
    created_at: datetime
    response_ms: int | None
    is_swapped: bool
    lease: str
    is_excluded: bool


@dataclass(frozen=True)
class OwnersComparison:
    """A comparison as its owner sees it, with what every labeler says of it now."""

    id: int
    asked_at_step: int
    created_at: datetime
    left: ClipView
    right: ClipView
    gold: Answer | None
    wanted: int
    num_labels: int
    is_open: bool
    is_disputed: bool
    votes: tuple[Vote, ...]


@dataclass(frozen=True)
class ExportedLabel:
    """A label as it is exported: every one there is, current or not.

    Attributes:
        is_current: it is what its labeler says of the comparison now.
        is_excluded: nothing learns from its labeler's labels now.
    """

    id: int
    request_id: UUID
    comparison_id: int
    left_hash: str
    right_hash: str
    asked_at_step: int
    gold: Answer | None
    answer: Answer | None
    labeler_id: int
    labeler: str
    role: str
    created_at: datetime
    response_ms: int | None
    is_swapped: bool
    purpose: str
    lease: str
    details: Mapping[str, Any] | None
    is_current: bool
    is_excluded: bool


@dataclass(frozen=True)
class LibraryClip:
    """A clip of an environment, and how many comparisons there are with it."""

    clip: ClipView
    created_at: datetime
    num_comparisons: int


@dataclass(frozen=True)
class EventView:
    """Something that was done, to what and by whom."""

    id: int
    kind: str
    details: Mapping[str, Any]
    experiment: str | None
    labeler: str | None
    created_at: datetime
