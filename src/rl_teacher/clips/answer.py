"""What a teacher may say about two clips."""

from enum import StrEnum


class Answer(StrEnum):
    """One of four values, never merged in storage: a tie is not a shrug."""

    LEFT = "left"
    RIGHT = "right"
    EQUAL = "equal"
    CANNOT_TELL = "cannot_tell"
