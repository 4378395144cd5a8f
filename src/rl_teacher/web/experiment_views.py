"""Experiment summaries and details, assembled from the store."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from rl_teacher.common.errors import CorruptClip, MediaNotFound
from rl_teacher.quality.warnings import BY_REWARD
from rl_teacher.runs.config_comparison import RUN, kind_of
from rl_teacher.runs.folder import is_of_wrapper, validate_name
from rl_teacher.runs.status import ENDED, Phase, reported_phase
from rl_teacher.store.records import ExperimentView, Identity, MetricsRow
from rl_teacher.store.sql import experiment_not_found
from rl_teacher.store.store import Store
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.problems import NotShown
from rl_teacher.web.schemas.experiments import (
    ClipProgress,
    Episode,
    ExperimentDetail,
    ExperimentSummary,
    LabelWarning,
    MetricsEntry,
    Progress,
)
from rl_teacher.web.schemas.shared import finite
from rl_teacher.web.serializers import serialize_clip

SomeSummary = TypeVar("SomeSummary", bound=ExperimentSummary)

SPARKLINE_POINTS = 40
SPARKLINE_METRICS = ("true_return", "predicted_return", "beats_untrained")
"""Metrics of a sparkline, in order of preference."""

LOST_AFTER = timedelta(seconds=8)
"""A run has a heartbeat every two seconds; after this time without one it was killed."""

IDLE_AFTER = timedelta(seconds=15)
"""A wrapper has no heartbeat and reports about once a second while it is stepped."""

STALLED_AFTER = timedelta(minutes=5)
"""The loop of a run reports after each rollout, update and fit."""

CLOCK_TOLERANCE = timedelta(minutes=1)
"""Difference of the clocks of two machines."""

LOST_MESSAGE = (
    "The process of the run does not respond: it has ended or its machine is suspended. Repeat its "
    "rl-teacher command to continue."
)

STALLED_MESSAGE = (
    "The process of the run is alive, but has completed no step of its loop for minutes: it is "
    "busy with a long rollout or fit, or its environment hangs. If it does not continue, kill it "
    "and repeat its rl-teacher command."
)

IDLE_MESSAGE = (
    "The program that trains this agent has not stepped its environment for a while: it is busy "
    "with something else, or has ended. If it has ended, run it again to continue from the last "
    "checkpoint."
)

SILENT_MESSAGES = {Phase.LOST: LOST_MESSAGE, Phase.IDLE: IDLE_MESSAGE}
"""Messages of runs that do not report any more."""

FAILED_MESSAGE = (
    "The run has failed; all labels are kept. The next comparisons come when its owner has "
    "continued it."
)
"""Message for labelers, who do not see the error."""


class ExperimentViews:
    """Reads experiments from the store; caches their sparklines.

    Attributes:
        now: Wall clock.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self.now = now
        self._sparklines: dict[int, tuple[int, list[float]]] = {}

    def find(self, name: str) -> ExperimentView:
        """Return the experiment with this name.

        Raises:
            ExperimentNotFound, BadExperimentName.
        """
        return self._store.experiments.get(validate_name(name))

    def find_for(self, name: str, identity: Identity) -> ExperimentView:
        """Return the experiment with this name, unless it is archived and the user no owner.

        Raises:
            ExperimentNotFound, BadExperimentName.
        """
        view = self.find(name)
        if view.archived_at is not None and not is_owner(identity):
            raise experiment_not_found(view.name)
        return view

    def summary(self, view: ExperimentView, labeler: str | None) -> ExperimentSummary:
        """Return the summary of an experiment; `mine` is 0 without a labeler."""
        status = view.status or {}
        phase = self.phase(view)
        reported = str(status.get("message") or phase.value)
        num_missing, waiting_since = awaited(view, phase)
        sparkline, wall_s = self._curve(view.id)
        if labeler is None:
            progress = self._progress(view)
        else:
            progress = self.progress(view, [labeler])[labeler]
        return ExperimentSummary(
            name=view.name,
            env_id=view.env_id,
            phase=phase,
            message=self.silent_message(view, phase) or reported,
            step=status.get("step", 0),
            num_steps=status.get("num_steps", 0),
            steps_per_second=status.get("steps_per_second"),
            progress=progress,
            sparkline=sparkline,
            instructions=view.instructions,
            updated_at=view.status_at or view.created_at,
            is_running=self.is_running(view),
            is_archived=view.archived_at is not None,
            num_missing=num_missing,
            waiting_since=waiting_since,
            warnings=[
                LabelWarning(kind=kind, text=text)
                for kind, text in status.get("problems", {}).items()
                if not (kind in BY_REWARD and view.instructions)
            ],
            is_extendable=phase is Phase.FINISHED
            and bool(status.get("is_extendable"))
            and not self.is_silent(view),
            num_fits=status.get("num_fits", 0),
            beats_untrained=bool(status.get("beats_untrained")),
            asks_people="human" in (view.config.get("predictor"), view.config.get("teacher")),
            agent=view.config.get("agent"),
            seed=view.config.get("seed"),
            wall_s=wall_s,
            tags=list(view.tags or ()),
            first_episode=self._episode(view.first_episode),
            latest_episode=self._episode(view.latest_episode),
        )

    def detail(self, view: ExperimentView, labeler: str) -> ExperimentDetail:
        """Return an experiment with its configuration and latest metrics."""
        latest = self._store.metrics.latest(view.id)
        return ExperimentDetail(
            **dict(self.summary(view, labeler)),
            config=dict(view.config),
            metrics={} if latest is None else {"step": latest.step, **latest.row},
        )

    def progress(self, view: ExperimentView, labelers: Collection[str]) -> dict[str, Progress]:
        """Return the labelling progress of each labeler."""
        progress = self._progress(view)
        mine = self._store.labels.count_by_experiment(labelers)
        return {each: with_mine(progress, mine.get((view.id, each), 0)) for each in labelers}

    def _progress(self, view: ExperimentView) -> Progress:
        phase = self.phase(view)
        return Progress(
            mine=0,
            answered=view.answered,
            asked=view.asked,
            target=label_target(view),
            # The open comparisons of a finished run are not asked, since it ignores the answers.
            waiting=0 if phase in (Phase.FINISHING, Phase.FINISHED) else view.waiting,
            clips=self._clips(view),
            newest_label=self._store.labels.newest_id(view.id),
        )

    def _clips(self, view: ExperimentView) -> ClipProgress | None:
        """Count the clips of an experiment that sorts them."""
        if view.config.get("queries", "pairs") == "pairs":
            return None
        num_clips = self._store.comparisons.num_clips(view.id)
        return ClipProgress(compared=num_clips, target=view.config.get("n_clips"))

    def episodes(self, view: ExperimentView) -> list[Episode]:
        """Return the kept episodes of earlier agents, oldest first; without those not shown."""
        kept = map(self._episode, self._store.episodes.all(view.id))
        return [episode for episode in kept if episode is not None]

    def phase(self, view: ExperimentView) -> Phase:
        """Return the phase of the run; LOST or IDLE if it does not report any more."""
        phase = reported_phase(view.status)
        if phase not in ENDED and (self.is_silent(view) or self._is_stalled(view)):
            return Phase.IDLE if is_of_wrapper(view) else Phase.LOST
        return phase

    def is_running(self, view: ExperimentView) -> bool:
        """Return whether the training run reports that it is running."""
        return reported_phase(view.status) not in ENDED and not self.is_silent(view)

    def is_silent(self, view: ExperimentView) -> bool:
        """Return whether the process of the training run does not report that it is alive."""
        if is_of_wrapper(view):
            return self._is_past(view.status_at or view.created_at, IDLE_AFTER)
        signs = [each for each in (view.heartbeat_at, view.status_at) if each is not None]
        return all(self._is_past(each, LOST_AFTER) for each in signs or [view.created_at])

    def _is_stalled(self, view: ExperimentView) -> bool:
        """Return whether the loop of the training run has reported nothing for minutes."""
        return view.status_at is not None and self._is_past(view.status_at, STALLED_AFTER)

    def _is_past(self, reported_at: datetime, timeout: timedelta) -> bool:
        """Return whether a report is too old, or was written before the clock was set back."""
        age = self.now() - reported_at
        return age > timeout or age < -CLOCK_TOLERANCE

    def silent_message(self, view: ExperimentView, phase: Phase) -> str | None:
        """Return why a run does not report; None if it does, or has ended."""
        if phase is Phase.LOST and not self.is_silent(view):
            return STALLED_MESSAGE
        return SILENT_MESSAGES.get(phase)

    def _curve(self, experiment_id: int) -> tuple[list[float], float | None]:
        """Return the return curve and the run's seconds, reloaded only if there is a new row."""
        latest = self._store.metrics.latest(experiment_id)
        if latest is None:
            return [], None
        last_id, sparkline = self._sparklines.get(experiment_id, (None, []))
        if last_id != latest.id:
            rows = self._store.metrics.after(experiment_id, at_most=SPARKLINE_POINTS)
            sparkline = sparkline_of([row.row for row in rows])
            self._sparklines[experiment_id] = (latest.id, sparkline)
        return sparkline, finite(latest.row.get("wall_s"))

    def _episode(self, episode: Mapping[str, Any] | None) -> Episode | None:
        """Return an episode; None if its clip cannot be shown."""
        if not episode:
            return None
        try:
            clip = serialize_clip(self._store.clips.get(str(episode.get("clip"))))
        except (MediaNotFound, CorruptClip, NotShown):
            return None
        return Episode(
            clip=clip,
            predicted_rewards=episode.get("predicted_rewards"),
            predicted_return=episode.get("predicted_return"),
            true_return=episode.get("true_return"),
            step=episode.get("step", 0),
        )


def with_mine(progress: Progress, mine: int) -> Progress:
    """Return the progress of a labeler who has labelled so many comparisons."""
    return progress.model_copy(update={"mine": mine})


def label_target(view: ExperimentView) -> int | None:
    """Return how many labels are wanted; None for a run that asks until it is finished."""
    is_data = kind_of(view.config) != RUN
    return view.target_labels or (view.asked if is_data else None)


def awaited(view: ExperimentView, phase: Phase) -> tuple[int, datetime | None]:
    """Return the number of labels that a run waits for, and since when; (0, None) if it does not.

    The last status stays stored, so that a run that was lost while it waited still has both.
    """
    if phase is not Phase.WAITING:
        return 0, None
    status = view.status or {}
    return status.get("num_missing", 0), moment(status.get("waiting_since"))


def redact_for_labelers(summary: SomeSummary) -> SomeSummary:
    """Remove everything that would bias labelers: returns, predicted rewards and metrics."""
    unseen: dict[str, Any] = {"sparkline": [], "warnings": [], "tags": []}
    if summary.phase is Phase.FAILED:
        unseen["message"] = FAILED_MESSAGE
    for name in ("first_episode", "latest_episode"):
        episode: Episode | None = getattr(summary, name)
        if episode is not None:
            hidden = {"predicted_rewards": None, "predicted_return": None, "true_return": None}
            unseen[name] = episode.model_copy(update=hidden)
    if isinstance(summary, ExperimentDetail):
        unseen |= {"config": {}, "metrics": {}}
    return summary.model_copy(update=unseen)


def sparkline_of(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the first available return metric, oldest first."""
    for name in SPARKLINE_METRICS:
        values = [value for row in rows if (value := finite(row.get(name))) is not None]
        if values:
            return values
    return []


def metrics_entry(row: MetricsRow) -> MetricsEntry:
    """Convert a stored row of metrics."""
    return MetricsEntry(**{**row.row, "id": row.id, "step": row.step})


def moment(value: Any) -> datetime | None:
    """Parse a time in ISO format; None if there is none."""
    return datetime.fromisoformat(value) if isinstance(value, str) else None
