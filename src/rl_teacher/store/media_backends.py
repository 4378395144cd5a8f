"""Places of media: a local folder, or a folder of a remote file system, such as s3:// or gs://."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rl_teacher.common.errors import BadInput, StoreUnavailable
from rl_teacher.common.files import folder_errors, write_atomically
from rl_teacher.common.paths import user_path

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""Optional dependencies of this package by the protocols of object stores."""

S3_OPTIONS = {
    "config_kwargs": {
        "connect_timeout": 5,
        "read_timeout": 20,
        "retries": {"total_max_attempts": 1},
        "max_pool_connections": 32,
    }
}
"""Options of s3fs. Its defaults repeat requests for minutes, which callers do themselves."""

S3_ATTEMPTS = 2
"""Attempts at a request; the second one is needed if the server has closed an idle connection."""


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
        with folder_errors(self.path), suppress(FileNotFoundError):
            return (self.path / key).read_bytes()
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
    """A folder of a remote file system, in which an object is complete or does not exist.

    Attributes:
        label: URL without a password.
    """

    def __init__(self, file_system: Any, label: str, *, is_object_store: bool) -> None:
        self.label = label
        self._file_system = file_system
        self._is_object_store = is_object_store

    def write(self, key: str, content: bytes) -> None:
        """Write an object."""
        with remote_errors(self.label):
            # An object store has no folders; s3fs would create the bucket if it does not exist.
            if not self._is_object_store:
                self._file_system.makedirs(key.rpartition("/")[0], exist_ok=True)
            self._file_system.pipe_file(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        with remote_errors(self.label):
            try:
                return self._file_system.cat_file(key)
            except FileNotFoundError as error:
                # s3fs raises it for a missing bucket, too.
                response = getattr(error.__cause__, "response", None) or {}
                if response.get("Error", {}).get("Code") == "NoSuchBucket":
                    raise
        return None

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with remote_errors(self.label), suppress(FileNotFoundError):
            self._file_system.rm_file(key)

    def exists(self, key: str) -> bool:
        """Return True if an object exists."""
        # fsspec's `exists` returns False after any error, unless the driver overrides it.
        with remote_errors(self.label), suppress(FileNotFoundError):
            self._file_system.info(key)
            return True
        return False


def open_backend(url_or_path: str | Path) -> LocalFolder | RemoteFolder:
    """Return the backend for a folder or an fsspec URL.

    Raises:
        BadInput: The URL is invalid, or the driver of its protocol is not installed.
    """
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return LocalFolder(user_path(url_or_path))
    # Imported here, because fsspec is slow to import and local folders do not need it.
    from fsspec.core import url_to_fs  # noqa: PLC0415
    from fsspec.implementations.dirfs import DirFileSystem  # noqa: PLC0415
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415

    protocol = url_or_path.partition("://")[0]
    extra = EXTRAS.get(protocol)
    # gcsfs logs each error that it raises, with the address.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    try:
        parts = urlsplit(url_or_path)
        if extra and not parts.netloc:
            raise ValueError("it names no bucket")
        host = parts.netloc.rpartition("@")[2]
        label = parts._replace(netloc=host, query="", fragment="").geturl()
        file_system, root = url_to_fs(url_or_path, **(S3_OPTIONS if extra == "s3" else {}))
    except ImportError as error:
        raise BadInput(
            f"RL_TEACHER_MEDIA_URL={protocol}://... needs a driver that cannot be imported: "
            f'{error}. Install it with `pip install "rl-teacher[{extra}]"`, or name a local folder.'
        ) from error
    except ValueError as error:
        raise BadInput(
            f"RL_TEACHER_MEDIA_URL={protocol[:40]}://... cannot be used: {error}. Give a local "
            "folder, s3://bucket/folder or gs://bucket/folder."
        ) from error
    if isinstance(file_system, LocalFileSystem):
        return LocalFolder(Path(root))
    if extra == "s3":
        file_system.retries = S3_ATTEMPTS
    folder = DirFileSystem(root, file_system)
    return RemoteFolder(folder, label, is_object_store=extra is not None)


@contextmanager
def remote_errors(label: str) -> Iterator[None]:
    """Convert errors of a remote file system; each driver has its own exception types.

    Raises:
        StoreUnavailable: Any error occurred.
    """
    try:
        yield
    except Exception as error:
        refused = PermissionError, FileNotFoundError, ValueError, TypeError
        raise StoreUnavailable(
            f"The media in {label} cannot be used: {type(error).__name__}: {error}. Check the "
            "address, the network, and the credentials where the library of the storage looks.",
            "The media cannot be used. The log of the service has the cause.",
            is_transient=not isinstance(error, refused),
        ) from error
