"""Settings of the web service."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rl_teacher.store.store import utc_now
from rl_teacher.web.limits import Limits

OWNER = "owner"
"""Labeler name of the user with the home's token."""

BUILT_PAGE = Path(__file__).with_name("static")
MAX_BODY_BYTES = 1_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of the web service.

    Attributes:
        token: Credential of the owner; never shown.
        instance: Unique name of the process.
        labeler: Name of the labeler that the token belongs to.
        static: Folder of the built page.
        max_body_bytes: Maximum size of a request body.
        poll_every_s: Seconds between polls of the store while there are subscribers.
        now: Wall clock.
        clock_s: Monotonic clock for rate limits.
        limits: Rate limits.
    """

    token: str = field(repr=False)
    instance: str = ""
    labeler: str = OWNER
    static: Path = BUILT_PAGE
    max_body_bytes: int = MAX_BODY_BYTES
    poll_every_s: float = 0.5
    now: Callable[[], datetime] = utc_now
    clock_s: Callable[[], float] = time.monotonic
    limits: Limits = field(default_factory=Limits)

    @property
    def cookie(self) -> str:
        """Cookie name of this home, derived from a hash of the token.

        Browsers send a cookie to every port of a host, so the services of two homes on one machine
        need different names.
        """
        return f"rl_teacher_{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"
