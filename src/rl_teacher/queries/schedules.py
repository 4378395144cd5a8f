"""How many comparisons may have been asked by step t.

N: labels over the whole run, P: labels before training, T: environment steps of the run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rl_teacher.common.errors import UnknownName


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        step: environment steps of training so far.
        seconds: since training began.
    """

    step: int
    seconds: float


@dataclass(frozen=True)
class Budget:
    """What a schedule spreads.

    Attributes:
        total: N labels over the whole run, or None when there is no end.
        pretraining: P labels before training.
        num_steps: T environment steps of the run.
        seconds_between: of the constant schedule, where a person answers; 0 goes by steps.
        steps_between: of the constant schedule, where nobody has to be waited for.
        due_before: of the constant schedule: comparisons due when its rate was changed last; None:
            it never was.
        changed_at_s: seconds of training at that moment.
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
    """Ever slower: P + (N - P) (1 - 0.01^(t/T)) / 0.99.

    Source: rl-teacher's LabelAnnealer, scaled to reach N at step T; that one ends at 99 % of N - P.
    N=1400, P=350 gives 742 after a tenth of the run, where that one gives 737.

    Note: rounded up, so that the last one is asked while there is still something to learn it for.
    """
    later = (budget.total or 0) - budget.pretraining
    share = (1 - 0.01 ** (progress.step / budget.num_steps)) / (1 - 0.01)
    return math.ceil(budget.pretraining + later * min(share, 1.0))


def hyperbolic(budget: Budget, progress: Progress) -> int:
    """At a rate in proportion to T0 / (t + T0); T0 is two million steps, for Atari five.

    Source: Christiano et al. 2017, appendix A; its integral, scaled to reach N at step T.
    """
    later = (budget.total or 0) - budget.pretraining
    share = math.log1p(progress.step / budget.hyperbolic_steps)
    whole = math.log1p(budget.num_steps / budget.hyperbolic_steps)
    return math.floor(budget.pretraining + later * min(share / whole, 1.0))


def constant(budget: Budget, progress: Progress) -> int:
    """At a constant rate: by the clock where a person answers, by steps otherwise."""
    if budget.seconds_between > 0:
        before = budget.pretraining if budget.due_before is None else budget.due_before
        asked = before + int((progress.seconds - budget.changed_at_s) / budget.seconds_between)
    else:
        asked = budget.pretraining + progress.step // budget.steps_between
    return asked if budget.total is None else min(asked, budget.total)


def at_another_rate(budget: Budget, seconds_between: float, progress: Progress) -> Budget:
    """From now on one comparison every so many seconds; what was due until now stays due."""
    return replace(
        budget,
        seconds_between=seconds_between,
        due_before=constant(budget, progress),
        changed_at_s=progress.seconds,
    )


def upfront(budget: Budget, progress: Progress) -> int:  # noqa: ARG001
    """Everything before training."""
    return budget.pretraining if budget.total is None else budget.total


SCHEDULES: dict[str, Schedule] = {
    "annealed": annealed,
    "hyperbolic": hyperbolic,
    "constant": constant,
    "upfront": upfront,
}


def schedule(name: str) -> Schedule:
    """The schedule of this name.

    Raises:
        UnknownName: there is none.
    """
    if name not in SCHEDULES:
        raise UnknownName("label schedule", name, SCHEDULES)
    return SCHEDULES[name]
