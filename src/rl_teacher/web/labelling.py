"""Labelling: what to answer next, what was answered, and answers coming in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import TypeAdapter, ValidationError

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.sides import turned
from rl_teacher.errors import ComparisonNotFound
from rl_teacher.store.records import ComparisonView, NewLabel
from rl_teacher.web.access import Access, Labeler, Me, open_to
from rl_teacher.web.leases import LEASE_S
from rl_teacher.web.problems import NOT_VALID, Problem, Refusal, problem_of
from rl_teacher.web.services import Services, Work
from rl_teacher.web.shapes import (
    MAX_ID,
    Comparison,
    GivenLabel,
    GivenLabels,
    LabelIn,
    LabelsIn,
    LabelsOut,
    RefusedLabel,
    Waiting,
)
from rl_teacher.web.showing import as_shown, claimed_as_shown
from rl_teacher.web.versions import check_version

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
    labeler: Labeler,
    exclude: Annotated[list[ExcludedId] | None, Query(max_length=MAX_EXCLUDED)] = None,
    limit: Annotated[int, Query(ge=1, le=20)] = 4,
) -> Waiting:
    """The comparisons to answer next, but for those at hand already; what I was given before, and
    have not answered, comes first. Each is mine until its lease ends.
    """
    return await work.lane.run(next_for, work, name, labeler, exclude or (), limit)


def next_for(
    work: Services, name: str, labeler: str, exclude: Sequence[int], limit: int
) -> Waiting:
    """Put comparisons into a labeler's hands."""
    view = work.overview.find(name)
    claimed = work.store.claim(view.id, labeler, limit, exclude, LEASE_S)
    progress = work.overview.progress(view, labeler)
    if not claimed and not exclude and view.waiting:
        progress = progress.model_copy(update={"says": NONE_FOR_ME})
    return Waiting(
        comparisons=[claimed_as_shown(each, labeler) for each in claimed], progress=progress
    )


@router.get("/experiments/{name}/labels")
@open_to(Access.LABELER)
def list_labels(
    name: str, work: Work, labeler: Labeler, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> GivenLabels:
    """My answers that count now, the newest first."""
    given = work.store.labels_of(work.overview.find(name).id, labeler, limit)
    return GivenLabels(
        labels=[
            GivenLabel(
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
    view = work.store.comparison(comparison_id)
    votes = work.store.votes([comparison_id]).get(comparison_id, {})
    return as_shown(view, me.name, votes.get(work.identities.id_of(me)))


@router.post("/labels")
@open_to(Access.LABELER)
async def give_labels(given: LabelsIn, work: Work, labeler: Labeler) -> LabelsOut:
    """Keep answers: what is accepted is in the database. Sending one again changes nothing.

    An answer whose lease has ended, or that never had one, is kept beside those of others.
    """
    return await work.lane.run(take, given.labels, work, labeler)


def take(given: Sequence[Any], work: Services, labeler: str) -> LabelsOut:
    """Keep what can be kept, and say what cannot."""
    check_version(work.store)
    sorted_out = sort_out(given, work, labeler)
    kept, unknown = keep(sorted_out.good, work)
    return LabelsOut(
        accepted=[label.request_id for label in kept],
        refused=[*sorted_out.refused, *unknown],
    )


@dataclass
class SortedOut:
    """Labels that can be kept, and those that cannot."""

    good: list[NewLabel] = field(default_factory=list)
    refused: list[RefusedLabel] = field(default_factory=list)


def sort_out(given: Sequence[Any], work: Services, labeler: str) -> SortedOut:
    """Look at each label by itself."""
    sorted_out = SortedOut()
    read: list[LabelIn] = []
    for each in given:
        try:
            read.append(LabelIn.model_validate(each))
        except ValidationError as error:
            sorted_out.refused.append(refused(request_id_of(each), problem_of(error)))
    asked = work.store.in_question(labeler, {each.comparison_id for each in read})
    for each in read:
        try:
            if each.comparison_id not in asked:
                raise ComparisonNotFound([each.comparison_id])
            view, lease, purpose = asked[each.comparison_id]
            is_repeat = purpose == "repeat" and each.lease == lease
            sorted_out.good.append(in_its_own_sides(each, view, labeler, is_repeat=is_repeat))
        except (ComparisonNotFound, Refusal) as error:
            sorted_out.refused.append(refused(each.request_id, problem_of(error)))
    return sorted_out


def in_its_own_sides(
    label: LabelIn, view: ComparisonView, labeler: str, *, is_repeat: bool
) -> NewLabel:
    """An answer in the comparison's own sides.

    Raises:
        Refusal: its clips were never shown, or not that one on the left.
    """
    shown = as_shown(view, labeler, is_repeat=is_repeat)
    left = label.left or shown.left.hash
    if left not in (view.left.content_hash, view.right.content_hash):
        raise Refusal(
            NOT_VALID,
            f"left: {left} is no clip of comparison {view.id}. Say which clip was shown on the "
            "left, or leave it out.",
        )
    swapped = left != view.left.content_hash
    answer = None if label.answer is None else Answer(label.answer)
    return NewLabel(
        comparison_id=label.comparison_id,
        answer=turned(answer, swapped=swapped),
        labeler=labeler,
        request_id=label.request_id,
        is_swapped=swapped,
        response_ms=label.response_ms,
        details=label.details,
        lease=label.lease,
    )


def keep(labels: Sequence[NewLabel], work: Services) -> tuple[list[NewLabel], list[RefusedLabel]]:
    """Store labels; those whose comparison was deleted a moment ago are refused."""
    try:
        work.store.answer_many(labels)
    except ComparisonNotFound as error:
        gone = [label for label in labels if label.comparison_id in error.ids]
        if not gone:
            raise
        kept, more = keep([label for label in labels if label not in gone], work)
        return kept, [refused(label.request_id, problem_of(error)) for label in gone] + more
    return list(labels), []


def refused(request_id: UUID | None, said: Problem) -> RefusedLabel:
    """A label that was not kept."""
    return RefusedLabel(request_id=request_id, problem=said)


def request_id_of(given: Any) -> UUID | None:
    """What a page knows a bad label by; nothing where even that is bad."""
    try:
        return TypeAdapter(UUID).validate_python(given["request_id"])
    except (ValidationError, TypeError, KeyError):
        return None
