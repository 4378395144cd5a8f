"""How many requests are answered: by credential, and by address for whoever has none."""

import ipaddress
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_KEYS = 20_000
"""Whoever asks is remembered only while it matters, and never more than so many."""


@dataclass(frozen=True)
class Rate:
    """So many requests.

    Attributes:
        per_s: in the long run.
        burst: at once, after a rest.
    """

    per_s: float
    burst: int


@dataclass(frozen=True)
class Limits:
    """How many requests are answered.

    Attributes:
        labeler: of one labeler's credential.
        owner: of one owner's; a page of the clip library alone is some dozens.
        anonymous: of one address that shows wrong credentials, or no right invite.
        streams: of events, that one credential may have open.
    """

    labeler: Rate = Rate(20.0, 60)
    owner: Rate = Rate(100.0, 400)
    anonymous: Rate = Rate(10 / 60, 10)
    streams: int = 20


class Buckets:
    """A token bucket for each key.

    It is kept as the moment at which the bucket will be full again (the generic cell rate
    algorithm), so that one number is all there is to remember, and a full one is forgotten.
    """

    def __init__(self, rate: Rate, clock_s: Callable[[], float]) -> None:
        self._interval_s = 1 / rate.per_s
        self._room_s = (rate.burst - 1) * self._interval_s
        self._clock_s = clock_s
        self._full_at_s: dict[Hashable, float] = {}

    def wait_s(self, key: Hashable) -> float:
        """How long until one request of this key is answered; 0 where that is now."""
        now_s = self._clock_s()
        return max(0.0, self._full_at_s.get(key, now_s) - now_s - self._room_s)

    def take(self, key: Hashable) -> float:
        """Count one request; how long to wait where it is one too many, which does not count."""
        wait_s = self.wait_s(key)
        if wait_s == 0:
            now_s = self._clock_s()
            full_at_s = max(self._full_at_s.pop(key, now_s), now_s) + self._interval_s
            self._full_at_s[key] = full_at_s
            if len(self._full_at_s) > MAX_KEYS:
                self._forget(now_s)
        return wait_s

    def give_back(self, key: Hashable) -> None:
        """As if one request that was counted had not come."""
        if key in self._full_at_s:
            self._full_at_s[key] -= self._interval_s

    def _forget(self, now_s: float) -> None:
        """The buckets that are full again; and of those that are not, whoever asked longest ago."""
        self._full_at_s = {key: at for key, at in self._full_at_s.items() if at > now_s}
        while len(self._full_at_s) > MAX_KEYS:
            del self._full_at_s[next(iter(self._full_at_s))]


def retry_after(wait_s: float) -> str:
    """As a header says it: whole seconds, one at least."""
    return str(max(1, math.ceil(wait_s)))


def network_of(host: str | None) -> str:
    """What counts as one address: of IPv6 the first half, since a home has all of the other."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(getattr(address, "ipv4_mapped", None) or address)
