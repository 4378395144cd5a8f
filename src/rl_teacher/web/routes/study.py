"""A study as its owner runs it: what was answered by whom, and what shall happen."""

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import CorruptClip, MediaNotFound
from rl_teacher.store.experiments import ClearableSetting
from rl_teacher.store.records import (
    ClipView,
    ComparisonDetails,
    ComparisonFilter,
    Control,
    ExportedLabel,
    LibraryClip,
)
from rl_teacher.web.access import Access, LabelerName, open_to
from rl_teacher.web.overview import finite
from rl_teacher.web.problems import Refusal
from rl_teacher.web.routes.experiments import owner_experiment_detail
from rl_teacher.web.schemas.experiments import (
    CalibrationBin,
    Clip,
    ControlRequest,
    ExperimentUpdate,
    OwnerExperimentDetail,
    PredictorDiagnostics,
    RatedClip,
)
from rl_teacher.web.schemas.fields import CURSOR, MAX_CURSOR, MAX_ID, MAX_PAGE, NO_NULL
from rl_teacher.web.schemas.review import (
    AnswerRequest,
    ComparisonsQuery,
    EnvironmentClip,
    EnvironmentClipPage,
    GoldRequest,
    LabelerAnswer,
    LabelQuality,
    ReviewedComparison,
    ReviewedComparisonPage,
)
from rl_teacher.web.serializers import shown_clip
from rl_teacher.web.services import Services, Work

router = APIRouter(prefix="/api/v1", tags=["studies"])

EMPTIABLE: tuple[ClearableSetting, ...] = ("seconds_between", "target_labels")

ComparisonId = Annotated[int, Path(ge=1, le=MAX_ID)]
Cursor = Annotated[str | None, Query(max_length=MAX_CURSOR, pattern=CURSOR)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


@router.get("/experiments/{name}/comparisons")
@open_to(Access.OWNER)
def list_comparisons(
    name: str, work: Work, query: Annotated[ComparisonsQuery, Query()]
) -> ReviewedComparisonPage:
    """Every comparison that fits, with what each labeler says of it now."""
    wanted = ComparisonFilter(query.answer, query.labeler, query.disputed, query.gold, query.status)
    experiment_id = work.overview.find(name).id
    page = work.store.comparisons.page(experiment_id, wanted, query.sort, query.after, query.limit)
    return ReviewedComparisonPage(
        comparisons=[reviewed_comparison(each) for each in page.rows], next=page.next
    )


@router.get("/experiments/{name}/quality")
@open_to(Access.OWNER)
def show_quality(name: str, work: Work) -> LabelQuality:
    """How much labelers agree, and what each one does; up to 10 seconds old."""
    return work.quality.of(work.overview.find(name).id)


@router.put("/comparisons/{comparison_id}/gold", status_code=204)
@open_to(Access.OWNER)
def set_gold(
    comparison_id: ComparisonId, given: GoldRequest, work: Work, owner: LabelerName
) -> None:
    """Say that the answer is known: everybody gets this comparison once, and is not told why."""
    work.store.comparisons.set_gold(comparison_id, given.answer, by=owner)


@router.post("/comparisons/{comparison_id}/adjudicate", status_code=204)
@open_to(Access.OWNER)
def adjudicate(
    comparison_id: ComparisonId, given: AnswerRequest, work: Work, owner: LabelerName
) -> None:
    """Answer as the owner, beside what labelers said, in the comparison's own order."""
    work.store.labels.adjudicate(comparison_id, given.answer, by=owner)


@router.get("/environments/{env_id:path}/clips")
@open_to(Access.OWNER)
def list_clips(
    env_id: Annotated[str, Path(max_length=300, pattern=NO_NULL)],
    work: Work,
    after: Cursor = None,
    limit: Limit = 50,
) -> EnvironmentClipPage:
    """The clips of an environment that were ever asked about, the newest first."""
    page = work.store.clips.page(env_id, after, limit)
    clips = [(each, clip_or_none(each.clip)) for each in page.rows]
    shown = [environment_clip(each, clip) for each, clip in clips if clip is not None]
    return EnvironmentClipPage(clips=shown, next=page.next)


@router.patch("/experiments/{name}")
@open_to(Access.OWNER)
def change_experiment(
    name: str, given: ExperimentUpdate, work: Work, owner: LabelerName
) -> OwnerExperimentDetail:
    """Change what labelers are told, how many labels are wanted, how often, and from whom.

    A trainer that runs follows within seconds.
    """
    view = work.overview.find(name)
    control = Control(
        seconds_between=given.seconds_between,
        target_labels=given.target_labels,
        instructions=given.instructions,
    )
    emptied: list[ClearableSetting] = [name for name in EMPTIABLE if given.is_null(name)]
    if control != Control() or emptied:
        work.store.experiments.set_control(view.id, control, cleared=emptied, by=owner)
    if given.study is not None:
        changes = given.study.model_dump(exclude_none=True)
        policy = replace(work.store.experiments.assignment(view.id), **changes)
        work.store.experiments.set_assignment(view.id, policy, by=owner)
    return owner_experiment_detail(work.overview.find(name), work, owner)


@router.post("/experiments/{name}/control")
@open_to(Access.OWNER)
def control_experiment(
    name: str, given: ControlRequest, work: Work, owner: LabelerName
) -> OwnerExperimentDetail:
    """Let the trainer pause, go on, or save and end."""
    view = work.overview.find(name)
    work.store.experiments.set_control(view.id, Control(state=given.state.value), by=owner)
    return owner_experiment_detail(view, work, owner)


@router.get("/experiments/{name}/diagnostics")
@open_to(Access.OWNER)
def show_diagnostics(name: str, work: Work) -> PredictorDiagnostics:
    """What the trainer found out about its predictor: clips it likes, and how well it is tuned."""
    said = work.store.experiments.diagnostics(work.overview.find(name).id) or {}
    return PredictorDiagnostics(
        step=finite(said.get("step")),
        highest=liked(said.get("best"), work),
        lowest=liked(said.get("least"), work),
        calibration=[CalibrationBin.model_validate(each) for each in said.get("calibration", ())],
    )


def liked(said: Any, work: Services) -> list[RatedClip]:
    """The clips that can be shown."""
    found: list[RatedClip] = []
    for each in said or ():
        with suppress(MediaNotFound, CorruptClip, Refusal):
            clip = shown_clip(work.store.clips.get(str(each.get("clip"))))
            found.append(RatedClip(clip=clip, predicted_return=finite(each["predicted_return"])))
    return found


def reviewed_comparison(view: ComparisonDetails) -> ReviewedComparison:
    """A comparison as the API has it."""
    return ReviewedComparison(
        id=view.id,
        asked_at_step=view.asked_at_step,
        asked_at=view.created_at,
        left=clip_or_none(view.left),
        right=clip_or_none(view.right),
        gold=view.gold,
        num_wanted=view.wanted,
        num_labels=view.num_labels,
        is_open=view.is_open,
        is_disputed=view.is_disputed,
        answers=[labeler_answer(each) for each in view.votes],
    )


def labeler_answer(vote: ExportedLabel) -> LabelerAnswer:
    """What one labeler says."""
    return LabelerAnswer(
        labeler_id=vote.labeler_id,
        labeler=vote.labeler,
        answer=Answer(vote.answer),
        answered_at=vote.created_at,
        response_ms=vote.response_ms,
        is_swapped=vote.is_swapped,
        lease=vote.lease,
        is_excluded=vote.is_excluded,
    )


def clip_or_none(view: ClipView) -> Clip | None:
    """A clip, if it can be shown."""
    try:
        return shown_clip(view)
    except (Refusal, CorruptClip):
        return None


def environment_clip(view: LibraryClip, clip: Clip) -> EnvironmentClip:
    """A clip of the library."""
    return EnvironmentClip(
        **dict(clip), created_at=view.created_at, num_comparisons=view.num_comparisons
    )
