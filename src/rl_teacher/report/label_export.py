"""Export of an experiment's labels as JSON lines.

Every stored label is a row, oldest first, including superseded ones; `is_current` marks the labels
that are used. Answers refer to the comparison's own order of clips. `shown_left` is the clip that
was displayed on the left.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rl_teacher.common.errors import BadInput
from rl_teacher.common.files import replaced_atomically, write_errors
from rl_teacher.store.records import ExportedLabel
from rl_teacher.store.store import Store

SCHEMA_VERSION = 1
"""Version of the rows; it increases when a column changes its meaning or is removed."""
PAGE = 1_000
"""Labels per database query."""

MAX_INTEGER = 2**53
"""Largest integer that every JSON reader represents exactly."""
MAX_NAME_LENGTH = 200
MAX_DETAILS_LENGTH = 20_000


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
    """Columns of a label in their order, with their types as JSON; strict: nothing is converted.

    Those that are fields of `ExportedLabel` have its values.
    """

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


Row = Mapping[str, Any]
"""A label as JSON types, by column."""


def label_rows(store: Store, name: str, *, restores_imported: bool = False) -> Iterator[Row]:
    """Yield all labels of an experiment, oldest first, read in pages.

    Args:
        store: store that has the experiment.
        name: name of the experiment.
        restores_imported: whether imported labels get the values that they had before the import.

    Raises:
        ExperimentNotFound: there is no experiment of this name.
    """
    experiment_id = store.experiments.get(name).id

    # Not a generator as a whole: an unknown name must raise before a response has begun.
    def rows() -> Iterator[Row]:
        after_id = 0
        while page := store.labels.export(experiment_id, after_id, PAGE):
            for label in page:
                row = as_row(name, label)
                yield {**row, **(label.imported or {})} if restores_imported else row
            after_id = page[-1].id

    return rows()


def as_row(name: str, label: ExportedLabel) -> Row:
    """Convert a label to its exported columns."""
    values = vars(label) | {
        "schema_version": SCHEMA_VERSION,
        "label_id": label.id,
        "experiment": name,
        "left_clip": label.left_hash,
        "right_clip": label.right_hash,
        "answer": None if label.answer is None else str(label.answer),
        "shown_left": label.right_hash if label.is_swapped else label.left_hash,
        "answered_at": label.created_at.isoformat(),
        "gold": None if label.gold is None else str(label.gold),
        "request_id": str(label.request_id),
        "details": None if label.details is None else dict(label.details),
        "is_held_out": (label.imported or {}).get("is_held_out", False),
    }
    return {column: values[column] for column in LabelColumns.model_fields}


def jsonl(rows: Iterable[Row]) -> Iterator[bytes]:
    """Encode each row as one line of JSON."""
    for row in rows:
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def export(store: Store, name: str, out: Path | BinaryIO) -> int:
    """Export the labels of an experiment; a file is replaced atomically.

    Args:
        store: store that has the experiment.
        name: name of the experiment.
        out: file or stream to write to.

    Returns:
        The number of exported labels.

    Raises:
        ExperimentNotFound: there is no experiment of this name.
        BadInput: the file is a folder.
        RunFolderUnusable: the file cannot be written.
    """
    rows = label_rows(store, name)
    if not isinstance(out, Path):
        return write_rows(rows, out)
    with write_errors(f"The labels cannot be written to {out}", "Name another file with --out."):
        if out.is_dir():
            raise BadInput(f"--out {out} was given, but that is a folder. Name a file.")
        with replaced_atomically(out) as unfinished, unfinished.open("wb") as file:
            return write_rows(rows, file)


def write_rows(rows: Iterable[Row], file: BinaryIO) -> int:
    """Write rows as lines of JSON, and return their number."""
    num_rows = 0
    for line in jsonl(rows):
        file.write(line)
        num_rows += 1
    file.flush()
    return num_rows
