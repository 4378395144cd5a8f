"""Experiments and their metrics."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query

from rl_teacher.common.errors import BadExperimentName, BadInput
from rl_teacher.runs import management
from rl_teacher.runs.control import has_two_rewards
from rl_teacher.store.records import ExperimentView, Identity
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.access import CurrentIdentity, LabelerName, LabelerRoute, OwnerRoute
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.experiment_views import metrics_entry, redact_for_labelers
from rl_teacher.web.schemas import experiments as schemas
from rl_teacher.web.services import Services, ServicesDep

MAX_ROWS = 600
"""Maximum number of points of a curve; more do not fit on a screen."""

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"], route_class=LabelerRoute)
owner_router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"], route_class=OwnerRoute)


@router.get("")
def list_experiments(
    services: ServicesDep, identity: CurrentIdentity
) -> list[schemas.ExperimentSummary]:
    """List the experiments that the user may see, newest first; archived ones for owners only."""
    views = [
        view
        for view in services.store.experiments.all()
        if identity.sees(view.name) and (view.archived_at is None or is_owner(identity))
    ]
    summaries = [services.experiments.summary(view, identity.name) for view in views]
    return [visible_to(identity, each) for each in summaries]


@router.get("/{name}")
def show_experiment(
    name: str, services: ServicesDep, identity: CurrentIdentity
) -> schemas.OwnerExperimentDetail | schemas.ExperimentDetail:
    """Return one experiment; owners also get its settings and metrics."""
    view = services.experiments.find_for(name, identity)
    if is_owner(identity):
        return owner_experiment_detail(view, services, identity.name)
    return redact_for_labelers(services.experiments.detail(view, identity.name))


@owner_router.get("/{name}/metrics")
def list_metrics(
    name: str, services: ServicesDep, after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0
) -> list[schemas.MetricsEntry]:
    """List the metrics after a row, oldest first; from the start, evenly thinned."""
    view = services.experiments.find(name)
    rows = services.store.metrics.after(view.id, after, at_most=MAX_ROWS)
    return [metrics_entry(row) for row in rows]


@owner_router.get("/{name}/episodes")
def list_episodes(name: str, services: ServicesDep) -> list[schemas.Episode]:
    """List the kept episodes of earlier agents, oldest first."""
    view = services.experiments.find(name)
    return services.experiments.episodes(view)


@owner_router.delete("/{name}", status_code=204)
def delete_experiment(name: str, services: ServicesDep, owner: LabelerName) -> None:
    """Delete an experiment with its comparisons, labels and checkpoints; it must not be running."""
    management.delete_experiment(services.store, name, by=owner)


@owner_router.post("/{name}/rename")
def rename_experiment(
    name: str, body: schemas.RenameRequest, services: ServicesDep, owner: LabelerName
) -> schemas.OwnerExperimentDetail:
    """Rename an experiment, which must not be running."""
    try:
        management.rename_experiment(services.store, name, body.name, by=owner)
    except BadExperimentName as error:
        raise BadInput(str(error)) from error
    return owner_experiment_detail(services.experiments.find(body.name), services, owner)


@owner_router.post("/{name}/archive", status_code=204)
def archive_experiment(name: str, services: ServicesDep, owner: LabelerName) -> None:
    """Hide an experiment from labelers; it must not be running. Continuing it restores it."""
    management.archive_experiment(services.store, name, is_archived=True, by=owner)


@owner_router.post("/{name}/restore", status_code=204)
def restore_experiment(name: str, services: ServicesDep, owner: LabelerName) -> None:
    """Show an archived experiment to labelers again."""
    management.archive_experiment(services.store, name, is_archived=False, by=owner)


def visible_to(identity: Identity, summary: schemas.ExperimentSummary) -> schemas.ExperimentSummary:
    """Return the summary that a user may see."""
    return summary if is_owner(identity) else redact_for_labelers(summary)


def owner_experiment_detail(
    view: ExperimentView, services: Services, owner: str
) -> schemas.OwnerExperimentDetail:
    """Return an experiment with the settings that only its owner sees."""
    control = services.store.experiments.control(view.id)
    reward = (control.reward or "predicted") if has_two_rewards(view) else None
    return schemas.OwnerExperimentDetail(
        **dict(services.experiments.detail(view, owner)),
        assignment=services.store.experiments.assignment(view.id),
        control=replace(control, reward=reward),
    )
