"""Folders of TensorBoard logs that several homes share (`--tensorboard-dir`)."""

import itertools
import shutil
from contextlib import suppress
from pathlib import Path

from rl_teacher.store.files import folder_errors

OWNER_FILE = "experiment.txt"
"""File with the path of the experiment that logs are of."""
LOGS_FILE = "tensorboard.txt"
"""File in the folder of an experiment with the path of its logs, if they are in another place."""


def own_folder(parent: Path, name: str, experiment: Path) -> Path:
    """Return the folder for the logs of an experiment: NAME, or NAME-2 ... if NAME is in use.

    A new run hides the points of earlier ones in its folder, which must not be those of an
    experiment of the same name in another home.

    Args:
        parent: folder that several homes may share.
        name: name of the experiment.
        experiment: its folder, which is recorded in the folder of its logs.
    """
    folders = (parent / (name if n == 1 else f"{name}-{n}") for n in itertools.count(1))
    owner = str(experiment.resolve())
    with folder_errors(parent):
        found = next(folder for folder in folders if _is_owned(folder, owner))
    with folder_errors(experiment):
        (experiment / LOGS_FILE).write_text(str(found.absolute()))
    return found


def logs_elsewhere(experiment: Path) -> Path | None:
    """Return the latest folder that `own_folder` returned for an experiment, if it is still its."""
    with suppress(FileNotFoundError):
        logs = Path((experiment / LOGS_FILE).read_text())
        if (logs / OWNER_FILE).read_text() == str(experiment.resolve()):
            return logs
    return None


def rename_logs(logs: Path, name: str, experiment: Path) -> None:
    """Rename the folder of the logs of a renamed experiment; see `own_folder`.

    Args:
        logs: result of `logs_elsewhere` before the experiment was renamed.
        name: its new name.
        experiment: its new folder.
    """
    new = own_folder(logs.parent, name, experiment)
    with folder_errors(logs.parent):
        # It has no logs but those of an earlier experiment, which a new one would hide.
        shutil.rmtree(new)
        logs.rename(new)
        (new / OWNER_FILE).write_text(str(experiment.resolve()))


def _is_owned(folder: Path, owner: str) -> bool:
    """Return whether a folder has the logs of this owner; an empty one becomes theirs."""
    record = folder / OWNER_FILE
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        with suppress(FileExistsError), record.open("x") as file:  # another run was faster
            file.write(owner)
    return record.exists() and record.read_text() == owner
