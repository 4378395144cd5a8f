"""Server-sent events: whoever listens learns what changed, without asking again."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rl_teacher.store.views import experiment_not_found
from rl_teacher.web.access import Access, Me, open_to
from rl_teacher.web.identity import is_owner
from rl_teacher.web.overview import as_labelers_see
from rl_teacher.web.poller import Listener, Sight
from rl_teacher.web.problems import TOO_MANY, Refusal
from rl_teacher.web.schemas.experiments import ExperimentSummary
from rl_teacher.web.services import Work

RECONNECT_MS = 2_000

CHECK_EVERY_S = 5.0
"""How soon a stream ends whose credential was revoked."""

router = APIRouter(prefix="/api/v1", tags=["events"])


def listener_of(work: Work, me: Me, experiment: Annotated[str | None, Query()] = None) -> Listener:
    """Who listens, and to what: an experiment's name as the store has it, or None for all.

    Raises:
        ExperimentNotFound: there is none, and nothing to listen to.
        Refusal: too many streams of this labeler's are open.
    """
    if work.poller.num_streams(me.name) >= work.settings.limits.streams:
        raise Refusal(TOO_MANY, "Too many streams of events are open. Close some of the pages.")
    if experiment is not None and not me.sees(experiment):
        raise experiment_not_found(experiment)
    name = None if experiment is None else work.overview.find(experiment).name
    return Listener(name, me.name, is_owner(me), me.experiment)


@router.get("/events", response_class=EventSourceResponse)
@open_to(Access.LABELER)
async def listen(
    request: Request, work: Work, listener: Annotated[Listener, Depends(listener_of)]
) -> AsyncIterator[ServerSentEvent]:
    """What changes: `experiment` (a summary) of all, or of one with `progress` and `episode`; for
    an owner `metrics` too. The first events are the present state. `problem` while the store
    cannot be read.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MS)
    news = News(listener)
    clock_s = work.settings.clock_s
    checked_s = clock_s()
    async for sight in work.poller.sights(listener):
        if clock_s() - checked_s >= CHECK_EVERY_S and sight.problem is None:
            checked_s = clock_s()
            if not await work.identities.is_valid(request.state.credential):
                return
        for event in news.of(sight):
            yield event


class News:
    """What one listener has not been told yet.

    A slow listener misses states that are past, never the present one, and no row of metrics.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._name = listener.name
        self._told: dict[tuple[str, str], str] = {}
        self._last_row_id: int | None = None

    def of(self, sight: Sight) -> Iterator[ServerSentEvent]:
        """The events for this listener in what was seen."""
        if sight.problem is not None:
            yield from self._if_new("problem", "", sight.problem)
            return
        self._told.pop(("problem", ""), None)
        for name, summary in sight.summaries.items():
            if self._name is None and self._listener.only not in (None, name):
                continue
            if self._name is None:
                mine = self._as_seen(summary, sight)
                yield from self._if_new("experiment", name, mine.model_dump_json())
            elif self._name == name:
                yield from self._of_one(self._as_seen(summary, sight))
        if self._listener.is_owner:
            yield from self._rows(sight)

    def _as_seen(self, summary: ExperimentSummary, sight: Sight) -> ExperimentSummary:
        """The same with this listener's own count, and without what is not for them."""
        mine = sight.mine.get((summary.name, self._listener.labeler), 0)
        progress = summary.progress.model_copy(update={"mine": mine})
        own = summary.model_copy(update={"progress": progress})
        return own if self._listener.is_owner else as_labelers_see(own)

    def _of_one(self, summary: ExperimentSummary) -> Iterator[ServerSentEvent]:
        yield from self._if_new("experiment", "", summary.model_dump_json())
        yield from self._if_new("progress", "", summary.progress.model_dump_json())
        if summary.latest_episode is not None:
            yield from self._if_new("episode", "", summary.latest_episode.model_dump_json())

    def _rows(self, sight: Sight) -> Iterator[ServerSentEvent]:
        """New metrics; the newest alone for whoever has just come."""
        rows = sight.rows.get(self._name or "", ())
        if self._last_row_id is None:
            rows = rows[-1:]
        for row in rows:
            if row.id > (self._last_row_id or 0):
                self._last_row_id = row.id
                yield ServerSentEvent(event="metrics", raw_data=row.model_dump_json())
        if self._last_row_id is None and self._name in sight.rows:
            self._last_row_id = 0

    def _if_new(self, kind: str, name: str, text: str) -> Iterator[ServerSentEvent]:
        if self._told.get((kind, name)) != text:
            self._told[kind, name] = text
            yield ServerSentEvent(event=kind, raw_data=text)
