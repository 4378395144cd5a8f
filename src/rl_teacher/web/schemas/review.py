"""Schemas of the review: every labeler's labels, label quality, clips and audit events."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import Role
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.schemas.shared import (
    MAX_PAGE,
    NO_NULL,
    Clip,
    Number,
    StrictRequest,
)


class ComparisonsQuery(StrictRequest):
    """Filter of comparisons; `after` is the `next` of the previous page."""

    status: Literal["any", "answered", "open"] = "any"
    answer: Answer | None = None
    labeler: Annotated[str, Field(max_length=300, pattern=NO_NULL)] | None = None
    disputed: bool | None = None
    gold: bool | None = None
    after: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


class LabelerAnswer(BaseModel):
    """One labeler's current answer to a comparison, in the comparison's stored order.

    `is_too_fast`: it was given before half of the longer clip could have been played.
    `probability`: that of the answer under the ranking if the labeler made no error; null outside
    of the ranking, and for answers that do not count: `cannot_tell`, and those of excluded
    labelers. `is_contradiction`: it is below 0.1.
    """

    labeler_id: int
    labeler: str
    answer: Answer
    answered_at: Annotated[datetime, Field(validation_alias="created_at")]
    response_ms: int | None
    is_swapped: bool
    lease: str
    is_too_fast: bool
    is_excluded: bool
    probability: Number
    is_contradiction: bool


class ReviewedComparison(BaseModel):
    """A comparison in its stored order, with every labeler's current answer.

    `number` counts the experiment's comparisons from 1. A clip is null until it can be shown.
    """

    id: int
    number: int
    asked_at_step: int
    asked_at: Annotated[datetime, Field(validation_alias="created_at")]
    left: Clip | None
    right: Clip | None
    gold: Answer | None
    num_wanted: Annotated[int, Field(validation_alias="wanted")]
    num_labels: int
    is_open: bool
    is_disputed: bool
    answers: Annotated[list[LabelerAnswer], Field(validation_alias="votes")]


class RankedClip(BaseModel):
    """A clip in the ranking; `clip` is null until it can be shown.

    Qualities are log-odds: those of two clips differ by the log-odds that the better one is
    preferred. `standard_deviation` is null if there are too many clips.
    """

    hash: str
    clip: Clip | None
    rank: int
    quality: float
    standard_deviation: Number
    num_answers: int
    num_open: int


class Ranking(BaseModel):
    """Bradley-Terry ranking of an experiment's clips by all current answers, best first.

    `contradictions` holds the comparisons with the least probable answers; `num_contradictions`
    counts all contradicting answers.
    """

    clips: list[RankedClip]
    num_answers: int
    num_contradictions: int
    contradictions: list[ReviewedComparison]


class GoldRequest(StrictRequest):
    """The known answer in the comparison's stored order; null removes it."""

    answer: Answer | None


class ShareEstimate(BaseModel):
    """A share of `count` cases with its 95 % confidence interval; null for zero cases."""

    share: Number
    low: Number
    high: Number
    count: Annotated[int, Field(validation_alias="num")]


class AlphaEstimate(BaseModel):
    """Krippendorff's alpha with its 95 % confidence interval; 0 is chance, 1 perfect agreement."""

    alpha: Number
    low: Number
    high: Number


class LabelerQuality(BaseModel):
    """Quality of one labeler's labels: number, speed, side bias, consistency and accuracy.

    `left_rate` is the share of decisive answers that choose the clip shown on the left, and
    `activity` the number of labels in periods of equal length.
    """

    id: int
    name: str
    role: Role
    is_excluded: bool
    num_answers: int
    median_seconds: Number
    left_rate: Annotated[ShareEstimate, Field(validation_alias="left_shown")]
    self_consistency: ShareEstimate
    gold_accuracy: ShareEstimate
    agreement: ShareEstimate
    reliability: Number
    activity: list[int]


class LabelQuality(BaseModel):
    """Agreement between labelers who are not excluded, and the quality of each labeler.

    `agreement` is the share of pairs of answers that are equal.

    Everything except each labeler's `num_answers` is computed from `num_labels` labels: the newest
    if `is_complete` is false.
    """

    num_labels: int
    is_complete: bool
    alpha: AlphaEstimate
    agreement: ShareEstimate
    num_shared: int
    labelers: list[LabelerQuality]
