"""Access token of the owner, stored in the home."""

import os
import re
import secrets
from pathlib import Path

from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.store.files import folder_errors

FILE_NAME = "access-token"
NUM_BYTES = 32
"""Random bytes of a token."""

WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{43,}")


def access_token(home: Path) -> str:
    """Return the token of a home, created at the first call and readable by its owner only.

    Raises:
        RunFolderUnusable: The file cannot be read or written, or does not contain a token.
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.unfinished")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(NUM_BYTES) + "\n")
        _put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _put_in_place(temporary: Path, path: Path) -> None:
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        temporary.replace(path)
