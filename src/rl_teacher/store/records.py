"""Values that the store accepts and returns."""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID, uuid4

from rl_teacher.clips.answer import Answer

Row = TypeVar("Row")

Role = Literal["owner", "labeler", "teacher"]

Purpose = Literal["answer", "repeat"]


def normalise_experiment_name(name: str) -> str:
    """Return a name in Unicode normal form C, so that each is one name.

    Accents can be encoded in several ways; macOS decomposes them.
    """
    return unicodedata.normalize("NFC", name)


# --- labels ---


@dataclass(frozen=True)
class NewLabel:
    """A label to be stored.

    Attributes:
        comparison_id: Comparison that is answered.
        answer: Answer in the comparison's own left-right order, whichever side was shown where;
            None withdraws the labeler's earlier answer.
        labeler: Name of the person or the synthetic teacher.
        request_id: Idempotency key, chosen by the sender.
        is_swapped: The left clip was shown on the right.
        response_ms: Time between showing the clips and the answer.
        details: Anything else the client recorded.
        lease: Token of the lease under which the comparison was answered.
        is_too_fast: Given before half of the longer clip could have been played.
        imported: Original values of a label of an imported data set, by exported column.
    """

    comparison_id: int
    answer: Answer | None
    labeler: str
    request_id: UUID = field(default_factory=uuid4)
    is_swapped: bool = False
    response_ms: int | None = None
    details: Mapping[str, Any] | None = None
    lease: UUID | None = None
    is_too_fast: bool = False
    imported: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NewRanking:
    """An ordering of clips, to be stored as labels of their pairs.

    Attributes:
        labeler: Name of the person.
        request_id: Idempotency key, chosen by the sender; identifies the ranking.
        groups: Content hashes from best to worst; the clips of one group are equally good.
        left_out: Content hashes of the clips about which the labeler cannot tell.
        response_ms: Time between showing the clips and the ordering.
        details: Anything else the client recorded.
        is_too_fast: Given before half of the longest clip could have been played.
    """

    labeler: str
    request_id: UUID
    groups: Sequence[Sequence[str]]
    left_out: Sequence[str] = ()
    response_ms: int | None = None
    details: Mapping[str, Any] | None = None
    is_too_fast: bool = False


@dataclass(frozen=True)
class ExportedLabel:
    """A label joined with its comparison and its labeler.

    Attributes:
        imported: Original values of a label of an imported data set, by exported column.
        is_current: No later label of the same labeler replaces it.
        is_excluded: The labeler is excluded from training.
    """

    id: int
    request_id: UUID
    comparison_id: int
    comparison_number: int
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
    is_too_fast: bool
    details: Mapping[str, Any] | None
    imported: Mapping[str, Any] | None
    is_current: bool
    is_excluded: bool


# --- clips and comparisons ---


@dataclass(frozen=True)
class RenderedClip:
    """The media of a clip that can be shown.

    Attributes:
        env_id: Environment in which the segment was recorded.
        num_steps: Length in environment steps.
        kind: `poses` or `video`.
        media_key: Key of the file in the media store.
        scene_hash: Hash of the scene that the poses belong to; None for a video.
        num_frames: Length in frames.
        fps: Frames per second.
    """

    env_id: str
    num_steps: int
    kind: str
    media_key: str
    scene_hash: str | None
    num_frames: int
    fps: float


@dataclass(frozen=True)
class ClipView:
    """A clip and its media; the media fields are None until it has been rendered.

    Attributes:
        content_hash: Hash of the segment.
        kind: `poses` or `video`.
        media_key: Key of the file in the media store.
        scene_hash: Hash of the scene that the poses belong to; None for a video, too.
        num_frames: Length in frames.
        fps: Frames per second.
    """

    content_hash: str
    kind: str | None
    media_key: str | None
    scene_hash: str | None
    num_frames: int | None
    fps: float | None


@dataclass(frozen=True)
class ComparisonView:
    """A comparison as a labeler needs it.

    Attributes:
        id: Primary key.
        number: Number within the experiment, from 1, in the order asked.
        experiment_name: Name of the experiment.
        asked_at_step: Environment steps of training when it was asked.
        left: Left clip.
        right: Right clip.
    """

    id: int
    number: int
    experiment_name: str
    asked_at_step: int
    left: ClipView
    right: ClipView


@dataclass(frozen=True)
class AskedComparison:
    """A comparison by the hashes of its clips, and its progress."""

    id: int
    left_hash: str
    right_hash: str
    is_rendered: bool
    is_answered: bool
    is_withdrawn: bool
    is_open: bool


class GivenAnswer(NamedTuple):
    """A label by its answer; without one it withdraws an earlier answer."""

    id: int
    comparison_id: int
    labeler_id: int
    answer: Answer | None


@dataclass(frozen=True)
class ComparisonDetails:
    """A comparison as the owner sees it, with the current answer of every labeler."""

    id: int
    number: int
    asked_at_step: int
    created_at: datetime
    left: ClipView
    right: ClipView
    gold: Answer | None
    wanted: int
    num_labels: int
    is_open: bool
    is_disputed: bool
    votes: tuple[ExportedLabel, ...]


@dataclass(frozen=True)
class LabelView:
    """A current label and the comparison that it answers; `ranking` is the one that it is from."""

    request_id: UUID
    comparison: ComparisonView
    answer: Answer
    created_at: datetime
    ranking: UUID | None


@dataclass(frozen=True)
class ComparisonFilter:
    """Conditions on comparisons; None means no condition.

    Attributes:
        answer: At least one labeler currently gives this answer.
        labeler: This labeler currently answers it; with `answer`, gives that answer.
        is_disputed: Two labelers contradict each other.
        is_gold: The answer is known.
        status: `answered` by at least one labeler, or `open` for more labels.
    """

    answer: Answer | None = None
    labeler: str | None = None
    is_disputed: bool | None = None
    is_gold: bool | None = None
    status: Literal["any", "answered", "open"] = "any"


@dataclass(frozen=True)
class Page(Generic[Row]):
    """A page of a list, newest first, and its last id if there is a next page."""

    rows: list[Row]
    next: int | None


# --- leases ---


@dataclass(frozen=True)
class ClaimRequest:
    """A labeler's request for comparisons.

    Attributes:
        experiment_id: Experiment.
        labeler: Name of the labeler.
        limit: Maximum number of comparisons.
        exclude: Ids of comparisons that the client has; their leases are kept.
    """

    experiment_id: int
    labeler: str
    limit: int
    exclude: Collection[int] = ()


@dataclass(frozen=True)
class ClaimedComparison:
    """A comparison that a labeler has leased.

    Attributes:
        comparison: Comparison to answer.
        lease: Token that the answer refers to.
        expires_at: Time at which others may claim it, unless the lease is renewed.
        purpose: `repeat` for a comparison that this labeler has answered before; the page does
            not show this.
    """

    comparison: ComparisonView
    lease: UUID
    expires_at: datetime
    purpose: Purpose


@dataclass(frozen=True)
class ComparisonWithLease:
    """A comparison, and the lease that one labeler holds on it.

    Attributes:
        comparison: The comparison.
        lease: Token of the lease, expired or not; None if there is none, or if it was used up.
        purpose: Purpose of the lease.
        is_held: Whether the lease has not expired.
        is_labelled: Whether the labeler has labelled the comparison, also under an earlier lease.
    """

    comparison: ComparisonView
    lease: UUID | None
    purpose: Purpose | None
    is_held: bool
    is_labelled: bool


# --- experiments ---


@dataclass(frozen=True)
class ExperimentView:
    """An experiment and its progress.

    Attributes:
        id: Primary key.
        name: Unique name.
        env_id: Environment that is taught.
        config: Saved configuration.
        instructions: Instructions for the labelers.
        target_labels: Label budget; None if there is none.
        status: Latest status that the trainer reported.
        status_at: Time of that status.
        heartbeat_at: Time of the last heartbeat of the trainer; None if none has it open.
        latest_episode: Latest episode of the agent that can be watched.
        first_episode: First one, from before or early in training.
        created_at: Time of creation.
        archived_at: Time since which it is hidden from labelers; None while it is not.
        asked: Number of comparisons asked.
        answered: Number of comparisons that have an answer.
        waiting: Number of comparisons that are rendered and need more labels.
        tags: The owner's tags.
    """

    id: int
    name: str
    env_id: str
    config: Mapping[str, Any]
    instructions: str
    target_labels: int | None
    status: Mapping[str, Any] | None
    status_at: datetime | None
    heartbeat_at: datetime | None
    latest_episode: Mapping[str, Any] | None
    first_episode: Mapping[str, Any] | None
    created_at: datetime
    archived_at: datetime | None
    asked: int
    answered: int
    waiting: int
    tags: Sequence[str] | None


@dataclass(frozen=True)
class AssignmentPolicy:
    """Assignment of comparisons to labelers: overlap, repeats and gold questions.

    Attributes:
        overlap: Share of comparisons that several labelers answer.
        overlap_labelers: Number of labelers who answer those.
        repeats: Probability that the next comparison is one the labeler has already answered.
        gold: Probability that the next comparison has a known answer.
    """

    overlap: float = 0.0
    overlap_labelers: int = 2
    repeats: float = 0.0
    gold: float = 0.0


@dataclass(frozen=True)
class Control:
    """Commands of the owner to the trainer; None leaves a setting unchanged.

    Attributes:
        state: `run`, `pause` or `stop`; never None when read.
        seconds_between: Interval between labels of a constant schedule.
        target_labels: Label budget.
        target_steps: Environment steps of the whole run.
        reward: Reward that the agent learns from; `predicted` unless set.
    """

    state: Literal["run", "pause", "stop"] | None = None
    seconds_between: float | None = None
    target_labels: int | None = None
    target_steps: int | None = None
    reward: Literal["predicted", "true"] | None = None


@dataclass(frozen=True)
class MetricsRow:
    """Logged metrics at one step; later rows have higher ids."""

    id: int
    step: int
    row: Mapping[str, Any]


# --- labelers ---


@dataclass(frozen=True)
class LabelerView:
    """A labeler.

    Attributes:
        id: Primary key.
        name: Unique name.
        role: Permissions.
        created_at: Time of the first contact.
        excluded_at: Time since which their labels are not used; None while they are.
        num_labels: Number of comparisons that they currently answer.
        last_label_at: Time of their newest label.
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
    """The holder of a credential.

    Attributes:
        labeler_id: Primary key of the labeler.
        name: Name of the labeler.
        role: Permissions.
        experiment: Name of the only experiment they may see; None for all.
    """

    labeler_id: int
    name: str
    role: Role
    experiment: str | None = None

    def sees(self, experiment: str) -> bool:
        """Return True if the holder may see an experiment."""
        return self.experiment in (None, normalise_experiment_name(experiment))


@dataclass(frozen=True)
class InviteView:
    """An invite without its secret.

    Attributes:
        max_uses: Number of people whom it admits.
        num_uses: Number of people who have used it.
        used_at: Time of the latest use.
        used_by: Labeler who used it last.
        status: `open`, `used` (as often as allowed), `expired` or `revoked`.
    """

    id: int
    hint: str
    name: str | None
    role: Role
    experiment: str | None
    created_at: datetime
    expires_at: datetime
    max_uses: int
    num_uses: int
    used_at: datetime | None
    used_by: str | None
    revoked_at: datetime | None
    status: str


@dataclass(frozen=True)
class EventView:
    """An entry of the audit log."""

    id: int
    kind: str
    details: Mapping[str, Any]
    experiment: str | None
    labeler: str | None
    created_at: datetime
