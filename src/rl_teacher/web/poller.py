"""Looks at the store for everybody who listens: once for all, and only while somebody does."""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

import anyio.to_thread

from rl_teacher.errors import ExperimentNotFound
from rl_teacher.store.records import ExperimentView
from rl_teacher.store.store import Store
from rl_teacher.web.overview import Overview, figures_row
from rl_teacher.web.problems import UNEXPECTED, problem_of
from rl_teacher.web.shapes import FiguresRow, Phase, Summary

MAX_RECENT_ROWS = 600
"""Rows of figures kept for a listener who is slow."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sight:
    """What one look at the store saw.

    Attributes:
        summaries: by experiment's name.
        rows: the newest figures of each experiment that somebody listens to, oldest first.
        problem: why the store could not be read, as JSON; nothing if it could.
    """

    summaries: Mapping[str, Summary] = field(default_factory=dict)
    rows: Mapping[str, tuple[FiguresRow, ...]] = field(default_factory=dict)
    problem: str | None = None


class Watch:
    """Looks at the store again and again, and reads only what changed."""

    def __init__(self, store: Store, overview: Overview, labeler: str) -> None:
        self._store = store
        self._overview = overview
        self._labeler = labeler
        self._seen: dict[int, tuple[ExperimentView, Phase, Summary]] = {}
        self._rows: dict[int, deque[FiguresRow]] = {}

    def look(self, names: frozenset[str | None]) -> Sight:
        """See how experiments stand.

        Args:
            names: of those that somebody listens to; None among them means all.
        """
        followed = [view for view in map(self._find, names) if view is not None]
        others = self._store.experiments() if None in names else []
        summaries = {view.name: self._summary_if_changed(view) for view in others}
        summaries |= {view.name: self._summary(view) for view in followed}
        rows = {view.name: self._newest_rows(view.id) for view in followed}
        return Sight(summaries, rows)

    def _find(self, name: str | None) -> ExperimentView | None:
        try:
            return None if name is None else self._store.experiment(name)
        except ExperimentNotFound:  # deleted while somebody listens; it may come again
            return None

    def _summary(self, view: ExperimentView) -> Summary:
        summary = self._overview.summary(view, self._labeler)
        self._seen[view.id] = (view, summary.phase, summary)
        return summary

    def _summary_if_changed(self, view: ExperimentView) -> Summary:
        seen = self._seen.get(view.id)
        if seen is not None and seen[:2] == (view, self._overview.phase(view)):
            return seen[2]
        return self._summary(view)

    def _newest_rows(self, experiment_id: int) -> tuple[FiguresRow, ...]:
        known = self._rows.get(experiment_id)
        if known is None:
            latest = self._store.latest_metrics(experiment_id)
            newer = [latest] if latest is not None else []
        else:
            last_id = known[-1].id if known else 0
            newer = self._store.metrics(experiment_id, last_id, at_most=MAX_RECENT_ROWS)
        known = self._rows.setdefault(experiment_id, deque(maxlen=MAX_RECENT_ROWS))
        known.extend(figures_row(row) for row in newer)
        return tuple(known)


class Poller:
    """Tells every listener what the latest look at the store saw."""

    def __init__(self, look: Callable[[frozenset[str | None]], Sight], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._listeners: Counter[str | None] = Counter()
        self._sight = Sight()
        self._looked = asyncio.Event()
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def sights(self, name: str | None) -> AsyncGenerator[Sight, None]:
        """What each look sees, from the next one on, until the service ends.

        Args:
            name: of the experiment that is listened to; None for all in short.
        """
        self._listeners[name] += 1
        self._joined.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            while not self._is_closed:
                await self._looked.wait()
                if self._is_closed:
                    return
                yield self._sight
        finally:
            self._listeners[name] -= 1
            self._listeners += Counter()  # forgets those that are 0

    def close(self) -> None:
        """End every listener's stream; to be called in the event loop."""
        self._is_closed = True
        self._looked.set()
        self._joined.set()

    async def _run(self) -> None:
        while self._listeners and not self._is_closed:
            self._joined.clear()
            self._sight = await anyio.to_thread.run_sync(self._see, frozenset(self._listeners))
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
            if self._is_closed:
                self._looked.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._joined.wait(), self._every_s)

    def _see(self, names: frozenset[str | None]) -> Sight:
        """One look; whatever goes wrong is told to the listeners, and the next look is tried."""
        try:
            return self._look(names)
        except Exception as error:
            said = problem_of(error)
            if said.status == UNEXPECTED.status:
                logger.exception("Looking for changes failed.")
            return Sight(problem=said.model_dump_json())
