"""The experiments: how each stands, and its metrics."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rl_teacher.store.records import ExperimentView, Identity
from rl_teacher.web.access import Access, Me, open_to
from rl_teacher.web.identity import is_owner
from rl_teacher.web.overview import as_labelers_see, metrics_entry
from rl_teacher.web.schemas.experiments import (
    ControlSettings,
    ExperimentDetail,
    ExperimentList,
    ExperimentSummary,
    MetricsList,
    OwnerExperimentDetail,
    RunState,
    StudySettings,
)
from rl_teacher.web.schemas.fields import MAX_ID
from rl_teacher.web.services import Services, Work

MAX_ROWS = 600
"""More points than a curve on a screen can show."""

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])


@router.get("")
@open_to(Access.LABELER)
def list_experiments(work: Work, me: Me) -> ExperimentList:
    """Every experiment that is there for me, the newest first."""
    views = [view for view in work.store.experiments.all() if me.sees(view.name)]
    summaries = [work.overview.summary(view, me.name) for view in views]
    return ExperimentList(experiments=[as_seen_by(me, each) for each in summaries])


@router.get("/{name}")
@open_to(Access.LABELER)
def show_experiment(name: str, work: Work, me: Me) -> OwnerExperimentDetail | ExperimentDetail:
    """One experiment; for an owner with its settings, its newest metrics, and what they want."""
    view = work.overview.find(name)
    if is_owner(me):
        return owner_experiment_detail(view, work, me.name)
    return as_labelers_see(work.overview.detail(view, me.name))


@router.get("/{name}/metrics")
@open_to(Access.OWNER)
def list_metrics(
    name: str, work: Work, after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0
) -> MetricsList:
    """The metrics after a row, oldest first; from the beginning on, evenly thinned."""
    view = work.overview.find(name)
    rows = work.store.metrics.after(view.id, after, at_most=MAX_ROWS)
    return MetricsList(rows=[metrics_entry(row) for row in rows])


def as_seen_by(identity: Identity, summary: ExperimentSummary) -> ExperimentSummary:
    """All of it for an owner; for anybody else what is needed to label."""
    return summary if is_owner(identity) else as_labelers_see(summary)


def owner_experiment_detail(
    view: ExperimentView, work: Services, owner: str
) -> OwnerExperimentDetail:
    """An experiment as its owner sees it."""
    control = work.store.experiments.control(view.id)
    return OwnerExperimentDetail(
        **dict(work.overview.detail(view, owner)),
        study=StudySettings(**asdict(work.store.experiments.assignment(view.id))),
        control=ControlSettings(
            state=RunState(control.state or "run"),
            seconds_between=control.seconds_between,
            target_labels=control.target_labels,
        ),
    )
