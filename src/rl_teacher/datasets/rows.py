"""The rows of a data set: labels as `report/label_export.py` writes them, checked one by one."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput
from rl_teacher.report.label_export import COLUMNS, SCHEMA_VERSION, plainly

Row = Mapping[str, Any]

HASH = re.compile(r"[0-9a-f]{64}")
LARGEST = 2**53
"""A whole number that every program can read."""
LONGEST_NAME = 200
LONGEST_DETAILS = 20_000
"""Characters of a row's details, at most."""
MOST_NESTED = 40
"""Brackets within brackets in one row, at most."""

WHOLE = ("label_id", "comparison_id", "asked_at_step")
FLAGS = ("is_swapped", "is_current", "is_excluded")
TEXTS = ("experiment", "labeler", "role", "purpose", "lease")

IMPORTED = "imported"
"""Where the details of a label that was imported keep what it was before."""
PREFIX = "imported:"
"""Of labelers whose labels come from elsewhere: nobody here is taken for somebody there."""
RESTORED = ("labeler", "role", "request_id", "answered_at")
"""What it was before."""


def plain_row(row: Row) -> dict[str, Any]:
    """A row as JSON has it; a label that was imported is again as it was."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(row), default=plainly))
    details = plain["details"]
    if plain["labeler"].startswith(PREFIX) and IMPORTED in (details or {}):
        before = details.pop(IMPORTED)
        plain |= {name: before[name] for name in RESTORED} | {"details": details or None}
    return plain


def checked_row(row: Any, number: int) -> dict[str, Any]:
    """A row that somebody wrote, if every column is what it should be.

    Args:
        row: as JSON has it.
        number: of the row, for the message.

    Raises:
        BadInput: says which row, and what is wrong with it.
    """
    if not isinstance(row, Mapping):
        raise BadInput(f"Label {number} is {row!r:.80}; a JSON object is needed.")
    if missing := [name for name in COLUMNS if name not in row]:
        raise BadInput(f"Label {number} has no {', '.join(missing)}.")
    check_version(row["schema_version"], f"label {number}")
    for name in COLUMNS:
        if not is_fit(name, row[name]):
            raise BadInput(f"Label {number} has {row[name]!r:.80} for its {name}.")
    return {name: row[name] for name in COLUMNS}


def check_version(version: Any, what: str) -> None:
    """Refuse what a newer rl-teacher wrote.

    Raises:
        BadInput: newer, or no version at all.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadInput(f"The schema version of {what} is {version!r:.80}; a number is needed.")
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"The schema version of {what} is {version}; this rl-teacher reads up to "
            f"{SCHEMA_VERSION}. Install a newer one."
        )


def is_fit(name: str, value: Any) -> bool:  # noqa: PLR0911 - one kind of column after the other
    """Whether a value may stand in a column."""
    if name in WHOLE:
        return is_number(value)
    if name in FLAGS:
        return isinstance(value, bool)
    if name in TEXTS:
        return isinstance(value, str) and len(value) <= LONGEST_NAME and is_storable(value)
    if name in ("left_clip", "right_clip", "shown_left"):
        return isinstance(value, str) and HASH.fullmatch(value) is not None
    if name in ("answer", "gold"):
        return value is None or (isinstance(value, str) and value in list(Answer))
    if name == "response_ms":
        return value is None or is_number(value)
    if name == "request_id":
        return is_uuid(value)
    if name == "answered_at":
        return is_moment(value)
    if name == "details":
        return value is None or is_small_object(value)
    return True


def is_number(value: Any) -> bool:
    """Whether it is a whole number from 0 that every program can read."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def is_storable(text: str) -> bool:
    """Whether a database takes a text: no half characters, and no zero."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def is_uuid(value: Any) -> bool:
    """Whether it is a UUID as text."""
    try:
        return isinstance(value, str) and str(UUID(value)) == value
    except ValueError:
        return False


def is_moment(value: Any) -> bool:
    """Whether it is a time with its zone, as ISO 8601 has it."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def is_small_object(value: Any) -> bool:
    """Whether it is a JSON object of a size that is kept."""
    if not isinstance(value, dict):
        return False
    text = json.dumps(value)
    return len(text) <= LONGEST_DETAILS and "\\u0000" not in text and "\\ud" not in text.lower()


def counts(row: Row) -> bool:
    """Whether something is to be learned from a label: not taken back, nor its labeler excluded."""
    return (
        row["is_current"]
        and not row["is_excluded"]
        and row["answer"] is not None
        and row["purpose"] == "answer"
    )
