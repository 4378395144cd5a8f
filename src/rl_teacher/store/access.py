"""Credentials of labelers, and the invites that create them."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from rl_teacher.common.errors import (
    BadConfig,
    InviteNotFound,
    InviteUnusable,
    LabelerExists,
)
from rl_teacher.common.text import counted
from rl_teacher.store.database import Database
from rl_teacher.store.events import EventLog
from rl_teacher.store.labelers import (
    LABELER_BY_NAME,
    OWNER,
    Labelers,
    find_labeler,
    normalise_name,
)
from rl_teacher.store.records import (
    Identity,
    InviteView,
    Role,
    normalise_experiment_name,
)
from rl_teacher.store.sql import (
    EXPERIMENT_ID,
    MAX_ID,
    columns_of,
    find_experiment,
    insert_or_skip,
)
from rl_teacher.store.tables import Credential, EndedSession, Invite, Labeler

TOKEN_PREFIX = "rlt_"  # noqa: S105 - not a secret

TOKEN_BYTES = 32

MAX_TOKEN_LENGTH = 100
"""Longer input is rejected without hashing it."""

HINT_LENGTH = 8
"""Characters of a token that are kept in the clear: enough to tell two apart, not to guess one."""

MAX_USES = 1_000
"""People whom one invite can admit."""

LONGEST_DAYS = 3_650
"""Longest limited lifetime of an invite or a credential that an owner can choose."""

HOLDERS = (
    select(
        Credential.token_hash,
        Credential.experiment,
        Labeler.id.label("labeler_id"),
        Labeler.name,
        Labeler.role,
    )
    .join(Labeler, Labeler.id == Credential.labeler_id)
    .where(
        Credential.token_hash.in_(bindparam("token_hashes", expanding=True)),
        Credential.revoked_at.is_(None),
        or_(Credential.expires_at.is_(None), Credential.expires_at > bindparam("moment")),
    )
)

ENDED_SESSIONS = select(EndedSession.id).where(
    EndedSession.id.in_(bindparam("session_ids", expanding=True))
)

INVITES = (
    select(*columns_of(InviteView, Invite, used_by=Labeler.name))
    .outerjoin(Labeler, Labeler.id == Invite.used_by)
    .order_by(Invite.id.desc())
)


class Access:
    """Credentials and invites; only the SHA-256 of a token is stored."""

    def __init__(self, database: Database, labelers: Labelers, events: EventLog) -> None:
        self._database = database
        self._labelers = labelers
        self._events = events
        self._insert_ended = insert_or_skip(database.dialect, EndedSession, "id")

    # --- credentials ---

    def add_labeler(
        self,
        name: str,
        role: Role = "labeler",
        expires_at: datetime | None = None,
        experiment: str | None = None,
        *,
        by: str = OWNER,
    ) -> tuple[Identity, str]:
        """Add a labeler with a credential, both or neither.

        Args:
            name: Name of the labeler.
            role: Role of the labeler.
            expires_at: End of validity; None if the credential is valid until revoked.
            experiment: The only experiment that it opens; None for all.
            by: Name of the issuer.

        Returns:
            The identity, and the token of the credential, which cannot be read again.

        Raises:
            LabelerExists: The name is taken.
            BadLabelerName: The name is not allowed.
            BadConfig: An owner is limited to one experiment.
            ExperimentNotFound: There is no such experiment.
        """
        check_scope(role, experiment)
        by_id = self._labelers.id_of(by)
        with self._database.writing() as connection:
            if experiment is not None:
                experiment = normalise_experiment_name(experiment)
                find_experiment(connection, experiment)
            labeler_id = self._labelers.add_within(connection, name, role)
            token = new_token()
            self._add_credential(connection, token, labeler_id, expires_at, experiment)
            identity = Identity(labeler_id, normalise_name(name, role), role, experiment)
            details = {"labeler": identity.name, "hint": token[:HINT_LENGTH]}
            self._events.append(connection, "credential", details, by_id)
        return identity, token

    def identify_hashes(self, hashes: Sequence[str]) -> list[Identity | None]:
        """Return the holders of tokens by their hashes; None for an invalid token.

        A token is invalid if it is expired, revoked or unknown.
        """
        possible = {"token_hashes": sorted(set(hashes) - {""}), "moment": self._database.now()}
        rows = self._database.rows(HOLDERS, **possible) if possible["token_hashes"] else []
        identities = {
            row["token_hash"]: Identity(
                row["labeler_id"], row["name"], row["role"], row["experiment"]
            )
            for row in rows
        }
        return [identities.get(each) for each in hashes]

    # --- sessions of browsers ---

    def end_session(self, session_id: str, max_age: timedelta) -> bool:
        """Record that a user has signed out, or used a one-time code.

        Args:
            session_id: Id of the session or the code.
            max_age: Age at which sessions expire anyway, so that older records are deleted.

        Returns:
            False if it was recorded before.
        """
        moment = self._database.now()
        with self._database.writing() as connection:
            expired = delete(EndedSession).where(EndedSession.ended_at < moment - max_age)
            connection.execute(expired)
            added = connection.execute(self._insert_ended, {"id": session_id, "ended_at": moment})
        return added.rowcount > 0

    def ended_sessions(self, session_ids: Collection[str]) -> set[str]:
        """Return those of these sessions that their users have ended."""
        if not session_ids:
            return set()
        rows = self._database.rows(ENDED_SESSIONS, session_ids=sorted(session_ids))
        return {row["id"] for row in rows}

    # --- revocation ---

    def revoke_credentials(self, name: str, *, by: str = OWNER) -> int:
        """Revoke all credentials of a labeler and return their number.

        Raises:
            LabelerNotFound: There is no such labeler.
        """
        by_id = self._labelers.id_of(by)
        with self._database.writing() as connection:
            labeler = find_labeler(connection, name)
            revoke = (
                update(Credential)
                .where(Credential.labeler_id == labeler.id, Credential.revoked_at.is_(None))
                .values(revoked_at=self._database.now())
            )
            num_revoked = connection.execute(revoke).rowcount
            details = {"labeler": name, "credentials": num_revoked}
            self._events.append(connection, "revoke", details, by_id)
        return num_revoked

    def revoke_all(self) -> str:
        """Revoke all credentials and open invites, and return a list of them for people."""
        valid = select(Labeler.name).join(Credential).where(Credential.revoked_at.is_(None))
        names = [row["name"] for row in self._database.rows(valid.distinct())]
        for name in names:
            self.revoke_credentials(name)
        invites = [each.id for each in self.invites() if each.status == "open"]
        for invite_id in invites:
            self.revoke_invite(invite_id)
        holders = ", ".join(map(repr, names)) or "nobody"
        return f"credentials of {holders}, {counted(len(invites), 'invite')}"

    def _add_credential(
        self,
        connection: Connection,
        token: str,
        labeler_id: int,
        expires_at: datetime | None,
        experiment: str | None,
    ) -> None:
        row = {
            "labeler_id": labeler_id,
            "token_hash": hash_token(token),
            "hint": token[:HINT_LENGTH],
            "created_at": self._database.now(),
            "expires_at": expires_at,
            "experiment": experiment,
        }
        connection.execute(insert(Credential), row)

    # --- invites ---

    def invite(
        self,
        role: Role = "labeler",
        name: str | None = None,
        experiment: str | None = None,
        *,
        expires_at: datetime,
        max_uses: int = 1,
        by: str = OWNER,
    ) -> tuple[InviteView, str]:
        """Create an invite, which admits one person or several.

        Args:
            role: Role of the person.
            name: Name of a new or known labeler; None lets the person choose a new one.
            experiment: The only experiment that they may see; None for all.
            expires_at: End of validity.
            max_uses: Number of people whom it admits, each under a name of their own.
            by: Name of the inviter.

        Returns:
            The invite, and its token, which cannot be read again.

        Raises:
            BadLabelerName: The name is not allowed.
            BadConfig: The role is not that of the named labeler, an owner is
                limited to one experiment, or an invite for several people contains a name or the
                owner's role.
            ExperimentNotFound: There is no such experiment.
        """
        check_scope(role, experiment)
        check_uses(max_uses, role, name)
        by_id = self._labelers.id_of(by)
        token = new_token()
        moment = self._database.now()
        normalised = None if name is None else normalise_name(name, role)
        with self._database.writing() as connection:
            known = connection.execute(LABELER_BY_NAME, {"name": normalised}).one_or_none()
            if known is not None and known.role != role:
                raise BadConfig(
                    f"{known.name!r} has the role {known.role}. Give this role, or another name."
                )
            is_limited = experiment is not None
            experiment_id = find_experiment(connection, experiment) if is_limited else None
            row = {
                "token_hash": hash_token(token),
                "hint": token[:HINT_LENGTH],
                "name": normalised,
                "role": role,
                "experiment": experiment,
                "created_at": moment,
                "expires_at": expires_at,
                "max_uses": max_uses,
            }
            invite_id = connection.execute(insert(Invite).returning(Invite.id), row).scalar_one()
            details = {"name": row["name"], "role": role, "hint": row["hint"], "uses": max_uses}
            self._events.append(connection, "invite", details, by_id, experiment_id)
            made = connection.execute(INVITES.where(Invite.id == invite_id)).mappings().one()
        return InviteView(**made, status=status_of(made, moment)), token

    def invites(self) -> list[InviteView]:
        """Return every invite, newest first."""
        moment = self._database.now()
        rows = self._database.rows(INVITES)
        return [InviteView(**row, status=status_of(row, moment)) for row in rows]

    def accept_invite(
        self, token: str, name: str | None = None, request_id: UUID | None = None
    ) -> tuple[Identity, str]:
        """Exchange an invite for a credential.

        Args:
            token: Token of the invite.
            name: Name that the person chose; ignored if the invite contains one.
            request_id: Random id of the request. A request that is repeated with the same id and
                name, because its response was lost, returns the same credential again.

        Returns:
            The identity, and the token of the credential, which cannot be read again.

        Raises:
            InviteUnusable: The invite is used, expired, revoked or unknown.
            LabelerExists: The name is taken, for an invite with a name by a labeler of another
                role; the invite remains valid.
            BadLabelerName: The name is not allowed; the invite remains valid.
        """
        credential = new_token()
        if request_id is not None:
            credential = token_of_request(token, name, request_id)
        try:
            return self._accept_invite(token, name, credential), credential
        except (InviteUnusable, LabelerExists):
            # Only now: the same request may have been accepted since this one began.
            (known,) = self.identify_hashes([hash_token(credential)])
            if known is None:
                raise
            return known, credential

    def _accept_invite(self, token: str, name: str | None, credential: str) -> Identity:
        """Use an invite and store the credential; see `accept_invite`."""
        moment = self._database.now()
        with self._database.writing() as connection:
            # Counted first: an error below rolls the count back, so that the invite remains valid.
            invite = consume_invite(connection, token, moment)
            identity = self._admit(connection, invite, name)
            used = update(Invite).where(Invite.id == invite["id"])
            connection.execute(used.values(used_by=identity.labeler_id))
            self._add_credential(
                connection, credential, identity.labeler_id, None, identity.experiment
            )
            details = {"invite": invite["id"], "hint": credential[:HINT_LENGTH]}
            about = connection.execute(EXPERIMENT_ID, {"name": invite["experiment"]}).scalar()
            self._events.append(connection, "accept", details, identity.labeler_id, about)
        return identity

    def _admit(
        self, connection: Connection, invite: Mapping[Any, Any], name: str | None
    ) -> Identity:
        """Return the known labeler whom the invite names, or add a new one."""
        if invite["name"] is not None:
            known = connection.execute(LABELER_BY_NAME, {"name": invite["name"]}).one_or_none()
            if known is not None:
                # Or the invite would grant the role of the labeler who has taken the name since.
                if known.role != invite["role"]:
                    raise LabelerExists(known.name)
                return Identity(known.id, known.name, known.role, invite["experiment"])
        chosen = normalise_name(invite["name"] or name or "", invite["role"])
        labeler_id = self._labelers.add_within(connection, chosen, invite["role"])
        return Identity(labeler_id, chosen, invite["role"], invite["experiment"])

    def revoke_invite(self, invite_id: int, *, by: str = OWNER) -> None:
        """Revoke an invite; those who have used it keep access.

        Raises:
            InviteNotFound: There is no such invite.
        """
        by_id = self._labelers.id_of(by)
        this = Invite.id == invite_id
        with self._database.writing() as connection:
            is_valid = 0 < invite_id <= MAX_ID
            if not is_valid or connection.execute(select(Invite.id).where(this)).scalar() is None:
                raise InviteNotFound(
                    f"There is no invite {invite_id}. Look at the list of invites."
                )
            revoke = update(Invite).where(
                this, Invite.num_uses < Invite.max_uses, Invite.revoked_at.is_(None)
            )
            if connection.execute(revoke.values(revoked_at=self._database.now())).rowcount:
                self._events.append(connection, "revoke", {"invite": invite_id}, by_id)


def check_scope(role: str, experiment: str | None) -> None:
    """Check that an owner is not limited to one experiment.

    Raises:
        BadConfig: An owner would be.
    """
    if role == "owner" and experiment is not None:
        raise BadConfig("An owner sees every experiment. Leave the experiment out.")


def check_uses(max_uses: int, role: str, name: str | None) -> None:
    """Check the number of people whom an invite admits.

    Raises:
        BadConfig: It is out of range, or the invite is for one person only.
    """
    if not 1 <= max_uses <= MAX_USES:
        raise BadConfig(f"An invite admits 1 to {MAX_USES:,} people; {max_uses:,} were given.")
    if max_uses > 1 and (role == "owner" or name is not None):
        raise BadConfig(
            "An invite for several people can neither make them owners nor contain a name. Create "
            "an invite for each of them."
        )


def new_token() -> str:
    """Generate a token with 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def token_of_request(invite: str, name: str | None, request_id: UUID) -> str:
    """Derive a token from an invite, the chosen name and the random id of a request.

    The name keeps people apart whose programs use the same id with one invite.
    """
    text = f"{request_id} {name or ''}"
    digest = hmac.digest(
        invite.encode("utf-8", "replace"), text.encode("utf-8", "replace"), "sha256"
    )
    return TOKEN_PREFIX + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def hash_token(token: str) -> str:
    """Hash a token; 256 random bits need neither a salt nor a slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def hash_if_token(text: str) -> str:
    """Return the hash of a token; empty if the text does not have the form of one."""
    is_token = text.startswith(TOKEN_PREFIX) and len(text) <= MAX_TOKEN_LENGTH
    return hash_token(text) if is_token else ""


def consume_invite(connection: Connection, token: str, moment: datetime) -> Mapping[Any, Any]:
    """Count a use of an invite.

    Raises:
        InviteUnusable: The invite is used as often as allowed, expired, revoked or unknown.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise InviteUnusable("unknown")
    this = Invite.token_hash == hash_token(token)
    row = connection.execute(select(*Invite.__table__.columns).where(this)).mappings().one_or_none()
    if row is None:
        raise InviteUnusable("unknown")
    if (status := status_of(row, moment)) != "open":
        raise InviteUnusable(status)
    used = {"num_uses": Invite.num_uses + 1, "used_at": moment}
    connection.execute(update(Invite).where(this).values(used))
    return row


def status_of(invite: Mapping[Any, Any], moment: datetime) -> str:
    """Return `used`, `revoked`, `expired` or `open`."""
    if invite["num_uses"] >= invite["max_uses"]:
        return "used"
    if invite["revoked_at"] is not None:
        return "revoked"
    return "expired" if invite["expires_at"] <= moment else "open"
