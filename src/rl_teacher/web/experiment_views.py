"""Experiment summaries and details, assembled from the store."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from rl_teacher.common.errors import CorruptClip, MediaNotFound
from rl_teacher.runs.folder import validate_name
from rl_teacher.store.records import ExperimentView, MetricsRow
from rl_teacher.store.store import Store
from rl_teacher.web import messages
from rl_teacher.web.problems import ProblemError
from rl_teacher.web.schemas.experiments import (
    Episode,
    ExperimentDetail,
    ExperimentSummary,
    MetricsEntry,
    Phase,
    Progress,
)
from rl_teacher.web.serializers import serialize_clip

SomeSummary = TypeVar("SomeSummary", bound=ExperimentSummary)

SPARK_POINTS = 40
SPARK_FIGURES = ("true_return", "predicted_return")
"""Metrics of a sparkline, in order of preference."""


class ExperimentViews:
    """Reads experiments from the store and caches their sparklines."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._sparks: dict[int, tuple[int, list[float]]] = {}

    def find(self, name: str) -> ExperimentView:
        """Return the experiment with this name.

        Raises:
            ExperimentNotFound, BadExperimentName.
        """
        return self._store.experiments.get(validate_name(name))

    def summary(self, view: ExperimentView, labeler: str | None) -> ExperimentSummary:
        """Return the summary of an experiment; `mine` is 0 without a labeler."""
        return ExperimentSummary(
            **self._summary_fields(view, labeler, self._store.metrics.latest(view.id))
        )

    def detail(self, view: ExperimentView, labeler: str) -> ExperimentDetail:
        """Return an experiment with its configuration and latest metrics."""
        latest = self._store.metrics.latest(view.id)
        facts = self._summary_fields(view, labeler, latest)
        metrics = {} if latest is None else {"step": latest.step, **finite_metrics(latest)}
        return ExperimentDetail(**facts, config=dict(view.config), metrics=metrics)

    def progress(self, view: ExperimentView, labeler: str | None) -> Progress:
        """Return the labelling progress."""
        return Progress(
            mine=0 if labeler is None else self.mine(view, labeler),
            answered=view.answered,
            asked=view.asked,
            target=view.target_labels,
            waiting=view.waiting,
            message=messages.progress_message(view, self.phase(view)),
        )

    def mine(self, view: ExperimentView, labeler: str) -> int:
        """Return the number of comparisons that a labeler has labelled."""
        return self._store.labels.count_of_labeler(view.id, labeler)

    def phase(self, view: ExperimentView) -> Phase:
        """Return the current phase of the training run."""
        return messages.phase_of(view, self._now())

    def _summary_fields(
        self, view: ExperimentView, labeler: str | None, latest: MetricsRow | None
    ) -> dict[str, Any]:
        status = view.status or {}
        phase = self.phase(view)
        return {
            "name": view.name,
            "env_id": view.env_id,
            "phase": phase,
            "message": messages.status_message(view, phase),
            "step": whole(status.get("step")),
            "num_steps": whole(status.get("num_steps")),
            "steps_per_second": finite(status.get("steps_per_second")),
            "progress": self.progress(view, labeler),
            "sparkline": self._sparkline(view.id, latest),
            "instructions": view.instructions,
            "updated_at": view.status_at or view.created_at,
            "is_running": phase not in messages.NOT_RUNNING,
            "num_missing": whole(status.get("num_missing")) if phase is Phase.WAITING else 0,
            "warnings": [str(each) for each in status.get("warnings") or ()],
            "is_extendable": phase is Phase.FINISHED
            and bool(status.get("is_extendable"))
            and not messages.is_silent(view, self._now()),
            "first_episode": self._episode(view.first_episode),
            "latest_episode": self._episode(view.latest_episode),
        }

    def _sparkline(self, experiment_id: int, latest: MetricsRow | None) -> list[float]:
        """Return the return curve, reloaded only if there is a new row."""
        if latest is None:
            return []
        known = self._sparks.get(experiment_id)
        if known is not None and known[0] == latest.id:
            return known[1]
        rows = self._store.metrics.after(experiment_id, at_most=SPARK_POINTS)
        spark = spark_of([row.row for row in rows])
        self._sparks[experiment_id] = (latest.id, spark)
        return spark

    def _episode(self, episode: Mapping[str, Any] | None) -> Episode | None:
        """Return the latest episode; None if its clip cannot be shown."""
        if not episode:
            return None
        try:
            clip = serialize_clip(self._store.clips.get(str(episode.get("clip"))))
        except (MediaNotFound, CorruptClip, ProblemError):
            return None
        rewards = episode.get("predicted_rewards")
        return Episode(
            clip=clip,
            predicted_rewards=[rounded(each) for each in rewards]
            if isinstance(rewards, list)
            else None,
            true_return=finite(episode.get("true_return")),
            step=whole(episode.get("step")),
        )


def redact_for_labelers(summary: SomeSummary) -> SomeSummary:
    """Remove everything that would bias labelers: returns, predicted rewards and metrics."""
    unseen: dict[str, Any] = {"sparkline": [], "warnings": []}
    for name in ("first_episode", "latest_episode"):
        episode: Episode | None = getattr(summary, name)
        if episode is not None:
            hidden = {"predicted_rewards": None, "true_return": None}
            unseen[name] = episode.model_copy(update=hidden)
    if isinstance(summary, ExperimentDetail):
        unseen |= {"config": {}, "metrics": {}}
    return summary.model_copy(update=unseen)


def spark_of(rows: list[Mapping[str, Any]]) -> list[float]:
    """Return the first available return metric, oldest first."""
    for name in SPARK_FIGURES:
        values = [finite(row.get(name)) for row in rows]
        present = [value for value in values if value is not None]
        if present:
            return present
    return []


def metrics_entry(row: MetricsRow) -> MetricsEntry:
    """Convert a stored row of metrics."""
    metrics = {
        key: value for key, value in finite_metrics(row).items() if key not in ("id", "step")
    }
    return MetricsEntry(id=row.id, step=row.step, **metrics)


def finite_metrics(row: MetricsRow) -> dict[str, Any]:
    """Return the metrics of a row with non-finite numbers replaced by None."""
    return {key: finite(value) if is_number(value) else value for key, value in row.row.items()}


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite(value: Any) -> Any:
    """Return a finite number, or None."""
    return value if is_number(value) and math.isfinite(value) else None


def rounded(value: Any) -> float | None:
    """Round to four decimals."""
    number = finite(value)
    return None if number is None else round(number, 4)


def whole(value: Any) -> int:
    """Convert to an integer; 0 if missing."""
    number = finite(value)
    return 0 if number is None else int(number)
