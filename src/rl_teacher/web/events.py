"""Server-sent events: whoever listens learns what changed, without asking again."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rl_teacher.web.access import Access, open_to
from rl_teacher.web.poller import Sight
from rl_teacher.web.services import Work
from rl_teacher.web.shapes import Summary

RECONNECT_MS = 2_000

router = APIRouter(prefix="/api/v1", tags=["events"])


def listened_to(work: Work, experiment: Annotated[str | None, Query()] = None) -> str | None:
    """The experiment's name as the store has it; None for all.

    Raises:
        ExperimentNotFound: there is none, and nothing to listen to.
    """
    return None if experiment is None else work.overview.find(experiment).name


@router.get("/events", response_class=EventSourceResponse)
@open_to(Access.LABELER)
async def listen(
    work: Work, name: Annotated[str | None, Depends(listened_to)]
) -> AsyncIterator[ServerSentEvent]:
    """What changes: `experiment` (a summary) of all, or of one with `progress`, `metrics`,
    `episode`. The first events are the present state. `problem` while the store cannot be read.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MS)
    news = News(name)
    async for sight in work.poller.sights(name):
        for event in news.of(sight):
            yield event


class News:
    """What one listener has not been told yet.

    A slow listener misses states that are past, never the present one, and no row of figures.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._told: dict[tuple[str, str], str] = {}
        self._last_row_id: int | None = None

    def of(self, sight: Sight) -> Iterator[ServerSentEvent]:
        """The events for this listener in what was seen."""
        if sight.problem is not None:
            yield from self._if_new("problem", "", sight.problem)
            return
        self._told.pop(("problem", ""), None)
        for name, summary in sight.summaries.items():
            if self._name is None:
                yield from self._if_new("experiment", name, summary.model_dump_json())
            elif self._name == name:
                yield from self._of_one(summary)
        yield from self._rows(sight)

    def _of_one(self, summary: Summary) -> Iterator[ServerSentEvent]:
        yield from self._if_new("experiment", "", summary.model_dump_json())
        yield from self._if_new("progress", "", summary.progress.model_dump_json())
        if summary.latest_episode is not None:
            yield from self._if_new("episode", "", summary.latest_episode.model_dump_json())

    def _rows(self, sight: Sight) -> Iterator[ServerSentEvent]:
        """New figures; the newest alone for whoever has just come."""
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
