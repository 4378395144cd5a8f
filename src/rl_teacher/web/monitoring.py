"""Metrics of the service and its experiments for Prometheus."""

from datetime import datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from rl_teacher.runs.status import reported_phase
from rl_teacher.store.records import ExperimentView
from rl_teacher.web.experiment_views import ExperimentViews, awaited, whole

GAUGES = {
    "running": "1 while the trainer reports that it is running.",
    "steps": "Environment steps of training.",
    "comparisons": "Comparisons asked.",
    "answered_comparisons": "Comparisons with an answer.",
    "open_comparisons": "Comparisons that wait for an answer.",
    "missing_labels": "Labels that training waits for.",
    "waiting_seconds": "Time for which training has waited for labels.",
    "heartbeat_age_seconds": "Time since the trainer reported that it is alive.",
}
"""Metrics of every experiment, with their descriptions."""


def exposition(
    requests: CollectorRegistry, experiments: list[ExperimentView], views: ExperimentViews
) -> bytes:
    """Return all metrics in Prometheus' text format.

    Args:
        requests: Metrics of the requests.
        experiments: All experiments.
        views: Their phases, and the time.
    """
    registry = CollectorRegistry()
    about_service = Gauge("rl_teacher_info", "Version.", ["version"], registry=registry)
    about_service.labels(version("rl-teacher")).set(1)
    about = Gauge(
        "rl_teacher_experiment_info",
        "Environment and phase of an experiment.",
        ["experiment", "environment", "phase", "reported_phase"],
        registry=registry,
    )
    gauges = {
        name: Gauge(f"rl_teacher_experiment_{name}", text, ["experiment"], registry=registry)
        for name, text in GAUGES.items()
    }
    now = views.now()
    for view in experiments:
        phase = views.phase(view)
        num_missing, waiting_since = awaited(view, phase)
        about.labels(view.name, view.env_id, phase.value, reported_phase(view.status).value).set(1)
        values = {
            "running": views.is_running(view),
            "steps": whole((view.status or {}).get("step")),
            "comparisons": view.asked,
            "answered_comparisons": view.answered,
            "open_comparisons": view.waiting,
            "missing_labels": num_missing,
            "waiting_seconds": age_s(waiting_since or now, now),
            "heartbeat_age_seconds": age_s(
                view.heartbeat_at or view.status_at or view.created_at, now
            ),
        }
        for name, value in values.items():
            gauges[name].labels(view.name).set(value)
    return generate_latest(requests) + generate_latest(registry)


def age_s(moment: datetime, now: datetime) -> float:
    """Return the seconds since a time; 0 if it is in the future, after a change of the clock."""
    return max(0.0, (now - moment).total_seconds())
