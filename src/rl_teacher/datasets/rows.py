"""Rows of a data set: labels as `report/label_export.py` writes them, validated when read."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rl_teacher.common.errors import BadInput
from rl_teacher.report.label_export import COLUMNS, SCHEMA_VERSION, plainly

Row = Mapping[str, Any]

MAX_INTEGER = 2**53
"""Largest integer that every JSON reader represents exactly."""
MAX_NAME_LENGTH = 200
MAX_DETAILS_LENGTH = 20_000

IMPORTED = "imported"
"""Key in the details of an imported label that holds its original values."""
PREFIX = "imported:"
"""Prefix of the names of imported labelers, so that they are not confused with local ones."""
RESTORED = ("labeler", "role", "request_id", "answered_at")
"""Columns that an import changes and an export restores."""


def is_storable(text: str) -> bool:
    """Return True if a database accepts a text: no NUL and no lone surrogates."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _check_storable(text: str) -> str:
    if not is_storable(text):
        raise ValueError("NUL or a lone surrogate")
    return text


def _check_uuid(text: str) -> str:
    if str(UUID(text)) != text:
        raise ValueError("not a UUID in canonical form")
    return text


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("no time zone")
    return text


def _check_details(details: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(details)
    is_text_storable = "\\u0000" not in text and "\\ud" not in text.lower()
    if len(text) > MAX_DETAILS_LENGTH or not is_text_storable:
        raise ValueError("too long, or with NUL or lone surrogates")
    return details


Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH), AfterValidator(_check_storable)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
AnswerValue = Literal["left", "right", "equal", "cannot_tell"]


class LabelColumns(BaseModel):
    """Types of the columns; strict, so that nothing is converted."""

    model_config = ConfigDict(strict=True)

    schema_version: int
    label_id: Count
    experiment: Name
    comparison_id: Count
    asked_at_step: Count
    left_clip: Hash
    right_clip: Hash
    answer: AnswerValue | None
    shown_left: Hash
    is_swapped: bool
    labeler: Name
    role: Name
    answered_at: Annotated[str, AfterValidator(_check_time)]
    response_ms: Count | None
    purpose: Name
    lease: Name
    is_current: bool
    is_excluded: bool
    gold: AnswerValue | None
    request_id: Annotated[str, AfterValidator(_check_uuid)]
    details: Annotated[dict[str, Any], AfterValidator(_check_details)] | None


def json_row(row: Row) -> dict[str, Any]:
    """Convert an exported row to JSON types, and restore the original values of an imported one."""
    converted: dict[str, Any] = json.loads(json.dumps(dict(row), default=plainly))
    details = converted["details"]
    if converted["labeler"].startswith(PREFIX) and IMPORTED in (details or {}):
        original = details.pop(IMPORTED)
        converted |= {name: original[name] for name in RESTORED} | {"details": details or None}
    return converted


def validate_row(row: Any, number: int) -> dict[str, Any]:
    """Validate a row from an untrusted file.

    Args:
        row: Decoded JSON.
        number: Number of the row, for the error text.

    Raises:
        BadInput: A column is missing or has an invalid value.
    """
    if not isinstance(row, Mapping):
        raise BadInput(f"Label {number} is {row!r:.80}; a JSON object is needed.")
    if missing := [name for name in COLUMNS if name not in row]:
        raise BadInput(f"Label {number} has no {', '.join(missing)}.")
    check_version(row["schema_version"], f"label {number}")
    columns = {name: row[name] for name in COLUMNS}
    try:
        LabelColumns.model_validate(columns)
    except ValidationError as error:
        name = error.errors(include_url=False, include_context=False)[0]["loc"][0]
        raise BadInput(f"Label {number} has {row[name]!r:.80} for its {name}.") from error
    return columns


def check_version(version: Any, what: str) -> None:
    """Check that this release can read a schema version.

    Raises:
        BadInput: The version is newer, or not a version.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadInput(f"The schema version of {what} is {version!r:.80}; a number is needed.")
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"The schema version of {what} is {version}; this rl-teacher reads up to "
            f"{SCHEMA_VERSION}. Install a newer one."
        )


def counts(row: Row) -> bool:
    """Return True if a label is used for training: current, an answer, and not excluded."""
    return (
        row["is_current"]
        and not row["is_excluded"]
        and row["answer"] is not None
        and row["purpose"] == "answer"
    )
