"""Backup of a home while its service and trainers run, and its restoration.

<backup>/
    backup.json     format, versions, and the SHA-256 of SHA256SUMS
    SHA256SUMS      hash of every file below; `sha256sum --check` reads it
    labels.sqlite   the database as of one moment, also if it is in PostgreSQL
    experiments/, segments/, media/, tensorboard/, access-token

The order of copying makes the copy consistent. Checkpoints come before the database: a restored
home is then as after a killed trainer, whose database may be newer than its last checkpoint.
Segments and clips are copied again after the database, because their files are written before the
rows that refer to them. Clips in a remote storage are copied after the database, those that it
refers to; a restoration puts them into the storage that is then configured.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from rl_teacher.common.errors import (
    BadInput,
    CorruptBackup,
    CorruptClip,
    MediaNotFound,
    RunFolderUnusable,
)
from rl_teacher.common.text import counted
from rl_teacher.runs.folder import home, is_unfinished, open_store
from rl_teacher.store.database import (
    as_url,
    copies_before_migrations,
    default_url,
    file_of,
    sqlite_files,
)
from rl_teacher.store.files import (
    TEMPORARY_SUFFIX,
    folder_errors,
    make_private_folder,
    sync_folder,
    write,
    write_errors,
)
from rl_teacher.store.media import (
    MEDIA_KEY,
    MediaFiles,
    default_media,
    keys_of,
    seal,
    unseal,
)
from rl_teacher.store.snapshot import (
    faults_of,
    load_snapshot,
    open_read_only,
    save_snapshot,
)
from rl_teacher.store.store import Store, utc_now

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
ABOUT, SUMS, DATABASE = "backup.json", "SHA256SUMS", "labels.sqlite"

SHARED = ("segments", "media")
"""Folders whose files never change; see the module's docstring."""
LEFT_OUT = {"services", "service-in-use", "logs", "cache", ABOUT, SUMS, *SHARED}
"""Entries of a home that belong to running processes or can be made again, and `SHARED`.

Those of a backup are in a home that was copied from one by hand.
"""
LOCK = "lock"

ATTEMPTS = 10
"""Attempts to copy checkpoints, while a trainer replaces them."""
CHUNK_BYTES = 1 << 20
SUM_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>[^\0\n]+)")


@dataclass(frozen=True)
class BackupSummary:
    """Contents of a backup.

    Attributes:
        num_files: Number of files.
        size_bytes: Their size.
        num_experiments: Number of experiments in the database.
        num_labels: Number of labels in the database, with replaced ones.
    """

    num_files: int
    size_bytes: int
    num_experiments: int
    num_labels: int

    def __str__(self) -> str:
        return (
            f"{counted(self.num_experiments, 'experiment')} with "
            f"{counted(self.num_labels, 'label')}, {counted(self.num_files, 'file')} of "
            f"{self.size_bytes / 1e6:,.1f} MB"
        )


def save_backup(target: Path, media: str | Path | None = None) -> BackupSummary:
    """Copy the home to a new folder, and verify the copy.

    Processes may use the home meanwhile. The backup contains every label that was acknowledged
    before it began.

    Args:
        target: Folder to create.
        media: Storage of the clips; None for the default.

    Raises:
        BadInput: The folder exists or is inside the home, there is no home, or a name in it cannot
            be written to the list of files.
        StoreUnavailable: The database, or a remote storage of clips, cannot be read.
        RunFolderUnusable: A folder cannot be read or written.
        CorruptBackup: The copy differs from what was read.
    """
    source, target = home().resolve(), target.resolve()
    failure = f"The backup cannot be written to {target}"
    remedy = "Name another folder, or free some space."
    with write_errors(failure, remedy):
        check_target(source, target)
    with folder_errors(source):
        check_names(source)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with write_errors(failure, remedy), removed_on_failure(unfinished):
        make_private_folder(unfinished)
        digests = copy_home(source, unfinished, MediaFiles(media or default_media(source)))
        write_sums(unfinished, digests)
        summary = verify_backup(unfinished)
        unfinished.rename(target)
        sync_folder(target.parent)
    return summary


def check_target(source: Path, target: Path) -> None:
    """Check that there is a home, and that the folder of the backup can be created.

    Raises:
        BadInput: One of them is not so.
    """
    if not source.is_dir():
        raise BadInput(f"There is no home at {source}, so there is nothing to back up.")
    if target.is_relative_to(source):
        raise BadInput(f"{target} is inside the home {source}. Name a folder outside of it.")
    # Even an empty folder stays: it may be the working folder of a shell, or a mount point.
    if target.exists():
        raise BadInput(f"{target} exists already. Name a new folder for the backup.")


def check_names(source: Path) -> None:
    """Check that a list of files, which has one per line, can name the files of a home.

    Raises:
        BadInput: The name of a file is not UTF-8, or contains a line break.
    """
    for path in files_in(source):
        name = path.relative_to(source).as_posix()
        if "\n" in name or name.encode(errors="ignore").decode() != name:
            raise BadInput(
                f"The home {source} contains {name!r}, whose name is not UTF-8 or contains a line "
                "break. A backup cannot list it: rename it, or move it out of the home."
            )


def copy_home(source: Path, target: Path, media: MediaFiles) -> dict[str, str]:
    """Copy all parts of a home in the order that makes the copy consistent.

    Returns:
        SHA-256 of each file by its name.
    """
    digests: dict[str, str] = {}
    databases = [source / DATABASE]
    if (file := file_of(as_url(default_url(source)))) is not None:
        databases.append(file.resolve())
    left_out = {path.resolve() for each in databases for path in database_files(each)}

    def copy_shared() -> None:
        folders = {"segments": source / "segments"}
        if not media.is_remote:
            folders["media"] = Path(media.label)
        for name, folder in folders.items():
            copy_tree(folder, target / name, target, digests, left_out, only_new=True)

    with open_store() as store:
        # Before the database, too: clips of episodes are deleted after a while.
        copy_shared()
        for path in sorted(source.iterdir()):
            if path.name not in LEFT_OUT:
                copy_tree(path, target / path.name, target, digests, left_out)
        for checkpoints in (source / "experiments").glob("*/checkpoints"):
            copied = target / "experiments" / checkpoints.parent.name / "checkpoints"
            copy_newest(checkpoints, copied, target, digests)
        save_snapshot(store.database, target / DATABASE)
        copy_shared()
        if media.is_remote:
            fetch_media(store, media, target, digests)
    digests[DATABASE] = digest_of(target / DATABASE)
    return digests


def database_files(file: Path) -> list[Path]:
    """Return the paths of an SQLite database and of its copies before migrations."""
    return [*sqlite_files(file), *copies_before_migrations(file)]


def fetch_media(store: Store, media: MediaFiles, target: Path, digests: dict[str, str]) -> None:
    """Copy clips and scenes from a remote storage; see `copy_tree`."""
    for key in sorted({key for clip in store.clips.rendered() for key in keys_of(clip)}):
        # Deleted meanwhile, or damaged, which `rl-teacher doctor` reports.
        with suppress(MediaNotFound, CorruptClip):
            content = seal(media.get(key))
            path = target / "media" / key
            make_private_folder(path.parent)
            path.touch(mode=0o600)
            write(path, content, is_synced=True)
            digests[f"media/{key}"] = hashlib.sha256(content).hexdigest()


def copy_newest(source: Path, target: Path, root: Path, digests: dict[str, str]) -> None:
    """Copy checkpoints again if a running trainer has deleted all that were listed."""
    for _ in range(ATTEMPTS):
        if any(target.glob("*")) or not any(source.glob("checkpoint-*")):
            return
        copy_tree(source, target, root, digests)


def copy_tree(
    source: Path,
    target: Path,
    root: Path,
    digests: dict[str, str],
    left_out: Collection[Path] = (),
    *,
    only_new: bool = False,
) -> None:
    """Copy a file or a folder; files that a process deletes meanwhile are left out.

    Args:
        source: What to copy; nothing is copied if it does not exist.
        target: Its place in the backup.
        root: Folder of the backup.
        digests: SHA-256 by the name in the backup; the copied files are added.
        left_out: Files that are not copied, without symbolic links in their paths.
        only_new: Leave out files that were copied before.
    """
    for path in files_in(source):
        copy = target / path.relative_to(source)
        name = copy.relative_to(root).as_posix()
        is_left_out = path.resolve() in left_out or is_foreign(name)
        if is_left_out or (only_new and name in digests):
            continue
        with suppress(FileNotFoundError):
            digests[name] = copy_file(path, copy)


def is_foreign(name: str) -> bool:
    """Return whether a file of the media folder is no clip or scene, such as .DS_Store."""
    folder, _, key = name.partition("/")
    return folder == "media" and not MEDIA_KEY.fullmatch(key)


def files_in(path: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders, the newest checkpoints first.

    A run's checkpoints come before its metrics and policies, of which a run that continues deletes
    the later ones, but does not make up for missing ones.
    """
    if path.is_file():
        if path.name != LOCK and not is_unfinished(path):
            yield path
    elif path.is_dir() and not is_unfinished(path):
        with suppress(FileNotFoundError), read_errors(path):
            for each in sorted(path.iterdir(), reverse=path.name == "checkpoints"):
                yield from files_in(each)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Convert the error for a file or a folder that this user may not read.

    Raises:
        RunFolderUnusable: It is one.
    """
    try:
        yield
    except PermissionError as error:
        raise RunFolderUnusable(
            f"{path} cannot be read: {error.strerror}. Give yourself permission to read it, or "
            "move it out of the home."
        ) from error


def copy_file(source: Path, target: Path) -> str:
    """Copy a file with its time of change, wait until it is on disk, and return its SHA-256."""
    digest = hashlib.sha256()
    with read_errors(source):
        reading = source.open("rb")
    with reading:
        make_private_folder(target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as writing:
            while chunk := reading.read(CHUNK_BYTES):
                digest.update(chunk)
                writing.write(chunk)
            writing.flush()
            os.fsync(writing.fileno())
        # `rl-teacher runs` shows it.
        modified_ns = os.fstat(reading.fileno()).st_mtime_ns
    os.utime(target, ns=(modified_ns, modified_ns))
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: Path, digests: dict[str, str]) -> None:
    """Write the list of files and the description of a backup."""
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()
    about = {
        "format_version": FORMAT_VERSION,
        "rl_teacher_version": version("rl-teacher"),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "sums_sha256": hashlib.sha256(sums).hexdigest(),
    }
    for name, content in ((SUMS, sums), (ABOUT, json.dumps(about, indent=2).encode())):
        (folder / name).touch(mode=0o600)
        write(folder / name, content, is_synced=True)


# --- restoration ---


def restore_backup(source: Path) -> BackupSummary:
    """Restore a backup into the home, which must be empty or not exist, and into its database.

    The home appears at the end, and complete. What another process has written to it meanwhile
    stays as it is.

    Raises:
        BadInput: The home or the database is not empty.
        CorruptBackup: The backup is incomplete or altered; nothing is restored.
        StoreUnavailable: The database cannot be used, or the backup is of a newer version.
        RunFolderUnusable: A folder cannot be read or written.
    """
    target = home().resolve()
    check_empty(target)
    summary = verify_backup(source)
    url = default_url(target)
    media = MediaFiles(default_media(target))
    media.check()
    is_elsewhere = media.label != str(target / "media")
    # A mount point, such as the volume of a container, cannot be replaced.
    parent = target if target.is_mount() else target.parent
    unfinished = parent / f".{target.name}.{os.getpid()}{TEMPORARY_SUFFIX}"
    if not media.is_remote:
        media = MediaFiles(moved(Path(media.label), target, unfinished))
    with folder_errors(unfinished), removed_on_failure(unfinished):
        make_private_folder(unfinished)
        for name, digest in read_sums(source).items():
            if is_elsewhere and name.startswith("media/"):
                restore_clip(source, name, media)
            elif name != DATABASE and copy_file(source / name, unfinished / name) != digest:
                raise corrupt(source, f"{name} has changed while it was read")
        # Before the database, whose rows stay if the folder cannot be renamed.
        check_empty(target, besides=unfinished)
        if target.exists() and parent != target:
            target.rmdir()
        load_snapshot_of(source, url, target, unfinished)
        if parent == target:
            check_empty(target, besides=unfinished)
            move_entries(unfinished, target)
            return summary
        try:
            unfinished.rename(target)
        except OSError:
            check_empty(target)
            raise
        sync_folder(parent)
    return summary


def restore_clip(source: Path, name: str, media: MediaFiles) -> None:
    """Copy a clip or a scene of a backup to a storage; a damaged one is left out."""
    key = name.removeprefix("media/")
    try:
        content = unseal(key, (source / name).read_bytes())
    except CorruptClip:
        # Media are not synced, so that a power failure may have damaged the original.
        logger.warning(
            "%s was damaged before the backup, and was not restored. A trainer that continues "
            "renders its clips again.",
            name,
        )
        return
    media.put(key, content)


def move_entries(source: Path, target: Path) -> None:
    """Move the parts of a home to the folder that contains it, the database last."""
    target.chmod(0o700)
    for path in sorted(source.iterdir(), key=lambda each: (each.name == DATABASE, each)):
        path.rename(target / path.name)
    source.rmdir()
    sync_folder(target)


def check_empty(target: Path, besides: Path | None = None) -> None:
    """Check that a home to restore into is empty, or does not exist.

    Args:
        target: The home.
        besides: A file or folder that may be in it.

    Raises:
        BadInput: It is not empty.
    """
    if target.exists() and (
        not target.is_dir() or any(each != besides for each in target.iterdir())
    ):
        raise BadInput(
            f"The home {target} is not empty, and a backup is restored only into an empty one. "
            "Name another with RL_TEACHER_HOME."
        )


def moved(path: Path, source: Path, target: Path) -> Path:
    """Return the place of a path after its folder has moved; a path elsewhere stays."""
    path = path.resolve()
    return target / path.relative_to(source) if path.is_relative_to(source) else path


def load_snapshot_of(backup: Path, url: str, target: Path, unfinished: Path) -> None:
    """Copy the database of a backup, which stays as it is, to the database of the home.

    Args:
        backup: Folder of the backup.
        url: Database of the home.
        target: The home.
        unfinished: Folder that will be renamed to the home.
    """
    file = file_of(as_url(url))
    if file is not None:
        load_snapshot(backup / DATABASE, moved(file, target, unfinished), utc_now)
        return
    # Migrated before its rows are copied.
    copy = unfinished / f".{DATABASE}{TEMPORARY_SUFFIX}"
    shutil.copyfile(backup / DATABASE, copy)
    try:
        load_snapshot(copy, url, utc_now)
    finally:
        for each in sqlite_files(copy):
            each.unlink(missing_ok=True)


def verify_backup(folder: Path) -> BackupSummary:
    """Check every file of a backup against its hash, and the integrity of its database.

    Raises:
        CorruptBackup: A file is missing, truncated or altered, or the folder is no backup.
    """
    digests = read_sums(folder)
    size_bytes = 0
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            raise corrupt(folder, f"{name} is missing")
        if digest_of(path) != digest:
            raise corrupt(folder, f"{name} is truncated or altered: its SHA-256 differs")
        size_bytes += path.stat().st_size
    if faults := faults_of(folder / DATABASE):
        raise corrupt(folder, f"its database is damaged: {faults[0]}")
    with closing(open_read_only(folder / DATABASE)) as connection:
        [(num_experiments, num_labels)] = connection.execute(
            "SELECT (SELECT count(*) FROM experiments), (SELECT count(*) FROM labels)"
        )
    return BackupSummary(len(digests), size_bytes, num_experiments, num_labels)


def read_sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a backup by its name.

    Raises:
        CorruptBackup: The list is missing or altered, or names a file outside the folder.
    """
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        sums = (folder / SUMS).read_bytes()
        format_version, digest = about["format_version"], about["sums_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise corrupt(folder, f"{ABOUT} or {SUMS} is missing or damaged") from error
    if format_version != FORMAT_VERSION:
        raise corrupt(folder, f"its format is {format_version!r}, and {FORMAT_VERSION} was needed")
    if hashlib.sha256(sums).hexdigest() != digest:
        raise corrupt(folder, f"{SUMS} is truncated or altered")
    lines = [SUM_LINE.fullmatch(line) for line in sums.decode(errors="replace").split("\n")[:-1]]
    digests = {line["name"]: line["digest"] for line in lines if line is not None}
    if len(digests) != len(lines) or DATABASE not in digests or not are_inside(digests):
        raise corrupt(folder, f"{SUMS} is not a list of files as `rl-teacher backup` writes it")
    return digests


def are_inside(names: Collection[str]) -> bool:
    """Return whether no name leads out of the folder that it is relative to."""
    paths = [PurePosixPath(name) for name in names]
    return not any(path.is_absolute() or ".." in path.parts for path in paths)


def corrupt(folder: Path, fault: str) -> CorruptBackup:
    """Return the error for a backup that cannot be restored."""
    return CorruptBackup(
        f"{folder} is not a complete backup: {fault}. Use another backup; nothing was restored."
    )


@contextmanager
def removed_on_failure(folder: Path) -> Iterator[None]:
    """Delete a folder if the block fails."""
    try:
        yield
    except BaseException:
        if folder.is_dir():
            shutil.rmtree(folder)
        raise
