"""Settings of the web service."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rl_teacher.store.store import utc_now

BUILT_PAGE = Path(__file__).with_name("static")
MAX_BODY_BYTES = 1_000_000


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
        labels: Labels of a labeler's credential; an offline page sends many at once.
        owner: For a credential of an owner; one page of the clip library needs dozens of requests.
        anonymous: For wrong credentials from one network, and for wrong invites.
        streams: Open event streams per labeler.
    """

    labeler: Rate = Rate(20.0, 60)
    labels: Rate = Rate(2.0, 200)
    owner: Rate = Rate(100.0, 400)
    anonymous: Rate = Rate(10 / 60, 10)
    streams: int = 20


@dataclass(frozen=True)
class Settings:
    """Settings of the web service.

    Attributes:
        token: Credential of the owner; never shown.
        instance: Unique name of the process.
        database: Identifier of the database, for one-time codes.
        static: Folder of the built page.
        poll_every_s: Seconds between polls of the store while there are subscribers.
        now: Wall clock.
        clock_s: Monotonic clock for rate limits.
        limits: Rate limits.
    """

    token: str = field(repr=False)
    instance: str = ""
    database: str = ""
    static: Path = BUILT_PAGE
    poll_every_s: float = 0.5
    now: Callable[[], datetime] = utc_now
    clock_s: Callable[[], float] = time.monotonic
    limits: Limits = field(default_factory=Limits)

    @property
    def home(self) -> str:
        """Id of this home, derived from a hash of the token."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:8]

    @property
    def cookie(self) -> str:
        """Cookie name of this home.

        Browsers send a cookie to every port of a host, so the services of two homes on one machine
        need different names.
        """
        return f"rl_teacher_{self.home}"
