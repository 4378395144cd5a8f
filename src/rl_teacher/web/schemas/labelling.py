"""Schemas of labelling: comparisons, labels and leases."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field, field_validator

from rl_teacher.clips.answer import Answer
from rl_teacher.store.labels import MAX_RESPONSE_MS, RANKING
from rl_teacher.store.rankings import MAX_CLIPS
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.problems import Problem
from rl_teacher.web.schemas.experiments import Progress
from rl_teacher.web.schemas.shared import Clip

ContentHash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

MAX_LABELS = 100
"""Labels or leases in one request."""
MAX_DETAILS = 4_000
"""Bytes of a label's details, as JSON."""
MAX_DEPTH = 8
"""Levels of nesting in a label's details."""


class Comparison(BaseModel):
    """A comparison with its sides in the order shown to this labeler, and their answer.

    `number` counts the experiment's comparisons from 1. With a lease the comparison is reserved for
    this labeler until `lease_expires_at`.
    """

    id: int
    number: int
    experiment: str
    asked_at_step: int
    left: Clip
    right: Clip
    answer: Answer | None
    lease: UUID | None = None
    lease_expires_at: datetime | None = None


class NextQuery(BaseModel):
    """Query of a request for the next comparisons."""

    exclude: Annotated[list[Annotated[int, Field(ge=1, le=MAX_ID)]], Field(max_length=500)] = []
    limit: Annotated[int, Field(ge=1, le=20)] = 4


class NextComparisons(BaseModel):
    """The comparisons to label next."""

    comparisons: list[Comparison]
    progress: Progress


class PastLabel(BaseModel):
    """A current label of the requesting labeler; `ranking` is the one that it belongs to."""

    request_id: UUID
    comparison: Comparison
    answered_at: datetime
    ranking: UUID | None


class LabelEffect(BaseModel):
    """The effect of the requesting labeler's labels on the reward predictor, as of its latest fit.

    `num_fits` is 0 before the first fit, and `num_labels` counts the labels of the fit. The
    predictor agrees with `num_agreed` of the labeler's `num_compared` latest labels that prefer a
    clip; `disagreements` are the others, newest first. `highest` and `lowest` are the clips with
    the highest and lowest predicted returns.

    It covers only comparisons that no other labeler has labelled, and neither comparisons
    nor clips that the labeler may still be asked about.
    """

    num_fits: int
    num_labels: int
    num_compared: int
    num_agreed: int
    disagreements: list[Comparison]
    highest: list[Clip]
    lowest: list[Clip]


class Submission(BaseModel):
    """Fields that submitted answers and rankings share."""

    request_id: UUID
    response_ms: Annotated[int, Field(strict=True)] | None = None
    details: dict[str, Any] | None = None

    @field_validator("response_ms")
    @classmethod
    def _drop_impossible_time(cls, response_ms: int | None) -> int | None:
        """Drop a time that a clock change has made impossible, rather than reject the label."""
        is_possible = response_ms is not None and 0 <= response_ms <= MAX_RESPONSE_MS
        return response_ms if is_possible else None

    @field_validator("details")
    @classmethod
    def _check_details(cls, details: Any) -> Any:
        if not is_shallow(details, MAX_DEPTH):
            raise ValueError(f"more than {MAX_DEPTH} levels deep")
        text = json.dumps(details, allow_nan=False, ensure_ascii=False)
        if len(text.encode()) > MAX_DETAILS:
            raise ValueError(f"longer than {MAX_DETAILS} bytes of JSON")
        if "\\u0000" in text:
            raise ValueError("a null character, which not every database can store")
        if details and RANKING in details:
            raise ValueError(f"{RANKING!r}, which only labels of rankings have")
        return details


class LabelSubmission(Submission):
    """A label in the order of sides that was shown; a null answer withdraws the previous one.

    The credential identifies the labeler. `lease` is the lease of the comparison; it may have
    expired, and is left out to change an earlier answer. `left_hash` is the content hash of the
    clip shown on the left; if it is omitted, the sides are those of the lease or the labeler's
    usual order.
    """

    comparison_id: Annotated[int, Field(strict=True, ge=1, le=MAX_ID)]
    answer: Literal["left", "right", "equal", "cannot_tell"] | None
    lease: UUID | None = None
    left_hash: ContentHash | None = None


class RankingSubmission(Submission):
    """An ordering of the clips of leased comparisons.

    `groups` has content hashes from best to worst; the clips of one group are equally good.
    `left_out` has those about which the labeler cannot tell. Together they are two to five clips,
    each named once; both clips of at least one leased comparison are among them.
    """

    groups: Annotated[list[list[ContentHash]], Field(max_length=MAX_CLIPS)]
    left_out: Annotated[list[ContentHash], Field(max_length=MAX_CLIPS)] = []


class RankingReceipt(BaseModel):
    """The comparisons that a ranking has labelled; its labels are committed to the database.

    `warning` is given if a label came too fast for the clips.
    """

    comparison_ids: list[int]
    warning: str | None = None


class LabelBatch(BaseModel):
    """Instances of `LabelSubmission`, validated one by one: an invalid one rejects only itself."""

    labels: Annotated[list[Any], Field(max_length=MAX_LABELS)]


class RejectedLabel(BaseModel):
    """A label that was not stored; `request_id` is null if it could not be read.

    If the problem is `already-answered`, the labeler has answered the comparison in another tab;
    `stored_answer` is that answer, in the order of sides of the rejected label.
    """

    request_id: UUID | None
    problem: Problem
    stored_answer: Answer | None = None


class LabelReceipt(BaseModel):
    """Result for each label of a batch; accepted labels are committed to the database.

    `warning` is given if a label came too fast for the clips.
    """

    accepted: list[UUID]
    rejected: list[RejectedLabel]
    warning: str | None = None


class LeaseBatch(BaseModel):
    """Leases of the requesting labeler."""

    leases: Annotated[list[UUID], Field(max_length=MAX_LABELS)]


class LeaseRenewal(BaseModel):
    """New expiry of each renewed lease; `lost` lists expired leases and those of other labelers."""

    renewed: dict[UUID, datetime]
    lost: list[UUID]


def is_shallow(value: Any, levels: int) -> bool:
    """Return whether a JSON value is nested at most `levels` deep."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(is_shallow(each, levels - 1) for each in inner)
