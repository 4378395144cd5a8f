"""Examination of a home: integrity of its files, missing files, and a recount."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rl_teacher.common.errors import (
    BadInput,
    CorruptCheckpoint,
    CorruptClip,
    MediaNotFound,
    RlTeacherError,
)
from rl_teacher.runs.folder import (
    Experiment,
    database_url,
    experiment_names,
    home,
    media_url,
    open_store,
    segment_files,
)
from rl_teacher.store.checkpoints import read_checkpoint
from rl_teacher.store.counters import find_wrong_counts, recount_all
from rl_teacher.store.database import as_url, file_of
from rl_teacher.store.media import MediaFiles, keys_of
from rl_teacher.store.records import ClipView
from rl_teacher.store.snapshot import faults_of, snapshot_of
from rl_teacher.store.store import Store

FEW_FILES = 3
"""If more are examined and all are missing, another folder or storage was meant."""


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
    """
    if not home().is_dir():
        raise BadInput(f"There is no home at {home()}. `rl-teacher teach` creates one.")
    checks = [check_database()]
    if not checks[0].faults:
        with open_store() as store:
            checks += [
                check_segments(store),
                check_clips(store, MediaFiles(media_url(media)), is_repairing=is_repairing),
                check_counts(store, is_repairing=is_repairing),
            ]
    return [*checks, check_run_folders()]


def check_database() -> Check:
    """Check the integrity of the database; PostgreSQL has no such check for ordinary users."""
    check = Check("database", 1)
    file = file_of(as_url(database_url()))
    if file is None or not (file.exists() or experiment_names()):
        return check
    found = faults_of(file) if file.exists() else ["it is missing, although there are experiments"]
    check.faults = [f"{file}: {fault}. Restore a backup" for fault in found]
    return check


def check_segments(store: Store) -> Check:
    """Check that the segments of all comparisons exist and have the hash in their names.

    A database outside of the home may be shared by others, which have the segments of their own
    experiments.
    """
    file = store.database.file
    is_own = file is not None and file.resolve().is_relative_to(home().resolve())
    compared = store.clips.compared(None if is_own else {*experiment_names()})
    check = Check("segments", len(compared))
    files = segment_files()
    for content_hash, experiment in compared.items():
        try:
            files.load(content_hash)
        except CorruptCheckpoint as error:
            check.faults.append(f"experiment {experiment}: {error}")
    return check


def check_clips(store: Store, media: MediaFiles, *, is_repairing: bool) -> Check:
    """Check that the media of all rendered clips exist and are what was written.

    The repair marks a clip as not rendered: labelers do not get its comparisons until the trainer
    has rendered it again. Nothing is marked if there are no files at all: then a folder is not
    mounted, or another one was meant.
    """
    clips = store.clips.rendered()
    check = Check("clips", len(clips))
    fault_of = fault_finder(media)
    try:
        media.check()
        damaged = {
            clip.content_hash: fault
            for clip in clips
            for fault in [next(filter(None, map(fault_of, keys_of(clip))), None)]
            if fault is not None
        }
    except RlTeacherError as error:
        check.faults.append(str(error))
        return check
    keys = {key for clip in clips for key in keys_of(clip)}
    is_absent = not media.is_remote and not Path(media.label).is_dir()
    are_missing = bool(keys) and all(fault_of(key) == f"{key} is missing" for key in keys)
    if are_missing and (is_absent or len(keys) > FEW_FILES):
        check.faults.append(
            f"none of the {len(keys)} files of clips is in {media.label}. Name the right place "
            "with --media, mount it, or restore a backup"
        )
    elif is_repairing:
        hidden = store.clips.hide([*damaged], still_damaged(media))
        check.repairs += [f"{damaged[each]}: the trainer renders it again" for each in hidden]
    else:
        check.faults += damaged.values()
    return check


def fault_finder(media: MediaFiles) -> Callable[[str], str | None]:
    """Return a function of a key that reads each file once, and returns what is wrong with it."""

    @cache
    def fault_of(key: str) -> str | None:
        try:
            media.get(key)
        except MediaNotFound:
            return f"{key} is missing"
        except CorruptClip:
            return f"{key} is truncated or altered"
        return None

    return fault_of


def still_damaged(media: MediaFiles) -> Callable[[ClipView], bool]:
    """Return a condition on clips; it deletes damaged scenes, which are otherwise kept."""
    fault_of = fault_finder(media)

    def is_damaged(clip: ClipView) -> bool:
        faulty = [key for key in keys_of(clip) if fault_of(key) is not None]
        for key in faulty:
            if key.startswith("scenes/"):
                media.remove(key)
        return bool(faulty)

    return is_damaged


def check_counts(store: Store, *, is_repairing: bool) -> Check:
    """Compare the counts of comparisons, experiments and labelers with a recount."""
    with snapshot_of(store.database) as connection:
        faults = find_wrong_counts(connection)
    check = Check("counts", len(store.experiments.all()), faults)
    if faults and is_repairing:
        with store.database.writing() as connection:
            recount_all(connection)
        check.repairs, check.faults = [f"{fault}: recounted" for fault in faults], []
    return check


def check_run_folders() -> Check:
    """Check that configurations can be read, and that checkpoints have the hash in their names."""
    names = experiment_names()
    return Check("run folders", len(names), [fault for each in names for fault in faults_in(each)])


def faults_in(name: str) -> Iterator[str]:
    """Yield what is wrong with the files of an experiment."""
    experiment = Experiment.find(name)
    try:
        _ = experiment.config
    except CorruptCheckpoint as error:
        yield str(error)
    for file in experiment.checkpoint_files():
        try:
            with suppress(FileNotFoundError):  # replaced meanwhile
                read_checkpoint(file)
        except (OSError, ValueError) as error:
            yield f"{file.path} is damaged: {error}"
