"""What the API says to an experiment's owner, and hears from them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import Sort
from rl_teacher.web.shapes import MAX_ID, MAX_NAME, Clip, Detail, Figure, Role

MAX_INSTRUCTIONS = 2_000

MAX_PAGE = 200
MAX_CURSOR = 200
CURSOR = "^[A-Za-z0-9_=-]*$"

NO_NULL = "^[^\\x00]*$"
"""Without the one character that not every database can store or compare."""

GivenRole = Literal["owner", "labeler"]


class Strict(BaseModel):
    """Refuses what it does not know: a misspelt setting would change nothing, and nobody knew."""

    model_config = ConfigDict(extra="forbid")


class LabelerOut(BaseModel):
    """Somebody who answers. Nothing learns from the labels of whoever is excluded."""

    id: int
    name: str
    role: Role
    created_at: datetime
    excluded_at: datetime | None
    num_labels: int
    last_label_at: datetime | None


class LabelersOut(BaseModel):
    """Everybody who ever answered, or may."""

    labelers: list[LabelerOut]


class NewLabelerIn(Strict):
    """Somebody to let in; for as long as they are not revoked, where `expires_at` is null."""

    name: Annotated[str, Field(max_length=MAX_NAME)]
    role: GivenRole = "labeler"
    expires_at: AwareDatetime | None = None


class NewLabelerOut(BaseModel):
    """Their credential and the link that brings it into a browser; said this once."""

    labeler: LabelerOut
    credential: str
    link: str


class RevokedOut(BaseModel):
    """How many credentials ended."""

    num_revoked: int


class NewInviteIn(Strict):
    """An invite; `name` is who it is for, and null where they choose one. A labeler who comes by
    it sees `experiment` and no other, and all where that is null. It lasts a week, where nothing
    else is said.
    """

    role: GivenRole = "labeler"
    name: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    experiment: Annotated[str, Field(max_length=300)] | None = None
    expires_at: AwareDatetime | None = None


class InviteOut(BaseModel):
    """An invite without its secret; `hint` is how that begins."""

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


class InvitesOut(BaseModel):
    """Every invite, the newest first."""

    invites: list[InviteOut]


class NewInviteOut(InviteOut):
    """An invite with the link that lets one person in; said this once."""

    link: str


class ComparisonsQuery(Strict):
    """Which comparisons, in which order; `after` is the `next` of the part before."""

    status: Literal["any", "answered", "open"] = "any"
    answer: Answer | None = None
    labeler: Annotated[str, Field(max_length=300, pattern=NO_NULL)] | None = None
    disputed: bool | None = None
    gold: bool | None = None
    sort: Sort = Sort.NEWEST
    after: Annotated[str, Field(max_length=MAX_CURSOR, pattern=CURSOR)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


class VoteOut(BaseModel):
    """What one labeler says of a comparison now, in the comparison's own order."""

    labeler_id: int
    labeler: str
    answer: Answer
    answered_at: datetime
    response_ms: int | None
    is_swapped: bool
    lease: str
    is_excluded: bool


class OwnersComparisonOut(BaseModel):
    """A comparison in its own order, with what every labeler says of it now.

    A clip is null as long as it cannot be shown.
    """

    id: int
    asked_at_step: int
    asked_at: datetime
    left: Clip | None
    right: Clip | None
    gold: Answer | None
    wanted: int
    num_labels: int
    is_open: bool
    is_disputed: bool
    answers: list[VoteOut]


class ComparisonsOut(BaseModel):
    """Some comparisons; `next` is the `after` of those that follow, null at the end."""

    comparisons: list[OwnersComparisonOut]
    next: str | None


class AnswerIn(Strict):
    """An answer in the comparison's own order."""

    answer: Answer


class GoldIn(Strict):
    """The known answer, in the comparison's own order; null where it is known no longer."""

    answer: Answer | None


class LibraryClipOut(Clip):
    """A clip, and how many comparisons there are with it."""

    created_at: datetime
    num_comparisons: int


class LibraryOut(BaseModel):
    """Some clips that can be shown; `next` is the `after` of those that follow, null at the end."""

    clips: list[LibraryClipOut]
    next: str | None


Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class StudyIn(Strict):
    """Who answers what how often; what is left out stays as it is.

    `overlap`: share of comparisons that `overlap_labelers` answer. `repeats`, `gold`: chance that
    the next comparison is one that the labeler has answered, or one whose answer is known.
    """

    overlap: Chance | None = None
    overlap_labelers: Annotated[int, Field(ge=1, le=100)] | None = None
    repeats: Chance | None = None
    gold: Chance | None = None


class StudyOut(BaseModel):
    """Who answers what how often."""

    overlap: float
    overlap_labelers: int
    repeats: float
    gold: float


class ExperimentIn(Strict):
    """What shall change; what is left out stays as it is.

    `target_labels` and `seconds_between` are empty where they are null: then a trainer goes by its
    own settings, once it is started again.
    """

    instructions: Annotated[str, Field(max_length=MAX_INSTRUCTIONS, pattern=NO_NULL)] | None = None
    target_labels: Annotated[int, Field(strict=True, ge=1, le=MAX_ID)] | None = None
    seconds_between: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    study: StudyIn | None = None

    def says_none(self, name: str) -> bool:
        """Whether a field is there, and null."""
        return name in self.model_fields_set and getattr(self, name) is None


class State(StrEnum):
    """What the trainer shall do."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


class ControlIn(Strict):
    """What the trainer shall do; with `stop` it saves and ends."""

    state: State


class ControlOut(BaseModel):
    """What the owner wants of the trainer; null where they never said."""

    state: State
    seconds_between: float | None
    target_labels: int | None


class OwnersDetail(Detail):
    """An experiment as its owner sees it."""

    study: StudyOut
    control: ControlOut


class EventOut(BaseModel):
    """Something that was done, to what and by whom."""

    id: int
    at: datetime
    kind: str
    who: str | None
    experiment: str | None
    details: dict[str, Any]


class EventsOut(BaseModel):
    """Some of what was done, the newest first; `next` is the `after` of what was done before."""

    events: list[EventOut]
    next: str | None


class LikedClip(BaseModel):
    """A clip, and the return that the predictor gives it."""

    clip: Clip
    predicted_return: Figure


class CalibrationBin(BaseModel):
    """Comparisons whose left side is predicted to be chosen about as often."""

    predicted: Figure
    observed: Figure
    count: int


class DiagnosticsOut(BaseModel):
    """What the trainer found out about its predictor; empty as long as it has not."""

    step: int | None
    best: list[LikedClip]
    least: list[LikedClip]
    calibration: list[CalibrationBin]


class ShareOut(BaseModel):
    """A share of `num` cases, with its 95 % interval; null of none."""

    share: Figure
    low: Figure
    high: Figure
    num: int


class AlphaOut(BaseModel):
    """Krippendorff's alpha with its 95 % interval: 1 is always the same, 0 is as by chance."""

    alpha: Figure
    low: Figure
    high: Figure


class PeriodOut(BaseModel):
    """A stretch of time of one labeler's: `at` is where it begins."""

    at: datetime
    num_answers: int
    median_seconds: Figure
    agreement: Figure


class LabelerQuality(BaseModel):
    """What one labeler does: how much, how fast, how evenly, how steadily, how well."""

    id: int
    name: str
    role: Role
    is_excluded: bool
    num_answers: int
    median_seconds: Figure
    left_shown: ShareOut
    self_consistency: ShareOut
    gold_accuracy: ShareOut
    agreement: ShareOut
    reliability: Figure
    over_time: list[PeriodOut]


class QualityOut(BaseModel):
    """How much labelers agree, and what each one does; agreement is of those not excluded.

    `alpha` takes answers to be the same or not, `ordinal` left and right to be further apart than
    either from equal. `agreement` is the share of pairs of answers that are the same.

    All of it but each labeler's `num_answers` is told from `num_labels` labels, those of the newest
    comparisons where `is_all` is false.
    """

    num_labels: int
    is_all: bool
    alpha: AlphaOut
    ordinal: AlphaOut
    agreement: ShareOut
    num_shared: int
    labelers: list[LabelerQuality]
