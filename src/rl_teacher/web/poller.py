"""Looks at the store for everybody who listens: once for all, and only while somebody does."""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio.to_thread

from rl_teacher.common.errors import ExperimentNotFound
from rl_teacher.runs.status import Phase
from rl_teacher.store.records import ExperimentView
from rl_teacher.store.store import Store
from rl_teacher.web.experiment_views import ExperimentViews, metrics_entry
from rl_teacher.web.problems import UNEXPECTED, problem_from_error
from rl_teacher.web.schemas.experiments import ExperimentSummary, MetricsEntry

MAX_RECENT_ROWS = 600
"""MetricsList of metrics kept for a listener who is slow."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subscriber:
    """Somebody who wants to know what changes.

    Attributes:
        name: of the experiment that is listened to; None for all in short.
        labeler: who listens.
        is_owner: whether metrics and settings are for them.
        only: the one experiment that is there for them, by name; None for all.
    """

    name: str | None
    labeler: str
    is_owner: bool
    only: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """What one look at the store saw.

    Attributes:
        summaries: by experiment's name; nobody's in particular.
        mine: comparisons that have somebody's answer, by experiment's name and labeler.
        rows: the newest metrics of each experiment that somebody listens to, oldest first.
        problem: why the store could not be read, as JSON; nothing if it could.
    """

    summaries: Mapping[str, ExperimentSummary] = field(default_factory=dict)
    mine: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rows: Mapping[str, tuple[MetricsEntry, ...]] = field(default_factory=dict)
    problem: str | None = None


class SnapshotReader:
    """Looks at the store again and again, and reads only what changed."""

    def __init__(self, store: Store, overview: ExperimentViews) -> None:
        self._store = store
        self._overview = overview
        self._seen: dict[int, tuple[ExperimentView, Phase, ExperimentSummary]] = {}
        self._mine: dict[tuple[str, str], tuple[ExperimentView, int]] = {}
        self._rows: dict[int, deque[MetricsEntry]] = {}

    def look(self, listeners: frozenset[Subscriber]) -> Snapshot:
        """See how experiments stand.

        Args:
            listeners: for whom.
        """
        names = {each.name for each in listeners}
        followed = [view for view in map(self._find, names) if view is not None]
        others = self._store.experiments.all() if None in names else []
        summaries = {view.name: self._summary_if_changed(view) for view in others}
        summaries |= {view.name: self._summary(view) for view in followed}
        figured = {each.name for each in listeners if each.is_owner}
        rows = {view.name: self._newest_rows(view.id) for view in followed if view.name in figured}
        return Snapshot(summaries, self._counts(listeners, followed, others), rows)

    def _counts(
        self,
        listeners: frozenset[Subscriber],
        followed: Sequence[ExperimentView],
        others: Sequence[ExperimentView],
    ) -> dict[tuple[str, str], int]:
        """Of whoever listens to all, they are read anew only where something changed."""
        views = {view.name: view for view in followed}
        counts: dict[tuple[str, str], int] = {}
        for labeler in {each.labeler for each in listeners if each.name is None}:
            for view in others:
                key = (view.name, labeler)
                before, mine = self._mine.get(key, (None, 0))
                counts[key] = mine if before == view else self._overview.mine(view, labeler)
                self._mine[key] = (view, counts[key])
        for each in listeners:
            view = views.get(each.name or "")
            if view is not None:
                counts[view.name, each.labeler] = self._overview.mine(view, each.labeler)
        return counts

    def _find(self, name: str | None) -> ExperimentView | None:
        try:
            return None if name is None else self._store.experiments.get(name)
        except ExperimentNotFound:  # deleted while somebody listens; it may come again
            return None

    def _summary(self, view: ExperimentView) -> ExperimentSummary:
        summary = self._overview.summary(view, None)
        self._seen[view.id] = (view, summary.phase, summary)
        return summary

    def _summary_if_changed(self, view: ExperimentView) -> ExperimentSummary:
        seen = self._seen.get(view.id)
        if seen is not None and seen[:2] == (view, self._overview.phase(view)):
            return seen[2]
        return self._summary(view)

    def _newest_rows(self, experiment_id: int) -> tuple[MetricsEntry, ...]:
        known = self._rows.get(experiment_id)
        if known is None:
            latest = self._store.metrics.latest(experiment_id)
            newer = [latest] if latest is not None else []
        else:
            last_id = known[-1].id if known else 0
            newer = self._store.metrics.after(experiment_id, last_id, at_most=MAX_RECENT_ROWS)
        known = self._rows.setdefault(experiment_id, deque(maxlen=MAX_RECENT_ROWS))
        known.extend(metrics_entry(row) for row in newer)
        return tuple(known)


class Poller:
    """Tells every listener what the latest look at the store saw."""

    def __init__(self, look: Callable[[frozenset[Subscriber]], Snapshot], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._listeners: Counter[Subscriber] = Counter()
        self._sight = Snapshot()
        self._looked = asyncio.Event()
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def num_streams(self, labeler: str) -> int:
        """How many streams somebody listens to."""
        listeners = list(self._listeners.items())
        return sum(count for each, count in listeners if each.labeler == labeler)

    async def snapshots(self, listener: Subscriber) -> AsyncGenerator[Snapshot, None]:
        """What each look sees, from the next one on, until the service ends.

        Args:
            listener: for whom.
        """
        self._listeners[listener] += 1
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
            self._listeners[listener] -= 1
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

    def _see(self, listeners: frozenset[Subscriber]) -> Snapshot:
        """One look; whatever goes wrong is told to the listeners, and the next look is tried."""
        try:
            return self._look(listeners)
        except Exception as error:
            said = problem_from_error(error)
            if said.status == UNEXPECTED.status:
                logger.exception("Looking for changes failed.")
            return Snapshot(problem=said.model_dump_json())
