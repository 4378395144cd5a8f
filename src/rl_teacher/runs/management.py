"""Opening of experiments for a run; deletion, renaming and archiving, which no run may use."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rl_teacher.common.errors import (
    ExperimentExists,
    ExperimentInUse,
    ExperimentNotFound,
)
from rl_teacher.common.files import folder_errors
from rl_teacher.runs.folder import (
    Experiment,
    experiments_folder,
    tensorboard_folder,
    validate_name,
    write_json,
)
from rl_teacher.store.experiment_locks import HeldLock
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.lock import FolderLock
from rl_teacher.store.sql import experiment_not_found
from rl_teacher.store.store import Store


@contextmanager
def locked_experiment(
    store: Store,
    name: str,
    config: Mapping[str, Any],
    *,
    force_new: bool = False,
) -> Iterator[tuple[Experiment, HeldLock]]:
    """Lock an experiment in the database and open its folder; see `Experiment.open`.

    Several homes may share a database, so an experiment of this name may be another home's. Its
    records are deleted if the experiment starts over.

    Yields:
        Its folder, and its lock in the database.

    Raises:
        BadExperimentName, ConfigMismatch, ExperimentInUse, RunFolderUnusable, StoreUnavailable.
    """
    name = validate_name(name)
    with (
        store.locks.hold(name) as lock,
        Experiment.open(name, config, force_new, stored_config(store, name)) as folder,
    ):
        if folder.starts_over:
            store.experiments.delete(name)
        yield folder, lock


def stored_config(store: Store, name: str) -> Mapping[str, Any] | None:
    """Return the configuration of an experiment in the database; None if it asks nothing yet."""
    try:
        view = store.experiments.get(name)
    except ExperimentNotFound:
        return None
    return view.config if view.asked else None


def delete_experiment(store: Store, name: str, *, by: str = OWNER) -> None:
    """Delete an experiment with its comparisons, labels and folder; clips are shared and stay.

    Args:
        store: Store of the experiment.
        name: Name of the experiment.
        by: Name of the owner.

    Raises:
        BadExperimentName, ExperimentInUse, ExperimentNotFound, RunFolderUnusable.
    """
    with idle_folder(store, name) as folder:
        is_deleted = store.experiments.delete(validate_name(name), by=by)
        # The entry is gone already if an earlier deletion was interrupted.
        if not is_deleted and folder is None:
            raise experiment_not_found(name)
        if folder is not None:
            # First, since the rest of an interrupted deletion must not be continued as a run.
            (folder / "config.json").unlink(missing_ok=True)
            # It may be a link, for example to a larger disk.
            shutil.rmtree(folder.resolve())
            if folder.is_symlink():
                folder.unlink()


def rename_experiment(store: Store, name: str, new_name: str, *, by: str = OWNER) -> None:
    """Rename an experiment and its folder; see `Experiments.rename`.

    Raises:
        BadExperimentName, CorruptCheckpoint, ExperimentExists, ExperimentInUse, ExperimentNotFound,
        RunFolderUnusable.
    """
    name, new_name = validate_name(name), validate_name(new_name)
    target = experiments_folder() / new_name
    with idle_folder(store, name, new_name) as folder:
        if target.exists():
            raise ExperimentExists(new_name)
        # Read before anything is changed. A run that was refused leaves a folder without it.
        config: dict[str, Any] = {}
        if folder is not None and (folder / "config.json").exists():
            config = Experiment(name, folder).config
        # The store first, which refuses a name that is taken.
        if folder is None or not Experiment(name, folder).is_offline_fit:
            store.experiments.rename(name, new_name, by=by)
        elif new_name in {each.name for each in store.experiments.all()}:
            raise ExperimentExists(new_name)
        if folder is not None:
            if "name" in config:
                write_json(folder / "config.json", {**config, "name": new_name})
            curves, new_curves = tensorboard_folder(name), tensorboard_folder(new_name)
            if curves.is_dir():
                # Of an earlier experiment of this name, which a new one would hide.
                shutil.rmtree(new_curves, ignore_errors=True)
                curves.rename(new_curves)
            folder.rename(target)


def archive_experiment(store: Store, name: str, *, is_archived: bool, by: str = OWNER) -> bool:
    """Hide an experiment from labelers, or show it again; see `delete_experiment`.

    Returns:
        False if it was so already.

    Raises:
        BadExperimentName, ExperimentInUse, ExperimentNotFound, RunFolderUnusable.
    """
    name = validate_name(name)
    with idle_folder(store, name):
        return store.experiments.set_archived(name, is_archived=is_archived, by=by)


@contextmanager
def idle_folder(store: Store, name: str, *others: str) -> Iterator[Path | None]:
    """Lock an experiment and its folder, so that no run of it starts.

    Args:
        store: Store of the experiment.
        name: Name of the experiment.
        others: Names that no run may take meanwhile.

    Yields:
        The folder; None if the experiment has none on this machine.

    Raises:
        ExperimentInUse: The experiment is running.
    """
    name = validate_name(name)
    folder = experiments_folder() / name
    with ExitStack() as stack:
        for each in sorted({name, *others}):
            stack.enter_context(store.locks.hold(each))
        if not folder.is_dir():
            yield None
            return
        lock = FolderLock(folder / "lock")
        with folder_errors(folder):
            # Runs of a folder that has another database do not hold the lock in this one.
            if not lock.acquire():
                raise ExperimentInUse(
                    f"Experiment {name!r} is being run by {lock.holder}. Stop it first (it saves), "
                    "and try again."
                )
            try:
                yield folder
            finally:
                lock.release()
