"""Server-sent events."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rl_teacher.store.sql import experiment_not_found
from rl_teacher.web.access import CurrentIdentity, LabelerRoute
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.experiment_views import redact_for_labelers, with_mine
from rl_teacher.web.poller import Snapshot, Subscriber
from rl_teacher.web.problems import TooMany
from rl_teacher.web.schemas.experiments import ExperimentSummary
from rl_teacher.web.services import ServicesDep

RECONNECT_MS = 2_000

MAX_STREAMS = 20
"""Open streams of one labeler."""

CREDENTIAL_CHECK_S = 5.0
"""Seconds between checks whether the credential of a stream has been revoked."""

router = APIRouter(prefix="/api/v1", tags=["events"], route_class=LabelerRoute)


async def new_subscriber(
    services: ServicesDep,
    identity: CurrentIdentity,
    experiment: Annotated[str | None, Query()] = None,
) -> AsyncIterator[Subscriber]:
    """Yield the subscriber to one experiment, or to all, until the stream ends.

    Raises:
        ExperimentNotFound: The experiment does not exist, or the user must not see it.
        TooMany: The user has too many open streams.
    """
    streams = services.streams
    if streams[identity.name] >= MAX_STREAMS:
        raise TooMany("Too many event streams are open. Close some tabs of the page.")
    streams[identity.name] += 1
    try:
        if experiment is not None and not identity.sees(experiment):
            raise experiment_not_found(experiment)
        name = None
        if experiment is not None:
            find = services.experiments.find_for
            name = (await run_in_threadpool(find, experiment, identity)).name
        yield Subscriber(name, identity.name, is_owner(identity), identity.experiment)
    finally:
        streams[identity.name] -= 1


@router.get("/events", response_class=EventSourceResponse)
async def listen(
    request: Request,
    services: ServicesDep,
    subscriber: Annotated[Subscriber, Depends(new_subscriber)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream changes as server-sent events, starting with the present state.

    An `experiment` event contains a summary. The stream ends when an experiment of it is deleted,
    renamed or hidden.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MS)
    stream = EventStream(subscriber)
    clock_s = services.settings.clock_s
    checked_s = clock_s()
    async for snapshot in services.poller.snapshots(subscriber):
        if clock_s() - checked_s >= CREDENTIAL_CHECK_S:
            checked_s = clock_s()
            if not await services.authenticator.is_valid(request.state.credential):
                return
        if stream.has_lost(snapshot):
            return
        for event in stream.of(snapshot):
            yield event


class EventStream:
    """Events that one subscriber has not received yet.

    A slow subscriber skips past states, but not the present one.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._sent: dict[str, str] = {}

    def has_lost(self, snapshot: Snapshot) -> bool:
        """Return whether an experiment that was sent is missing: the subscriber must read again."""
        return not self._sent.keys() <= self._visible(snapshot).keys()

    def _visible(self, snapshot: Snapshot) -> dict[str, ExperimentSummary]:
        """Return the summaries that the subscriber receives."""
        followed, only = self._subscriber.name, self._subscriber.only
        return {
            name: summary
            for name, summary in snapshot.summaries.items()
            if followed in (None, name)
            and only in (None, name)
            and (self._subscriber.is_owner or not summary.is_archived)
        }

    def of(self, snapshot: Snapshot) -> Iterator[ServerSentEvent]:
        """Yield the new events of a snapshot."""
        for name, shared in self._visible(snapshot).items():
            mine = snapshot.mine.get((name, self._subscriber.labeler), 0)
            summary = shared.model_copy(update={"progress": with_mine(shared.progress, mine)})
            if not self._subscriber.is_owner:
                summary = redact_for_labelers(summary)
            text = summary.model_dump_json()
            if self._sent.get(name) != text:
                self._sent[name] = text
                yield ServerSentEvent(event="experiment", raw_data=text)
