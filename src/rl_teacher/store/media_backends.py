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

REMOTE = "The storage of the media"

ANSWERS_DENIED = {401, 403, "400", "401", "403", "InvalidToken", "TokenRefreshRequired"}
"""Codes of answers that deny access.

S3 answers 400 to requests of s3fs with expired temporary credentials, or for the wrong region: they
ask for the metadata of an object, so that the answer has no body with a code.
"""
NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "DefaultCredentialsError",
        "CredentialRetrievalError",
    }
)
"""Exception classes of botocore and google-auth, by name because neither is imported here."""
EXPIRED_CREDENTIALS = frozenset({"LoginError", "RefreshError", "SSOError", "TokenRetrievalError"})
"""The same for credentials that cannot be refreshed, such as an expired session of AWS SSO."""

INVALID_ADDRESS = frozenset({"ParamValidationError", "NoRegionError"})


class LocalFolder:
    """A local folder.

    fsspec's local file system replaces a file atomically only within a transaction of its own, and
    does not explain errors, so that files are written here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = self.place = str(path)

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
        place: Name of the folder in errors, which may be logged and sent to labelers.
    """

    place = "the storage of the media"

    def __init__(self, file_system: Any, label: str, *, is_object_store: bool) -> None:
        self.label = label
        self._file_system = file_system
        self._is_object_store = is_object_store

    def check(self, key: str) -> None:
        """Check that a key can be read, whether it exists or not.

        Raises:
            StoreUnavailable: It cannot; the message contains the URL.
        """
        try:
            self.read(key)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{self.label}: {error}", error.public, is_transient=error.is_transient
            ) from error

    def write(self, key: str, content: bytes) -> None:
        """Write an object."""
        with remote_errors():
            # An object store has no folders; s3fs would create the bucket if it does not exist.
            if not self._is_object_store:
                self._file_system.makedirs(key.rpartition("/")[0], exist_ok=True)
            self._file_system.pipe_file(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        with remote_errors():
            try:
                return self._file_system.cat_file(key)
            except FileNotFoundError as error:
                if "NoSuchBucket" in codes_of(error):
                    raise
        return None

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with remote_errors(), suppress(FileNotFoundError):
            self._file_system.rm_file(key)

    def exists(self, key: str) -> bool:
        """Return True if an object exists."""
        # fsspec's `exists` returns False after any error, unless the driver overrides it.
        with remote_errors(), suppress(FileNotFoundError):
            self._file_system.info(key)
            return True
        return False


def open_backend(url_or_path: str | Path) -> LocalFolder | RemoteFolder:
    """Return the backend for a folder or an fsspec URL.

    Raises:
        BadInput: The protocol is unknown, or its driver is not installed.
    """
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return LocalFolder(user_path(url_or_path))
    # Imported here, because fsspec is slow to import and local folders do not need it.
    from fsspec.core import url_to_fs  # noqa: PLC0415
    from fsspec.implementations.dirfs import DirFileSystem  # noqa: PLC0415
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415

    protocol = url_or_path.partition("://")[0]
    try:
        label = without_password(url_or_path)
    except ValueError as error:
        raise BadInput(
            f"--media {protocol}://... was given, and its address is invalid: {error}. Give a "
            "local folder, s3://bucket/folder or gs://bucket/folder."
        ) from error
    extra = EXTRAS.get(protocol)
    if extra is not None and not urlsplit(url_or_path).netloc:
        raise BadInput(f"--media {label} names no bucket. Give {protocol}://bucket/folder.")
    # gcsfs logs each error that it raises, with the address.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    try:
        file_system, root = url_to_fs(url_or_path, **(S3_OPTIONS if extra == "s3" else {}))
    except ImportError as error:
        package = "a package" if extra is None else f"the extra [{extra}]"
        command = f'pip install "rl-teacher[{extra}]"' if extra else "pip"
        raise BadInput(
            f"--media {label} needs {package} that is not installed ({error}). Install it with "
            f"{command}, or name a local folder."
        ) from error
    except ValueError as error:
        raise BadInput(
            f"--media {label} cannot be used: {protocol[:40]!r} is not a protocol that fsspec "
            "knows, or the rest does not fit it. Give a local folder, s3://bucket/folder or "
            "gs://bucket/folder."
        ) from error
    except Exception as error:  # a driver may look for credentials already here
        cause, remedy, is_transient = explain(error)
        raise StoreUnavailable(
            f"{label}: {REMOTE} cannot be used: {cause}. {remedy}", is_transient=is_transient
        ) from error
    if isinstance(file_system, LocalFileSystem):
        return LocalFolder(Path(root))
    if extra == "s3":
        file_system.retries = S3_ATTEMPTS
    folder = DirFileSystem(root, file_system)
    return RemoteFolder(folder, label, is_object_store=extra is not None)


@contextmanager
def remote_errors() -> Iterator[None]:
    """Convert errors of a remote file system; each driver has its own exception types.

    The text of the driver is left out, which may contain the address.

    Raises:
        StoreUnavailable: Any error occurred.
    """
    try:
        yield
    except Exception as error:
        cause, remedy, is_transient = explain(error)
        raise StoreUnavailable(
            f"{REMOTE} cannot be used: {cause}. {remedy}",
            "The media cannot be used. The log of the service has the cause.",
            is_transient=is_transient,
        ) from error


def explain(error: Exception) -> tuple[str, str, bool]:
    """Return cause and remedy of a driver's error, and whether it may pass by itself."""
    errors = chain_of(error)
    names = {each.__name__ for one in errors for each in type(one).__mro__}
    codes = codes_of(error)
    if names & NO_CREDENTIALS:
        cause = "there are no credentials"
        remedy = (
            "Provide them where its library looks: environment variables such as "
            "AWS_ACCESS_KEY_ID and GOOGLE_APPLICATION_CREDENTIALS, a file such as "
            "~/.aws/credentials, or the role of the machine."
        )
        return cause, remedy, False
    is_denied = isinstance(error, PermissionError) or bool(codes & ANSWERS_DENIED)
    is_denied |= str(error).startswith("Forbidden")  # how gcsfs reports the status 403
    # google-auth also raises RefreshError if its server does not answer.
    is_outage = "TransportError" in names or any(
        getattr(each, "retryable", False) for each in errors
    )
    if is_denied or (names & EXPIRED_CREDENTIALS and not is_outage):
        cause = "access is denied"
        remedy = (
            "Check the credentials, which may have expired, the region, and the permissions to "
            "list the bucket and to read, write and delete its objects."
        )
        return cause, remedy, False
    if isinstance(error, FileNotFoundError):
        return "the bucket does not exist", "Create it, or correct its name.", False
    if isinstance(error, (ValueError, TypeError)) or names & INVALID_ADDRESS:
        cause = f"its address is invalid ({type(error).__name__})"
        return cause, "Give s3://bucket/folder or gs://bucket/folder.", False
    cause = f"it does not answer ({type(error).__name__})"
    return cause, "Check the network, and the endpoint if it is set.", True


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and its causes."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def codes_of(error: BaseException) -> set[int | str]:
    """Return the codes of the answers that caused an error, of botocore and of gcsfs."""
    errors = chain_of(error)
    responses = [getattr(each, "response", None) for each in errors]
    found = [each.get("Error", {}).get("Code") for each in responses if isinstance(each, dict)]
    found += [getattr(each, "code", None) for each in errors]
    return {each for each in found if isinstance(each, (int, str))}


def without_password(url: str) -> str:
    """Return a URL that can be shown."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
