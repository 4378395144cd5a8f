"""Backup of a home to a zip file while its service and trainers run, and its restoration.

The file has the entries of the home that `KNOWN` describes. The database is one SQLite file, as of
one moment, also if it is in PostgreSQL. Run folders are read before it: a restored home is then as
after a killed trainer, whose database may be newer than its last checkpoint. Segments and clips are
read after it, because their files are written before the rows that refer to them.
"""

import logging
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import func, select

from rl_teacher.common.errors import (
    BadInput,
    CorruptBackup,
    CorruptClip,
    MediaNotFound,
    RunFolderUnusable,
)
from rl_teacher.common.files import (
    TEMPORARY_SUFFIX,
    folder_errors,
    make_private_home,
    replaced_atomically,
    sync_file,
    sync_folder,
)
from rl_teacher.common.text import counted
from rl_teacher.runs.folder import home, store_to_read
from rl_teacher.store.database import (
    BUSY_TIMEOUT_S,
    Database,
    as_url,
    default_url,
    file_of,
    open_database,
)
from rl_teacher.store.media import MEDIA_KEY, MediaFiles, default_media, keys_of, seal, unseal
from rl_teacher.store.snapshot import copy_tables, faults_of, save_snapshot
from rl_teacher.store.store import Store, utc_now
from rl_teacher.store.tables import Experiment, Label

logger = logging.getLogger(__name__)

DATABASE = "labels.sqlite"
NAME = r"(?!\.)[^/\\]+"
KNOWN = re.compile(
    rf"{re.escape(DATABASE)}|access-token"
    rf"|segments/{NAME}/[0-9a-f]{{64}}\.safetensors|media/({MEDIA_KEY.pattern})"
    rf"|tensorboard/{NAME}/events\.{NAME}"
    rf"|experiments/{NAME}/((config\.json|metrics\.jsonl|plot\.png|labels\.zip)"
    rf"|checkpoints/checkpoint-{NAME}\.safetensors|predictor/predictor\.(json|safetensors)"
    rf"|history/step-\d+/{NAME}\.(json|safetensors)|videos/step-\d+\.mp4)"
)
"""Names in a backup; everything else in a home is made again, and refused in a backup."""


def save_backup(target: Path) -> str:
    """Copy the home to a new zip file, with every label that was acknowledged before.

    Args:
        target: File to create.

    Returns:
        A summary of the contents.

    Raises:
        BadInput: The file exists, or there is no home.
        StoreUnavailable: The database, or a remote storage of clips, cannot be read.
        RunFolderUnusable: A file cannot be read or written.
    """
    source = home()
    if not source.is_dir():
        raise BadInput(f"There is no home at {source}, so there is nothing to back up.")
    if target.exists():
        raise BadInput(f"{target} exists already. Name a new file for the backup.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            TemporaryDirectory(dir=target.parent) as folder,
            replaced_atomically(target) as unfinished,
            store_to_read() as store,
        ):
            unfinished.touch(mode=0o600)
            with zipfile.ZipFile(unfinished, "w", strict_timestamps=False) as archive:
                for part in ("experiments", "tensorboard"):
                    add_files(archive, source, part)
                save_snapshot(store.database, Path(folder) / DATABASE)
                archive.write(Path(folder) / DATABASE, DATABASE)
                add_files(archive, source, "segments")
                add_media(archive, store, MediaFiles(default_media(source)))
                summary = summary_of(archive, store.database)
            sync_file(unfinished)
        sync_folder(target.parent)
    except OSError as error:
        raise RunFolderUnusable(
            f"The backup cannot be written to {target}: {error}. Name another file, free some "
            "space, or give yourself permission to read the home."
        ) from error
    return summary


def add_files(archive: zipfile.ZipFile, source: Path, part: str) -> None:
    """Add the known files of a folder of the home; those that vanish meanwhile are left out."""
    for path in files_in(source / part):
        name = path.relative_to(source).as_posix()
        if KNOWN.fullmatch(name):
            with suppress(FileNotFoundError):
                archive.write(path, name)


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders, the newest checkpoints first.

    A run's checkpoints come before its metrics and policies, of which a run that continues deletes
    the later ones, but does not make up for missing ones.
    """
    if folder.is_dir():
        with suppress(FileNotFoundError):
            for path in sorted(folder.iterdir(), reverse=folder.name == "checkpoints"):
                yield from files_in(path)
    else:
        yield folder


def add_media(archive: zipfile.ZipFile, store: Store, media: MediaFiles) -> None:
    """Add the clips and scenes that the database refers to; damaged ones are left out."""
    for key in sorted({key for clip in store.clips.rendered() for key in keys_of(clip)}):
        try:
            archive.writestr(f"media/{key}", seal(media.get(key)))
        except (MediaNotFound, CorruptClip) as error:
            logger.warning("A clip is not in the backup: %s", error)


def summary_of(archive: zipfile.ZipFile, database: Database) -> str:
    """Return the numbers of what a backup contains, for people."""
    with database.reading() as connection:
        numbers = [
            counted(connection.execute(select(func.count()).select_from(table)).scalar_one(), noun)
            for table, noun in ((Experiment, "experiment"), (Label, "label"))
        ]
    files = archive.infolist()
    size_mb = sum(each.file_size for each in files) / 1e6
    return f"{' with '.join(numbers)}, {counted(len(files), 'file')} of {size_mb:,.1f} MB"


# --- restoration ---


def restore_backup(source: Path) -> str:
    """Restore a backup into the home, which must be empty or not exist, and into its database.

    Files are complete in a folder of the home before they are moved to their places, the database
    last. All access is revoked.

    Returns:
        A summary of the contents, and of the revoked access.

    Raises:
        BadInput: The home or the database is not empty.
        CorruptBackup: The backup is damaged, or has other files than a backup; nothing is restored.
        StoreUnavailable: The database cannot be used, or the backup is of a newer version.
        RunFolderUnusable: A folder cannot be read or written.
    """
    target = home()
    url = default_url(target)
    file = file_of(as_url(url))
    with folder_errors(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise not_empty(f"The home {target}")
        if file is not None and file.exists():
            raise not_empty(f"The database {file}")
        make_private_home(target)
        unfinished = target / f".restored{TEMPORARY_SUFFIX}"
        try:
            with opened(source) as archive:
                extract(archive, unfinished)
                database = open_database(
                    unfinished / DATABASE,
                    BUSY_TIMEOUT_S,
                    utc_now,
                    is_synced=True,
                )
                with closing(database):
                    # Access may have been revoked after the backup. Browsers are signed out, since
                    # sessions are signed with the access token, of which there will be a new one.
                    revoked = Store(database).access.revoke_all()
                    summary = f"{summary_of(archive, database)}. Revoked: {revoked}, all sessions"
                    if file is None:
                        load_database(database, url)
            restored = unfinished / DATABASE
            if file is None:
                restored.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
            for path in unfinished.iterdir():
                if path != restored:
                    path.rename(target / path.name)
            if file is not None:
                shutil.move(restored, file)
            sync_folder(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return summary


def not_empty(label: str) -> BadInput:
    """Return the error for a home or a database that would be overwritten."""
    return BadInput(
        f"{label} is not empty, and a backup is restored only into an empty home and database. "
        "Name others with RL_TEACHER_HOME and RL_TEACHER_DATABASE_URL."
    )


@contextmanager
def opened(source: Path) -> Iterator[zipfile.ZipFile]:
    """Open a backup, and check the names in it.

    Raises:
        CorruptBackup: It is no backup, or damaged.
    """
    if not source.is_file():
        raise BadInput(f"There is no backup {source}: a file of `rl-teacher backup` is needed.")
    try:
        with zipfile.ZipFile(source) as archive:
            files = archive.infolist()
            unknown = [each.filename for each in files if not is_known(each)]
            if unknown:
                raise corrupt(source, f"{unknown[0]!r} is no file of a backup")
            names = archive.namelist()
            if DATABASE not in names or len(set(names)) < len(names):
                raise corrupt(source, f"it has no {DATABASE}, or two files of one name")
            yield archive
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise corrupt(source, f"{error!s:.300}") from error


def is_known(file: zipfile.ZipInfo) -> bool:
    """Return whether a backup may have a file: a known name, and neither a link nor compressed."""
    is_link = stat.S_ISLNK(file.external_attr >> 16)
    is_stored = file.compress_type == zipfile.ZIP_STORED
    return KNOWN.fullmatch(file.filename) is not None and is_stored and not is_link


def extract(archive: zipfile.ZipFile, target: Path) -> None:
    """Write the files of a backup to a new folder, and clips to the storage of media.

    Raises:
        CorruptBackup: A file is damaged.
    """
    media = MediaFiles(default_media(target))
    for info in archive.infolist():
        if info.filename == "access-token":
            continue  # of an earlier version; the home gets a new one
        key = info.filename.removeprefix("media/")
        if key != info.filename:
            media.put(key, unseal(key, archive.read(info)))
            continue
        path = target / info.filename
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with archive.open(info) as reading, path.open("wb") as writing:
            shutil.copyfileobj(reading, writing)
            writing.flush()
            os.fsync(writing.fileno())
    if faults := faults_of(target / DATABASE):
        raise corrupt(Path(archive.filename or ""), f"its database is damaged: {faults[0]}")


def load_database(source: Database, url: str) -> None:
    """Copy all rows to an empty database, which may be of another kind.

    Raises:
        BadInput: It is not empty.
    """
    with (
        closing(open_database(url, BUSY_TIMEOUT_S, utc_now, is_synced=True)) as target,
        source.reading() as reading,
        target.writing() as writing,
    ):
        tables = (Experiment, Label)
        if any(writing.execute(select(table.id).limit(1)).first() for table in tables):
            raise not_empty(f"The database {target.label}")
        copy_tables(reading, writing)


def corrupt(source: Path, fault: str) -> CorruptBackup:
    """Return the error for a backup that cannot be restored."""
    return CorruptBackup(f"{source} cannot be restored: {fault}. Use another backup.")
