"""What the service is told when it starts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rl_teacher.store.store import utc_now

OWNER = "owner"
"""The labeler's name, while there is only one."""

BUILT_PAGE = Path(__file__).with_name("static")
MAX_BODY_BYTES = 1_000_000


@dataclass(frozen=True)
class Settings:
    """How the service behaves.

    Attributes:
        token: the credential; never shown.
        instance: a name that only this process has.
        labeler: what the store calls whoever has the token.
        static: folder of the built page.
        max_body_bytes: of one request.
        poll_every_s: how often the store is looked at while somebody listens for events.
        now: the clock.
    """

    token: str = field(repr=False)
    instance: str = ""
    labeler: str = OWNER
    static: Path = BUILT_PAGE
    max_body_bytes: int = MAX_BODY_BYTES
    poll_every_s: float = 0.5
    now: Callable[[], datetime] = utc_now
