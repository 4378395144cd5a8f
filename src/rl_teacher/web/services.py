"""What the routes work with; one of each per application."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.answers import Sent
from rl_teacher.web.batching import Lane, Together
from rl_teacher.web.identity import Identities
from rl_teacher.web.overview import Overview
from rl_teacher.web.poller import Poller
from rl_teacher.web.quality_board import QualityBoard
from rl_teacher.web.schemas.labelling import LabelReceipt
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.settings import Settings


@dataclass(frozen=True)
class Services:
    """What the routes work with.

    Attributes:
        store: labels and experiments.
        media: clips' and scenes' files.
        settings: how the service behaves.
        overview: how experiments stand.
        poller: looks at the store for whoever listens.
        identities: knows whose a credential is.
        quality: how good labels are.
        lane: threads for what labelers wait for.
        answers: where what they send is kept.
        player: makes what is played; None where nothing is.
    """

    store: Store
    media: MediaFiles
    settings: Settings
    overview: Overview
    poller: Poller
    identities: Identities
    quality: QualityBoard
    lane: Lane
    answers: Together[Sent, LabelReceipt]
    player: EpisodePlayer | None = None


def services_of(request: Request) -> Services:
    """Those of the application that was asked."""
    return request.app.state.services


Work = Annotated[Services, Depends(services_of)]
