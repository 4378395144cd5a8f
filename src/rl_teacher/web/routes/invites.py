"""Who I am, and how an invite becomes a credential of my own."""

from fastapi import APIRouter, Request, Response

from rl_teacher.web.access import Access, Me, address_of, open_to, set_cookie
from rl_teacher.web.schemas.labelers import CurrentUser, JoinRequest, JoinResponse
from rl_teacher.web.services import Work

router = APIRouter(prefix="/api/v1", tags=["labelers"])


@router.get("/me")
@open_to(Access.LABELER)
def show_me(me: Me) -> CurrentUser:
    """Who I am, by my credential."""
    return CurrentUser(name=me.name, role=me.role)


@router.post("/join")
@open_to(Access.ANYBODY)
def join(given: JoinRequest, request: Request, response: Response, work: Work) -> JoinResponse:
    """Use an invite, which lets one person in, once. The credential comes as a cookie."""
    invite = given.invite.encode(errors="replace").decode()
    identity, credential = work.store.access.accept_invite(invite, given.name)
    work.identities.welcome(identity, credential, address_of(request))
    set_cookie(response, request, credential)
    return JoinResponse(name=identity.name, role=identity.role, experiment=identity.experiment)
