"""The experiments: how each stands, and its figures."""

from typing import Annotated

from fastapi import APIRouter, Query

from rl_teacher.web.access import Access, Labeler, open_to
from rl_teacher.web.overview import figures_row
from rl_teacher.web.services import Work
from rl_teacher.web.shapes import MAX_ID, Detail, Experiments, Rows

MAX_ROWS = 600
"""More points than a curve on a screen can show."""

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])


@router.get("")
@open_to(Access.LABELER)
def list_experiments(work: Work, labeler: Labeler) -> Experiments:
    """Every experiment, the newest first."""
    views = work.store.experiments()
    return Experiments(experiments=[work.overview.summary(view, labeler) for view in views])


@router.get("/{name}")
@open_to(Access.LABELER)
def show_experiment(name: str, work: Work, labeler: Labeler) -> Detail:
    """One experiment, with its settings and newest figures."""
    return work.overview.detail(work.overview.find(name), labeler)


@router.get("/{name}/metrics")
@open_to(Access.LABELER)
def list_metrics(name: str, work: Work, after: Annotated[int, Query(ge=0, le=MAX_ID)] = 0) -> Rows:
    """The figures after a row, oldest first; from the beginning on, evenly thinned."""
    view = work.overview.find(name)
    rows = work.store.metrics(view.id, after, at_most=MAX_ROWS)
    return Rows(rows=[figures_row(row) for row in rows])
