"""Application: routes and middleware."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web import problems
from rl_teacher.web.access import AccessMiddleware
from rl_teacher.web.authentication import Authenticator
from rl_teacher.web.batching import Batcher
from rl_teacher.web.clip_ranking import RankingCache
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.label_intake import store_uploads
from rl_teacher.web.middleware import BodyLimit, RequestLog
from rl_teacher.web.next_comparisons import next_comparisons
from rl_teacher.web.openapi import DescribedApi
from rl_teacher.web.poller import Poller, SnapshotReader
from rl_teacher.web.routes import (
    events,
    experiments,
    health,
    labelers,
    labelling,
    media,
    pages,
    playing,
    review,
)
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.services import Services
from rl_teacher.web.settings import MAX_BODY_BYTES, Settings

ROUTERS = (
    *(labelling.router, media.router, events.router),
    *(health.public_router, health.router, health.owner_router),
    *(experiments.router, experiments.owner_router),
    *(labelers.public_router, labelers.router, labelers.owner_router),
    *(review.router, playing.router, pages.public_router, pages.router),
)
"""Routes are searched in order, so those that labelers need most come first."""

GZIP_LEVEL = 5
GZIP_FROM_BYTES = 4_000
"""Smaller responses fit into a few packets, and their compression takes processor time."""


def create_app(
    store: Store,
    media_files: MediaFiles,
    settings: Settings,
    player: EpisodePlayer | None = None,
) -> FastAPI:
    """Create the ASGI application.

    Args:
        store: Labels and experiments.
        media_files: Files of clips and scenes.
        settings: Settings of the service.
        player: Plays episodes; None except in `rl-teacher play`.
    """
    app = DescribedApi(ROUTERS, lifespan=lifespan)
    experiments = ExperimentViews(store, settings.now)
    authenticator = Authenticator(store, settings)
    app.state.services = Services(
        store=store,
        media=media_files,
        settings=settings,
        experiments=experiments,
        poller=Poller(SnapshotReader(store, experiments).read, settings.poll_every_s),
        authenticator=authenticator,
        ranking=RankingCache(store),
        label_batcher=Batcher("labels", partial(store_uploads, store)),
        next_batcher=Batcher("next comparisons", partial(next_comparisons, store, experiments)),
        streams=Counter(),
        player=player,
    )
    problems.add_error_handlers(app)
    # Requests pass the middleware in reverse order: the last one added comes first. Rejected
    # requests get headers and a line in the log, too. No body is read before access is granted.
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_FROM_BYTES, compresslevel=GZIP_LEVEL)
    app.add_middleware(BodyLimit, max_body_bytes=MAX_BODY_BYTES)
    app.add_middleware(AccessMiddleware, routes=app.routes, authenticator=authenticator)
    app.add_middleware(RequestLog)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Close event streams and worker threads when the application stops."""
    yield
    services: Services = app.state.services
    services.poller.close()
    for each in (services.label_batcher, services.next_batcher, services.authenticator):
        each.close()
