"""Rows of a data set: labels as `report/label_export.py` writes them, validated when read."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rl_teacher.common.errors import BadInput
from rl_teacher.report.label_export import SCHEMA_VERSION, Row

MAX_INTEGER = 2**53
"""Largest integer that every JSON reader represents exactly."""
MAX_NAME_LENGTH = 200
MAX_DETAILS_LENGTH = 20_000

RESTORED = ("labeler", "role", "request_id", "answered_at", "is_held_out")
"""Columns that an import changes and an export restores."""


def check_time(text: str) -> str:
    """Check that a text is a time with a zone, as ISO 8601."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("no time zone")
    return text


def check_details(details: dict[str, Any]) -> dict[str, Any]:
    """Check that a database accepts the details: no NUL and no lone surrogates."""
    text = json.dumps(details, ensure_ascii=False)
    # UTF-8 cannot encode lone surrogates, which raises a ValueError; NUL is escaped in JSON.
    if len(text.encode()) > MAX_DETAILS_LENGTH or "\\u0000" in text:
        raise ValueError("too long, or with NUL")
    return details


Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
# Databases accept neither NUL nor lone surrogates; pydantic refuses the latter.
Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH, pattern=r"^[^\x00]*$")]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
CanonicalUuid = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
AnswerValue = Literal["left", "right", "equal", "cannot_tell"]


class LabelColumns(BaseModel):
    """Types of the columns; strict, so that nothing is converted."""

    model_config = ConfigDict(strict=True)

    schema_version: int
    label_id: Count
    experiment: Name
    comparison_id: Count
    comparison_number: Count
    asked_at_step: Count
    left_clip: Hash
    right_clip: Hash
    answer: AnswerValue | None
    shown_left: Hash
    is_swapped: bool
    labeler: Name
    role: Name
    answered_at: Annotated[str, AfterValidator(check_time)]
    response_ms: Count | None
    purpose: Name
    lease: Name
    is_too_fast: bool
    is_current: bool
    is_excluded: bool
    gold: AnswerValue | None
    request_id: CanonicalUuid
    details: Annotated[dict[str, Any], AfterValidator(check_details)] | None
    is_held_out: bool


def validate_row(row: Any, number: int) -> Row:
    """Validate a row from an untrusted file.

    Args:
        row: Decoded JSON.
        number: Number of the row, for the error text.

    Raises:
        BadInput: A column is missing or has an invalid value.
    """
    if not isinstance(row, Mapping):
        raise BadInput(f"Label {number} is {row!r:.80}; a JSON object is needed.")
    check_version(row.get("schema_version"), SCHEMA_VERSION, f"label {number}")
    try:
        return LabelColumns.model_validate(row).model_dump()
    except ValidationError as error:
        raise BadInput(f"Label {number} has {invalid_field(error, row)}.") from error


def check_version(version: Any, newest: int, what: str) -> None:
    """Check that this release can read a schema version.

    Raises:
        BadInput: The version is newer, or not a version.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadInput(f"The schema version of {what} is {version!r:.80}; a number is needed.")
    if version > newest:
        raise BadInput(
            f"The schema version of {what} is {version}; this rl-teacher reads up to {newest}. "
            "Install a newer one."
        )


def invalid_field(error: ValidationError, values: Mapping[str, Any]) -> str:
    """Return the first invalid field of an object with its value, for an error text."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])
    return f"{values[name]!r:.80} for its {name}" if name in values else f"no {name}"


def counts(row: Row) -> bool:
    """Return True if a label is used for training: current, an answer, and not excluded."""
    return (
        row["is_current"]
        and not row["is_excluded"]
        and row["answer"] is not None
        and row["purpose"] == "answer"
    )
