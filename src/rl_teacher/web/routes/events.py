"""Server-sent events."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rl_teacher.store.sql import experiment_not_found
from rl_teacher.web.access import Access, CurrentIdentity, requires
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.experiment_views import redact_for_labelers
from rl_teacher.web.poller import Snapshot, Subscriber
from rl_teacher.web.problems import TOO_MANY, ProblemError
from rl_teacher.web.schemas.experiments import ExperimentSummary
from rl_teacher.web.services import ServicesDep

RECONNECT_MS = 2_000

CREDENTIAL_CHECK_S = 5.0
"""Seconds between checks whether the credential of a stream has been revoked."""

router = APIRouter(prefix="/api/v1", tags=["events"])


def subscriber(
    services: ServicesDep,
    identity: CurrentIdentity,
    experiment: Annotated[str | None, Query()] = None,
) -> Subscriber:
    """Return the subscriber to one experiment, or to all.

    Raises:
        ExperimentNotFound: The experiment does not exist, or the user must not see it.
        ProblemError: The user has too many open streams.
    """
    if services.poller.num_streams(identity.name) >= services.settings.limits.streams:
        raise ProblemError(
            TOO_MANY, "Too many streams of events are open. Close some of the pages."
        )
    if experiment is not None and not identity.sees(experiment):
        raise experiment_not_found(experiment)
    name = None if experiment is None else services.experiments.find(experiment).name
    return Subscriber(name, identity.name, is_owner(identity), identity.experiment)


@router.get("/events", response_class=EventSourceResponse)
@requires(Access.LABELER)
async def listen(
    request: Request, services: ServicesDep, listener: Annotated[Subscriber, Depends(subscriber)]
) -> AsyncIterator[ServerSentEvent]:
    """Stream changes as server-sent events, starting with the present state.

    Without `experiment`: an `experiment` event (a summary) for each experiment. With it: also
    `progress` and `episode`, and for owners `metrics`. `problem` reports that the store cannot be
    read.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MS)
    stream = EventStream(listener)
    clock_s = services.settings.clock_s
    checked_s = clock_s()
    async for snapshot in services.poller.snapshots(listener):
        if clock_s() - checked_s >= CREDENTIAL_CHECK_S and snapshot.problem is None:
            checked_s = clock_s()
            if not await services.authenticator.is_valid(request.state.credential):
                return
        for event in stream.of(snapshot):
            yield event


class EventStream:
    """Events that one subscriber has not received yet.

    A slow subscriber skips past states, but neither the present one nor any row of metrics.
    """

    def __init__(self, listener: Subscriber) -> None:
        self._listener = listener
        self._name = listener.name
        self._sent: dict[tuple[str, str], str] = {}
        self._last_row_id: int | None = None

    def of(self, snapshot: Snapshot) -> Iterator[ServerSentEvent]:
        """Yield the new events of a snapshot."""
        if snapshot.problem is not None:
            yield from self._if_new("problem", "", snapshot.problem)
            return
        self._sent.pop(("problem", ""), None)
        for name, summary in snapshot.summaries.items():
            if self._name is None and self._listener.only not in (None, name):
                continue
            if self._name is None:
                mine = self._personalised(summary, snapshot)
                yield from self._if_new("experiment", name, mine.model_dump_json())
            elif self._name == name:
                yield from self._experiment_events(self._personalised(summary, snapshot))
        if self._listener.is_owner:
            yield from self._rows(snapshot)

    def _personalised(self, summary: ExperimentSummary, snapshot: Snapshot) -> ExperimentSummary:
        """Return the summary with the subscriber's own count, and for labelers without metrics."""
        mine = snapshot.mine.get((summary.name, self._listener.labeler), 0)
        progress = summary.progress.model_copy(update={"mine": mine})
        own = summary.model_copy(update={"progress": progress})
        return own if self._listener.is_owner else redact_for_labelers(own)

    def _experiment_events(self, summary: ExperimentSummary) -> Iterator[ServerSentEvent]:
        yield from self._if_new("experiment", "", summary.model_dump_json())
        yield from self._if_new("progress", "", summary.progress.model_dump_json())
        if summary.latest_episode is not None:
            yield from self._if_new("episode", "", summary.latest_episode.model_dump_json())

    def _rows(self, snapshot: Snapshot) -> Iterator[ServerSentEvent]:
        """Yield new metrics; for a new subscriber only the latest row."""
        rows = snapshot.rows.get(self._name or "", ())
        if self._last_row_id is None:
            rows = rows[-1:]
        for row in rows:
            if row.id > (self._last_row_id or 0):
                self._last_row_id = row.id
                yield ServerSentEvent(event="metrics", raw_data=row.model_dump_json())
        if self._last_row_id is None and self._name in snapshot.rows:
            self._last_row_id = 0

    def _if_new(self, kind: str, name: str, text: str) -> Iterator[ServerSentEvent]:
        if self._sent.get((kind, name)) != text:
            self._sent[kind, name] = text
            yield ServerSentEvent(event=kind, raw_data=text)
