"""Rate limits per credential, and per network for anonymous requests.

The `limits` library (5.8) counts requests in time windows: it has no burst apart from the rate,
reads the wall clock, keeps a timestamp per request for any number of keys, and cannot refund a
request. A token bucket needs one number per key, of which `MAX_KEYS` are kept.
"""

import ipaddress
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_KEYS = 20_000
"""Maximum number of buckets in memory."""


@dataclass(frozen=True)
class Rate:
    """Rate limit.

    Attributes:
        per_s: Sustained requests per second.
        burst: Requests accepted at once after a pause.
    """

    per_s: float
    burst: int


@dataclass(frozen=True)
class Limits:
    """Rate limits of the service.

    Attributes:
        labeler: For a credential of a labeler.
        owner: For a credential of an owner; one page of the clip library needs dozens of requests.
        anonymous: For wrong credentials and invites from one network.
        streams: Open event streams per credential.
    """

    labeler: Rate = Rate(20.0, 60)
    owner: Rate = Rate(100.0, 400)
    anonymous: Rate = Rate(10 / 60, 10)
    streams: int = 20


class Buckets:
    """Token bucket for each key.

    A bucket is stored as the time at which it will be full again (the generic cell rate algorithm),
    so that a full bucket can be removed.
    """

    def __init__(self, rate: Rate, clock_s: Callable[[], float]) -> None:
        self._interval_s = 1 / rate.per_s
        self._room_s = (rate.burst - 1) * self._interval_s
        self._clock_s = clock_s
        self._full_at_s: dict[Hashable, float] = {}

    def wait_s(self, key: Hashable) -> float:
        """Return the seconds until a request with this key is accepted; 0 for now."""
        now_s = self._clock_s()
        return max(0.0, self._full_at_s.get(key, now_s) - now_s - self._room_s)

    def take(self, key: Hashable) -> float:
        """Count a request and return 0, or return the seconds to wait without counting it."""
        wait_s = self.wait_s(key)
        if wait_s == 0:
            now_s = self._clock_s()
            full_at_s = max(self._full_at_s.pop(key, now_s), now_s) + self._interval_s
            self._full_at_s[key] = full_at_s
            if len(self._full_at_s) > MAX_KEYS:
                self._forget(now_s)
        return wait_s

    def give_back(self, key: Hashable) -> None:
        """Refund a counted request."""
        if key in self._full_at_s:
            self._full_at_s[key] -= self._interval_s

    def _forget(self, now_s: float) -> None:
        """Remove full buckets, then those that were used least recently."""
        self._full_at_s = {key: at for key, at in self._full_at_s.items() if at > now_s}
        while len(self._full_at_s) > MAX_KEYS:
            del self._full_at_s[next(iter(self._full_at_s))]


def retry_after(wait_s: float) -> str:
    """Format a wait as a Retry-After header: whole seconds, at least 1."""
    return str(max(1, math.ceil(wait_s)))


def network_of(host: str | None) -> str:
    """Return the network of an address: the /64 prefix for IPv6, which one household shares."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(getattr(address, "ipv4_mapped", None) or address)
