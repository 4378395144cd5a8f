"""Commands of the owner to a run, read from the store."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from rl_teacher.common.errors import BadConfig
from rl_teacher.runs.folder import is_of_wrapper
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.records import Control, ExperimentView
from rl_teacher.store.store import Store

CHECK_EVERY_S = 1.0


class RunControl:
    """Reads the owner's commands from the store, at most once a second."""

    def __init__(
        self, store: Store, experiment_id: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Initialise; starting a run overrides an earlier pause or stop.

        Args:
            store: store of the commands.
            experiment_id: the experiment's id in the store.
            now: clock in seconds, from any start.
        """
        self._store = store
        self._experiment_id = experiment_id
        self._now = now
        self._latest = store.experiments.control(experiment_id)
        if self._latest.state != "run":
            store.experiments.set_control(experiment_id, Control(state="run"))
            self._latest = replace(self._latest, state="run")
        self._checked_s = now()

    def latest(self) -> Control:
        """Return the latest commands, at most a second old."""
        if self._now() - self._checked_s >= CHECK_EVERY_S:
            self._latest = self._store.experiments.control(self._experiment_id)
            self._checked_s = self._now()
        return self._latest

    @property
    def is_paused(self) -> bool:
        """True if the owner paused the run."""
        return self.latest().state == "pause"

    @property
    def is_stopped(self) -> bool:
        """True if the owner stopped the run."""
        return self.latest().state == "stop"

    @property
    def uses_true_reward(self) -> bool:
        """True if the owner switched the agent to the true reward."""
        return self.latest().reward == "true"

    def set_overlap(self, overlap: float) -> None:
        """Store the fraction of comparisons that several labelers answer."""
        before = self._store.experiments.assignment(self._experiment_id)
        policy = replace(before, overlap=overlap)
        if policy != before:
            self._store.experiments.set_assignment(self._experiment_id, policy)


def finish_run(store: Store, name: str, *, by: str = OWNER) -> None:
    """Let a run end with the labels and steps that it has; `teach` extends it again.

    A running trainer uses its last labels and saves within seconds; otherwise the next run does.

    Args:
        store: store of the experiment.
        name: name of the experiment.
        by: name of the owner.

    Raises:
        BadConfig: a program with a wrapper runs the experiment.
        ExperimentNotFound: there is no such experiment.
    """
    experiment = store.experiments.get(name)
    if is_of_wrapper(experiment):
        raise BadConfig(
            f"{name!r} is trained by a program of its own, which decides when it ends. End it "
            "there, or press stop on the page if the program checks is_stop_wanted."
        )
    step = (experiment.status or {}).get("step") or 0
    end = Control(
        "run",
        target_labels=max(experiment.answered, 1) if experiment.asked else None,
        target_steps=None if experiment.config.get("collect_only") else max(step, 1),
    )
    store.experiments.set_control(experiment.id, end, by=by)


def has_two_rewards(experiment: ExperimentView) -> bool:
    """Return whether `teach` trains an agent on predicted rewards, which can be switched off."""
    config = experiment.config
    is_predicted = config.get("predictor") in ("synth", "human")
    starts_fitted = config.get("predictor_path") or config.get("labels")
    return bool((is_predicted or starts_fitted) and not config.get("collect_only"))


def switch_reward(
    store: Store, name: str, reward: Literal["predicted", "true"], *, by: str = OWNER
) -> None:
    """Let the agent of an experiment learn from the predicted or from the true reward.

    A running trainer follows within seconds; otherwise the next run does.

    Args:
        store: store of the experiment.
        name: name of the experiment.
        reward: source of the rewards from now on.
        by: name of the owner.

    Raises:
        BadConfig: the experiment does not learn from predicted rewards.
        ExperimentNotFound: there is no such experiment.
    """
    experiment = store.experiments.get(name)
    if not has_two_rewards(experiment):
        raise BadConfig(
            "Only experiments in which `rl-teacher teach` trains an agent on predicted rewards "
            f"can switch to the true reward and back; {name!r} is not one. Wrappers switch with "
            "switch_to_true_reward() and switch_to_predicted_reward()."
        )
    store.experiments.set_control(experiment.id, Control(reward=reward), by=by)
