"""Where media may be: a local folder, or wherever fsspec reaches."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rl_teacher.common.errors import BadInput, StoreUnavailable
from rl_teacher.store.files import folder_failures_in_words, write_whole


class Folder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = str(path)

    def write(self, key: str, content: bytes) -> None:
        """Write a file that outlives SIGKILL."""
        path = self.path / key
        with folder_failures_in_words(self.path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, is_synced=False)

    def read(self, key: str) -> bytes | None:
        """A file's bytes."""
        with folder_failures_in_words(self.path):
            try:
                return (self.path / key).read_bytes()
            except FileNotFoundError:
                return None

    def remove(self, key: str) -> None:
        """Delete a file, if it is there."""
        with folder_failures_in_words(self.path):
            (self.path / key).unlink(missing_ok=True)

    def has(self, key: str) -> bool:
        """Whether there is such a file."""
        with folder_failures_in_words(self.path):
            return (self.path / key).is_file()


class Remote:
    """A place behind a URL; an object there is whole or not there."""

    def __init__(self, file_system: Any, root: str, label: str) -> None:
        self.label = label
        self._file_system = file_system
        self._root = root.rstrip("/")

    def write(self, key: str, content: bytes) -> None:
        """Put an object."""
        path = self._path(key)
        with remote_failures_in_words(self.label):
            self._file_system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._file_system.pipe_file(path, content)

    def read(self, key: str) -> bytes | None:
        """Get an object."""
        with remote_failures_in_words(self.label):
            try:
                return self._file_system.cat_file(self._path(key))
            except FileNotFoundError:
                return None

    def remove(self, key: str) -> None:
        """Delete an object, if it is there."""
        with remote_failures_in_words(self.label), contextlib.suppress(FileNotFoundError):
            self._file_system.rm_file(self._path(key))

    def has(self, key: str) -> bool:
        """Whether there is such an object."""
        with remote_failures_in_words(self.label):
            return bool(self._file_system.exists(self._path(key)))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


def place_of(url_or_path: str | Path) -> Folder | Remote:
    """A folder, or what fsspec makes of a URL.

    Raises:
        BadInput: nobody knows the URL's protocol, or its driver is not installed.
    """
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return Folder(Path(url_or_path).expanduser())
    from fsspec.core import url_to_fs  # noqa: PLC0415 - only who needs it waits for it
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
        return Folder(Path(root))
    return Remote(file_system, root, label)


@contextmanager
def remote_failures_in_words(label: str) -> Iterator[None]:
    """Say that a remote place fails; each driver has errors of its own for it.

    Raises:
        StoreUnavailable: whatever went wrong.
    """
    try:
        yield
    except Exception as error:
        raise StoreUnavailable(
            f"The media at {label} cannot be used: {type(error).__name__} {error}. Check that it "
            "is there, and that your credentials allow reading and writing."
        ) from error


def without_password(url: str) -> str:
    """A URL that may be shown."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
