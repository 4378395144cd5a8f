"""Metrics of the service in Prometheus' text format."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib.metadata import version

from rl_teacher.runs.status import reported_phase
from rl_teacher.store.records import ExperimentView
from rl_teacher.web.experiment_views import ExperimentViews, awaited, whole
from rl_teacher.web.shared_state import SharedState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(
    shared: SharedState, experiments: Iterable[ExperimentView], views: ExperimentViews
) -> str:
    """Return all metrics in Prometheus' text format, version 0.0.4."""
    now = views.now()
    values: dict[str, list[tuple[dict[str, str], float]]] = {name: [] for name in GAUGES}
    for view in experiments:
        phase = views.phase(view)
        num_missing, waiting_since = awaited(view, phase)
        of_experiment = {
            "experiment_info": 1,
            "experiment_running": int(views.is_running(view)),
            "experiment_steps": whole((view.status or {}).get("step")),
            "experiment_comparisons": view.asked,
            "experiment_answered_comparisons": view.answered,
            "experiment_open_comparisons": view.waiting,
            "experiment_missing_labels": num_missing,
            "experiment_waiting_seconds": age_s(waiting_since or now, now),
            "experiment_heartbeat_age_seconds": age_s(
                view.heartbeat_at or view.status_at or view.created_at, now
            ),
        }
        for name, value in of_experiment.items():
            labels = {"experiment": view.name}
            if name == "experiment_info":
                labels |= {"environment": view.env_id, "phase": phase.value}
                labels["reported_phase"] = reported_phase(view.status).value
            values[name].append((labels, value))
    lines = metric(
        "rl_teacher_info", "gauge", "Version.", [({"version": version("rl-teacher")}, 1)]
    )
    lines += request_lines(shared)
    for name, description in GAUGES.items():
        lines += metric(f"rl_teacher_{name}", "gauge", description, values[name])
    return "\n".join(lines) + "\n"


def age_s(moment: datetime, now: datetime) -> float:
    """Return the seconds since a time; 0 if it is in the future, after a change of the clock."""
    return max(0.0, (now - moment).total_seconds())


def request_lines(shared: SharedState) -> list[str]:
    """Return numbers and durations of the requests of all processes."""
    requests = shared.requests()
    by_status = [({"status": str(status)}, num) for status, num, _ in requests]
    total_s = sum(each_s for _, _, each_s in requests)
    name = "rl_teacher_requests_total"
    return [
        *metric(name, "counter", "Requests, by status; 0: disconnected.", by_status),
        *metric(
            "rl_teacher_request_seconds_total",
            "counter",
            "Total duration of all requests.",
            [({}, total_s)],
        ),
    ]


GAUGES = {
    "experiment_info": "Environment and phase of an experiment.",
    "experiment_running": "1 while the trainer reports that it is running.",
    "experiment_steps": "Environment steps of training.",
    "experiment_comparisons": "Comparisons asked.",
    "experiment_answered_comparisons": "Comparisons with an answer.",
    "experiment_open_comparisons": "Comparisons that wait for an answer.",
    "experiment_missing_labels": "Labels that training waits for.",
    "experiment_waiting_seconds": "Time for which training has waited for labels.",
    "experiment_heartbeat_age_seconds": "Time since the trainer reported that it is alive.",
}
"""Metrics of every experiment, with their descriptions."""


def metric(
    name: str, kind: str, description: str, values: Iterable[tuple[Mapping[str, str], float]]
) -> list[str]:
    """Return the lines of one metric: description, type and values with their labels."""
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    for labels, value in values:
        text = ",".join(f'{key}="{each.translate(ESCAPES)}"' for key, each in labels.items())
        lines.append(f"{name}{f'{{{text}}}' if text else ''} {value:.10g}")
    return lines
