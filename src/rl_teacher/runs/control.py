"""What the experiment's owner wants of a run, as they say on the page, through the store."""

import time
from collections.abc import Callable
from dataclasses import fields, replace

from rl_teacher.config.experiment import RunOptions
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.store import Store

LOOK_EVERY_S = 1.0


class RunControl:
    """Looks into the store for what is wanted now, at most once a second."""

    def __init__(
        self, store: Store, experiment_id: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin: whoever starts a run wants it to go on, whatever was said of the last one.

        Args:
            store: where run_control are.
            experiment_id: whose they are.
            now: seconds, from any start.
        """
        self._store = store
        self._experiment_id = experiment_id
        self._now = now
        self._latest = store.experiments.control(experiment_id)
        if self._latest.state != "run":
            store.experiments.set_control(experiment_id, Control(state="run"))
            self._latest = replace(self._latest, state="run")
        self._looked_s = now()

    def latest(self) -> Control:
        """What was wanted a second ago, or later."""
        if self._now() - self._looked_s >= LOOK_EVERY_S:
            self._latest = self._store.experiments.control(self._experiment_id)
            self._looked_s = self._now()
        return self._latest

    @property
    def is_paused(self) -> bool:
        """Whether nothing shall be done for now."""
        return self.latest().state == "pause"

    def set_study(self, options: RunOptions) -> None:
        """Say who answers what how often; what the options do not say stays as it was."""
        names = [field.name for field in fields(AssignmentPolicy)]
        given = {name: getattr(options, name, None) for name in names}
        changes = {name: value for name, value in given.items() if value is not None}
        before = self._store.experiments.assignment(self._experiment_id)
        study = replace(before, **changes)
        if study != before:
            self._store.experiments.set_assignment(self._experiment_id, study)
