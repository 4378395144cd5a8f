"""Review and control of experiments by their owner, with export and audit log."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import is_dataclass, replace
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from rl_teacher.common.errors import BadInput, CorruptClip, MediaNotFound
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.fields import fields_of, help_of
from rl_teacher.report.label_export import jsonl, label_rows
from rl_teacher.runs.control import finish_run, switch_reward
from rl_teacher.store.experiments import ClearableSetting, check_assignment
from rl_teacher.store.records import ComparisonDetails, ComparisonFilter, Control, EventView, Page
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.access import LabelerName, OwnerRoute
from rl_teacher.web.clip_ranking import CONTRADICTION, FittedRanking
from rl_teacher.web.label_quality import quality
from rl_teacher.web.problems import NotShown
from rl_teacher.web.routes.experiments import owner_experiment_detail
from rl_teacher.web.schemas import review as schemas
from rl_teacher.web.schemas.experiments import (
    CalibrationBin,
    ControlRequest,
    ExperimentUpdate,
    OwnerExperimentDetail,
    PredictorDiagnostics,
    RatedClip,
)
from rl_teacher.web.schemas.shared import (
    MAX_PAGE,
    NO_NULL,
    Clip,
    finite,
)
from rl_teacher.web.serializers import clip_if_displayable, serialize_clip
from rl_teacher.web.services import Services, ServicesDep

MAX_CONTRADICTIONS = 50
"""Comparisons with contradicting answers that a ranking lists."""

JSON_LINES = "application/x-ndjson"
ZIP = "application/zip"

router = APIRouter(prefix="/api/v1", tags=["review"], route_class=OwnerRoute)

EMPTIABLE: tuple[ClearableSetting, ...] = ("seconds_between", "target_labels", "target_steps")

ComparisonId = Annotated[int, Path(ge=1, le=MAX_ID)]
Cursor = Annotated[int | None, Query(ge=1, le=MAX_ID)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


@router.get("/experiments/{name}/comparisons")
def list_comparisons(
    name: str, services: ServicesDep, query: Annotated[schemas.ComparisonsQuery, Query()]
) -> Page[schemas.ReviewedComparison]:
    """List the comparisons that match a filter, with every labeler's answer."""
    wanted = ComparisonFilter(query.answer, query.labeler, query.disputed, query.gold, query.status)
    experiment_id = services.experiments.find(name).id
    page = services.store.comparisons.page(experiment_id, wanted, query.after, query.limit)
    return Page([reviewed_comparison(each) for each in page.rows], page.next)


@router.get("/environments/{env_id:path}/clips")
def list_clips(
    env_id: Annotated[str, Path(pattern=NO_NULL)],
    services: ServicesDep,
    experiment: str | None = None,
    after: Cursor = None,
    limit: Limit = 48,
) -> Page[Clip]:
    """List the clips of an environment that can be shown, newest first.

    `experiment` selects those that it compares, and the episodes that it keeps.
    """
    experiment_id = None if experiment is None else services.experiments.find(experiment).id
    page = services.store.clips.page(env_id, after, limit, experiment_id)
    shown = map(clip_if_displayable, page.rows)
    return Page([clip for clip in shown if clip is not None], page.next)


@router.get("/experiments/{name}/quality")
def show_quality(name: str, services: ServicesDep) -> schemas.LabelQuality:
    """Return agreement and label quality."""
    return quality(services.store, services.experiments.find(name).id)


@router.get("/experiments/{name}/ranking")
def show_ranking(name: str, services: ServicesDep) -> schemas.Ranking:
    """Rank the clips of an experiment by all current answers, except those of excluded labelers."""
    view = services.experiments.find(name)
    ranking = services.ranking.of(view)
    clips = services.store.clips.of_experiment(view.id)
    services.experiments.find(name)  # deleted meanwhile, it has no clips any more
    contradicting = dict.fromkeys(comparison_id for comparison_id, _ in ranking.contradictions)
    worst = services.store.comparisons.details([*contradicting][:MAX_CONTRADICTIONS])
    return schemas.Ranking(
        clips=[
            schemas.RankedClip(**vars(each), clip=clip_if_displayable(clips[each.hash]), rank=rank)
            for rank, each in enumerate(ranking.clips, 1)
        ],
        num_answers=len(ranking.probabilities),
        num_contradictions=len(ranking.contradictions),
        contradictions=[reviewed_comparison(each, ranking) for each in worst],
    )


@router.get("/experiments/{name}/ranking/{content_hash}")
def show_ranked_clip(
    name: str, content_hash: str, services: ServicesDep
) -> list[schemas.ReviewedComparison]:
    """List the comparisons of a clip with the probabilities of their answers in the ranking."""
    ranking = services.ranking.of(services.experiments.find(name))
    if content_hash not in ranking.comparisons:
        raise MediaNotFound(
            f"Experiment {name[:80]!r} compares no clip {content_hash[:80]!r}. Load the ranking "
            "again."
        )
    found = services.store.comparisons.details(ranking.comparisons[content_hash])
    return [reviewed_comparison(each, ranking) for each in found]


@router.put("/comparisons/{comparison_id}/gold", status_code=204)
def set_gold(
    comparison_id: ComparisonId,
    body: schemas.GoldRequest,
    services: ServicesDep,
    owner: LabelerName,
) -> None:
    """Set the known answer: every labeler gets this comparison once, as a gold question."""
    services.store.comparisons.set_gold(comparison_id, body.answer, by=owner)


@router.patch("/experiments/{name}")
def update_experiment(
    name: str, body: ExperimentUpdate, services: ServicesDep, owner: LabelerName
) -> OwnerExperimentDetail:
    """Change instructions, label target, query interval, reward and assignment policy.

    A training run applies the changes within seconds.
    """
    view = services.experiments.find(name)
    experiments = services.store.experiments
    # A refused request changes nothing. The range of every other value has been checked.
    before = experiments.assignment(view.id)
    changes = {} if body.assignment is None else body.assignment.model_dump(exclude_none=True)
    policy = replace(before, **changes)
    check_assignment(policy)
    # The first change, because an experiment without predicted rewards refuses it.
    if body.reward is not None:
        switch_reward(services.store, view.name, body.reward, by=owner)
    control = Control(**body.model_dump(exclude={"assignment", "reward", "instructions", "tags"}))
    emptied: list[ClearableSetting] = [name for name in EMPTIABLE if body.is_null(name)]
    if control != Control() or emptied:
        experiments.set_control(view.id, control, cleared=emptied, by=owner)
    if body.instructions is not None:
        experiments.set_description(view.id, "instructions", body.instructions, by=owner)
    if body.tags is not None:
        experiments.set_description(view.id, "tags", body.tags, by=owner)
    if policy != before:
        experiments.set_assignment(view.id, policy, by=owner)
    return owner_experiment_detail(services.experiments.find(name), services, owner)


@router.get("/settings")
def describe_settings() -> dict[str, str]:
    """Describe each setting of a configuration, by its name; those of a section as `ppo.gamma`."""
    parts = {f"{name}.": field.annotation for name, field in fields_of(TeachConfig).items()}
    sections = {prefix: model for prefix, model in parts.items() if is_dataclass(model)}
    return {
        prefix + name: help_of(model, name)
        for prefix, model in {"": TeachConfig, **sections}.items()
        for name in fields_of(model)
    }


@router.post("/experiments/{name}/control")
def control_experiment(
    name: str, body: ControlRequest, services: ServicesDep, owner: LabelerName
) -> OwnerExperimentDetail:
    """Pause, resume, stop or finish the training run."""
    view = services.experiments.find(name)
    if body.state == "finish":
        finish_run(services.store, view.name, by=owner)
    else:
        services.store.experiments.set_control(view.id, Control(state=body.state), by=owner)
    return owner_experiment_detail(view, services, owner)


@router.get("/experiments/{name}/diagnostics")
def show_diagnostics(name: str, services: ServicesDep) -> PredictorDiagnostics:
    """Return the diagnostics of the reward predictor."""
    diagnostics = services.store.experiments.diagnostics(services.experiments.find(name).id) or {}
    return PredictorDiagnostics(
        step=finite(diagnostics.get("step")),
        highest=rated_clips(diagnostics.get("best"), services),
        lowest=rated_clips(diagnostics.get("least"), services),
        calibration=[
            CalibrationBin.model_validate(each) for each in diagnostics.get("calibration", ())
        ],
    )


def rated_clips(entries: Any, services: Services) -> list[RatedClip]:
    """Return the clips that can be shown."""
    found: list[RatedClip] = []
    for each in entries or ():
        with suppress(MediaNotFound, CorruptClip, NotShown):
            clip = serialize_clip(services.store.clips.get(str(each.get("clip"))))
            found.append(RatedClip(clip=clip, predicted_return=each["predicted_return"]))
    return found


def reviewed_comparison(
    view: ComparisonDetails, ranking: FittedRanking | None = None
) -> schemas.ReviewedComparison:
    """Serialize a comparison, with the probabilities of its answers in a ranking."""
    answers = []
    for vote in view.votes:
        probability = ranking and ranking.probabilities.get((view.id, vote.labeler_id))
        is_contradiction = probability is not None and probability < CONTRADICTION
        answers.append(
            vars(vote) | {"probability": probability, "is_contradiction": is_contradiction}
        )
    sides = {"left": clip_if_displayable(view.left), "right": clip_if_displayable(view.right)}
    return schemas.ReviewedComparison.model_validate(vars(view) | sides | {"votes": answers})


@router.get("/audit")
def list_events(
    services: ServicesDep, experiment: str | None = None, after: Cursor = None, limit: Limit = 100
) -> Page[EventView]:
    """List audit events, newest first; `experiment` selects one experiment."""
    experiment_id = None if experiment is None else services.experiments.find(experiment).id
    return services.store.events.page(experiment_id, after, limit)


@router.get(
    "/experiments/{name}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {JSON_LINES: {}}}},
)
def export_labels(name: str, services: ServicesDep, owner: LabelerName) -> StreamingResponse:
    """Export every label with its labeler, time, side and whether it is current."""
    view = services.experiments.find(name)
    lines = jsonl(label_rows(services.store, view.name))
    owner_id = services.store.labelers.id_of(owner)
    services.store.events.record("export", {}, view.id, owner_id)
    file_name = quote(f"{view.name}-labels.jsonl", safe="")
    return StreamingResponse(
        lines,
        media_type=JSON_LINES,
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{file_name}"},
    )


@router.get(
    "/experiments/{name}/agent", response_class=Response, responses={200: {"content": {ZIP: {}}}}
)
def download_agent(
    name: str,
    services: ServicesDep,
    owner: LabelerName,
    form: Annotated[
        Literal["numpy", "onnx", "sb3", "safetensors"], Query(alias="format")
    ] = "numpy",
) -> Response:
    """Export the agent as a zip file of the folder that `rl-teacher export` writes."""
    view = services.experiments.find(name)
    with TemporaryDirectory() as folder:
        # In another process, since JAX and torch are large and would take memory of a GPU.
        command = [sys.executable, "-m", "rl_teacher.cli", "export", view.name, "--format", form]
        completed = subprocess.run(  # noqa: S603
            [*command, "--out", f"{folder}/agent"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        if completed.returncode != 0:
            raise BadInput(completed.stderr.rpartition("error: ")[2].strip())
        archive = shutil.make_archive(f"{folder}/zip", "zip", folder, "agent")
        content = FilePath(archive).read_bytes()
    owner_id = services.store.labelers.id_of(owner)
    services.store.events.record("export", {"format": form}, view.id, owner_id)
    file_name = quote(f"{view.name}-agent-{form}.zip", safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{file_name}"}
    return Response(content, headers=headers, media_type=ZIP)
