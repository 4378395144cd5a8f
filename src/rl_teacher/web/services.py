"""Shared objects of the application, injected into its routes."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.authentication import Authenticator
from rl_teacher.web.batching import Batcher
from rl_teacher.web.clip_ranking import RankingCache
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.label_intake import LabelUpload
from rl_teacher.web.next_comparisons import NextRequest
from rl_teacher.web.poller import Poller
from rl_teacher.web.schemas.labelling import LabelReceipt, NextComparisons
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.settings import Settings


@dataclass(frozen=True)
class Services:
    """Shared objects of the application.

    Attributes:
        store: Labels and experiments.
        media: Files of clips and scenes.
        settings: Settings of the service.
        experiments: Reads experiment summaries.
        poller: Polls the store for event subscribers.
        authenticator: Authenticates credentials.
        ranking: Rankings of clips.
        label_batcher: Stores submitted labels in batches.
        next_batcher: Claims the next comparisons of labelers in batches.
        streams: Open event streams by labeler.
        player: Plays episodes; None except in `rl-teacher play`.
    """

    store: Store
    media: MediaFiles
    settings: Settings
    experiments: ExperimentViews
    poller: Poller
    authenticator: Authenticator
    ranking: RankingCache
    label_batcher: Batcher[LabelUpload, LabelReceipt]
    next_batcher: Batcher[NextRequest, NextComparisons]
    streams: Counter[str]
    player: EpisodePlayer | None = None


async def get_services(request: Request) -> Services:
    """Return the shared objects of the application."""
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(get_services)]
