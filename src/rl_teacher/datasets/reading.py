"""Safe reading of data sets from untrusted sources."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.common.files import unpacked_limit
from rl_teacher.common.paths import user_path
from rl_teacher.datasets.arrays import check_size, open_archive, read_npz
from rl_teacher.datasets.dataset import Dataset, pair_of, with_newest_current
from rl_teacher.datasets.writing import (
    DESCRIPTION,
    FORMAT_NAME,
    LABELS,
    SCHEMA_VERSION,
    SEGMENTS,
)
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.report import label_export
from rl_teacher.report.label_export import LabelColumns, Row

MAX_BYTES = 4 * 2**30
"""Default limit of the unpacked size of a large data set; that of a small one is lower."""
LABELS_SHARE = 1 / 8
"""Share of that limit that the labels may take: in memory they are many times as large."""
MAX_DESCRIPTION_BYTES = 2**20
MAX_ENV_ID_LENGTH = 200


class Description(BaseModel):
    """The content of `dataset.json` that is read.

    Attributes:
        env_id: Environment in which the segments were recorded.
        space: Observations and actions of that environment.
        sha256: SHA-256 of the other files by name.
    """

    model_config = ConfigDict(strict=True)

    # Printable: no control characters, and no separators but spaces.
    env_id: Annotated[
        str, Field(min_length=1, max_length=MAX_ENV_ID_LENGTH, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")
    ]
    space: Annotated[InputSpace, PlainValidator(InputSpace.from_json)]
    sha256: dict[str, str]


def load(path: Path | str, max_bytes: int | None = None) -> Dataset:
    """Read a data set; nothing in it is run.

    Args:
        path: A `.zip` file of the three files, or of a folder with them.
        max_bytes: Maximum unpacked size; by default 4 GiB, and less for a small file.

    Raises:
        BadInput: It is not a data set, was altered, is of a newer version, or is too large.
    """
    path = user_path(path)
    with read_errors(path):
        if not path.is_file():
            raise BadInput("there is no such file")
        size_bytes = path.stat().st_size
        max_bytes = max_bytes or min(unpacked_limit(size_bytes), MAX_BYTES)
        check_size(size_bytes, max_bytes)
        with open_archive(path.read_bytes(), "a .zip file of one") as file:
            check_size(sum(info.file_size for info in file.infolist()), max_bytes)
            return read(file, max_bytes)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Convert any exception to an error that names the file.

    The file is untrusted, and any exception that it causes in a library means that it is invalid.

    Raises:
        BadInput: Any error occurred.
    """
    try:
        yield
    except RlTeacherError as error:
        raise BadInput(f"{path} cannot be read as a label data set: {error}") from error
    except Exception as error:
        raise BadInput(
            f"{path} cannot be read as a label data set: {type(error).__name__}: {error!s:.300}. "
            "Request the file again from its author; `rl-teacher export` writes such data sets."
        ) from error


def read(file: zipfile.ZipFile, max_bytes: int) -> Dataset:
    """Read a data set from its three files; nothing is unpacked to disk.

    Args:
        file: Archive of them.
        max_bytes: Maximum unpacked size.
    """
    description = parse_description(
        json.loads(read_member(file, DESCRIPTION, MAX_DESCRIPTION_BYTES))
    )
    # Hashes are verified before labels and arrays are parsed.
    labels, segments_file = (
        read_verified(file, name, description.sha256, limit)
        for name, limit in ((LABELS, round(max_bytes * LABELS_SHARE)), (SEGMENTS, max_bytes))
    )
    rows = tuple(validate_row(json.loads(line), n) for n, line in enumerate(io.BytesIO(labels), 1))
    arrays = read_npz(segments_file, (*SEGMENT_ARRAYS, "offsets", "hashes"), max_bytes)
    check_arrays(arrays)
    description.space.check_steps(arrays["observations"], arrays["actions"])
    segments = segments_of(arrays, description.env_id)
    for number, row in enumerate(rows, 1):
        if missing := {*pair_of(row)} - segments.keys():
            raise BadInput(f"label {number} is about segment {missing.pop()}, which is not there")
    return Dataset(description.env_id, description.space, segments, with_newest_current(rows))


def read_member(file: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    """Read a file of an archive, or of one folder in it.

    Raises:
        BadInput: There are none or several of this name, or it is too large.
    """
    found = [info for info in file.infolist() if info.filename.split("/")[-1] == name]
    if len(found) != 1:
        raise BadInput(f"it has {len(found)} files called {name}; one is needed")
    check_size(found[0].file_size, max_bytes)
    with file.open(found[0]) as opened:
        # Stop at the declared size, which was checked: a zip bomb unpacks to more.
        return opened.read(found[0].file_size)


def parse_description(values: Any) -> Description:
    """Parse and validate `dataset.json`.

    Raises:
        BadInput: It is invalid, or of a newer version.
    """
    if not isinstance(values, Mapping) or values.get("format") != FORMAT_NAME:
        raise BadInput(f"the format in {DESCRIPTION} is not {FORMAT_NAME!r}")
    check_version(values.get("schema_version"), SCHEMA_VERSION, DESCRIPTION)
    try:
        return Description.model_validate(values)
    except ValidationError as error:
        raise BadInput(f"{DESCRIPTION} has {invalid_field(error, values)}") from error


def read_verified(
    file: zipfile.ZipFile, name: str, sha256: Mapping[str, str], max_bytes: int
) -> bytes:
    """Read a file and verify its SHA-256.

    Raises:
        BadInput: It is missing, too large, or was altered.
    """
    content = read_member(file, name, max_bytes)
    if hashlib.sha256(content).hexdigest() != sha256.get(name):
        raise BadInput(f"{name} is not what was written: its SHA-256 differs")
    return content


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
    check_version(row.get("schema_version"), label_export.SCHEMA_VERSION, f"label {number}")
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


# --- segments ---


def segments_of(arrays: Mapping[str, np.ndarray], env_id: str) -> dict[str, Segment]:
    """Split arrays into segments and verify their hashes.

    Raises:
        BadInput: A hash differs.
    """
    segments: dict[str, Segment] = {}
    offsets = arrays["offsets"].tolist()
    for place, (begin, end) in enumerate(pairwise(offsets)):
        parts = {name: arrays[name][begin:end] for name in SEGMENT_ARRAYS}
        segment = Segment(env_id=env_id, **parts)
        if bytes.fromhex(segment.content_hash) != arrays["hashes"][place].tobytes():
            raise BadInput(f"segment {place} of {SEGMENTS} has another hash")
        segments[segment.content_hash] = segment
    return segments


def check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that arrays fit each other.

    Raises:
        BadInput: They do not.
    """
    offsets, hashes = arrays["offsets"], arrays["hashes"]
    if offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) < 2:
        raise BadInput(
            f"the offsets are {offsets.dtype} {offsets.shape}; [segments + 1] are needed"
        )
    if hashes.shape != (len(offsets) - 1, 32) or hashes.dtype != np.uint8:
        raise BadInput(
            f"the hashes are {hashes.dtype} {hashes.shape}; uint8 [segments, 32] is needed"
        )
    num_steps = int(offsets[-1])
    if offsets[0] != 0 or (np.diff(offsets) < 1).any():
        raise BadInput("the offsets do not rise from 0")
    check_columns(arrays, num_steps)


def check_columns(arrays: Mapping[str, np.ndarray], num_steps: int) -> None:
    """Check lengths and shapes, and that all numbers are finite."""
    for name in SEGMENT_ARRAYS:
        array = arrays[name]
        if array.ndim < 1 or len(array) != num_steps:
            raise BadInput(f"the {name} are {array.shape}; {num_steps} steps are needed")
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise BadInput(f"the {name} have NaN or infinity in them")
    rewards, scenes = arrays["rewards"], arrays["scene_states"]
    if rewards.ndim != 1 or rewards.dtype != np.float32:
        raise BadInput(
            f"the rewards are {rewards.dtype} {rewards.shape}; float32 [steps] is needed"
        )
    if scenes.ndim != 2:
        raise BadInput(f"the scene states are {scenes.shape}; [steps, numbers] is needed")
