"""Labelling: what to answer next, what was answered, and answers coming in."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query

from rl_teacher.common.errors import ComparisonNotFound
from rl_teacher.web.access import Access, LabelerName, Me, open_to
from rl_teacher.web.answers import Sent
from rl_teacher.web.routes.leases import LEASE_S
from rl_teacher.web.schemas.fields import MAX_ID
from rl_teacher.web.schemas.labelling import (
    Comparison,
    LabelBatch,
    LabelHistory,
    LabelReceipt,
    NextComparisons,
    PastLabel,
)
from rl_teacher.web.serializers import as_shown, claimed_as_shown
from rl_teacher.web.services import Services, Work

MAX_EXCLUDED = 500

NONE_FOR_ME = (
    "What waits for an answer is in others' hands, or you have answered it. The next comparison "
    "comes by itself."
)

ComparisonId = Annotated[int, Path(ge=1, le=MAX_ID)]
ExcludedId = Annotated[int, Query(ge=1, le=MAX_ID)]

router = APIRouter(prefix="/api/v1", tags=["labelling"])


@router.get("/experiments/{name}/comparisons/next")
@open_to(Access.LABELER)
async def list_waiting(
    name: str,
    work: Work,
    labeler: LabelerName,
    exclude: Annotated[list[ExcludedId] | None, Query(max_length=MAX_EXCLUDED)] = None,
    limit: Annotated[int, Query(ge=1, le=20)] = 4,
) -> NextComparisons:
    """The comparisons to answer next, but for those at hand already; what I was given before, and
    have not answered, comes first. Each is mine until its lease ends.
    """
    return await work.lane.run(next_for, work, name, labeler, exclude or (), limit)


def next_for(
    work: Services, name: str, labeler: str, exclude: Sequence[int], limit: int
) -> NextComparisons:
    """Put comparisons into a labeler's hands."""
    view = work.overview.find(name)
    claimed = work.store.leases.claim(view.id, labeler, limit, exclude, LEASE_S)
    progress = work.overview.progress(view, labeler)
    if not claimed and not exclude and view.waiting:
        progress = progress.model_copy(update={"message": NONE_FOR_ME})
    return NextComparisons(
        comparisons=[claimed_as_shown(each, labeler) for each in claimed], progress=progress
    )


@router.get("/experiments/{name}/labels")
@open_to(Access.LABELER)
def list_labels(
    name: str, work: Work, labeler: LabelerName, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> LabelHistory:
    """My answers that count now, the newest first."""
    given = work.store.labels.of_labeler(work.overview.find(name).id, labeler, limit)
    return LabelHistory(
        labels=[
            PastLabel(
                request_id=each.request_id,
                comparison=as_shown(each.comparison, labeler, each.answer),
                answered_at=each.created_at,
            )
            for each in given
            if each.comparison.left.kind and each.comparison.right.kind
        ]
    )


@router.get("/comparisons/{comparison_id}")
@open_to(Access.LABELER)
def show_comparison(comparison_id: ComparisonId, work: Work, me: Me) -> Comparison:
    """One comparison, to look at or to answer again; with what I said of it, and nobody else."""
    view = work.store.comparisons.get(comparison_id)
    if not me.sees(view.experiment_name):
        raise ComparisonNotFound([comparison_id])
    votes = work.store.labels.votes([comparison_id]).get(comparison_id, {})
    return as_shown(view, me.name, votes.get(work.identities.id_of(me)))


@router.post("/labels")
@open_to(Access.LABELER)
async def give_labels(given: LabelBatch, work: Work, me: Me) -> LabelReceipt:
    """Keep answers: what is accepted is in the database. Sending one again changes nothing.

    An answer whose lease has ended, or that never had one, is kept beside those of others.
    """
    return await work.answers(Sent(me, given.labels))
