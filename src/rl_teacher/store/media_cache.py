"""Local copies of media in a remote storage, so that many labelers cause few requests per clip."""

import os
import time
from contextlib import suppress
from pathlib import Path

from rl_teacher.common.errors import (
    CorruptClip,
    MediaNotFound,
    RunFolderUnusable,
    StoreUnavailable,
)
from rl_teacher.common.files import trim_folder
from rl_teacher.store.media import MediaFiles

CACHE_FOLDER = Path("cache") / "media"
"""Folder of the copies in a home."""

MAX_BYTES = 1_000_000_000
TRIMMED_SHARE = 0.05
"""New copies, as a share of the limit, after which the least recently used ones are deleted."""
FAILING_S = 2.0
"""Least time for which a failure answers further requests, which would each wait for a timeout.

It is longer if the failure has taken longer.
"""


class CachedMedia(MediaFiles):
    """Media of a remote storage, copied to a local folder when they are read.

    Processes may share the folder. A copy is verified as every file is; a damaged one is replaced.
    """

    def __init__(self, url: str, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        """Open a storage.

        Args:
            url: Remote storage.
            folder: Folder of the copies, which may be deleted at any time.
            max_bytes: Size of the folder, exceeded by at most `TRIMMED_SHARE` per process.
        """
        super().__init__(url)
        self._folder, self._max_bytes = folder, max_bytes
        self._copies = MediaFiles(folder)
        self._copied_bytes = 0
        self._failure: tuple[float, StoreUnavailable] | None = None

    def get(self, key: str) -> bytes:
        """Read the content of a key; see `MediaFiles.get`."""
        with suppress(MediaNotFound, CorruptClip, RunFolderUnusable):
            content = self._copies.get(key)
            with suppress(OSError):
                os.utime(self._folder / key)  # used last, see `trim_folder`
            return content
        return self._fetch(key)

    def _fetch(self, key: str) -> bytes:
        """Read from the remote storage, and keep a copy."""
        if self._failure is not None and time.monotonic() < self._failure[0]:
            error = self._failure[1]
            raise StoreUnavailable(str(error), error.public, is_transient=True)
        began_s = time.monotonic()
        try:
            content = super().get(key)
        except StoreUnavailable as error:
            if error.is_transient:
                now_s = time.monotonic()
                self._failure = now_s + max(FAILING_S, now_s - began_s), error
            raise
        self._failure = None
        # A full disk fails no request.
        with suppress(RunFolderUnusable, OSError):
            self._copies.put(key, content)
            self._copied_bytes += len(content)
            if self._copied_bytes > TRIMMED_SHARE * self._max_bytes:
                self._copied_bytes = 0
                trim_folder(self._folder, self._max_bytes)
        return content


def open_cached(url_or_path: str, folder: Path) -> MediaFiles:
    """Open a storage of media; a remote one is cached.

    Args:
        url_or_path: Local folder, or URL.
        folder: Folder of the copies.

    Raises:
        BadInput: The protocol of the URL is unknown, or its driver is not installed.
    """
    media = MediaFiles(url_or_path)
    return CachedMedia(url_or_path, folder) if media.is_remote else media
