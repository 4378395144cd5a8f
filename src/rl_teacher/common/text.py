"""Text of messages."""

import traceback
from pathlib import Path


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 label` and `2,000 labels`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def described(error: Exception) -> str:
    """Return the type and text of an exception; without text, the type and what raised it."""
    if text := str(error).strip().rstrip("."):
        return f"{type(error).__name__}: {text}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(error).__name__} in {frame.name} ({place})"
