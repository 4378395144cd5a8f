"""The experiments: how each stands, and its figures."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rl_teacher.store.records import ExperimentView, Identity
from rl_teacher.web.access import Access, Me, open_to
from rl_teacher.web.identity import is_owner
from rl_teacher.web.overview import as_labelers_see, figures_row
from rl_teacher.web.owner_shapes import ControlOut, OwnersDetail, State, StudyOut
from rl_teacher.web.services import Services, Work
from rl_teacher.web.shapes import MAX_ID, Detail, Experiments, Rows, Summary

MAX_ROWS = 600
"""More points than a curve on a screen can show."""

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])


@router.get("")
@open_to(Access.LABELER)
def list_experiments(work: Work, me: Me) -> Experiments:
    """Every experiment that is there for me, the newest first."""
    views = [view for view in work.store.experiments() if me.sees(view.name)]
    summaries = [work.overview.summary(view, me.name) for view in views]
    return Experiments(experiments=[as_seen_by(me, each) for each in summaries])


@router.get("/{name}")
@open_to(Access.LABELER)
def show_experiment(name: str, work: Work, me: Me) -> OwnersDetail | Detail:
    """One experiment; for an owner with its settings, its newest figures, and what they want."""
    view = work.overview.find(name)
    if is_owner(me):
        return owners_detail(view, work, me.name)
    return as_labelers_see(work.overview.detail(view, me.name))


@router.get("/{name}/metrics")
@open_to(Access.OWNER)
def list_metrics(name: str, work: Work, after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0) -> Rows:
    """The figures after a row, oldest first; from the beginning on, evenly thinned."""
    view = work.overview.find(name)
    rows = work.store.metrics(view.id, after, at_most=MAX_ROWS)
    return Rows(rows=[figures_row(row) for row in rows])


def as_seen_by(identity: Identity, summary: Summary) -> Summary:
    """All of it for an owner; for anybody else what is needed to label."""
    return summary if is_owner(identity) else as_labelers_see(summary)


def owners_detail(view: ExperimentView, work: Services, owner: str) -> OwnersDetail:
    """An experiment as its owner sees it."""
    control = work.store.control(view.id)
    return OwnersDetail(
        **dict(work.overview.detail(view, owner)),
        study=StudyOut(**asdict(work.store.study(view.id))),
        control=ControlOut(
            state=State(control.state or "run"),
            seconds_between=control.seconds_between,
            target_labels=control.target_labels,
        ),
    )
