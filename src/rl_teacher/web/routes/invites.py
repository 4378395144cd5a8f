"""The current user, and joining with an invite."""

from fastapi import APIRouter, Request, Response

from rl_teacher.web.access import Access, CurrentIdentity, client_network, requires, set_cookie
from rl_teacher.web.schemas.labelers import CurrentUser, JoinRequest, JoinResponse
from rl_teacher.web.services import ServicesDep

router = APIRouter(prefix="/api/v1", tags=["labelers"])


@router.get("/me")
@requires(Access.LABELER)
def show_me(identity: CurrentIdentity) -> CurrentUser:
    """Return the current user."""
    return CurrentUser(name=identity.name, role=identity.role)


@router.post("/join")
@requires(Access.PUBLIC)
def join(
    given: JoinRequest, request: Request, response: Response, services: ServicesDep
) -> JoinResponse:
    """Use a single-use invite; the response sets the credential as a cookie."""
    invite = given.invite.encode(errors="replace").decode()
    identity, credential = services.store.access.accept_invite(invite, given.name)
    services.authenticator.remember(identity, credential, client_network(request))
    set_cookie(response, request, credential)
    return JoinResponse(name=identity.name, role=identity.role, experiment=identity.experiment)
