"""Examination of a home: integrity of its files, missing files, and a recount."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

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
from rl_teacher.store.counters import find_wrong_counts
from rl_teacher.store.database import as_url, file_of
from rl_teacher.store.media import MediaFiles, keys_of
from rl_teacher.store.snapshot import faults_of
from rl_teacher.store.store import Store


@dataclass(frozen=True)
class Check:
    """One check and what it found.

    Attributes:
        name: What was examined.
        num_examined: How many of them.
        faults: Descriptions of what is wrong.
    """

    name: str
    num_examined: int
    faults: list[str]


def examine() -> list[Check]:
    """Examine the home and its database, also while they are used.

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
                check_clips(store, MediaFiles(media_url())),
                check_counts(store),
            ]
    return [*checks, check_run_folders()]


def check_database() -> Check:
    """Check the integrity of the database; PostgreSQL has no such check for ordinary users."""
    file = file_of(as_url(database_url()))
    found: list[str] = []
    if file is not None and file.exists():
        found = faults_of(file)
    elif file is not None and experiment_names():
        found = ["it is missing, although there are experiments"]
    return Check("database", 1, [f"{file}: {fault}. Restore a backup" for fault in found])


def check_segments(store: Store) -> Check:
    """Check that the segments of all comparisons exist and have the hash in their names.

    A database outside of the home may be shared by others, which have the segments of their own
    experiments.
    """
    file = store.database.file
    is_own = file is not None and file.resolve().is_relative_to(home().resolve())
    names = {*experiment_names()}
    compared = {
        content_hash: view.name
        for view in store.experiments.all()
        if is_own or view.name in names
        for each in store.comparisons.asked(view.id)
        for content_hash in (each.left_hash, each.right_hash)
    }
    files, faults = segment_files(), []
    for content_hash, experiment in compared.items():
        try:
            files.load(content_hash)
        except CorruptCheckpoint as error:
            faults.append(f"experiment {experiment}: {error}")
    return Check("segments", len(compared), faults)


def check_clips(store: Store, media: MediaFiles) -> Check:
    """Check that the media of all rendered clips exist and are what was written."""
    clips = store.clips.rendered()
    keys = {key for clip in clips for key in keys_of(clip)}
    try:
        media.check()
        faults = [f"{key} {fault}" for key in sorted(keys) if (fault := fault_of(media, key))]
    except RlTeacherError as error:
        faults = [str(error)]
    return Check("clips", len(clips), faults)


def fault_of(media: MediaFiles, key: str) -> str | None:
    """Return what is wrong with a file of media; None if it is sound."""
    try:
        media.get(key)
    except MediaNotFound:
        return "is missing: the trainer renders it again when its run continues"
    except CorruptClip:
        return "is truncated or altered: delete it, and the trainer renders it again"
    return None


def check_counts(store: Store) -> Check:
    """Compare the counts of comparisons, experiments and labelers with a recount."""
    with store.database.reading() as connection:
        faults = find_wrong_counts(connection)
    return Check("counts", len(store.experiments.all()), faults)


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
    for file in experiment.checkpoints.files():
        try:
            with suppress(FileNotFoundError):  # replaced meanwhile
                read_checkpoint(file)
        except (OSError, ValueError) as error:
            yield f"{file.path} is damaged: {error}"
