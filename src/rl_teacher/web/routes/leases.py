"""Leases: a comparison that was given to somebody is given to nobody else for some minutes."""

from fastapi import APIRouter

from rl_teacher.web.access import Access, Labeler, open_to
from rl_teacher.web.services import Work
from rl_teacher.web.shapes import LeasesIn, Renewed

LEASE_S = 300.0
"""How long; a page renews once a minute what it still has."""

router = APIRouter(prefix="/api/v1/leases", tags=["labelling"])


@router.post("/renew")
@open_to(Access.LABELER)
async def renew_leases(given: LeasesIn, work: Work, labeler: Labeler) -> Renewed:
    """Keep comparisons a while longer. Whose a lease is that is not mine, is not told."""
    renewed = await work.lane.run(work.store.renew, labeler, given.leases, LEASE_S)
    lost = [each for each in dict.fromkeys(given.leases) if each not in renewed]
    return Renewed(renewed=renewed, lost=lost)


@router.post("/release", status_code=204)
@open_to(Access.LABELER)
async def release_leases(given: LeasesIn, work: Work, labeler: Labeler) -> None:
    """Give comparisons back, for others to answer."""
    await work.lane.run(work.store.release, labeler, given.leases)
