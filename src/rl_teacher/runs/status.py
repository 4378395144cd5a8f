"""Status of a run, which the trainer writes to the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """Phase of a run.

    The trainer writes every phase but `LOST` and `IDLE`, which readers derive when it is silent:
    `LOST` of a `teach` run, whose heartbeat has stopped or whose loop hangs, and `IDLE` of a
    wrapper, which reports only when its environment is stepped.
    """

    STARTING = "starting"
    RANDOM = "random"
    WAITING = "waiting"
    FITTING = "fitting"
    TRAINING = "training"
    FINISHING = "finishing"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    IDLE = "idle"


ENDED = (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)
"""Phases of a run that has ended."""


@dataclass(frozen=True)
class RunStatus:
    """Status of a run.

    Attributes:
        phase: current phase.
        message: description for the page and the terminal.
        step: environment steps of training done.
        num_steps: environment steps of training in the whole run; 0 if they are not known.
        steps_per_second: None unless the run is training.
        num_missing: labels that the run waits for.
        problems: warnings for the owner by kind: what is wrong, and what helps.
        is_extendable: whether the run has finished and waits to be extended.
        num_fits: completed fits of the reward predictor; their diagnostics are written before.
        beats_untrained: whether the predictor prefers what the agent does to what it did before
            training.
    """

    phase: Phase
    message: str
    step: int
    num_steps: int
    steps_per_second: float | None = None
    num_missing: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)
    is_extendable: bool = False
    num_fits: int = 0
    beats_untrained: bool = False


def reported_phase(status: Mapping[str, Any] | None) -> Phase:
    """Return the phase of a stored status."""
    phase = (status or {}).get("phase")
    return Phase(phase) if phase in list(Phase) else Phase.STARTING
