"""Authentication of credentials and rate limits per credential and network."""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence

from sqlalchemy.exc import SQLAlchemyError

from rl_teacher.common.errors import RlTeacherError
from rl_teacher.store.records import Identity
from rl_teacher.store.store import Store
from rl_teacher.web.batching import Batcher, WorkerPool
from rl_teacher.web.limits import Buckets
from rl_teacher.web.settings import Settings

OWNER_ROLE = "owner"

MAX_REMEMBERED = 10_000
WRONG_FOR_S = 60.0
"""Seconds for which a wrong credential is rejected without a query of the database."""


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


class Authenticator:
    """Authenticates credentials and enforces their rate limits.

    The token of the home belongs to the owner and needs no database. Every other credential is
    looked up for each request, so that a revoked one is rejected at once.
    """

    def __init__(self, store: Store, settings: Settings, pool: WorkerPool) -> None:
        self._store = store
        self._look_up = Batcher(pool, self._identify_many)
        self._token = settings.token.encode()
        self._owner = settings.labeler
        self._clock_s = settings.clock_s
        self._labeler_buckets = Buckets(settings.limits.labeler, settings.clock_s)
        self._owner_buckets = Buckets(settings.limits.owner, settings.clock_s)
        self._anonymous_buckets = Buckets(settings.limits.anonymous, settings.clock_s)
        self._good = CredentialCache(self._clock_s)
        self._wrong = CredentialCache(self._clock_s)

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
            check(self._owner_buckets.take(self._token))
            return Identity(0, self._owner, OWNER_ROLE)
        key = digest_of(token)
        if self._wrong.get(key, WRONG_FOR_S) is not None:
            return None
        role = self._good.get(key)
        if role is None:
            check(self._anonymous_buckets.wait_s(address))
        else:
            check((self._owner_buckets if role == OWNER_ROLE else self._labeler_buckets).take(key))
        identity = await self._look_up(token)
        if identity is None:
            self._good.forget(key)
            self._wrong.add(key, "")
            check(self._anonymous_buckets.take(address))
        else:
            self._good.add(key, identity.role)
        return identity

    async def is_valid(self, token: str) -> bool:
        """Return whether a credential is still valid, without counting a request."""
        if self.is_home_token(token):
            return True
        try:
            return await self._look_up(token) is not None
        except (RlTeacherError, SQLAlchemyError):
            return True

    def _identify_many(self, tokens: Sequence[str]) -> list[Identity | None]:
        return self._store.access.identify_many(tokens)

    def id_of(self, identity: Identity) -> int:
        """Return the labeler's id in the store; 0 for an owner without labels."""
        if identity.labeler_id == 0:
            ids = {each.name: each.id for each in self._store.labelers.all()}
            return ids.get(identity.name, 0)
        return identity.labeler_id

    def is_home_token(self, token: str) -> bool:
        """Compare with the token of the home in constant time."""
        return secrets.compare_digest(token.encode(errors="replace"), self._token)

    def count_anonymous(self, address: str) -> None:
        """Count a request without a credential.

        Raises:
            RateLimited: Too many requests from this network.
        """
        check(self._anonymous_buckets.take(address))

    def remember(self, identity: Identity, credential: str, address: str) -> None:
        """Cache a new credential and refund its request, so that a whole class can join at once."""
        self._good.add(digest_of(credential), identity.role)
        self._anonymous_buckets.give_back(address)


class CredentialCache:
    """Least recently used cache of credential digests."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._roles: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def add(self, key: bytes, role: str) -> None:
        """Add an entry."""
        self._roles[key] = (self._clock_s(), role)
        self._roles.move_to_end(key)
        if len(self._roles) > MAX_REMEMBERED:
            self._roles.popitem(last=False)

    def get(self, key: bytes, for_s: float = float("inf")) -> str | None:
        """Return an entry that is not older than `for_s`."""
        at_s, role = self._roles.get(key, (float("-inf"), ""))
        return role if self._clock_s() - at_s < for_s else None

    def forget(self, key: bytes) -> None:
        """Remove an entry."""
        self._roles.pop(key, None)


def digest_of(credential: str) -> bytes:
    """Return the SHA-256 of a credential."""
    return hashlib.sha256(credential.encode(errors="replace")).digest()


def check(wait_s: float) -> None:
    """Raise an error if the client has to wait; such a request is not counted.

    Raises:
        RateLimited: The wait is positive.
    """
    if wait_s > 0:
        raise RateLimited(wait_s)
