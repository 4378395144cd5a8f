"""Authentication of credentials and sessions."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from itsdangerous import BadData
from sqlalchemy.exc import SQLAlchemyError

from rl_teacher.common.errors import RlTeacherError
from rl_teacher.store.access import hash_if_token
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.records import Identity
from rl_teacher.store.store import Store
from rl_teacher.web.address import code_serializer, serializer
from rl_teacher.web.batching import Batcher
from rl_teacher.web.settings import Settings

OWNER_ROLE = "owner"

HOME_OWNER = Identity(0, OWNER, OWNER_ROLE)
"""Identity of those who have the token of the home."""

HOME = "home"
"""Stands for the hash of the token of the home."""

SESSION_AGE = timedelta(days=90)


def is_owner(identity: Identity) -> bool:
    """Return whether an identity has the owner role."""
    return identity.role == OWNER_ROLE


@dataclass(frozen=True)
class Session:
    """Session of a browser, or a request of a program.

    Attributes:
        id: Random id; empty for a program, which sends the credential itself.
        token_hash: SHA-256 of the credential, `HOME` for the token of the home; empty if it has not
            the form of a credential.
    """

    id: str
    token_hash: str


class Authenticator:
    """Authenticates credentials.

    The token of the home belongs to the owner and needs no database. Every other credential is
    looked up for each request, so that a revoked one is rejected at once. Look-ups have a thread of
    their own that never writes, so that they do not wait while the database is locked.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._look_up = Batcher("authentication", self._identify)
        self._sessions = serializer(settings.token, "session")
        self._codes = code_serializer(settings.token, settings.database)

    async def of(self, token: str) -> Identity | None:
        """Return the identity that a credential belongs to, or None if it is invalid.

        Raises:
            StoreUnavailable: The database cannot be read.
        """
        session = self._session_of(token)
        is_home_token = session == Session("", HOME)
        return HOME_OWNER if is_home_token else await self._look_up(session)

    async def is_valid(self, token: str) -> bool:
        """Return whether a credential is still valid, as far as the database can be read."""
        try:
            return await self.of(token) is not None
        except (RlTeacherError, SQLAlchemyError):
            return True  # a database that is busy for a moment must not end event streams

    def _identify(self, sessions: Sequence[Session]) -> list[Identity | None]:
        """Return the identities that credentials and sessions belong to."""
        identities = self._store.access.identify_hashes([each.token_hash for each in sessions])
        ended = self._store.access.ended_sessions({each.id for each in sessions if each.id})
        for i, session in enumerate(sessions):
            if session.id in ended:
                identities[i] = None
            elif session.token_hash == HOME:
                identities[i] = HOME_OWNER
        return identities

    def is_home_token(self, token: str) -> bool:
        """Compare with the token of the home in constant time."""
        own = self._settings.token.encode()
        return secrets.compare_digest(token.encode(errors="replace"), own)

    # --- sessions of browsers ---

    def start_session(self, credential: str) -> str:
        """Return the cookie of a new session, or of the one that is given.

        It is signed, and does not contain the credential.
        """
        session = self._session_of(credential)
        if session.id:
            return credential
        began_s = int(self._settings.now().timestamp())
        return self._sessions.dumps([secrets.token_hex(16), session.token_hash, began_s])

    def _session_of(self, token: str) -> Session:
        """Return the session of a cookie, or of a program that sends the credential itself."""
        if self.is_home_token(token):
            return Session("", HOME)
        try:
            session_id, token_hash, began_s = self._sessions.loads(token)
        except BadData:
            return Session("", hash_if_token(token))
        age_s = self._settings.now().timestamp() - began_s
        return Session(session_id, token_hash if age_s < SESSION_AGE.total_seconds() else "")

    def end_session(self, token: str) -> None:
        """End the session of a browser; a credential that a program sends stays valid."""
        session = self._session_of(token)
        if session.id:
            self._store.access.end_session(session.id, SESSION_AGE)

    def redeem_code(self, code: str) -> bool:
        """Use up a code of `address.one_time_code`, and return whether it was valid."""
        try:
            code_id, expires_s = self._codes.loads(code)
        except BadData:
            return False
        is_valid = self._settings.now().timestamp() < expires_s
        return is_valid and self._store.access.end_session(code_id, SESSION_AGE)

    def close(self) -> None:
        """Stop the thread after its current call."""
        self._look_up.close()
