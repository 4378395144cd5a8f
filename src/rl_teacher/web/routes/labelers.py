"""The current user, joining, and management of labelers and invites by owners."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from rl_teacher.common.errors import LabelerNotFound
from rl_teacher.store.records import InviteView, LabelerView
from rl_teacher.store.sql import MAX_ID
from rl_teacher.web.access import (
    CurrentIdentity,
    LabelerName,
    LabelerRoute,
    OwnerRoute,
    PublicRoute,
    cookie_name,
    set_cookie,
)
from rl_teacher.web.address import invite_path
from rl_teacher.web.schemas import labelers as schemas
from rl_teacher.web.services import Services, ServicesDep

router = APIRouter(prefix="/api/v1", tags=["labelers"], route_class=LabelerRoute)
owner_router = APIRouter(prefix="/api/v1", tags=["labelers"], route_class=OwnerRoute)
public_router = APIRouter(prefix="/api/v1", tags=["labelers"], route_class=PublicRoute)

LabelerId = Annotated[int, Path(ge=1, le=MAX_ID)]
InviteId = Annotated[int, Path(ge=1, le=MAX_ID)]


@owner_router.get("/labelers")
def list_labelers(services: ServicesDep) -> list[LabelerView]:
    """List all labelers."""
    return services.store.labelers.all()


@owner_router.post("/labelers/{labeler_id}/exclude")
def exclude_labeler(
    labeler_id: LabelerId, services: ServicesDep, owner: LabelerName
) -> LabelerView:
    """Exclude a labeler's labels from training without deleting them."""
    return set_excluded(labeler_id, services, owner, is_excluded=True)


@owner_router.post("/labelers/{labeler_id}/include")
def include_labeler(
    labeler_id: LabelerId, services: ServicesDep, owner: LabelerName
) -> LabelerView:
    """Include a labeler's labels in training again."""
    return set_excluded(labeler_id, services, owner, is_excluded=False)


@owner_router.post("/labelers/{labeler_id}/revoke")
def revoke_labeler(
    labeler_id: LabelerId, services: ServicesDep, owner: LabelerName
) -> schemas.RevokedCredentials:
    """Revoke all credentials of a labeler; their labels are kept."""
    labeler = labeler_of(labeler_id, services)
    num_revoked = services.store.access.revoke_credentials(labeler.name, by=owner)
    return schemas.RevokedCredentials(num_revoked=num_revoked)


@owner_router.get("/invites")
def list_invites(services: ServicesDep) -> list[InviteView]:
    """List all invites, newest first."""
    return services.store.access.invites()


@owner_router.post("/invites", status_code=201)
def create_invite(
    body: schemas.NewInviteRequest, request: Request, services: ServicesDep, owner: LabelerName
) -> schemas.NewInvite:
    """Create an invite; the link is returned only once."""
    if body.experiment is not None:
        services.experiments.find(body.experiment)
    invite, token = services.store.access.invite(
        body.role,
        body.name,
        body.experiment,
        expires_at=services.settings.now() + timedelta(days=body.days),
        max_uses=body.max_uses,
        by=owner,
    )
    return schemas.NewInvite(
        invite=invite, link=service_url(request) + invite_path(token, body.name)
    )


@owner_router.delete("/invites/{invite_id}", status_code=204)
def revoke_invite(invite_id: InviteId, services: ServicesDep, owner: LabelerName) -> None:
    """Revoke an invite; labelers who have used it keep access."""
    services.store.access.revoke_invite(invite_id, by=owner)


def set_excluded(
    labeler_id: int, services: Services, owner: str, *, is_excluded: bool
) -> LabelerView:
    """Exclude or include a labeler and return the result."""
    name = labeler_of(labeler_id, services).name
    services.store.labelers.set_excluded(name, is_excluded=is_excluded, by=owner)
    return labeler_of(labeler_id, services)


def labeler_of(labeler_id: int, services: Services) -> LabelerView:
    """Return a labeler.

    Raises:
        LabelerNotFound: No labeler has this id.
    """
    for each in services.store.labelers.all():
        if each.id == labeler_id:
            return each
    raise LabelerNotFound(str(labeler_id))


def service_url(request: Request) -> str:
    """Return the base URL that the client used."""
    return str(request.base_url).rstrip("/")


@router.get("/me")
def show_me(identity: CurrentIdentity, services: ServicesDep) -> schemas.CurrentUser:
    """Return the current user."""
    return schemas.CurrentUser(name=identity.name, role=identity.role, home=services.settings.home)


@router.post("/sign-out", status_code=204)
def sign_out(request: Request, response: Response, services: ServicesDep) -> None:
    """End the session of this browser; its cookie is worthless from now on.

    Other sessions and the credential, with which one can sign in again, stay valid.
    """
    services.authenticator.end_session(request.state.credential)
    response.delete_cookie(cookie_name(request))


@public_router.post("/join")
def join(
    body: schemas.JoinRequest, request: Request, response: Response, services: ServicesDep
) -> schemas.JoinResponse:
    """Use an invite; the response sets the new credential as a cookie."""
    # JSON may contain lone surrogates, which cannot be encoded.
    invite = body.invite.encode(errors="replace").decode()
    identity, credential = services.store.access.accept_invite(invite, body.name, body.request_id)
    set_cookie(response, request, credential)
    return schemas.JoinResponse(
        name=identity.name,
        role=identity.role,
        home=services.settings.home,
        experiment=identity.experiment,
    )
