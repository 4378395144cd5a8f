"""Audit log."""

from fastapi import APIRouter

from rl_teacher.store.records import EventView
from rl_teacher.web.access import Access, requires
from rl_teacher.web.routes.review import Cursor, Limit
from rl_teacher.web.schemas.review import AuditEvent, AuditEventPage
from rl_teacher.web.services import ServicesDep

router = APIRouter(prefix="/api/v1", tags=["audit"])


@router.get("/audit")
@requires(Access.OWNER)
def list_events(
    services: ServicesDep, experiment: str | None = None, after: Cursor = None, limit: Limit = 100
) -> AuditEventPage:
    """List audit events, newest first; `experiment` selects one experiment."""
    experiment_id = None if experiment is None else services.experiments.find(experiment).id
    page = services.store.events.page(experiment_id, after, limit)
    return AuditEventPage(events=[audit_event(each) for each in page.rows], next=page.next)


def audit_event(view: EventView) -> AuditEvent:
    """Serialize an audit event."""
    return AuditEvent(
        id=view.id,
        created_at=view.created_at,
        kind=view.kind,
        actor=view.labeler,
        experiment=view.experiment,
        details=dict(view.details),
    )
