"""Whether the service is alive, and whether it can work."""

from fastapi import APIRouter

from rl_teacher.web.access import Access, open_to
from rl_teacher.web.services import Work
from rl_teacher.web.shapes import Health, Readiness
from rl_teacher.web.versions import check_version

router = APIRouter(tags=["health"])


@router.get("/healthz")
@open_to(Access.ANYBODY)
def say_alive(work: Work) -> Health:
    """The service is there; `instance` is a name that only this process has."""
    return Health(status="ok", instance=work.settings.instance)


@router.get("/readyz")
@open_to(Access.LABELER)
def say_ready(work: Work) -> Readiness:
    """The database answers, and is of this version; 503 otherwise."""
    return Readiness(status="ready", schema_version=check_version(work.store))
