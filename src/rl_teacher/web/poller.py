"""Polling of the store for all event subscribers together, while there are any."""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio.to_thread

from rl_teacher.common.errors import ExperimentNotFound
from rl_teacher.runs.control import Phase
from rl_teacher.store.records import ExperimentView
from rl_teacher.store.store import Store
from rl_teacher.web.experiment_views import ExperimentViews, metrics_entry
from rl_teacher.web.problems import UNEXPECTED, problem_from_error
from rl_teacher.web.schemas.experiments import ExperimentSummary, MetricsEntry

MAX_RECENT_ROWS = 600
"""Rows of metrics kept for a slow subscriber."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subscriber:
    """Subscriber to server-sent events.

    Attributes:
        name: Name of the experiment; None for summaries of all.
        labeler: Name of the user.
        is_owner: Whether to send metrics and settings.
        only: The single experiment that the user may see; None for all.
    """

    name: str | None
    labeler: str
    is_owner: bool
    only: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """State of the experiments at one poll.

    Attributes:
        summaries: Summaries by experiment name, without a labeler's own counts.
        mine: Labelled comparisons by experiment name and labeler.
        rows: Latest metrics of each subscribed experiment, oldest first.
        problem: Problem as JSON if the store could not be read.
    """

    summaries: Mapping[str, ExperimentSummary] = field(default_factory=dict)
    mine: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rows: Mapping[str, tuple[MetricsEntry, ...]] = field(default_factory=dict)
    problem: str | None = None


class SnapshotReader:
    """Reads snapshots from the store, reloading only what has changed."""

    def __init__(self, store: Store, overview: ExperimentViews) -> None:
        self._store = store
        self._overview = overview
        self._cached_summaries: dict[int, tuple[ExperimentView, Phase, ExperimentSummary]] = {}
        self._mine: dict[tuple[str, str], tuple[ExperimentView, int]] = {}
        self._rows: dict[int, deque[MetricsEntry]] = {}

    def look(self, listeners: frozenset[Subscriber]) -> Snapshot:
        """Read a snapshot.

        Args:
            listeners: The current subscribers.
        """
        names = {each.name for each in listeners}
        followed = [view for view in map(self._find, names) if view is not None]
        others = self._store.experiments.all() if None in names else []
        summaries = {view.name: self._summary_if_changed(view) for view in others}
        summaries |= {view.name: self._summary(view) for view in followed}
        with_metrics = {each.name for each in listeners if each.is_owner}
        rows = {
            view.name: self._newest_rows(view.id) for view in followed if view.name in with_metrics
        }
        return Snapshot(summaries, self._counts(listeners, followed, others), rows)

    def _counts(
        self,
        listeners: frozenset[Subscriber],
        followed: Sequence[ExperimentView],
        others: Sequence[ExperimentView],
    ) -> dict[tuple[str, str], int]:
        """Count labelled comparisons, recounting for list subscribers only after a change."""
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
        except ExperimentNotFound:  # deleted under a subscriber; it may be created again
            return None

    def _summary(self, view: ExperimentView) -> ExperimentSummary:
        summary = self._overview.summary(view, None)
        self._cached_summaries[view.id] = (view, summary.phase, summary)
        return summary

    def _summary_if_changed(self, view: ExperimentView) -> ExperimentSummary:
        cached = self._cached_summaries.get(view.id)
        if cached is not None and cached[:2] == (view, self._overview.phase(view)):
            return cached[2]
        return self._summary(view)

    def _newest_rows(self, experiment_id: int) -> tuple[MetricsEntry, ...]:
        rows = self._rows.get(experiment_id)
        if rows is None:
            latest = self._store.metrics.latest(experiment_id)
            newer = [latest] if latest is not None else []
        else:
            last_id = rows[-1].id if rows else 0
            newer = self._store.metrics.after(experiment_id, last_id, at_most=MAX_RECENT_ROWS)
        rows = self._rows.setdefault(experiment_id, deque(maxlen=MAX_RECENT_ROWS))
        rows.extend(metrics_entry(row) for row in newer)
        return tuple(rows)


class Poller:
    """Sends each snapshot to every subscriber."""

    def __init__(self, look: Callable[[frozenset[Subscriber]], Snapshot], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._listeners: Counter[Subscriber] = Counter()
        self._snapshot = Snapshot()
        self._polled = asyncio.Event()
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def num_streams(self, labeler: str) -> int:
        """Return the number of open streams of a labeler."""
        listeners = list(self._listeners.items())
        return sum(count for each, count in listeners if each.labeler == labeler)

    async def snapshots(self, listener: Subscriber) -> AsyncGenerator[Snapshot, None]:
        """Yield snapshots from the next poll on, until the service stops.

        Args:
            listener: The subscriber.
        """
        self._listeners[listener] += 1
        self._joined.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            while not self._is_closed:
                await self._polled.wait()
                if self._is_closed:
                    return
                yield self._snapshot
        finally:
            self._listeners[listener] -= 1
            self._listeners += Counter()  # removes counts of 0

    def close(self) -> None:
        """End all streams; call it in the event loop."""
        self._is_closed = True
        self._polled.set()
        self._joined.set()

    async def _run(self) -> None:
        while self._listeners and not self._is_closed:
            self._joined.clear()
            self._snapshot = await anyio.to_thread.run_sync(
                self._read_snapshot, frozenset(self._listeners)
            )
            polled, self._polled = self._polled, asyncio.Event()
            polled.set()
            if self._is_closed:
                self._polled.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._joined.wait(), self._every_s)

    def _read_snapshot(self, listeners: frozenset[Subscriber]) -> Snapshot:
        """Read a snapshot, or one with the problem if that fails."""
        try:
            return self._look(listeners)
        except Exception as error:
            details = problem_from_error(error)
            if details.status == UNEXPECTED.status:
                logger.exception("Looking for changes failed.")
            return Snapshot(problem=details.model_dump_json())
