"""What the routes work with; one of each per application."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.authentication import Authenticator
from rl_teacher.web.batching import Batcher, WorkerPool
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.label_intake import LabelUpload
from rl_teacher.web.label_quality import QualityCache
from rl_teacher.web.poller import Poller
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
        experiments: how experiments stand.
        poller: looks at the store for whoever listens.
        authenticator: knows whose a credential is.
        quality: how good labels are.
        workers: threads for what labelers wait for.
        label_batcher: where what they send is kept.
        player: makes what is played; None where nothing is.
    """

    store: Store
    media: MediaFiles
    settings: Settings
    experiments: ExperimentViews
    poller: Poller
    authenticator: Authenticator
    quality: QualityCache
    workers: WorkerPool
    label_batcher: Batcher[LabelUpload, LabelReceipt]
    player: EpisodePlayer | None = None


def get_services(request: Request) -> Services:
    """Those of the application that was asked."""
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(get_services)]
