"""Query planning: how many comparisons to ask, and when."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
from pydantic import TypeAdapter

from rl_teacher.common.state_dict import StateDict, array_to_text, text_to_array
from rl_teacher.config.experiment import last_step
from rl_teacher.plan import LabelPlan
from rl_teacher.queries.queue import QueryQueue
from rl_teacher.queries.schedules import (
    Budget,
    Progress,
    Schedule,
    change_rate,
    change_steps,
    schedule,
)

MAX_QUERIES_PER_ROLLOUT = 50
"""Comparisons asked after one rollout of training, if a synthetic teacher answers."""
MAX_WAITING = 20
"""Comparisons that wait for a person during training, at most: about a minute's work, so that one
who returns after an hour compares recent behaviour."""
LEAD = 5
"""Comparisons asked ahead of the schedule in a run paced by labels, so that a person always has one
to answer while the predictor is fitted and the agent trains."""


class QueryPlanner:
    """Follows the label schedule, and the owner who may change it.

    Attributes:
        budget: current parameters of the schedule.
        num_due: comparisons due at the last call of `num_to_ask`.
    """

    def __init__(self, labels: LabelPlan, queue: QueryQueue) -> None:
        """Initialise.

        Args:
            labels: labels that the run asks for.
            queue: comparisons asked so far.
        """
        self.budget = self._own = Budget(
            total=labels.total,
            pretraining=labels.first,
            num_steps=labels.num_steps,
            seconds_between=labels.seconds_between,
            steps_between=labels.steps_between,
            hyperbolic_steps=labels.hyperbolic_steps,
            fraction=labels.fraction,
        )
        self.num_due = 0
        chosen = labels.schedule
        self._schedule: Schedule = chosen if callable(chosen) else schedule(chosen)
        self._max_waiting = MAX_WAITING if labels.is_person else None
        self._lead = LEAD if labels.is_paced else 0
        self._follows_labeler = labels.follows_labeler
        self._queue = queue
        self._num_answered = queue.num_answered

    def follow(
        self,
        progress: Progress,
        seconds_between: float | None = None,
        total: int | None = None,
        num_steps: int = 0,
    ) -> None:
        """Follow what the owner has given, and the run's own settings otherwise.

        A run without labels to ask for stays one: it has no teacher who could answer.

        Args:
            progress: of the run; the constant schedule continues from here at a new rate, and every
                schedule starts over from here if the steps change.
            seconds_between: time between two comparisons of the constant schedule.
            total: labels over the whole run, those asked so far included.
            num_steps: environment steps of the whole run; 0 if they are not known.
        """
        own, budget = self._own, self.budget
        if own.total == 0:
            return
        seconds = own.seconds_between if seconds_between is None else seconds_between
        total = own.total if total is None else total
        if num_steps not in (0, budget.num_steps):
            budget = change_steps(budget, num_steps, self._queue.num_asked, progress)
        if seconds != budget.seconds_between:
            budget = change_rate(budget, seconds, progress)
        # The run waits for the labels before training.
        first = budget.pretraining if progress.is_training else own.pretraining
        first = first if total is None else min(first, total)
        self.budget = replace(budget, total=total, pretraining=first)

    @property
    def has_all_answers(self) -> bool:
        """True if all labels of the run are given."""
        return self.budget.total is not None and self._queue.num_answered >= self.budget.total

    def last_step(self, step: int) -> int | None:
        """Return the step at which the run ends; None as long as its labels do not determine it.

        Args:
            step: environment steps so far.
        """
        total = self.budget.total
        if not self._follows_labeler or not total or not self.has_all_answers:
            return None
        return last_step(step, total)

    def num_labels_due(self, progress: Progress) -> int:
        """Return how many labels the schedule wants by now."""
        due, total = self._schedule(self.budget, progress), self.budget.total
        return due if total is None else min(due, total)

    def num_missing(self, progress: Progress) -> int:
        """Return how many of the labels that are due by now have not been given.

        Comparisons that could not be asked yet are not waited for.
        """
        missing = self.num_labels_due(progress) - self._queue.num_answered
        return min(missing, self._queue.num_waiting)

    def num_to_ask(self, progress: Progress, *, num_for_fit: int = 1) -> int:
        """Return how many comparisons to ask now; 0 or less for none.

        Args:
            progress: of the run.
            num_for_fit: further labels for which the next fit is due.
        """
        if not progress.is_training:
            self.budget = replace(self.budget, first_step=progress.step)
        self.num_due = due = self.num_labels_due(progress)
        answered = self._queue.num_answered
        # Nobody who answers faster than the agent trains is kept waiting, unless the owner sets a
        # pace. Until the next call, about as many are answered as since the last one.
        if self._follows_labeler and not self.budget.seconds_between:
            due = max(due, 2 * answered - self._num_answered)
        self._num_answered = answered
        ahead = due + self._lead
        total = self.budget.total
        num = (ahead if total is None else min(ahead, total)) - self._queue.num_asked
        # Training waits for the pretraining labels, so all of them are asked at once.
        if not progress.is_training:
            return num
        if self._max_waiting is not None:
            return min(num, self._max_waiting - self._queue.num_waiting)
        # A synthetic teacher answers at once. Asked just before the fit, it compares what the agent
        # does by then, and the store takes one batch instead of many single comparisons.
        is_last = total is not None and self.num_due >= total
        return min(num, MAX_QUERIES_PER_ROLLOUT) if num >= num_for_fit or is_last else 0

    def state(self) -> StateDict:
        """Return everything needed to resume exactly."""
        return {
            "budget": text_to_array(json.dumps(asdict(self.budget))),
            "num_due": np.asarray(self.num_due),
            "num_answered": np.asarray(self._num_answered),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state.

        Raises:
            ValueError: a parameter of the schedule is missing or of another type.
        """
        budget = array_to_text(state["budget"])
        self.budget = TypeAdapter(Budget).validate_json(budget, strict=True)
        self.num_due = int(state["num_due"])
        self._num_answered = int(state["num_answered"])
