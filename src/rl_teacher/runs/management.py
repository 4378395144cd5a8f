"""Deletion, renaming and archiving of experiments, which must not be running."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from rl_teacher.common.errors import (
    ExperimentExists,
    ExperimentInUse,
    ExperimentNotFound,
    RlTeacherError,
)
from rl_teacher.runs.folder import Experiment, experiments_folder, validate_name
from rl_teacher.store.files import folder_errors, write_atomically
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.lock import FolderLock
from rl_teacher.store.store import Store


def delete_experiment(store: Store, name: str, *, is_reporting: bool, by: str = OWNER) -> None:
    """Delete an experiment with its comparisons, labels and folder; clips are shared and stay.

    Args:
        store: Store of the experiment.
        name: Name of the experiment.
        is_reporting: Its trainer has just reported; this counts if it runs on another machine.
        by: Name of the owner.

    Raises:
        BadExperimentName, ExperimentInUse, ExperimentNotFound, RunFolderUnusable.
    """
    with idle_folder(name, is_reporting=is_reporting) as folder:
        try:
            store.experiments.delete_by(validate_name(name), by)
        # The entry is gone already if an earlier deletion was interrupted.
        except ExperimentNotFound:
            if folder is None:
                raise
        if folder is not None:
            shutil.rmtree(folder)


def rename_experiment(
    store: Store, name: str, new_name: str, *, is_reporting: bool, by: str = OWNER
) -> None:
    """Rename an experiment and its folder; see `delete_experiment`.

    Raises:
        BadExperimentName, ExperimentExists, ExperimentInUse, ExperimentNotFound, RunFolderUnusable.
    """
    new_name = validate_name(new_name)
    target = experiments_folder() / new_name
    with idle_folder(name, is_reporting=is_reporting) as folder:
        if target.exists():
            raise ExperimentExists(new_name)
        # The store first, which refuses a name that is taken.
        store.experiments.rename(validate_name(name), new_name, by=by)
        if folder is not None:
            config = Experiment(new_name, folder).config
            if "name" in config:
                content = json.dumps({**config, "name": new_name}, indent=2, ensure_ascii=False)
                write_atomically(folder / "config.json", f"{content}\n".encode(), is_synced=True)
            folder.rename(target)


def archive_experiment(
    store: Store, name: str, *, is_archived: bool, is_reporting: bool, by: str = OWNER
) -> None:
    """Hide an experiment from labelers, or show it again; see `delete_experiment`.

    Raises:
        BadExperimentName, ExperimentInUse, ExperimentNotFound, RunFolderUnusable.
    """
    with idle_folder(name, is_reporting=is_reporting):
        store.experiments.set_archived(validate_name(name), is_archived=is_archived, by=by)


def archive_for_new(store: Store, name: str, *, by: str = OWNER) -> str:
    """Archive an experiment under another name, so that a new one can have its name.

    Returns:
        The name of the archived experiment.

    Raises:
        BadExperimentName, ExperimentInUse, ExperimentNotFound, RunFolderUnusable.
    """
    new_name = archive_name(name)
    rename_experiment(store, name, new_name, is_reporting=False, by=by)
    archive_experiment(store, new_name, is_archived=True, is_reporting=False, by=by)
    return new_name


def archive_name(name: str) -> str:
    """Return the name under which an experiment is archived: NAME.archived-1, -2 ..."""
    names = (f"{name}.archived-{number}" for number in count(1))
    return validate_name(next(each for each in names if not (experiments_folder() / each).exists()))


@contextmanager
def idle_folder(name: str, *, is_reporting: bool) -> Iterator[Path | None]:
    """Lock the folder of an experiment, so that no run of it starts.

    Yields:
        The folder; None if the experiment has none on this machine.

    Raises:
        ExperimentInUse: The experiment is running.
    """
    folder = experiments_folder() / validate_name(name)
    if not folder.is_dir():
        if is_reporting:
            raise in_use(name, "another machine")
        yield None
        return
    lock = FolderLock(folder / "lock")
    with folder_errors(folder):
        if not lock.acquire():
            raise in_use(name, lock.holder)
        try:
            yield folder
        finally:
            lock.release()


def in_use(name: str, holder: str) -> RlTeacherError:
    """Return the error for an experiment that is running."""
    return ExperimentInUse(
        f"Experiment {name!r} is being run by {holder}. Stop it first (it saves), and try again."
    )
