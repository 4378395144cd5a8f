"""Phase of an experiment and the messages that explain it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from rl_teacher.runs.control import Phase
from rl_teacher.store.records import ExperimentView

LOST_AFTER = timedelta(seconds=15)
"""A run reports about once a second; after this time without a report it was killed or hangs."""

ENDED = (Phase.FINISHED, Phase.STOPPED)
NOT_RUNNING = (*ENDED, Phase.LOST)

LOST_MESSAGE = (
    "Its trainer says nothing any more: it was ended, or its machine sleeps. The same "
    "`rl-teacher teach` command continues it from its last checkpoint."
)


def phase_of(view: ExperimentView, now: datetime) -> Phase:
    """Return the phase of the training run; LOST if it has not reported for `LOST_AFTER`."""
    reported = (view.status or {}).get("phase")
    phase = Phase(reported) if reported in list(Phase) else Phase.STARTING
    return Phase.LOST if is_silent(view, now) and phase not in ENDED else phase


def is_silent(view: ExperimentView, now: datetime) -> bool:
    """Return whether the training run has not reported for `LOST_AFTER`."""
    return now - (view.status_at or view.created_at) > LOST_AFTER


def status_message(view: ExperimentView, phase: Phase) -> str:
    """Return a message that describes the current phase."""
    if phase is Phase.LOST:
        return LOST_MESSAGE
    reported: Mapping[str, Any] = view.status or {}
    return str(reported.get("says") or phase.value)


def progress_message(view: ExperimentView, phase: Phase) -> str:
    """Return how many comparisons are waiting, or why none is and when the next one comes."""
    if view.waiting:
        noun = "comparison waits" if view.waiting == 1 else "comparisons wait"
        return f"{view.waiting} {noun} for an answer."
    if phase is Phase.LOST:
        return f"No comparison waits. {LOST_MESSAGE}"
    if phase is Phase.FINISHED:
        return "The training is finished: nothing more is asked."
    if phase is Phase.STOPPED:
        return (
            "The training was stopped, and saved. The same `rl-teacher teach` command continues "
            "it, and then the next comparison comes."
        )
    if view.target_labels is not None and view.answered >= view.target_labels:
        return f"All {view.target_labels} comparisons are answered: thank you. The agent goes on."
    return NO_COMPARISON_MESSAGES[phase]


NO_COMPARISON_MESSAGES = {
    Phase.STARTING: "The trainer is starting. The first comparisons come in some seconds.",
    Phase.RANDOM: (
        "The agent moves at random, to have something to compare. The first comparisons come in "
        "some seconds."
    ),
    Phase.WAITING: "The next clips are being drawn. They come in some seconds.",
    Phase.FITTING: (
        "The reward predictor is learning from the answers given so far. When the agent trains "
        "again, the next comparisons come."
    ),
    Phase.PAUSED: "The training is paused: nothing more is asked until its owner lets it go on.",
    Phase.TRAINING: (
        "Every comparison is answered. The agent is training, and asks again by its schedule."
    ),
}
