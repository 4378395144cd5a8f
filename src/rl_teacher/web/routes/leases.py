"""Leases, which reserve comparisons for one labeler for some minutes."""

from fastapi import APIRouter

from rl_teacher.web.access import Access, LabelerName, requires
from rl_teacher.web.schemas.labelling import LeaseBatch, LeaseRenewal
from rl_teacher.web.services import ServicesDep

LEASE_S = 300.0
"""How long; a page renews once a minute what it still has."""

router = APIRouter(prefix="/api/v1/leases", tags=["labelling"])


@router.post("/renew")
@requires(Access.LABELER)
async def renew_leases(
    given: LeaseBatch, services: ServicesDep, labeler: LabelerName
) -> LeaseRenewal:
    """Renew leases; the response does not reveal leases of other labelers."""
    renewed = await services.workers.run(
        services.store.leases.renew, labeler, given.leases, LEASE_S
    )
    lost = [each for each in dict.fromkeys(given.leases) if each not in renewed]
    return LeaseRenewal(renewed=renewed, lost=lost)


@router.post("/release", status_code=204)
@requires(Access.LABELER)
async def release_leases(given: LeaseBatch, services: ServicesDep, labeler: LabelerName) -> None:
    """Release leases, so that others can label the comparisons."""
    await services.workers.run(services.store.leases.release, labeler, given.leases)
