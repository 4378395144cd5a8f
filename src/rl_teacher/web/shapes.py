"""What the API says and hears, as JSON; `/api/openapi.json` is made from these."""

import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

from rl_teacher.clips.answer import Answer
from rl_teacher.web.problems import Problem

MAX_LABELS = 100
"""In one request."""
MAX_DETAILS = 4_000
"""Bytes of what a page records beside an answer, as JSON."""
MAX_DEPTH = 8
MAX_ID = 2**31 - 1
MAX_RESPONSE_MS = 2**31 - 1

MAX_NAME = 100
"""Characters of a labeler's name."""

Role = Literal["owner", "labeler", "teacher"]

Figure = float | None
"""None where there is none yet, or where it is not finite."""


class Phase(StrEnum):
    """What an experiment's trainer is doing."""

    STARTING = "starting"
    RANDOM = "random"
    WAITING = "waiting"
    FITTING = "fitting"
    TRAINING = "training"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    LOST = "lost"


class Clip(BaseModel):
    """A clip and where its bytes are: poses, which move a scene, or a video."""

    hash: str
    kind: Literal["poses", "video"]
    url: str
    scene_url: str | None
    num_frames: int
    fps: float
    seconds: float


class Comparison(BaseModel):
    """A question with its sides as they are shown to this labeler, and what they answered.

    With a lease it is this labeler's to answer, until the lease ends or is renewed.
    """

    id: int
    experiment: str
    asked_at_step: int
    left: Clip
    right: Clip
    answer: Answer | None
    lease: UUID | None = None
    lease_expires_at: datetime | None = None


class Progress(BaseModel):
    """How many comparisons of an experiment have an answer, and why none waits.

    `waiting` are those that somebody may still answer: some of them may be in others' hands, or
    have the answer of whoever asks.
    """

    mine: int
    answered: int
    asked: int
    target: int | None
    waiting: int
    says: str


class Episode(BaseModel):
    """An episode that the agent lived lately."""

    clip: Clip
    predicted_rewards: list[Figure] | None
    true_return: Figure
    step: int


class Summary(BaseModel):
    """An experiment in short."""

    name: str
    env_id: str
    phase: Phase
    says: str
    step: int
    num_steps: int
    steps_per_second: Figure
    progress: Progress
    spark: list[float]
    instructions: str
    updated_at: datetime
    is_running: bool
    latest_episode: Episode | None


class Detail(Summary):
    """An experiment with its settings and newest figures."""

    config: dict[str, Any]
    figures: dict[str, Any]


class Experiments(BaseModel):
    """Every experiment, the newest first."""

    experiments: list[Summary]


class FiguresRow(BaseModel):
    """A trainer's figures at one step; which ones depends on the agent."""

    model_config = ConfigDict(extra="allow")

    id: int
    step: int


class Rows(BaseModel):
    """Metrics, oldest first."""

    rows: list[FiguresRow]


class Waiting(BaseModel):
    """The comparisons to answer next."""

    comparisons: list[Comparison]
    progress: Progress


class GivenLabel(BaseModel):
    """An answer of mine that counts now."""

    request_id: UUID
    comparison: Comparison
    answered_at: datetime


class GivenLabels(BaseModel):
    """My answers, the newest first."""

    labels: list[GivenLabel]


class LabelIn(BaseModel):
    """An answer, in the sides that were shown; null takes back what was said before.

    Who answers is said by the credential, never here. `lease` is the one that came with the
    comparison; without it, or after its end, the answer is kept all the same. `left` is the hash of
    the clip that was shown on the left; without it the sides are those of the lease, or those that
    this labeler is shown whenever they look.
    """

    request_id: UUID
    comparison_id: Annotated[int, Field(strict=True, ge=1, le=MAX_ID)]
    answer: Literal["left", "right", "equal", "cannot_tell"] | None
    lease: UUID | None = None
    left: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    response_ms: Annotated[int, Field(strict=True)] | None = None
    details: dict[str, Any] | None = None

    @field_validator("response_ms")
    @classmethod
    def _drop_what_no_clock_says(cls, response_ms: int | None) -> int | None:
        """A clock that was set meanwhile is no reason to lose the answer."""
        is_possible = response_ms is not None and 0 <= response_ms <= MAX_RESPONSE_MS
        return response_ms if is_possible else None

    @field_validator("details")
    @classmethod
    def _refuse_what_cannot_be_stored(cls, details: Any) -> Any:
        if not is_shallow(details, MAX_DEPTH):
            raise ValueError(f"more than {MAX_DEPTH} levels deep")
        text = json.dumps(details, allow_nan=False, ensure_ascii=False)
        if len(text.encode()) > MAX_DETAILS:
            raise ValueError(f"longer than {MAX_DETAILS} bytes of JSON")
        if "\\u0000" in text:
            raise ValueError("a null character, which not every database can store")
        return details


class LabelsIn(BaseModel):
    """Answers; each is looked at by itself, so that a bad one refuses only itself."""

    labels: Annotated[
        list[Any],
        Field(max_length=MAX_LABELS),
        WithJsonSchema(
            {"type": "array", "maxItems": MAX_LABELS, "items": LabelIn.model_json_schema()}
        ),
    ]


class RefusedLabel(BaseModel):
    """An answer that was not kept; `request_id` is null where none could be read."""

    request_id: UUID | None
    problem: Problem


class LabelsOut(BaseModel):
    """What became of each answer: an accepted one is in the database, for good."""

    accepted: list[UUID]
    refused: list[RefusedLabel]


class LeasesIn(BaseModel):
    """Leases of mine."""

    leases: Annotated[list[UUID], Field(max_length=MAX_LABELS)]


class Renewed(BaseModel):
    """Until when each lease lasts now; `lost` are those that ended, or were never mine."""

    renewed: dict[UUID, datetime]
    lost: list[UUID]


class Myself(BaseModel):
    """Who asks, by the credential."""

    name: str
    role: Role


class JoinIn(BaseModel):
    """An invite, and what its labeler wants to be called, unless it says who it is for."""

    invite: Annotated[str, Field(max_length=200)]
    name: Annotated[str, Field(max_length=MAX_NAME)] = ""


class Joined(Myself):
    """Who joined; `experiment` is what the invite was for."""

    experiment: str | None


class Health(BaseModel):
    """The service is there."""

    status: Literal["ok"]
    instance: str


class Readiness(BaseModel):
    """The service can use its database."""

    status: Literal["ready"]
    schema_version: str


def is_shallow(value: Any, levels: int) -> bool:
    """Whether a JSON value is nested no deeper than this."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(is_shallow(each, levels - 1) for each in inner)
