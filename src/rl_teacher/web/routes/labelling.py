"""Labelling: next comparisons, leases, given labels and submission."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response

from rl_teacher.common.errors import ComparisonNotFound, ExperimentNotFound
from rl_teacher.store.records import ComparisonView, Identity
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.access import CurrentIdentity, LabelerName, LabelerRoute
from rl_teacher.web.clip_export import download, export
from rl_teacher.web.label_effect import label_effect
from rl_teacher.web.label_intake import LabelUpload, store_ranking
from rl_teacher.web.next_comparisons import NextRequest
from rl_teacher.web.routes.media import EXPORTED, Format, exported_clip
from rl_teacher.web.schemas import labelling as schemas
from rl_teacher.web.serializers import (
    comparison_if_displayable,
    is_displayable,
    serialize_claim,
    serialize_comparison,
)
from rl_teacher.web.services import Services, ServicesDep

ComparisonId = Annotated[int, Path(ge=1, le=MAX_ID)]

router = APIRouter(prefix="/api/v1", tags=["labelling"], route_class=LabelerRoute)


@router.get("/experiments/{name}/comparisons/next")
async def claim_next_comparisons(
    name: str, request: Request, query: Annotated[schemas.NextQuery, Query()]
) -> schemas.NextComparisons:
    """Return the next comparisons except those in `exclude`, each with a lease.

    Unlabelled comparisons with a lease of the same labeler come first.
    """
    # Dependencies would take as much processor time as the rest of the request.
    services, identity = request.app.state.services, request.state.identity
    return await services.next_batcher(NextRequest(name, identity, query.exclude, query.limit))


@router.post("/labels")
async def submit_labels(body: schemas.LabelBatch, request: Request) -> schemas.LabelReceipt:
    """Store labels; submitting one again has no effect.

    A labeler answers only comparisons that were leased to them, or that they have labelled before.
    An answer under an expired lease is stored beside those of other labelers.
    """
    services, identity = request.app.state.services, request.state.identity
    return await services.label_batcher(LabelUpload(identity, body.labels))


@router.get("/experiments/{name}/labels")
def list_labels(
    name: str,
    services: ServicesDep,
    identity: CurrentIdentity,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> list[schemas.PastLabel]:
    """List the labeler's current labels, newest first."""
    view = services.experiments.find_for(name, identity)
    labels = services.store.labels.of_labeler(view.id, identity.name, limit)
    shown = [
        (each, comparison_if_displayable(each.comparison, identity.name, each.answer))
        for each in labels
    ]
    return [
        schemas.PastLabel(
            request_id=each.request_id,
            comparison=comparison,
            answered_at=each.created_at,
            ranking=each.ranking,
        )
        for each, comparison in shown
        if comparison is not None
    ]


@router.get("/experiments/{name}/effect")
def show_effect(name: str, services: ServicesDep, identity: CurrentIdentity) -> schemas.LabelEffect:
    """Return the effect of the labeler's own labels on the reward predictor."""
    view = services.experiments.find_for(name, identity)
    return label_effect(services.store, view.id, identity.name)


@router.get("/comparisons/{comparison_id}")
def show_comparison(
    comparison_id: ComparisonId, services: ServicesDep, identity: CurrentIdentity
) -> schemas.Comparison:
    """Return one comparison with the labeler's own answer, or as a repeat that they hold."""
    view = visible_comparison(comparison_id, services, identity)
    if holds_as_repeat(comparison_id, services, identity):
        # At the terminal, a repeat is shown by the link to its comparison.
        return serialize_comparison(view, identity.name, is_repeat=True)
    votes = services.store.labels.votes([comparison_id]).get(comparison_id, {})
    labelers = {each.name: each.id for each in services.store.labelers.all()}
    return serialize_comparison(view, identity.name, votes.get(labelers.get(identity.name, 0)))


@router.get("/comparisons/{comparison_id}/download", response_class=Response, responses=EXPORTED)
def download_comparison(
    comparison_id: ComparisonId,
    services: ServicesDep,
    identity: CurrentIdentity,
    form: Format = "mp4",
) -> Response:
    """Return both clips, in the labeler's order of sides, as a file to save: MP4 or GIF."""
    view = visible_comparison(comparison_id, services, identity)
    is_repeat = holds_as_repeat(comparison_id, services, identity)
    shown = serialize_comparison(view, identity.name, is_repeat=is_repeat)
    sides = {each.content_hash: each for each in (view.left, view.right)}
    files = [exported_clip(sides[each.hash], services.media) for each in (shown.left, shown.right)]
    content = export(files, form)
    return download(content, f"comparison-{comparison_id}", form)


def holds_as_repeat(comparison_id: int, services: Services, identity: Identity) -> bool:
    """Return whether the labeler is asked a comparison again, with the sides exchanged.

    Raises:
        ComparisonNotFound: It was deleted meanwhile.
    """
    key = identity.name, comparison_id
    about = services.store.leases.find([key]).get(key)
    if about is None:
        raise ComparisonNotFound([comparison_id])
    return about.purpose == "repeat" and about.is_held


def visible_comparison(
    comparison_id: int, services: Services, identity: Identity
) -> ComparisonView:
    """Return a comparison that the user may see.

    Raises:
        ComparisonNotFound: It does not exist, or belongs to an experiment hidden from the user.
    """
    view = services.store.comparisons.get(comparison_id)
    try:
        services.experiments.find_for(view.experiment_name, identity)
    except ExperimentNotFound:
        raise ComparisonNotFound([comparison_id]) from None
    if not identity.sees(view.experiment_name):
        raise ComparisonNotFound([comparison_id])
    return view


@router.post("/experiments/{name}/rankings")
def submit_ranking(
    name: str, body: schemas.RankingSubmission, services: ServicesDep, labeler: LabelerName
) -> schemas.RankingReceipt:
    """Store an ordering of clips as labels of their pairs; submitting it again has no effect."""
    view = services.experiments.find(name)
    return store_ranking(services.store, view.id, labeler, body)


@router.delete("/experiments/{name}/rankings/{ranking_id}")
def withdraw_ranking(
    name: str, ranking_id: UUID, services: ServicesDep, identity: CurrentIdentity
) -> list[schemas.Comparison]:
    """Withdraw all labels of a ranking, and lease its comparisons to be ranked again."""
    view = services.experiments.find_for(name, identity)
    claimed = services.store.rankings.withdraw(view.id, identity.name, ranking_id)
    return [
        serialize_claim(each, identity.name) for each in claimed if is_displayable(each.comparison)
    ]


@router.post("/leases/renew")
def renew_leases(
    body: schemas.LeaseBatch, services: ServicesDep, labeler: LabelerName
) -> schemas.LeaseRenewal:
    """Renew leases; the response does not reveal leases of other labelers."""
    renewed = services.store.leases.renew(labeler, body.leases)
    lost = [each for each in dict.fromkeys(body.leases) if each not in renewed]
    return schemas.LeaseRenewal(renewed=renewed, lost=lost)


@router.post("/leases/release", status_code=204)
def release_leases(body: schemas.LeaseBatch, services: ServicesDep, labeler: LabelerName) -> None:
    """Release leases, so that others can label the comparisons."""
    services.store.leases.release(labeler, body.leases)
