"""Metrics of the experiments for Prometheus."""

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from rl_teacher.store.records import ExperimentView
from rl_teacher.web.experiment_views import ExperimentViews, awaited

GAUGES = {
    "running": "1 while the trainer reports that it is running.",
    "steps": "Environment steps of training.",
    "answered_comparisons": "Comparisons with an answer.",
    "open_comparisons": "Comparisons that wait for an answer.",
    "missing_labels": "Labels that training waits for.",
    "waiting_seconds": "Time for which training has waited for labels.",
}
"""Metrics of every experiment, with their descriptions."""


def exposition(experiments: list[ExperimentView], views: ExperimentViews) -> bytes:
    """Return the metrics of experiments in Prometheus' text format.

    Args:
        experiments: All experiments.
        views: Their phases, and the time.
    """
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"rl_teacher_experiment_{name}", text, ["experiment"], registry=registry)
        for name, text in GAUGES.items()
    }
    for view in experiments:
        num_missing, waiting_since = awaited(view, views.phase(view))
        waited = 0.0 if waiting_since is None else (views.now() - waiting_since).total_seconds()
        values = {
            "running": views.is_running(view),
            "steps": (view.status or {}).get("step", 0),
            "answered_comparisons": view.answered,
            "open_comparisons": view.waiting,
            "missing_labels": num_missing,
            "waiting_seconds": max(0.0, waited),
        }
        for name, value in values.items():
            gauges[name].labels(view.name).set(value)
    return generate_latest(registry)
