"""Examination of a home for damage, and its repair where that is safe."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rl_teacher.common.errors import (
    BadInput,
    CorruptCheckpoint,
    CorruptClip,
    MediaNotFound,
    RlTeacherError,
    RunFolderUnusable,
    StoreUnavailable,
)
from rl_teacher.common.paths import user_path
from rl_teacher.runs.backup import database_files
from rl_teacher.runs.folder import (
    Experiment,
    database_url,
    experiment_names,
    experiments_folder,
    home,
    is_unfinished,
    media_url,
    open_store,
    segment_files,
)
from rl_teacher.store import sql
from rl_teacher.store.checkpoints import read_checkpoint
from rl_teacher.store.counters import find_wrong_counts, recount_all
from rl_teacher.store.database import as_url, file_of, schema_version, versions
from rl_teacher.store.files import TEMPORARY_SUFFIX, folder_errors
from rl_teacher.store.media import MediaFiles, keys_of
from rl_teacher.store.records import ClipView
from rl_teacher.store.snapshot import faults_of, read_all, snapshot_of
from rl_teacher.store.store import Store

TEMPORARY_AGE_S = 3600.0
"""Age from which on a temporary file belongs to no write in progress."""
PRIVATE_MODE = 0o600

FEW_FILES = 3
"""If more are examined and all are missing, another folder or storage was meant."""

HAS_EFFECTIVE_IDS = os.access in os.supports_effective_ids


@dataclass
class Check:
    """One check and what it found.

    Attributes:
        name: What was examined.
        num_examined: How many of them.
        faults: Descriptions of what is wrong.
        repairs: Descriptions of what was repaired; these faults are not in `faults`.
    """

    name: str
    num_examined: int = 0
    faults: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)


def examine(media: str | None = None, *, is_repairing: bool = False) -> list[Check]:
    """Examine the home and its database, also while they are used.

    Args:
        media: Storage of the clips; None for the default.
        is_repairing: Repair what can be repaired without losing data.

    Raises:
        BadInput: There is no home.
        RunFolderUnusable: This user may not enter the folder that it is in.
    """
    with folder_errors(home()):
        if not home().is_dir():
            raise BadInput(f"There is no home at {home()}. `rl-teacher teach` creates one.")
    if not is_accessible(home(), os.R_OK | os.X_OK):
        return [Check("permissions", 1, [no_access(home())])]
    media = media_url(media)
    checks = [check_database()]
    if checks[0].num_examined and not checks[0].faults:
        checks.append(check_version(is_repairing=is_repairing))
        if not checks[-1].faults:
            with open_store() as store:
                examination = Examination(store, media, is_repairing)
                checks += [each() for each in examination.checks]
    checks += [check_run_folders(), check_checkpoints()]
    checks.append(check_temporary_files(examined_folders(media), is_repairing=is_repairing))
    checks.append(check_permissions(is_repairing=is_repairing))
    return checks


def check_database() -> Check:
    """Check the integrity of the database."""
    check = Check("database")
    url = database_url()
    file = file_of(as_url(url))
    if file is None:
        try:
            if schema_version(url) is not None:
                with open_store() as store:
                    read_all(store.database)
                check.num_examined = 1
        except RlTeacherError as error:
            check.faults.append(str(error))
    elif file.exists():
        check.num_examined = 1
        check.faults += [
            f"{file} is damaged: {fault}. Restore a backup, or rescue the rest with `sqlite3 FILE "
            ".recover`"
            for fault in faults_of(file)
        ]
    elif experiment_names():
        check.faults.append(f"{file} is missing, although there are experiments. Restore a backup")
    return check


def check_version(*, is_repairing: bool) -> Check:
    """Check that the database has the schema of this release; migrating it is the repair."""
    check = Check("schema version", 1)
    found, newest = schema_version(database_url()), versions()[0]
    if found not in versions():
        check.faults.append(f"the version is {found}, newer than {newest}. Update rl-teacher")
    elif found != newest and is_repairing:
        check.repairs.append(f"migrated from version {found} to {newest}")
    elif found != newest:
        check.faults.append(f"the version is {found}, and {newest} is the current one")
    return check


@dataclass
class Examination:
    """Checks of the rows of an open database, and of the files that they refer to.

    Attributes:
        store: The database.
        media: Storage of the clips.
        is_repairing: Whether to repair.
    """

    store: Store
    media: str
    is_repairing: bool

    @property
    def checks(self) -> list[Callable[[], Check]]:
        """All checks, in the order in which a repair can rely on the earlier ones."""
        return [self.check_segments, self.check_clips, self.check_counts]

    def check_segments(self) -> Check:
        """Check that the segments of all comparisons exist and have the hash in their names.

        A database outside of the home may be shared by others, which have the segments of their
        own experiments.
        """
        file = self.store.database.file
        is_own = file is not None and file.resolve().is_relative_to(home().resolve())
        compared = self.store.clips.compared(None if is_own else {*experiment_names()})
        check = Check("segments", len(compared))
        files = segment_files()
        for content_hash, experiment in compared.items():
            try:
                files.load(content_hash)
            except CorruptCheckpoint as error:
                check.faults.append(f"experiment {experiment}: {error}")
        return check

    def check_clips(self) -> Check:
        """Check that the media of all rendered clips exist and are what was written.

        The repair marks a clip as not rendered: labelers do not get its comparisons until the
        trainer has rendered it again. Nothing is marked if there are no files at all: then a folder
        is not mounted, or another one was meant.
        """
        clips = self.store.clips.rendered()
        check = Check("clips", len(clips))
        files = MediaFiles(self.media)
        keys = {key for clip in clips for key in keys_of(clip)}
        try:
            files.check()
            faults = {key: fault_of(files, key) for key in sorted(keys)}
        except (RunFolderUnusable, StoreUnavailable) as error:
            check.faults.append(str(error))
            return check
        damaged: dict[str, str] = {}
        for clip in clips:
            found = [fault for key in keys_of(clip) if (fault := faults[key]) is not None]
            if found:
                damaged[clip.content_hash] = found[0]
        is_absent = not files.is_remote and not Path(files.label).is_dir()
        are_missing = all(fault == missing(key) for key, fault in faults.items())
        if faults and are_missing and (is_absent or len(faults) > FEW_FILES):
            check.faults.append(
                f"none of the {len(faults)} files of clips is in {files.label}. Name the right "
                "place with --media, mount it, or restore a backup; a trainer that continues "
                "renders its clips again"
            )
        elif self.is_repairing:
            hidden = self.store.clips.hide([*damaged], self._is_still_damaged(files))
            check.repairs += [f"{damaged[each]}: the trainer renders it again" for each in hidden]
        else:
            check.faults += damaged.values()
        return check

    def _is_still_damaged(self, files: MediaFiles) -> Callable[[ClipView], bool]:
        """Return a condition on clips, which reads each file once; it deletes damaged scenes."""

        @cache
        def fault(key: str) -> str | None:
            found = fault_of(files, key)
            # A scene is rendered again only if its file is missing.
            if found is not None and key.startswith("scenes/"):
                files.remove(key)
            return found

        def is_damaged(clip: ClipView) -> bool:
            found = [fault(key) for key in keys_of(clip)]
            return any(found)

        return is_damaged

    def check_counts(self) -> Check:
        """Compare the counts of comparisons, experiments and labelers with a recount."""
        database = self.store.database
        with snapshot_of(database) as connection:
            faults = find_wrong_counts(connection)
        check = Check("counts", len(self.store.experiments.all()), faults)
        if faults and self.is_repairing:
            with database.writing() as connection:
                sql.lock_labels(connection)
                recount_all(connection)
            check.repairs, check.faults = [f"{fault}: recounted" for fault in faults], []
        return check


def fault_of(files: MediaFiles, key: str) -> str | None:
    """Return what is wrong with a file of media; None if it is sound."""
    try:
        files.get(key)
    except MediaNotFound:
        return missing(key)
    except CorruptClip:
        return f"{key} is truncated or altered"
    return None


def missing(key: str) -> str:
    """Return the fault of a file that does not exist."""
    return f"{key} is missing"


def check_run_folders() -> Check:
    """Check that the configurations of all experiments can be read."""
    names = experiment_names()
    check = Check("configurations", len(names))
    for name in names:
        try:
            _ = Experiment.find(name).config
        except RlTeacherError as error:
            check.faults.append(str(error))
    return check


def check_checkpoints() -> Check:
    """Check that all checkpoints can be opened and have the hash in their names."""
    check = Check("checkpoints")
    for name in experiment_names():
        files = Experiment(name, experiments_folder() / name).checkpoint_files()
        check.num_examined += len(files)
        for file in files:
            try:
                read_checkpoint(file)
            except FileNotFoundError:  # replaced meanwhile
                continue
            except (OSError, ValueError) as error:
                check.faults.append(f"{file.path} is damaged: {error}")
    return check


def examined_folders(media: str) -> list[Path]:
    """Return the home, and the folder of the clips if it is outside of it."""
    folders = [home()]
    if "://" not in media:
        folder = user_path(media)
        folders += [] if folder.resolve().is_relative_to(home().resolve()) else [folder]
    return folders


def check_temporary_files(folders: list[Path], *, is_repairing: bool) -> Check:
    """Find files that killed processes were writing; the repair deletes them."""
    check = Check("temporary files")
    for path in (each for folder in folders for each in temporary_files(folder)):
        check.num_examined += 1
        fault = f"{path} was left by a killed process"
        if is_repairing:
            with repairing(check, fault, "deleted"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        else:
            check.faults.append(fault)
    return check


@contextmanager
def repairing(check: Check, fault: str, repair: str) -> Iterator[None]:
    """Record the repair of a fault, or the fault if the system refuses the repair."""
    try:
        yield
    except OSError as error:
        check.faults.append(f"{fault}, and it cannot be {repair}: {error.strerror}")
    else:
        check.repairs.append(f"{fault}: {repair}")


def temporary_files(folder: Path) -> Iterator[Path]:
    """Yield the temporary files and folders in a folder that nothing is writing any more."""
    for path in sorted(filter(is_unfinished, folder.rglob(f"*{TEMPORARY_SUFFIX}"))):
        try:
            age_s = time.time() - path.stat().st_mtime
        except FileNotFoundError:  # completed or deleted meanwhile
            continue
        if age_s > TEMPORARY_AGE_S:
            yield path


def check_permissions(*, is_repairing: bool) -> Check:
    """Check that this user can use the home, and that others cannot read its credentials."""
    check = Check("permissions")
    folders = [home(), *(home() / name for name in ("experiments", "segments", "media"))]
    if is_accessible(experiments_folder(), os.R_OK | os.X_OK):
        folders += sorted(path for path in experiments_folder().glob("*") if path.is_dir())
    for folder in filter(Path.exists, folders):
        check.num_examined += 1
        if not is_accessible(folder, os.R_OK | os.W_OK | os.X_OK):
            check.faults.append(no_access(folder))
    for path in private_files():
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:  # the log of a database that was closed meanwhile
            continue
        check.num_examined += 1
        if mode & ~PRIVATE_MODE & 0o777 == 0:
            continue
        fault = f"others can access {path}"
        if is_repairing:
            with repairing(check, fault, "made private"):
                path.chmod(PRIVATE_MODE)
        else:
            check.faults.append(fault)
    return check


def is_accessible(folder: Path, mode: int) -> bool:
    """Return whether this user has the permissions of a mode of `os.access`."""
    return os.access(folder, mode, effective_ids=HAS_EFFECTIVE_IDS)


def no_access(folder: Path) -> str:
    """Return the fault of a folder that this user cannot use."""
    return f"{folder} cannot be read and written by this user"


def private_files() -> Iterator[Path]:
    """Yield the existing files that contain credentials or their hashes."""
    file = file_of(as_url(database_url()))
    databases = [] if file is None else database_files(file)
    yield from filter(Path.exists, [home() / "access-token", *databases])
