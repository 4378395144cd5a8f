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
class Settings:
    """Settings of the web service.

    Attributes:
        token: Credential of the owner; never shown.
        instance: Unique name of the process.
        database: Identifier of the database, for one-time codes.
        hosts: Names that requests may address the service by, beside IP addresses; empty for any.
        static: Folder of the built page.
        poll_every_s: Seconds between polls of the store while there are subscribers.
        now: Wall clock.
        clock_s: Monotonic clock.
    """

    token: str = field(repr=False)
    instance: str = ""
    database: str = ""
    hosts: frozenset[str] = frozenset()
    static: Path = BUILT_PAGE
    poll_every_s: float = 0.5
    now: Callable[[], datetime] = utc_now
    clock_s: Callable[[], float] = time.monotonic

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
