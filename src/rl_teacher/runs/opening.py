"""An experiment opened for writing: its folder and its entry in the store, both locked."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_teacher.common.errors import ExperimentNotFound, RlTeacherError, StoreUnavailable
from rl_teacher.envs.registry import EnvInfo
from rl_teacher.runs.folder import Experiment, media_url, open_store
from rl_teacher.runs.management import locked_experiment
from rl_teacher.runs.status import ENDED, Phase, reported_phase
from rl_teacher.store.experiment_locks import HeldLock
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.store.waiting import DatabaseWait

MAX_REASON_LENGTH = 1_000
"""Characters of an error that the page shows."""


@dataclass(frozen=True)
class ExperimentSpec:
    """Identity of an experiment and what its page shows.

    Attributes:
        name: name of the experiment.
        env_info: the environment.
        config: settings that must not change when the experiment is resumed, as JSON.
        asks_a_person: whether a person labels; their answers are synced to disk.
        max_labels: labels wanted in all; None without a limit.
        instructions: instructions for labelers; empty keeps the stored ones.
        force_new: delete an existing experiment of this name.
    """

    name: str
    env_info: EnvInfo
    config: Mapping[str, Any]
    asks_a_person: bool
    max_labels: int | None = None
    instructions: str = ""
    force_new: bool = False


@dataclass(frozen=True)
class OpenExperiment:
    """An experiment opened for writing: its folder, which is locked, and its store entry.

    Attributes:
        spec: identity of the experiment.
        folder: checkpoints, metrics and plots.
        store: comparisons, labels and status.
        id: the experiment's id in the store.
        lock: the experiment's lock in the store.
        wait: repeats transactions of the store while the database does not answer.
    """

    spec: ExperimentSpec
    folder: Experiment
    store: Store
    id: int
    lock: HeldLock
    wait: DatabaseWait

    @property
    def media(self) -> MediaFiles:
        """Storage of rendered clips."""
        return MediaFiles(media_url())


@contextlib.contextmanager
def open_experiment(spec: ExperimentSpec) -> Iterator[OpenExperiment]:
    """Open or create an experiment's folder and store entry; close them afterwards.

    Raises:
        RlTeacherError: the name or the folder cannot be used, the experiment is in use, or it
            exists with another configuration.
    """
    MediaFiles(media_url()).check()
    with contextlib.ExitStack() as stack:
        # Without syncing, a power cut may lose synthetic answers; they are computed again.
        wait = DatabaseWait()
        store = stack.enter_context(open_store(is_synced=spec.asks_a_person, wait=wait))
        folder, lock = stack.enter_context(
            locked_experiment(store, spec.name, spec.config, force_new=spec.force_new)
        )
        experiment_id = store.experiments.ensure(folder.name, spec.env_info.id, dict(spec.config))
        instructions = spec.instructions or store.experiments.get(folder.name).instructions
        # A number that the owner has set on the page takes precedence over that of the command.
        target = store.experiments.control(experiment_id).target_labels or spec.max_labels
        store.experiments.describe(experiment_id, instructions, target)
        opened = OpenExperiment(spec, folder, store, experiment_id, lock, wait)
        try:
            yield opened
        except (Exception, KeyboardInterrupt) as error:
            report_failure(opened, error)
            raise


def report_failure(experiment: OpenExperiment, error: BaseException) -> None:
    """Show on the page why a run ends, and say where its last checkpoint is."""
    reason = str(error) if isinstance(error, RlTeacherError) else f"{type(error).__name__}: {error}"
    checkpoint = "There is no checkpoint yet."
    files = experiment.folder.checkpoints.files()
    if files:
        checkpoint = f"The last checkpoint is of step {files[0].step:,}."
    error.add_note(f"{checkpoint} ({files[0].path})" if files else checkpoint)
    # The store may be what has failed.
    with contextlib.suppress(StoreUnavailable, ExperimentNotFound):
        before = experiment.store.experiments.get(experiment.folder.name).status or {}
        phase, message = Phase.FAILED, f"Failed: {reason[:MAX_REASON_LENGTH]}"
        if isinstance(error, KeyboardInterrupt):  # by a second Ctrl-C
            if reported_phase(before) in ENDED:
                return
            phase, message = Phase.STOPPED, "Interrupted."
        status = {
            **before,
            "phase": phase,
            "message": f"{message} {checkpoint}",
            "waiting_since": None,
        }
        experiment.store.experiments.set_status(experiment.id, status)
