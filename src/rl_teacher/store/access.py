"""Who may do what: labelers, their credentials, and the invites that make them."""

import hashlib
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from rl_teacher.common.errors import (
    BadConfig,
    BadLabelerName,
    InviteNotFound,
    InviteUnusable,
    LabelerExists,
    LabelerNotFound,
    StoreUnavailable,
)
from rl_teacher.store.counters import COMPARISONS_OF_LABELER, recount
from rl_teacher.store.database import Database
from rl_teacher.store.label_queries import MAX_ID
from rl_teacher.store.records import (
    CredentialView,
    Identity,
    InviteView,
    LabelerView,
    NewInvite,
    Role,
)
from rl_teacher.store.tables import Credential, Experiment, Invite, Labeler, Lease, Tally
from rl_teacher.store.views import no_experiment
from rl_teacher.store.writer import OWNER, TEACHER_PREFIX, StoreWriter, role_of, utc_now
from rl_teacher.store.writing import in_order

TOKEN_PREFIX = "rlt_"  # noqa: S105 - how every token begins

TOKEN_BYTES = 32

LONGEST_TOKEN = 100
"""Characters that anybody bothers to hash."""

HINT_LENGTH = 8

LONGEST_NAME = 100

LABELER_ROLES = ("owner", "labeler")

TO_THE_MINUTE = timedelta(minutes=1)
BETWEEN_NOTES = timedelta(seconds=10)
"""How long the use of credentials is remembered before all are written down together."""

LABELERS = (
    select(
        Labeler.id,
        Labeler.name,
        Labeler.role,
        Labeler.created_at,
        Labeler.excluded_at,
        func.coalesce(func.sum(Tally.num_labels), 0).label("num_labels"),
        func.max(Tally.last_label_at).label("last_label_at"),
    )
    .outerjoin(Tally, Tally.labeler_id == Labeler.id)
    .group_by(Labeler.id)
    .order_by(Labeler.id)
)

ONE_LABELER = select(Labeler.id, Labeler.name, Labeler.role, Labeler.excluded_at).where(
    Labeler.name == bindparam("name")
)

BEARERS = (
    select(
        Credential.id,
        Credential.token_hash,
        Credential.expires_at,
        Credential.revoked_at,
        Credential.last_used_at,
        Credential.experiment,
        Labeler.id.label("labeler_id"),
        Labeler.name,
        Labeler.role,
    )
    .join(Labeler, Labeler.id == Credential.labeler_id)
    .where(Credential.token_hash.in_(bindparam("token_hashes", expanding=True)))
)

CREDENTIALS = (
    select(
        Credential.id,
        Credential.hint,
        Credential.created_at,
        Credential.expires_at,
        Credential.revoked_at,
        Credential.last_used_at,
    )
    .join(Labeler, Labeler.id == Credential.labeler_id)
    .where(Labeler.name == bindparam("name"))
    .order_by(Credential.id.desc())
)

NOTE_USE = (
    update(Credential)
    .where(Credential.id == bindparam("credential_id"))
    .values(last_used_at=bindparam("moment"))
)

EXPERIMENT_ID = select(Experiment.id).where(Experiment.name == bindparam("name"))

INVITES = (
    select(
        Invite.id,
        Invite.hint,
        Invite.name,
        Invite.role,
        Invite.experiment,
        Invite.created_at,
        Invite.expires_at,
        Invite.used_at,
        Labeler.name.label("used_by"),
        Invite.revoked_at,
    )
    .outerjoin(Labeler, Labeler.id == Invite.used_by)
    .order_by(Invite.id.desc())
)


class AccessStore(StoreWriter):
    """Labelers, credentials and invites."""

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(database, now)
        self._uses: dict[int, datetime] = {}
        self._uses_written_at = datetime.min.replace(tzinfo=UTC)

    # --- labelers ---

    def labelers(self) -> list[LabelerView]:
        """Everybody who ever answered or may, the first to come first."""
        with self._database.reading() as connection:
            return [LabelerView(**row) for row in connection.execute(LABELERS).mappings()]

    def add_labeler(self, name: str, role: Role = "labeler") -> int:
        """Write somebody down who has not been here before.

        Raises:
            LabelerExists: somebody has this name.
            BadLabelerName: nobody may have it.
        """
        with self._database.writing() as connection:
            return self._new_labeler(connection, name, role)

    def exclude_labeler(self, name: str, is_excluded: bool, *, by: str = OWNER) -> None:
        """Let nothing learn from somebody's labels, or let it again; the labels stay.

        Raises:
            LabelerNotFound: nobody has this name.
        """
        by_id = self._id_of_labeler(by)
        with self._database.writing() as connection:
            in_order(connection)
            labeler = find_labeler(connection, name)
            if (labeler.excluded_at is not None) == is_excluded:
                return
            excluded_at = self._now() if is_excluded else None
            change = update(Labeler).where(Labeler.id == labeler.id)
            connection.execute(change.values(excluded_at=excluded_at))
            if is_excluded:
                connection.execute(delete(Lease).where(Lease.labeler_id == labeler.id))
            answered = connection.execute(COMPARISONS_OF_LABELER, {"labeler_id": labeler.id})
            recount(connection, list(answered.scalars()))
            kind = "exclude" if is_excluded else "include"
            self._write_down(connection, kind, {"labeler": name}, by_id)

    # --- credentials ---

    def issue_credential(
        self,
        name: str,
        expires_at: datetime | None = None,
        experiment: str | None = None,
        *,
        by: str = OWNER,
    ) -> str:
        """A new token for somebody, to be shown once; only its SHA-256 stays here.

        Args:
            name: whose.
            expires_at: until when it can be used; None: as long as it is not revoked.
            experiment: the only one that it opens; None for all.
            by: who issues it.

        Raises:
            LabelerNotFound: nobody has this name.
            BadConfig: an owner's credential for one experiment.
            ExperimentNotFound: there is no such experiment.
        """
        by_id = self._id_of_labeler(by)
        with self._database.writing() as connection:
            labeler = find_labeler(connection, name)
            check_binding(labeler.role, experiment)
            find_experiment(connection, experiment)
            token = self._new_credential(connection, labeler.id, expires_at, experiment)
            told = {"labeler": name, "hint": hint_of(token)}
            self._write_down(connection, "credential", told, by_id)
        return token

    def who_has(self, token: str) -> Identity | None:
        """Whose token this is; nobody's if it is expired, revoked or unknown."""
        return self.who_have([token])[0]

    def who_have(self, tokens: Sequence[str]) -> list[Identity | None]:
        """Whose tokens these are; see `who_has`."""
        hashes = [hash_of(each) if may_be_token(each) else "" for each in tokens]
        with self._database.reading() as connection:
            rows = connection.execute(BEARERS, {"token_hashes": sorted(set(hashes) - {""})})
            found = {row.token_hash: row for row in rows}
        moment = self._now()
        good = {
            token_hash: row
            for token_hash, row in found.items()
            if row.revoked_at is None and not is_over(row.expires_at, moment)
        }
        self._note_uses(good.values(), moment)
        return [identity_of(good.get(each)) for each in hashes]

    def _note_uses(self, credentials: Iterable[Any], moment: datetime) -> None:
        """Remember who used their credentials; to the minute is enough."""
        for each in credentials:
            if each.last_used_at is None or moment - each.last_used_at >= TO_THE_MINUTE:
                self._uses[each.id] = moment
        if self._uses and moment - self._uses_written_at >= BETWEEN_NOTES:
            self._write_uses()

    def _write_uses(self) -> None:
        """Write down who used their credentials; whether it works or not, they are let in."""
        uses, self._uses = self._uses, {}
        self._uses_written_at = self._now()
        rows = [{"credential_id": each, "moment": moment} for each, moment in uses.items()]
        if rows:
            with suppress(StoreUnavailable), self._database.writing() as connection:
                connection.execute(NOTE_USE, rows)

    def credentials(self, name: str) -> list[CredentialView]:
        """Somebody's credentials, the newest first; without their secrets, which nobody has."""
        self._write_uses()
        with self._database.reading() as connection:
            rows = connection.execute(CREDENTIALS, {"name": name}).mappings()
            return [CredentialView(**row) for row in rows]

    def revoke_credentials(self, name: str, *, by: str = OWNER) -> int:
        """Let nobody in with any of somebody's tokens; how many that were.

        Raises:
            LabelerNotFound: nobody has this name.
        """
        by_id = self._id_of_labeler(by)
        with self._database.writing() as connection:
            labeler = find_labeler(connection, name)
            revoke = (
                update(Credential)
                .where(Credential.labeler_id == labeler.id, Credential.revoked_at.is_(None))
                .values(revoked_at=self._now())
            )
            num_revoked = connection.execute(revoke).rowcount
            told = {"labeler": name, "credentials": num_revoked}
            self._write_down(connection, "revoke", told, by_id)
        return num_revoked

    # --- invites ---

    def invite(
        self,
        role: Role = "labeler",
        name: str | None = None,
        experiment: str | None = None,
        *,
        expires_at: datetime,
        by: str = OWNER,
    ) -> NewInvite:
        """A new token that lets one person in, once; to be shown once.

        Args:
            role: what they may do.
            name: of the labeler whom it is for, new or known; else they choose a new one.
            experiment: the only one that they see; None for all.
            expires_at: until when it can be used.
            by: who invites.

        Raises:
            BadLabelerName: nobody may have this name.
            BadConfig: nobody can be invited to this role, or an owner to one experiment.
            ExperimentNotFound: there is no such experiment.
        """
        check_role(role)
        check_binding(role, experiment)
        by_id = self._id_of_labeler(by)
        token = new_token()
        moment = self._now()
        with self._database.writing() as connection:
            experiment_id = find_experiment(connection, experiment)
            row = {
                "token_hash": hash_of(token),
                "hint": hint_of(token),
                "name": None if name is None else clean_name(name, role),
                "role": role,
                "experiment": experiment,
                "created_at": moment,
                "expires_at": expires_at,
            }
            invite_id = connection.execute(insert(Invite).returning(Invite.id), row).scalar_one()
            told = {"name": row["name"], "role": role, "hint": row["hint"]}
            self._write_down(connection, "invite", told, by_id, experiment_id)
            made = connection.execute(INVITES.where(Invite.id == invite_id)).mappings().one()
        return NewInvite(token, invite_view(made, moment))

    def invites(self) -> list[InviteView]:
        """Every invite, the newest first; without their secrets, which nobody has."""
        moment = self._now()
        with self._database.reading() as connection:
            rows = connection.execute(INVITES).mappings()
            return [invite_view(row, moment) for row in rows]

    def accept_invite(self, token: str, name: str | None = None) -> tuple[Identity, str]:
        """Let somebody in: who they are from now on, and their token, to be shown once.

        Args:
            token: of the invite.
            name: what they want to be called; not asked where the invite says who it is for.

        Raises:
            InviteUnusable: used, expired, revoked or unknown.
            LabelerExists: somebody has this name; the invite can still be used.
            BadLabelerName: nobody may have it; the invite can still be used.
        """
        moment = self._now()
        with self._database.writing() as connection:
            invite = take_invite(connection, token, moment)
            identity = self._let_in(connection, invite, name)
            used = update(Invite).where(Invite.id == invite["id"])
            connection.execute(used.values(used_by=identity.labeler_id))
            credential = self._new_credential(
                connection, identity.labeler_id, None, identity.experiment
            )
            told = {"invite": invite["id"], "hint": hint_of(credential)}
            about = connection.execute(EXPERIMENT_ID, {"name": invite["experiment"]}).scalar()
            self._write_down(connection, "accept", told, identity.labeler_id, about)
        return identity, credential

    def revoke_invite(self, invite_id: int, *, by: str = OWNER) -> None:
        """Take an invite back; one that was used already stays used.

        Raises:
            InviteNotFound: there is none of this number.
        """
        by_id = self._id_of_labeler(by)
        if not 0 < invite_id <= MAX_ID:
            raise no_invite(invite_id)
        this = Invite.id == invite_id
        with self._database.writing() as connection:
            if connection.execute(select(Invite.id).where(this)).one_or_none() is None:
                raise no_invite(invite_id)
            revoke = update(Invite).where(
                this, Invite.used_at.is_(None), Invite.revoked_at.is_(None)
            )
            if connection.execute(revoke.values(revoked_at=self._now())).rowcount:
                self._write_down(connection, "revoke", {"invite": invite_id}, by_id)

    def _let_in(
        self, connection: Connection, invite: Mapping[Any, Any], name: str | None
    ) -> Identity:
        """Whom the invite is for, who may be here already; or somebody new."""
        if invite["name"] is not None:
            known = connection.execute(ONE_LABELER, {"name": invite["name"]}).one_or_none()
            if known is not None:
                only = None if known.role == "owner" else invite["experiment"]
                return Identity(known.id, known.name, known.role, only)
        wanted = clean_name(invite["name"] or name or "", invite["role"])
        labeler_id = self._new_labeler(connection, wanted, invite["role"])
        return Identity(labeler_id, wanted, invite["role"], invite["experiment"])

    def _new_labeler(self, connection: Connection, name: str, role: Role) -> int:
        check_role(role)
        wanted = clean_name(name, role)
        row = {"name": wanted, "role": role, "created_at": self._now()}
        labeler_id = connection.execute(self._add_labeler.returning(Labeler.id), row).scalar()
        if labeler_id is None:
            raise LabelerExists(wanted)
        return labeler_id

    def _new_credential(
        self,
        connection: Connection,
        labeler_id: int,
        expires_at: datetime | None,
        experiment: str | None = None,
    ) -> str:
        token = new_token()
        row = {
            "labeler_id": labeler_id,
            "token_hash": hash_of(token),
            "hint": hint_of(token),
            "created_at": self._now(),
            "expires_at": expires_at,
            "experiment": experiment,
        }
        connection.execute(insert(Credential), row)
        return token


def check_binding(role: str, experiment: str | None) -> None:
    """Refuse to bind an owner to one experiment.

    Raises:
        BadConfig: says what to do.
    """
    if role == "owner" and experiment is not None:
        raise BadConfig("An owner sees every experiment. Leave the experiment out.")


def new_token() -> str:
    """256 bits that nobody can guess."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def identity_of(bearer: Any) -> Identity | None:
    """Of a row of `BEARERS`; nobody's where there is none."""
    if bearer is None:
        return None
    return Identity(bearer.labeler_id, bearer.name, bearer.role, bearer.experiment)


def invite_view(row: Mapping[Any, Any], moment: datetime) -> InviteView:
    """A row of `INVITES`, as it stands now."""
    return InviteView(**row, status=status_of(row, moment))


def may_be_token(text: str) -> bool:
    """Whether it is worth a look."""
    return text.startswith(TOKEN_PREFIX) and len(text) <= LONGEST_TOKEN


def hash_of(token: str) -> str:
    """Note: no salt and no slow hash: 256 random bits cannot be tried one after another."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def hint_of(token: str) -> str:
    """How a token begins: enough to tell two apart, far from enough to use one."""
    return token[:HINT_LENGTH]


def is_over(expires_at: datetime | None, moment: datetime) -> bool:
    """Whether something that expires has done so."""
    return expires_at is not None and expires_at <= moment


def clean_name(name: str, role: str) -> str:
    """A name as it is kept.

    Raises:
        BadLabelerName: nobody may have it, or nobody of this role.
    """
    wanted = unicodedata.normalize("NFC", name).strip()
    if not 0 < len(wanted) <= LONGEST_NAME or not wanted.isprintable():
        raise BadLabelerName(
            f"{name[:LONGEST_NAME]!r} cannot be a labeler's name. Give 1 to {LONGEST_NAME} "
            "characters, and none that cannot be seen."
        )
    if wanted.casefold().startswith(TEACHER_PREFIX) or role_of(wanted.casefold()) not in (
        role,
        "labeler",
    ):
        raise BadLabelerName(f"The name {wanted!r} is kept for others. Choose another one.")
    return wanted


def check_role(role: str) -> None:
    """Note: a synthetic teacher needs no credential; its name makes it one.

    Raises:
        BadConfig: nobody can be given this role.
    """
    if role not in LABELER_ROLES:
        raise BadConfig(f"{str(role)[:80]!r} is no role that one can have. Give owner or labeler.")


def find_labeler(connection: Connection, name: str) -> Any:
    """A labeler's row.

    Raises:
        LabelerNotFound: nobody has this name.
    """
    found = connection.execute(ONE_LABELER, {"name": name}).one_or_none()
    if found is None:
        raise LabelerNotFound(name)
    return found


def find_experiment(connection: Connection, name: str | None) -> int | None:
    """An experiment's id.

    Raises:
        ExperimentNotFound: there is none of this name.
    """
    if name is None:
        return None
    found = connection.execute(EXPERIMENT_ID, {"name": name}).scalar()
    if found is None:
        raise no_experiment(name)
    return found


def take_invite(connection: Connection, token: str, moment: datetime) -> Mapping[Any, Any]:
    """Use an invite up; of two who try at once, one does.

    Raises:
        InviteUnusable: it says why.
    """
    if len(token) > LONGEST_TOKEN:
        raise InviteUnusable("unknown")
    sought = {"token_hash": hash_of(token)}
    take = update(Invite).where(
        Invite.token_hash == sought["token_hash"],
        Invite.used_at.is_(None),
        Invite.revoked_at.is_(None),
        Invite.expires_at > moment,
    )
    is_taken = bool(connection.execute(take.values(used_at=moment)).rowcount)
    invite = connection.execute(
        select(*Invite.__table__.columns).where(Invite.token_hash == sought["token_hash"])
    )
    row = invite.mappings().one_or_none()
    if row is None:
        raise InviteUnusable("unknown")
    if not is_taken:
        raise InviteUnusable(status_of(row, moment))
    return row


def status_of(invite: Mapping[Any, Any], moment: datetime) -> str:
    """What became of an invite."""
    if invite["used_at"] is not None:
        return "used"
    if invite["revoked_at"] is not None:
        return "revoked"
    return "expired" if is_over(invite["expires_at"], moment) else "open"


def no_invite(invite_id: int) -> InviteNotFound:
    """What is said of an invite that is not there."""
    return InviteNotFound(f"There is no invite {invite_id}. Look at the list of invites.")
