"""Authentication of credentials, and rate limits per credential and network."""

import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from rl_teacher.common.errors import RlTeacherError
from rl_teacher.store.access import hash_if_token, hash_token
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.records import Identity
from rl_teacher.store.store import Store
from rl_teacher.web.address import signed, verified
from rl_teacher.web.batching import Batcher, WorkerPool
from rl_teacher.web.settings import Rate, Settings
from rl_teacher.web.shared_state import SharedState, Take

OWNER_ROLE = "owner"

HOME_OWNER = Identity(0, OWNER, OWNER_ROLE)
"""Identity of those who have the token of the home."""

SESSION = "session"
"""Purpose for which the cookie of a session is signed."""
SESSION_PREFIX = "rls_"
SESSION_AGE = timedelta(days=90)

MAX_CACHED = 10_000
"""Credentials in each cache."""
WRONG_FOR_S = 60.0
"""Seconds for which a wrong credential is rejected without a query of the database."""
USED_CODES_KEPT_S = 86_400.0
"""Seconds for which a used code is remembered after its expiry, since clocks may be set back."""


def is_owner(identity: Identity) -> bool:
    """Return whether an identity has the owner role."""
    return identity.role == OWNER_ROLE


class RateLimited(Exception):
    """Request over the rate limit.

    Attributes:
        wait_s: Seconds until the next request is accepted.
    """

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"the next one in {wait_s:.1f} s")
        self.wait_s = wait_s


@dataclass(frozen=True)
class LookUp:
    """A credential to look up.

    Attributes:
        token: The credential.
        take: Amount to take from a token bucket; None if the request is not counted.
    """

    token: str
    take: Take | None = None


class Authenticator:
    """Authenticates credentials and enforces their rate limits.

    The token of the home belongs to the owner and needs no database. Every other credential is
    looked up for each request, so that a revoked one is rejected at once. Look-ups have a thread of
    their own that never writes, so that they do not wait while the database is locked.
    """

    def __init__(self, store: Store, settings: Settings, shared: SharedState) -> None:
        self._store = store
        self._writers = WorkerPool("uses of credentials", 1)
        self._look_up = Batcher("authentication", partial(within_limits, shared, do=self._identify))
        self._token = settings.token
        self.sessions = Sessions(settings)
        limits, clock_s = settings.limits, settings.clock_s
        self._labeler_buckets = Buckets(shared, "labeler", limits.labeler, clock_s)
        self._owner_buckets = Buckets(shared, "owner", limits.owner, clock_s)
        self._label_buckets = Buckets(shared, "labels", limits.labels, clock_s)
        self._anonymous_buckets = Buckets(shared, "anonymous", limits.anonymous, clock_s)
        self.codes = OneTimeCodes(settings, shared)
        self._good = CredentialCache(settings.clock_s)
        self._wrong = CredentialCache(settings.clock_s)

    async def of(self, token: str, address: str) -> Identity | None:
        """Return the identity that a credential belongs to, or None if it is invalid.

        Args:
            token: The credential.
            address: Network of the client.

        Raises:
            RateLimited: Too many requests with this credential, or too many wrong credentials from
                this network.
            StoreUnavailable: The database cannot be read.
        """
        if self.is_home_token(token):
            self._owner_buckets.count(self._token)
            return HOME_OWNER
        wrong_key, key = hash_token(token), self.key_of(token)
        if self._wrong.get(wrong_key, WRONG_FOR_S) is not None:
            return None
        # Looked up even if the network has sent too many wrong credentials: others share it.
        identity = await self._look_up(LookUp(token, self._take(key)))
        if self._store.access.has_uses_to_write:
            self._writers.submit(self._store.access.write_uses)
        if identity is None:
            self._good.remove(key)
            self._wrong.add(wrong_key, "")
            self._anonymous_buckets.count(address)
        else:
            self._good.add(key, identity.role)
        return identity

    def _take(self, key: str) -> Take | None:
        """Return what a request takes from the bucket of a credential that was valid before."""
        role = OWNER_ROLE if key == self._token else self._good.get(key)
        if role is None:
            return None
        return self._buckets_of(role).take(key)

    def _buckets_of(self, role: str) -> "Buckets":
        return self._owner_buckets if role == OWNER_ROLE else self._labeler_buckets

    async def is_valid(self, token: str) -> bool:
        """Return whether a credential is still valid, without counting a request."""
        if self.is_home_token(token):
            return True
        try:
            # A database that is busy for a moment must not end event streams.
            return await self._look_up(LookUp(token)) is not None
        except (RlTeacherError, SQLAlchemyError):
            return True

    def _identify(self, look_ups: Sequence[LookUp]) -> list[Identity | None]:
        """Return the identities that credentials and sessions belong to."""
        tokens = [each.token for each in look_ups]
        sessions = [self.sessions.read(each) for each in tokens]
        hashes = [
            hash_if_token(token) if session is None else session.token_hash
            for token, session in zip(tokens, sessions, strict=True)
        ]
        identities = self._store.access.identify_hashes(hashes)
        ended = self._store.access.ended_sessions({each.id for each in sessions if each})
        for i, session in enumerate(sessions):
            if session is not None and session.is_of_home:
                identities[i] = HOME_OWNER
            if session is not None and session.id in ended:
                identities[i] = None
        return identities

    def key_of(self, token: str) -> str:
        """Return the key of a credential for rate limits, which its sessions share."""
        session = self.sessions.read(token)
        if session is None:
            return hash_token(token)
        return self._token if session.is_of_home else session.token_hash

    def end_session(self, token: str) -> None:
        """End the session of a browser; a credential that a program sends stays valid."""
        session = self.sessions.read(token)
        if session is not None:
            self._store.access.end_session(session.id, SESSION_AGE)

    def close(self) -> None:
        """Stop the threads after their current calls."""
        self._look_up.close()
        self._writers.close()

    def id_of(self, identity: Identity) -> int:
        """Return the labeler's id in the store; 0 for an owner without labels."""
        if identity.labeler_id == 0:
            ids = {each.name: each.id for each in self._store.labelers.all()}
            return ids.get(identity.name, 0)
        return identity.labeler_id

    def is_home_token(self, token: str) -> bool:
        """Compare with the token of the home in constant time."""
        return secrets.compare_digest(token.encode(errors="replace"), self._token.encode())

    def count_labels(self, identity: Identity, credential: str, num_labels: int) -> None:
        """Count the labels of a request; those of owners are not limited.

        Raises:
            RateLimited: Too many labels with this credential.
        """
        take = self.take_of_labels(identity, credential, num_labels)
        if take is not None:
            self._label_buckets.charge(take)

    def take_of_labels(self, identity: Identity, credential: str, num_labels: int) -> Take | None:
        """Return what the labels of a request take from a token bucket; nothing from owners."""
        if is_owner(identity):
            return None
        return self._label_buckets.take(self.key_of(credential), num_labels)

    def count_anonymous(self, address: str) -> None:
        """Count a request without a credential.

        Raises:
            RateLimited: Too many requests from this network.
        """
        self._anonymous_buckets.count(address)

    def add_new(self, identity: Identity, credential: str, address: str) -> None:
        """Count a request against its new credential, not its network, so that a class can join.

        Raises:
            RateLimited: The request was repeated too often.
        """
        key = hash_token(credential)
        self._good.add(key, identity.role)
        self._buckets_of(identity.role).count(key)
        self._anonymous_buckets.refund(address)


@dataclass(frozen=True)
class Session:
    """Session of a browser.

    Attributes:
        id: Random id.
        token_hash: SHA-256 of the credential; empty for the token of the home.
    """

    id: str
    token_hash: str

    @property
    def is_of_home(self) -> bool:
        """True if the user signed in with the token of the home."""
        return self.token_hash == ""


class Sessions:
    """Signed values of the cookie, which neither contain a credential nor need the database."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def start(self, credential: str) -> str:
        """Return the cookie of a new session, or of the one that is given."""
        if self.read(credential) is not None:
            return credential
        digest = hash_token(credential)
        is_home = secrets.compare_digest(digest, hash_token(self._settings.token))
        token_hash = "" if is_home else digest
        began_s = int(self._settings.now().timestamp())
        content = f"{SESSION_PREFIX}{secrets.token_hex(16)}.{began_s}.{token_hash}"
        return signed(self._settings.token, SESSION, content)

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is invalid, or contains a credential."""
        if not cookie.startswith(SESSION_PREFIX):
            return None
        content = verified(self._settings.token, SESSION, cookie)
        if content is None:
            return None
        session_id, began_s, token_hash = content.removeprefix(SESSION_PREFIX).split(".")
        age_s = self._settings.now().timestamp() - float(began_s)
        return Session(session_id, token_hash) if age_s < SESSION_AGE.total_seconds() else None


class OneTimeCodes:
    """Codes of `address.one_time_code`, each of which is accepted once."""

    def __init__(self, settings: Settings, shared: SharedState) -> None:
        self._settings = settings
        self._shared = shared

    def redeem(self, code: str) -> bool:
        """Use up a code, and return whether it was valid."""
        content = verified(self._settings.token, f"code {self._settings.instance}", code)
        if content is None:
            return False
        now_s = self._settings.now().timestamp()
        expires_s = float(content.partition(".")[0])
        is_valid = expires_s > now_s
        return is_valid and self._shared.use_code(content, expires_s, now_s - USED_CODES_KEPT_S)


class CredentialCache:
    """Least recently used cache of the roles of credentials, by their hashes."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._roles: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def add(self, key: str, role: str) -> None:
        """Add an entry."""
        self._roles[key] = (self._clock_s(), role)
        self._roles.move_to_end(key)
        if len(self._roles) > MAX_CACHED:
            self._roles.popitem(last=False)

    def get(self, key: str, max_age_s: float = float("inf")) -> str | None:
        """Return an entry that is newer than `max_age_s`."""
        at_s, role = self._roles.get(key, (float("-inf"), ""))
        return role if self._clock_s() - at_s < max_age_s else None

    def remove(self, key: str) -> None:
        """Remove an entry."""
        self._roles.pop(key, None)


class Buckets:
    """Token bucket for each key.

    A bucket is stored as the time at which it will be full again (the generic cell rate algorithm),
    so that a full bucket can be removed.

    The `limits` library (5.8) counts requests in time windows: it has no burst apart from the rate,
    reads the wall clock, keeps a timestamp per request for any number of keys, and cannot refund a
    request.
    """

    def __init__(
        self, shared: SharedState, name: str, rate: Rate, clock_s: Callable[[], float]
    ) -> None:
        self._shared = shared
        self._name = name
        self._interval_s = 1 / rate.per_s
        self._room_s = (rate.burst - 1) * self._interval_s
        self._clock_s = clock_s

    def count(self, key: str, cost: int = 1) -> None:
        """Count a request, as several if it costs more.

        Raises:
            RateLimited: It is over the limit; it is not counted.
        """
        self.charge(self.take(key, cost))

    def charge(self, take: Take) -> None:
        """Take an amount from a bucket.

        Raises:
            RateLimited: It is over the limit; nothing is taken.
        """
        [wait_s] = self._shared.take([take])
        if wait_s > 0:
            raise RateLimited(wait_s)

    def take(self, key: str, cost: int = 1) -> Take:
        """Return what a request takes from its bucket, as several requests if it costs more."""
        # Each request takes an interval to refill; up to `burst` may be refilling at once.
        cost_s = cost * self._interval_s
        room_s = self._room_s - (cost - 1) * self._interval_s
        return Take(self._name, key, self._clock_s(), cost_s, room_s)

    def refund(self, key: str) -> None:
        """Refund a counted request."""
        self._shared.refund(self._name, key, self._interval_s)


class Limited(Protocol):
    """Item that is rate limited."""

    @property
    def take(self) -> Take | None:
        """Amount to take from a token bucket; None if the item is not counted."""
        ...


Item = TypeVar("Item", bound=Limited)
Result = TypeVar("Result")


def within_limits(
    shared: SharedState, items: Sequence[Item], do: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result | RateLimited]:
    """Process the items within their rate limits; the result of the others is an error."""
    waits_s = iter(shared.take([each.take for each in items if each.take is not None]))
    wait_of_each_s = [0.0 if each.take is None else next(waits_s) for each in items]
    passed = [item for item, wait_s in zip(items, wait_of_each_s, strict=True) if wait_s <= 0]
    results = iter(do(passed) if passed else ())
    return [RateLimited(wait_s) if wait_s > 0 else next(results) for wait_s in wait_of_each_s]


def network_of(host: str | None) -> str:
    """Return the network of an address: the /64 prefix for IPv6, which one household shares."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(getattr(address, "ipv4_mapped", None) or address)
