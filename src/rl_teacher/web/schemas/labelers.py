"""Schemas of labelers, credentials and invites."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from rl_teacher.store.access import LONGEST_DAYS, MAX_USES
from rl_teacher.store.labelers import MAX_NAME_LENGTH
from rl_teacher.store.records import InviteView, Role
from rl_teacher.web.schemas.shared import StrictRequest

GrantedRole = Literal["owner", "labeler"]


class CurrentUser(BaseModel):
    """The user that the credential belongs to; `home` is the id of the home of the service."""

    name: str
    role: Role
    home: str


class JoinRequest(BaseModel):
    """An invite and the labeler's chosen name, which a personal invite ignores.

    A request that is repeated with the same random `request_id` and name gives the same credential.
    """

    invite: Annotated[str, Field(max_length=200)]
    name: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] = ""
    request_id: UUID | None = None


class JoinResponse(CurrentUser):
    """The new labeler; `experiment` is the one that the invite is limited to."""

    experiment: str | None


class RevokedCredentials(BaseModel):
    """Number of revoked credentials."""

    num_revoked: int


class NewInviteRequest(StrictRequest):
    """An invite to create.

    `name` is the labeler's name; null lets them choose one. `experiment` limits the labeler to one
    experiment; null gives access to all. It expires `days` after its creation by the clock of the
    service. `max_uses` is the number of people whom it admits; only labelers who choose their names
    may be several.
    """

    role: GrantedRole = "labeler"
    name: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] | None = None
    experiment: Annotated[str, Field(max_length=300)] | None = None
    days: Annotated[float, Field(gt=0, le=LONGEST_DAYS)] = 7
    max_uses: Annotated[int, Field(strict=True, ge=1, le=MAX_USES)] = 1


class NewInvite(BaseModel):
    """A new invite with its link, which is returned only once."""

    invite: InviteView
    link: str
