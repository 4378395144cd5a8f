"""Paths that users name."""

from pathlib import Path

from rl_teacher.common.errors import BadInput


def user_path(path: str | Path) -> Path:
    """Expand `~` and `~user` at the start of a path, which shells leave after `--option=`.

    Raises:
        BadInput: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        user = Path(path).parts[0]
        raise BadInput(
            f"{path} was given, and the home folder of {user} is unknown. Write the whole path, or "
            f"./{path} for a name that begins with ~."
        ) from error
