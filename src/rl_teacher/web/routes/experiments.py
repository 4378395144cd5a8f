"""Experiments and their metrics."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rl_teacher.store.records import ExperimentView, Identity
from rl_teacher.web.access import Access, CurrentIdentity, requires
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.experiment_views import metrics_entry, redact_for_labelers
from rl_teacher.web.schemas.experiments import (
    AssignmentSettings,
    ControlSettings,
    ExperimentDetail,
    ExperimentList,
    ExperimentSummary,
    MetricsList,
    OwnerExperimentDetail,
    RunState,
)
from rl_teacher.web.schemas.shared import MAX_ID
from rl_teacher.web.services import Services, ServicesDep

MAX_ROWS = 600
"""Maximum number of points of a curve; more do not fit on a screen."""

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])


@router.get("")
@requires(Access.LABELER)
def list_experiments(services: ServicesDep, identity: CurrentIdentity) -> ExperimentList:
    """List the experiments that the user may see, newest first."""
    views = [view for view in services.store.experiments.all() if identity.sees(view.name)]
    summaries = [services.experiments.summary(view, identity.name) for view in views]
    return ExperimentList(experiments=[visible_to(identity, each) for each in summaries])


@router.get("/{name}")
@requires(Access.LABELER)
def show_experiment(
    name: str, services: ServicesDep, identity: CurrentIdentity
) -> OwnerExperimentDetail | ExperimentDetail:
    """Return one experiment; owners also get its settings and metrics."""
    view = services.experiments.find(name)
    if is_owner(identity):
        return owner_experiment_detail(view, services, identity.name)
    return redact_for_labelers(services.experiments.detail(view, identity.name))


@router.get("/{name}/metrics")
@requires(Access.OWNER)
def list_metrics(
    name: str, services: ServicesDep, after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0
) -> MetricsList:
    """List the metrics after a row, oldest first; from the start, evenly thinned."""
    view = services.experiments.find(name)
    rows = services.store.metrics.after(view.id, after, at_most=MAX_ROWS)
    return MetricsList(rows=[metrics_entry(row) for row in rows])


def visible_to(identity: Identity, summary: ExperimentSummary) -> ExperimentSummary:
    """Return the summary that a user may see."""
    return summary if is_owner(identity) else redact_for_labelers(summary)


def owner_experiment_detail(
    view: ExperimentView, services: Services, owner: str
) -> OwnerExperimentDetail:
    """Return an experiment with the settings that only its owner sees."""
    control = services.store.experiments.control(view.id)
    return OwnerExperimentDetail(
        **dict(services.experiments.detail(view, owner)),
        assignment=AssignmentSettings(**asdict(services.store.experiments.assignment(view.id))),
        control=ControlSettings(
            state=RunState(control.state or "run"),
            seconds_between=control.seconds_between,
            target_labels=control.target_labels,
            target_steps=control.target_steps,
        ),
    )
