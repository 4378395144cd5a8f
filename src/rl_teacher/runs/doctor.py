"""Examination of a home: integrity of its files, missing files, and a recount."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

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
from rl_teacher.store.snapshot import faults_of, snapshot_of
from rl_teacher.store.store import Store

MISSING = "is missing"


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
    keys = {key for clip in clips for key in keys_of(clip)}
    try:
        media.check()
        damaged = {key: fault for key in sorted(keys) if (fault := fault_of(media, key))}
    except RlTeacherError as error:
        check.faults.append(str(error))
        return check
    if keys and list(damaged.values()).count(MISSING) == len(keys):
        check.faults.append(
            f"none of the {len(keys)} files of clips is in {media.label}. Name the right place "
            "with --media, mount it, or restore a backup"
        )
        return check
    faults = [f"{key} {fault}" for key, fault in damaged.items()]
    if not is_repairing:
        check.faults = faults
        return check
    store.clips.hide([each.content_hash for each in clips if damaged.keys() & {*keys_of(each)}])
    for key in damaged:
        # A scene is rendered again only if its file is missing.
        media.remove(key)
    check.repairs = [f"{fault}: the trainer renders it again" for fault in faults]
    return check


def fault_of(media: MediaFiles, key: str) -> str | None:
    """Return what is wrong with a file of media; None if it is sound."""
    try:
        media.get(key)
    except MediaNotFound:
        return MISSING
    except CorruptClip:
        return "is truncated or altered"
    return None


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
