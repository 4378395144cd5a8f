"""Status of a run: its phase and progress, as the trainer writes and the web service reads them."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Phase of a run.

    The trainer writes every phase but `LOST`, which readers derive when the trainer is silent.
    """

    STARTING = "starting"
    RANDOM = "random"
    WAITING = "waiting"
    FITTING = "fitting"
    TRAINING = "training"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True)
class RunStatus:
    """Status of a run.

    Attributes:
        phase: current phase.
        says: description for people.
        step: environment steps of training done.
        num_steps: environment steps of training in the whole run.
        steps_per_second: None unless the run is training.
        num_missing: labels that the run waits for.
        warnings: problems with the labels, and what helps.
        is_extendable: whether the run has finished and waits to be extended.
    """

    phase: Phase
    says: str
    step: int
    num_steps: int
    steps_per_second: float | None = None
    num_missing: int = 0
    warnings: tuple[str, ...] = ()
    is_extendable: bool = False
