"""Authentication of credentials, and rate limits per credential and network."""

import ipaddress
import secrets
from collections.abc import Callable, Sequence
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
from rl_teacher.web.problems import TooMany
from rl_teacher.web.settings import Rate, Settings

OWNER_ROLE = "owner"

HOME_OWNER = Identity(0, OWNER, OWNER_ROLE)
"""Identity of those who have the token of the home."""

HOME = "home"
"""Stands for the hash of the token of the home."""

SESSION_AGE = timedelta(days=90)

MAX_BUCKETS = 20_000


def is_owner(identity: Identity) -> bool:
    """Return whether an identity has the owner role."""
    return identity.role == OWNER_ROLE


class TokenBuckets:
    """Token bucket for each rate and key, in memory.

    A bucket is stored as the time at which it will be full again (the generic cell rate algorithm).
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._full_at_s: dict[tuple[Rate, str], float] = {}

    def take(self, rate: Rate, key: str, cost: int = 1) -> None:
        """Count a request as `cost` ones; a negative cost refunds them.

        Raises:
            TooMany: It is over the limit; it is not counted.
        """
        now_s = self._clock_s()
        # Removed and added again, so that the least recently used bucket is the first one.
        full_at_s = max(now_s, self._full_at_s.pop((rate, key), now_s))
        wait_s = full_at_s - now_s - (rate.burst - cost) / rate.per_s
        if wait_s <= 0:
            full_at_s += cost / rate.per_s
        self._full_at_s[rate, key] = full_at_s
        if len(self._full_at_s) > MAX_BUCKETS:
            del self._full_at_s[next(iter(self._full_at_s))]
        if wait_s > 0:
            raise TooMany(
                f"The rate limit is exceeded. Wait {wait_s:.0f} s and send less often.", wait_s
            )


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
    """Authenticates credentials and enforces their rate limits.

    The token of the home belongs to the owner and needs no database. Every other credential is
    looked up for each request, so that a revoked one is rejected at once. Look-ups have a thread of
    their own that never writes, so that they do not wait while the database is locked.

    Attributes:
        buckets: Rate limits.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._look_up = Batcher("authentication", self._identify)
        self._sessions = serializer(settings.token, "session")
        self._codes = code_serializer(settings.token, settings.database)
        self.buckets = TokenBuckets(settings.clock_s)

    async def of(self, token: str, network: str) -> Identity | None:
        """Return the identity that a credential belongs to, or None if it is invalid.

        Args:
            token: The credential.
            network: Network of the client.

        Raises:
            TooMany: Too many requests with this credential, or too many wrong credentials from
                this network.
            StoreUnavailable: The database cannot be read.
        """
        limits = self._settings.limits
        session = self._session_of(token)
        identity = await self._identity_of(session)
        # Looked up even if the network has sent too many wrong credentials: others share it.
        if identity is None:
            self.buckets.take(limits.anonymous, network)
        else:
            rate = limits.owner if is_owner(identity) else limits.labeler
            self.buckets.take(rate, session.token_hash)
        return identity

    async def is_valid(self, token: str) -> bool:
        """Return whether a credential is still valid, without counting a request."""
        try:
            return await self._identity_of(self._session_of(token)) is not None
        except (RlTeacherError, SQLAlchemyError):
            return True  # a database that is busy for a moment must not end event streams

    async def _identity_of(self, session: Session) -> Identity | None:
        is_home_token = session == Session("", HOME)
        return HOME_OWNER if is_home_token else await self._look_up(session)

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

    def count_labels(self, identity: Identity, credential: str, num_labels: int) -> None:
        """Count the labels of a request; those of owners are not limited.

        Raises:
            TooMany: Too many labels with this credential.
        """
        if not is_owner(identity):
            key = self._session_of(credential).token_hash
            self.buckets.take(self._settings.limits.labels, key, num_labels)

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


def network_of(host: str | None) -> str:
    """Return the network of an address: the /64 prefix for IPv6, which one household shares."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(getattr(address, "ipv4_mapped", None) or address)
