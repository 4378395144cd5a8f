"""Access token of the owner, stored in the home."""

import os
import re
import secrets
from pathlib import Path

from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.store.files import folder_errors

FILE_NAME = "access-token"
NUM_BYTES = 32
"""Of randomness: nobody guesses 256 bits."""

WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{43,}")


def access_token(home: Path) -> str:
    """The token of this home, made the first time; only its owner may read the file.

    Raises:
        RunFolderUnusable: the file cannot be read or written, or holds something else.
    """
    path = home / FILE_NAME
    with folder_errors(home):
        if not path.exists():
            home.mkdir(parents=True, exist_ok=True)
            _make(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        token = path.read_text(encoding="ascii", errors="replace").strip()
    if not WELL_FORMED.fullmatch(token):
        raise RunFolderUnusable(
            f"{path} does not hold an access token. Delete it, and a new one is made; links that "
            "were printed before stop working then."
        )
    return token


def _make(path: Path) -> None:
    """Create the token file.

    A hard link puts it in place, so that of two processes one wins and neither reads half a file.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(NUM_BYTES) + "\n")
        _put_in_place(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _put_in_place(unfinished: Path, path: Path) -> None:
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        unfinished.replace(path)
