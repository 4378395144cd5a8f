"""Backends for media: a local folder, or any file system that fsspec supports."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rl_teacher.common.errors import BadInput, StoreUnavailable
from rl_teacher.store.files import folder_errors, write_atomically


class LocalFolder:
    """A local folder.

    fsspec's local file system replaces a file atomically only within a transaction of its own, and
    does not explain errors, so that files are written here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = str(path)

    def write(self, key: str, content: bytes) -> None:
        """Write a file, which survives SIGKILL."""
        path = self.path / key
        with folder_errors(self.path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content, is_synced=False)

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        with folder_errors(self.path):
            try:
                return (self.path / key).read_bytes()
            except FileNotFoundError:
                return None

    def remove(self, key: str) -> None:
        """Delete a file, if it exists."""
        with folder_errors(self.path):
            (self.path / key).unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        """Return True if a file exists."""
        with folder_errors(self.path):
            return (self.path / key).is_file()


class RemoteFolder:
    """A folder of a remote file system, in which an object is complete or does not exist."""

    def __init__(self, file_system: Any, label: str) -> None:
        self.label = label
        self._file_system = file_system

    def write(self, key: str, content: bytes) -> None:
        """Write an object."""
        with remote_errors(self.label):
            self._file_system.makedirs(key.rpartition("/")[0], exist_ok=True)
            self._file_system.pipe_file(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        with remote_errors(self.label):
            try:
                return self._file_system.cat_file(key)
            except FileNotFoundError:
                return None

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with remote_errors(self.label), contextlib.suppress(FileNotFoundError):
            self._file_system.rm_file(key)

    def exists(self, key: str) -> bool:
        """Return True if an object exists."""
        with remote_errors(self.label):
            return bool(self._file_system.exists(key))


def open_backend(url_or_path: str | Path) -> LocalFolder | RemoteFolder:
    """Return the backend for a folder or an fsspec URL.

    Raises:
        BadInput: The protocol is unknown, or its driver is not installed.
    """
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return LocalFolder(Path(url_or_path).expanduser())
    # Imported here, because fsspec is slow to import and local folders do not need it.
    from fsspec.core import url_to_fs  # noqa: PLC0415
    from fsspec.implementations.dirfs import DirFileSystem  # noqa: PLC0415
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415

    label = without_password(url_or_path)
    protocol = url_or_path.partition("://")[0]
    try:
        file_system, root = url_to_fs(url_or_path)
    except ImportError as error:
        raise BadInput(
            f"--media {label} needs a package that is not installed ({error}). Install it with "
            f"pip, such as s3fs for s3:// and gcsfs for gs://, or name a local folder."
        ) from error
    except ValueError as error:
        raise BadInput(
            f"--media {label} cannot be used: {protocol[:40]!r} is not a protocol that fsspec "
            "knows, or the rest does not fit it. Give a local folder, s3://bucket/folder or "
            "gs://bucket/folder."
        ) from error
    if isinstance(file_system, LocalFileSystem):
        return LocalFolder(Path(root))
    return RemoteFolder(DirFileSystem(root, file_system), label)


@contextmanager
def remote_errors(label: str) -> Iterator[None]:
    """Convert errors of a remote file system; each driver has its own exception types.

    Raises:
        StoreUnavailable: Any error occurred.
    """
    try:
        yield
    except Exception as error:
        raise StoreUnavailable(
            f"The media at {label} cannot be used: {type(error).__name__} {error}. Check that it "
            "is there, and that your credentials allow reading and writing."
        ) from error


def without_password(url: str) -> str:
    """Return a URL that can be shown."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
