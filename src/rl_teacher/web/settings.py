"""What the service is told when it starts."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rl_teacher.store.store import utc_now
from rl_teacher.web.limits import Limits

OWNER = "owner"
"""The name, as a labeler, of whoever has the home's own token."""

BUILT_PAGE = Path(__file__).with_name("static")
MAX_BODY_BYTES = 1_000_000


@dataclass(frozen=True)
class Settings:
    """How the service behaves.

    Attributes:
        token: the owner's credential; never shown.
        instance: a name that only this process has.
        labeler: what the store calls whoever has that token.
        static: folder of the built page.
        max_body_bytes: of one request.
        poll_every_s: how often the store is looked at while somebody listens for events.
        now: the clock on the wall.
        clock_s: a clock that only goes on, for limits.
        limits: how many requests are answered.
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
        """What this home's cookie is called; it tells nothing of the token.

        Note: a browser gives a cookie to every port of a host, so services of two homes on one
        machine would replace each other's if both had one name.
        """
        return f"rl_teacher_{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"
