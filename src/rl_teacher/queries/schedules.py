"""Label schedules: the number of comparisons that may have been asked by step t.

N: labels over the whole run, P: labels before training, T: the step by which all are asked. A run
whose steps are changed starts a schedule of its own at step t0, with the P labels asked until then.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rl_teacher.common.errors import UnknownName


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        step: environment steps so far.
        seconds: duration of training so far.
        is_training: False in the exploration before training.
    """

    step: int
    seconds: float
    is_training: bool = True


@dataclass(frozen=True)
class Budget:
    """Parameters of a schedule.

    Attributes:
        total: N labels over the whole run, or None without a limit.
        pretraining: P labels before training, or before the steps were changed.
        num_steps: environment steps of the run.
        seconds_between: time between comparisons of the constant schedule; 0 counts steps instead.
        steps_between: steps between comparisons of the constant schedule.
        due_before: comparisons due when the rate of the constant schedule was last changed; None
            if it never was.
        changed_at_s: seconds of training at that change.
        hyperbolic_steps: T0 of the hyperbolic schedule.
        first_step: t0, the step at which training began, or the steps were changed.
        fraction: fraction of the steps from t0 on within which the annealed and the hyperbolic
            schedule ask all labels.
    """

    total: int | None
    pretraining: int
    num_steps: int
    seconds_between: float = 3.0
    steps_between: int = 2_000
    due_before: int | None = None
    changed_at_s: float = 0.0
    hyperbolic_steps: int = 2_000_000
    first_step: int = 0
    fraction: float = 1.0

    @property
    def last_step(self) -> float:
        """T: the step by which the annealed and the hyperbolic schedule have asked all labels."""
        return self.first_step + self.fraction * (self.num_steps - self.first_step)

    @property
    def remaining(self) -> int:
        """N - P: labels to ask from step t0 on."""
        return (self.total or 0) - self.pretraining


Schedule = Callable[[Budget, Progress], int]


def annealed(budget: Budget, progress: Progress) -> int:
    """Ask at a falling rate: P + (N - P) (1 - 0.01^x) / 0.99, where x = (t - t0) / (T - t0).

    Source: rl-teacher's LabelAnnealer, scaled to reach N at step T; the original ends at 99 % of
    N - P. N=1400, P=350 gives 742 after a tenth of the run, the original 737.
    """
    num_steps = max(budget.last_step - budget.first_step, 1)
    share = (1 - 0.01 ** ((progress.step - budget.first_step) / num_steps)) / (1 - 0.01)
    # Rounded up, so that the last label is asked while there are steps left to learn from it.
    return math.ceil(budget.pretraining + budget.remaining * min(share, 1.0))


def hyperbolic(budget: Budget, progress: Progress) -> int:
    """Ask at a rate proportional to T0 / (t + T0); T0 is 2 million steps, for Atari 5 million.

    Source: Christiano et al. 2017, appendix A; the integral of the rate, scaled to reach N at T.
    """
    # The integral of 1 / (t + T0) from 0 to t is log(1 + t / T0).
    before, now, end = (
        math.log1p(step / budget.hyperbolic_steps)
        for step in (budget.first_step, progress.step, budget.last_step)
    )
    share = min((now - before) / (end - before), 1.0) if end > before else 1.0
    return math.floor(budget.pretraining + budget.remaining * share)


def constant(budget: Budget, progress: Progress) -> int:
    """Ask at a constant rate: per second if a person answers, per step otherwise."""
    if budget.seconds_between > 0:
        before = budget.pretraining if budget.due_before is None else budget.due_before
        # Counted from the last change, so that a new rate does not apply to the time before it.
        asked = before + int((progress.seconds - budget.changed_at_s) / budget.seconds_between)
    else:
        asked = budget.pretraining + (progress.step - budget.first_step) // budget.steps_between
    return asked if budget.total is None else min(asked, budget.total)


def change_rate(budget: Budget, seconds_between: float, progress: Progress) -> Budget:
    """Change the rate of the constant schedule; comparisons due by now stay due."""
    return replace(
        budget,
        seconds_between=seconds_between,
        due_before=constant(budget, progress),
        changed_at_s=progress.seconds,
    )


def change_steps(budget: Budget, num_steps: int, num_asked: int, progress: Progress) -> Budget:
    """Change the steps of the whole run; the schedule starts over from here.

    Args:
        budget: the budget so far.
        num_steps: environment steps of the whole run.
        num_asked: labels asked so far.
        progress: of the run.
    """
    # Before training, P stays the number of pretraining labels: not all may have been asked.
    if budget.total is None or not progress.is_training:
        return replace(budget, num_steps=num_steps)
    return replace(
        budget,
        num_steps=num_steps,
        pretraining=num_asked,
        first_step=progress.step,
        due_before=None,
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
