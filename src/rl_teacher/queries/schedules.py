"""Label schedules: the number of comparisons that may have been asked by step t.

N: labels over the whole run, P: labels before training, T: environment steps of the run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rl_teacher.common.errors import UnknownName


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        step: environment steps of training so far.
        seconds: duration of training so far.
    """

    step: int
    seconds: float


@dataclass(frozen=True)
class Budget:
    """Parameters of a schedule.

    Attributes:
        total: N labels over the whole run, or None without a limit.
        pretraining: P labels before training.
        num_steps: T environment steps of the run.
        seconds_between: time between comparisons of the constant schedule; 0 counts steps instead.
        steps_between: steps between comparisons of the constant schedule.
        due_before: comparisons due when the rate of the constant schedule was last changed; None
            if it never was.
        changed_at_s: seconds of training at that change.
        hyperbolic_steps: T0 of the hyperbolic schedule.
    """

    total: int | None
    pretraining: int
    num_steps: int
    seconds_between: float = 3.0
    steps_between: int = 2_000
    due_before: int | None = None
    changed_at_s: float = 0.0
    hyperbolic_steps: int = 2_000_000


Schedule = Callable[[Budget, Progress], int]


def annealed(budget: Budget, progress: Progress) -> int:
    """Ask at a falling rate: P + (N - P) (1 - 0.01^(t/T)) / 0.99.

    Source: rl-teacher's LabelAnnealer, scaled to reach N at step T; the original ends at 99 % of
    N - P. N=1400, P=350 gives 742 after a tenth of the run, the original 737.
    """
    remaining = (budget.total or 0) - budget.pretraining
    share = (1 - 0.01 ** (progress.step / budget.num_steps)) / (1 - 0.01)
    # Rounded up, so that the last label is asked while there are steps left to learn from it.
    return math.ceil(budget.pretraining + remaining * min(share, 1.0))


def hyperbolic(budget: Budget, progress: Progress) -> int:
    """Ask at a rate proportional to T0 / (t + T0); T0 is 2 million steps, for Atari 5 million.

    Source: Christiano et al. 2017, appendix A; the integral of the rate, scaled to reach N at T.
    """
    remaining = (budget.total or 0) - budget.pretraining
    share = math.log1p(progress.step / budget.hyperbolic_steps)
    whole = math.log1p(budget.num_steps / budget.hyperbolic_steps)
    return math.floor(budget.pretraining + remaining * min(share / whole, 1.0))


def constant(budget: Budget, progress: Progress) -> int:
    """Ask at a constant rate: per second if a person answers, per step otherwise."""
    if budget.seconds_between > 0:
        before = budget.pretraining if budget.due_before is None else budget.due_before
        asked = before + int((progress.seconds - budget.changed_at_s) / budget.seconds_between)
    else:
        asked = budget.pretraining + progress.step // budget.steps_between
    return asked if budget.total is None else min(asked, budget.total)


def change_rate(budget: Budget, seconds_between: float, progress: Progress) -> Budget:
    """Change the rate of the constant schedule; comparisons due by now stay due."""
    return replace(
        budget,
        seconds_between=seconds_between,
        due_before=constant(budget, progress),
        changed_at_s=progress.seconds,
    )


def upfront(budget: Budget, progress: Progress) -> int:  # noqa: ARG001
    """Ask everything before training."""
    return budget.pretraining if budget.total is None else budget.total


SCHEDULES: dict[str, Schedule] = {
    "annealed": annealed,
    "hyperbolic": hyperbolic,
    "constant": constant,
    "upfront": upfront,
}


def schedule(name: str) -> Schedule:
    """Return the schedule of a name.

    Raises:
        UnknownName: no schedule has this name.
    """
    if name not in SCHEDULES:
        raise UnknownName("label schedule", name, SCHEDULES)
    return SCHEDULES[name]
