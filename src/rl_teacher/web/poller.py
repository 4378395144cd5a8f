"""Polling of the store for all event subscribers together, while there are any."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace

import anyio.to_thread

from rl_teacher.common.errors import ExperimentNotFound, StoreUnavailable
from rl_teacher.runs.status import Phase
from rl_teacher.store.records import ExperimentView
from rl_teacher.store.store import Store
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.schemas.experiments import ExperimentSummary

State = tuple[ExperimentView, Phase, bool]
"""Row, phase and silence of an experiment; its summary is rebuilt when one of them changes.

The phase and the silence also depend on the time.
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subscriber:
    """Subscriber to server-sent events.

    Attributes:
        name: Name of the experiment; None for summaries of all.
        labeler: Name of the user.
        is_owner: Whether to send returns and archived experiments.
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
        subscribers: Those that it was read for; set by the poller.
    """

    summaries: Mapping[str, ExperimentSummary] = field(default_factory=dict)
    mine: Mapping[tuple[str, str], int] = field(default_factory=dict)
    subscribers: frozenset[Subscriber] = frozenset()


class SnapshotReader:
    """Reads snapshots from the store, reloading only what has changed."""

    def __init__(self, store: Store, views: ExperimentViews) -> None:
        self._store = store
        self._views = views
        self._summaries: dict[int, tuple[State, ExperimentSummary]] = {}

    def read(self, subscribers: frozenset[Subscriber]) -> Snapshot:
        """Read a snapshot for the current subscribers."""
        followed: dict[str, ExperimentView] = {}
        for name in {each.name for each in subscribers if each.name is not None}:
            # A deleted experiment may be created again under its subscribers.
            with contextlib.suppress(ExperimentNotFound):
                followed[name] = self._store.experiments.get(name)
        has_list = any(each.name is None for each in subscribers)
        listed = self._store.experiments.all() if has_list else []
        summaries: dict[str, ExperimentSummary] = {}
        for view in listed:
            cached = self._summaries.get(view.id)
            if cached is None or cached[0] != self._state(view):
                summaries[view.name] = self._summary(view)
            else:
                summaries[view.name] = cached[1]
        summaries |= {view.name: self._summary(view) for view in followed.values()}
        name_of = {view.id: view.name for view in (*listed, *followed.values())}
        # Not cached with the summaries: an answer to a comparison that others have answered and
        # that needs more changes nothing else.
        counts = self._store.labels.count_by_experiment({each.labeler for each in subscribers})
        mine = {
            (name_of[experiment_id], labeler): num
            for (experiment_id, labeler), num in counts.items()
            if experiment_id in name_of
        }
        return Snapshot(summaries, mine)

    def _summary(self, view: ExperimentView) -> ExperimentSummary:
        state = self._state(view)
        summary = self._views.summary(view, None)
        self._summaries[view.id] = (state, summary)
        return summary

    def _state(self, view: ExperimentView) -> State:
        return view, self._views.phase(view), self._views.is_silent(view)


class Poller:
    """Sends each snapshot to every subscriber."""

    def __init__(
        self,
        read: Callable[[frozenset[Subscriber]], Snapshot],
        every_s: float,
    ) -> None:
        """Create a poller.

        Args:
            read: Reads a snapshot.
            every_s: Seconds between polls.
        """
        self._read = read
        self._every_s = every_s
        self._subscribers: Counter[Subscriber] = Counter()
        self._snapshot = Snapshot()
        self._polled = asyncio.Event()
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def snapshots(self, subscriber: Subscriber) -> AsyncGenerator[Snapshot, None]:
        """Yield snapshots that include the subscriber, until the service stops."""
        self._subscribers[subscriber] += 1
        self._joined.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            while not self._is_closed:
                await self._polled.wait()
                if self._is_closed:
                    return
                snapshot = self._snapshot
                # A poll may have begun before the subscriber joined; the next one follows at once.
                if subscriber in snapshot.subscribers:
                    yield snapshot
        finally:
            self._subscribers[subscriber] -= 1
            self._subscribers += Counter()  # removes counts of 0

    async def finish(self) -> None:
        """Send the latest changes, such as the end of the run that stops the service."""
        for _ in range(2):  # the poll under way may have begun before a change
            if self._task is not None and not self._task.done():
                self._joined.set()
                await self._polled.wait()

    def close(self) -> None:
        """End all streams; call it in the event loop."""
        self._is_closed = True
        self._polled.set()
        self._joined.set()

    async def _poll(self) -> None:
        """Read snapshots while there are subscribers; a new one does not wait for the interval."""
        while self._subscribers and not self._is_closed:
            self._joined.clear()
            subscribers = frozenset(self._subscribers)
            try:
                snapshot = await anyio.to_thread.run_sync(self._read, subscribers)
                self._snapshot = replace(snapshot, subscribers=subscribers)
            except Exception as error:  # The next poll may succeed.
                is_expected = isinstance(error, StoreUnavailable)
                logger.warning("Polling the store failed: %s", error, exc_info=not is_expected)
            # Each poll has an event of its own: a slow subscriber may wake up after the next poll.
            polled, self._polled = self._polled, asyncio.Event()
            polled.set()
            if self._is_closed:
                self._polled.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._joined.wait(), self._every_s)
