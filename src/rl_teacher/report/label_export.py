"""Export of an experiment's labels as JSON lines or Parquet.

Every stored label is a row, oldest first, including superseded ones; `is_current` marks the labels
that are used. Answers refer to the comparison's own order of clips. `shown_left` is the clip that
was displayed on the left.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rl_teacher.common.errors import BadInput, MissingExtra
from rl_teacher.common.files import replaced_atomically, write_errors
from rl_teacher.store.records import ExportedLabel
from rl_teacher.store.store import Store

SCHEMA_VERSION = 1
"""Version of the rows; it increases when a column changes its meaning or is removed."""
PAGE = 1_000
"""Labels per database query."""
ROW_GROUP = 10_000
"""Rows per Parquet row group."""
FORMATS = ("jsonl", "parquet")

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


def parquet(rows: Iterable[Row]) -> Iterator[bytes]:
    """Encode rows as the parts of a Parquet file; `details` is a column of JSON.

    Raises:
        MissingExtra: pyarrow is not installed. It is raised before the first part.
    """
    return parquet_parts(rows, pyarrow())


def pyarrow() -> Any:
    """Import pyarrow.

    Raises:
        BadInput: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an optional extra
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("Parquet needs pyarrow", "parquet", error) from error
    return arrow


def parquet_parts(rows: Iterable[Row], arrow: Any) -> Iterator[bytes]:
    """Yield the bytes of each row group as soon as it is encoded, then the footer."""
    schema = parquet_schema(arrow)
    buffer = BytesIO()
    remaining = iter(rows)
    with arrow.parquet.ParquetWriter(arrow.PythonFile(buffer, mode="w"), schema) as writer:
        while group := [parquet_row(row) for row in islice(remaining, ROW_GROUP)]:
            writer.write_table(arrow.Table.from_pylist(group, schema))
            yield taken(buffer)
    yield taken(buffer)


def taken(buffer: BytesIO) -> bytes:
    """Take the content out of a buffer, so that memory use stays constant."""
    content = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return content


def parquet_row(row: Row) -> Row:
    """Parse the time, and encode the details as JSON, since a Parquet column has one type."""
    details = row["details"]
    return {
        **row,
        "answered_at": datetime.fromisoformat(row["answered_at"]),
        "details": None if details is None else json.dumps(details),
    }


def parquet_schema(arrow: Any) -> Any:
    """Build the Parquet schema: columns, types and version."""
    kinds = {"integer": arrow.int64(), "boolean": arrow.bool_()}
    types = {"answered_at": arrow.timestamp("us", tz="UTC")}
    for column, schema in LabelColumns.model_json_schema()["properties"].items():
        # The first of a type and null; whatever is no number is text.
        [first, *_] = schema.get("anyOf", [schema])
        types.setdefault(column, kinds.get(first["type"], arrow.string()))
    metadata = {"rl_teacher_labels": str(SCHEMA_VERSION)}
    return arrow.schema([(each, types[each]) for each in LabelColumns.model_fields], metadata)


ENCODERS = {"jsonl": jsonl, "parquet": parquet}


def export(store: Store, name: str, format_name: str, out: Path | BinaryIO) -> int:
    """Export the labels of an experiment; a file is replaced atomically.

    Args:
        store: store that has the experiment.
        name: name of the experiment.
        format_name: `jsonl` or `parquet`.
        out: file or stream to write to.

    Returns:
        The number of exported labels.

    Raises:
        ExperimentNotFound: there is no experiment of this name.
        BadInput: the format is unknown, its library is missing, or the file is a folder.
        RunFolderUnusable: the file cannot be written.
    """
    if format_name not in ENCODERS:
        raise BadInput(f"--format {format_name} was given; {' or '.join(FORMATS)} is possible.")
    counted = Counted(label_rows(store, name))
    parts = ENCODERS[format_name](counted)
    if not isinstance(out, Path):
        for part in parts:
            out.write(part)
        out.flush()
        return counted.num
    with write_errors(f"The labels cannot be written to {out}", "Name another file with --out."):
        if out.is_dir():
            raise BadInput(f"--out {out} was given, but that is a folder. Name a file.")
        with replaced_atomically(out) as unfinished, unfinished.open("wb") as file:
            file.writelines(parts)
    return counted.num


class Counted:
    """Iterable over rows that counts them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.num = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.num += 1
            yield row
