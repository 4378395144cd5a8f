"""Schemas of experiments: status, progress, metrics, diagnostics and settings."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rl_teacher.runs.status import Phase
from rl_teacher.store.experiments import MAX_OVERLAP_LABELERS
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.schemas.shared import (
    NO_NULL,
    Clip,
    Number,
    Probability,
    StrictRequest,
)

MAX_INSTRUCTIONS = 2_000
"""Characters in the instructions for labelers."""


MAX_TAGS = 20
Tag = Annotated[str, Field(pattern=r"^[^\s,\x00]{1,40}$")]
"""One word."""


class ClipProgress(BaseModel):
    """Number of clips that are compared, and the number to sort; null without a limit."""

    compared: int
    target: int | None


class Progress(BaseModel):
    """Labelling progress of an experiment.

    `mine` counts the comparisons that the requesting labeler has labelled. `target` is null in a
    run that asks until it is finished; in a data set, it is the number of comparisons. `waiting`
    counts those that still need a label, including those leased to others or labelled by the
    requesting labeler; it is 0 after the run has finished, which asks none. `clips` is null unless
    the experiment sorts clips. `newest_label` is the id of the newest label, 0 if there is none: it
    rises with changed and withdrawn answers, too.
    """

    mine: int
    answered: int
    asked: int
    target: int | None
    waiting: int
    clips: ClipProgress | None
    newest_label: int


class Episode(BaseModel):
    """An episode of the agent; `predicted_rewards` has one value per frame."""

    clip: Clip
    predicted_rewards: list[Number] | None
    predicted_return: Number
    true_return: Number
    step: int


class LabelWarning(BaseModel):
    """A problem with the labels and what helps; `kind` stays the same while its numbers change."""

    kind: str
    text: str


class ExperimentSummary(BaseModel):
    """Status of an experiment, without its settings and metrics.

    `num_steps` is 0 if the run does not train, or its length is not known. `num_missing` counts the
    labels that training waits for, since `waiting_since`. `warnings` describe problems with the
    labels and what helps; only the owner gets them. `asks_people` is false if a program labels, or
    nobody does. `wall_s` is the time that the run has taken. `is_extendable` is true while a
    finished run waits to be extended by larger `target_steps` and `target_labels`. `num_fits`
    counts the fits of the reward predictor; each changes the effect of a person's labels.
    `beats_untrained` is true once the predictor prefers what the agent does to what it did before
    training.
    """

    name: str
    env_id: str
    phase: Phase
    message: str
    step: int
    num_steps: int
    steps_per_second: Number
    progress: Progress
    sparkline: list[float]
    instructions: str
    updated_at: datetime
    is_running: bool
    is_archived: bool
    num_missing: int
    waiting_since: datetime | None
    warnings: list[LabelWarning]
    is_extendable: bool
    num_fits: int
    beats_untrained: bool
    asks_people: bool
    agent: str | None
    seed: int | None
    wall_s: Number
    tags: list[str]
    first_episode: Episode | None
    latest_episode: Episode | None


class ExperimentDetail(ExperimentSummary):
    """An experiment with its configuration and latest metrics."""

    config: dict[str, Any]
    metrics: dict[str, Any]


class AssignmentUpdate(StrictRequest):
    """Changes to the assignment policy; omitted fields keep their values.

    `overlap`: share of comparisons that `overlap_labelers` labelers label. `repeats`, `gold`:
    probability that the next comparison is one that the labeler has labelled before, or one with a
    known answer.
    """

    overlap: Probability | None = None
    overlap_labelers: Annotated[int, Field(ge=1, le=MAX_OVERLAP_LABELERS)] | None = None
    repeats: Probability | None = None
    gold: Probability | None = None


class ControlRequest(StrictRequest):
    """Requested state of the training run.

    `stop` saves a checkpoint and ends it; `finish` uses its last labels, as at its last step.
    """

    state: Literal["run", "pause", "stop", "finish"]


class OwnerExperimentDetail(ExperimentDetail):
    """An experiment with the settings that only its owner sees.

    In `control`, null stands for the run's own setting; `reward` is null if the experiment has no
    predicted rewards to switch off.
    """

    assignment: AssignmentPolicy
    control: Control


class ExperimentUpdate(StrictRequest):
    """Changes to an experiment; omitted fields keep their values.

    Null in `target_labels`, `target_steps` or `seconds_between` removes the owner's value: the
    training run uses its own settings, of labels the next time it starts. Other `target_labels` and
    `target_steps` extend or shorten a run; larger ones also extend a finished one. `reward`
    switches the agent between predicted and true rewards.
    """

    instructions: Annotated[str, Field(max_length=MAX_INSTRUCTIONS, pattern=NO_NULL)] | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = None
    target_labels: Annotated[int, Field(strict=True, ge=1, le=MAX_ID)] | None = None
    target_steps: Annotated[int, Field(strict=True, ge=1, le=MAX_ID)] | None = None
    seconds_between: Annotated[float, Field(ge=0.1, le=1e6, allow_inf_nan=False)] | None = None
    reward: Literal["predicted", "true"] | None = None
    assignment: AssignmentUpdate | None = None

    def is_null(self, name: str) -> bool:
        """Return whether a field was given and is null."""
        return name in self.model_fields_set and getattr(self, name) is None


class RenameRequest(StrictRequest):
    """The new name of an experiment."""

    name: Annotated[str, Field(max_length=300)]


class MetricsEntry(BaseModel):
    """Metrics logged at one step; the set of metrics depends on the agent."""

    model_config = ConfigDict(extra="allow")

    id: int
    step: int


class RatedClip(BaseModel):
    """A clip and its return under the reward predictor."""

    clip: Clip
    predicted_return: Number


class CalibrationBin(BaseModel):
    """Comparisons grouped by the predicted probability that the left clip is preferred."""

    predicted: Number
    observed: Number
    count: int


class PredictorDiagnostics(BaseModel):
    """Diagnostics of the reward predictor; empty before the first fit.

    `highest` and `lowest` are the clips with the highest and lowest predicted returns.
    """

    step: int | None
    highest: list[RatedClip]
    lowest: list[RatedClip]
    calibration: list[CalibrationBin]
