"""What was done, and by whom: nothing of it is ever changed."""

from fastapi import APIRouter

from rl_teacher.store.records import EventView
from rl_teacher.web.access import Access, open_to
from rl_teacher.web.owner_shapes import EventOut, EventsOut
from rl_teacher.web.routes.study import Cursor, Limit
from rl_teacher.web.services import Work

router = APIRouter(prefix="/api/v1", tags=["audit"])


@router.get("/audit")
@open_to(Access.OWNER)
def list_events(
    work: Work, experiment: str | None = None, after: Cursor = None, limit: Limit = 100
) -> EventsOut:
    """What was done, the newest first; with `experiment=NAME` to that one."""
    experiment_id = None if experiment is None else work.overview.find(experiment).id
    page = work.store.events(experiment_id, after, limit)
    return EventsOut(events=[event_out(each) for each in page.rows], next=page.next)


def event_out(view: EventView) -> EventOut:
    """An event as the API has it."""
    return EventOut(
        id=view.id,
        at=view.created_at,
        kind=view.kind,
        who=view.labeler,
        experiment=view.experiment,
        details=dict(view.details),
    )
