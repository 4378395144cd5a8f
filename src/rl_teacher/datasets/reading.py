"""Safe reading of data sets from untrusted sources."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.common.paths import user_path
from rl_teacher.datasets.arrays import check_size, open_archive, read_npz
from rl_teacher.datasets.dataset import Dataset, pair_of, with_newest_current
from rl_teacher.datasets.rows import (
    check_version,
    invalid_field,
    validate_row,
)
from rl_teacher.datasets.spaces import Spaces, SpacesModel
from rl_teacher.datasets.writing import (
    DESCRIPTION,
    FORMAT_NAME,
    LABELS,
    SCHEMA_VERSION,
    SEGMENTS,
)
from rl_teacher.report.label_export import Row, parquet_schema, pyarrow

MAX_BYTES = 4 * 2**30
"""Default limit of the unpacked size of a data set."""
MAX_DESCRIPTION_BYTES = 2**20
MIN_BYTES_PER_LABEL = 15
"""A label has a request id of 122 random bits, which no compression makes shorter."""
MAX_FEW_LABELS = 1_000
"""Number of labels that a file of any size may have."""
PARQUET_BATCH = 20
MAX_ENV_ID_LENGTH = 200

Read = Callable[[str, int], bytes | None]
"""A function that returns the content of a file up to a size; None if it does not exist."""


class Description(BaseModel):
    """The content of `dataset.json` that is read.

    Attributes:
        env_id: Environment in which the segments were recorded.
        spaces: Spaces of that environment.
        sha256: SHA-256 of the other files by name.
    """

    model_config = ConfigDict(strict=True)

    # Printable: no control characters, and no separators but spaces.
    env_id: Annotated[
        str, Field(min_length=1, max_length=MAX_ENV_ID_LENGTH, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")
    ]
    spaces: SpacesModel
    sha256: dict[str, str]


def load(path: Path | str, max_bytes: int = MAX_BYTES) -> Dataset:
    """Read a data set; nothing in it is run.

    Args:
        path: Folder, or a `.zip` of it.
        max_bytes: Maximum unpacked size.

    Raises:
        BadInput: It is not a data set, was altered, is of a newer version, or is too large.
    """
    path = user_path(path)
    with read_errors(path):
        if path.is_dir():
            packed_bytes = sum(each.stat().st_size for each in path.iterdir() if each.is_file())
            return read(folder_reader(path), max_bytes, packed_bytes)
        if not path.is_file():
            raise BadInput("there is no such file or folder")
        check_size(path.stat().st_size, max_bytes)
        with open_archive(path.read_bytes(), "a .zip file of one") as file:
            return read(archive_reader(file, max_bytes), max_bytes, path.stat().st_size)


def is_data_set(path: Path) -> bool:
    """Return whether a path is a file, or a folder with the description of a data set."""
    return path.is_file() or (path / DESCRIPTION).is_file()


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


def folder_reader(folder: Path) -> Read:
    """Return a reader of the files of a folder."""

    def read_file(name: str, max_bytes: int) -> bytes | None:
        path = folder / name
        if not path.is_file():
            return None
        check_size(path.stat().st_size, max_bytes)
        return path.read_bytes()

    return read_file


def archive_reader(file: zipfile.ZipFile, max_bytes: int) -> Read:
    """Return a reader of the files of an archive, or of one folder in it.

    Nothing is unpacked to disk.

    Raises:
        BadInput: The archive is too large.
    """
    check_size(sum(info.file_size for info in file.infolist()), max_bytes)

    def read_member(name: str, max_bytes: int) -> bytes | None:
        found = [info for info in file.infolist() if info.filename.split("/")[-1] == name]
        if len(found) > 1:
            raise BadInput(f"it has {len(found)} files called {name}; one is needed")
        if not found:
            return None
        check_size(found[0].file_size, max_bytes)
        with file.open(found[0]) as opened:
            # Stop at the declared size, which was checked: a zip bomb unpacks to more.
            return opened.read(found[0].file_size)

    return read_member


def read(read_file: Read, max_bytes: int, packed_bytes: int) -> Dataset:
    """Read a data set from its three files.

    Args:
        read_file: Returns the content of a file.
        max_bytes: Maximum unpacked size.
        packed_bytes: Size of the files as they are stored, which limits the number of labels.
    """
    text = read_file(DESCRIPTION, MAX_DESCRIPTION_BYTES)
    if text is None:
        raise BadInput(f"it has no {DESCRIPTION}")
    description = parse_description(json.loads(text))
    label_names = [name for name in LABELS.values() if name in description.sha256]
    if len(label_names) != 1 or SEGMENTS not in description.sha256:
        raise BadInput(f"{DESCRIPTION} does not list one file of labels and {SEGMENTS}")
    # Hashes are verified before labels and arrays are parsed.
    contents = {
        name: read_whole(read_file, name, description.sha256[name], max_bytes)
        for name in (*label_names, SEGMENTS)
    }
    raw_rows = ROW_READERS[label_names[0]](contents[label_names[0]], max_bytes)
    max_rows = MAX_FEW_LABELS + packed_bytes // MIN_BYTES_PER_LABEL
    rows = tuple(
        validate_row(row, number) for number, row in enumerate(at_most(raw_rows, max_rows), 1)
    )
    arrays = read_npz(contents[SEGMENTS], (*SEGMENT_ARRAYS, "offsets", "hashes"), max_bytes)
    check_arrays(arrays)
    spaces = fitting_spaces(arrays, description.spaces)
    segments = segments_of(arrays, description.env_id)
    for number, row in enumerate(rows, 1):
        if missing := {*pair_of(row)} - segments.keys():
            raise BadInput(f"label {number} is about segment {missing.pop()}, which is not there")
    return Dataset(description.env_id, spaces, segments, with_newest_current(rows))


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


def read_whole(read_file: Read, name: str, sha256: str, max_bytes: int) -> bytes:
    """Read a file and verify its SHA-256.

    Raises:
        BadInput: It is missing or was altered.
    """
    content = read_file(name, max_bytes)
    if content is None:
        raise BadInput(f"it has no {name}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BadInput(f"{name} is not what was written: its SHA-256 differs")
    return content


# --- labels ---


def at_most(rows: Iterable[Row], max_rows: int) -> Iterator[Row]:
    """Yield rows up to a number.

    Raises:
        BadInput: There are more, as in a file that was made to fill the memory.
    """
    for number, row in enumerate(rows, 1):
        if number > max_rows:
            raise BadInput(
                f"it has more than {max_rows:,} labels, which cannot be in a file of its size"
            )
        yield row


def rows_of_jsonl(content: bytes, max_bytes: int) -> Iterator[Row]:  # noqa: ARG001 - same signature as for Parquet
    """Decode the lines."""
    for line in io.BytesIO(content):
        yield json.loads(line)


def rows_of_parquet(content: bytes, max_bytes: int) -> Iterator[Row]:
    """Decode a Parquet file with the expected columns.

    Raises:
        BadInput: pyarrow is not installed, the columns differ, or the file is too large.
    """
    arrow = pyarrow()
    file = arrow.parquet.ParquetFile(io.BytesIO(content))
    groups = range(file.metadata.num_row_groups)
    # The size after decompression, as the file declares it.
    check_size(sum(file.metadata.row_group(i).total_byte_size for i in groups), max_bytes)
    if not file.schema_arrow.equals(parquet_schema(arrow)):
        raise BadInput(f"the columns of {LABELS['parquet']} are not those of a label export")
    # Few at a time, since a compressed text may be long and repeated.
    for batch in file.iter_batches(batch_size=PARQUET_BATCH):
        yield from map(from_parquet, batch.to_pylist())


def from_parquet(row: Mapping[str, Any]) -> Row:
    """Convert a row to JSON types."""
    answered_at, details = row["answered_at"], row["details"]
    return {
        **row,
        "answered_at": None if answered_at is None else answered_at.isoformat(),
        "details": None if details is None else json.loads(details),
    }


ROW_READERS: dict[str, Callable[[bytes, int], Iterable[Row]]] = {
    LABELS["jsonl"]: rows_of_jsonl,
    LABELS["parquet"]: rows_of_parquet,
}


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


def fitting_spaces(arrays: Mapping[str, np.ndarray], model: SpacesModel) -> Spaces:
    """Create the spaces of the arrays.

    Shapes are compared first: a space allocates bounds of its declared shape.

    Raises:
        BadInput: They do not fit the arrays.
    """
    check_shape(arrays["observations"], model.observation.value_shape, "observations")
    check_shape(arrays["actions"], model.action.value_shape, "actions")
    spaces = model.to_spaces()
    check_fits(arrays["observations"], spaces.observation, "observations")
    check_fits(arrays["actions"], spaces.action, "actions")
    return spaces


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


def check_fits(array: np.ndarray, space: gym.Space, name: str) -> None:
    """Check that an array fits a space.

    Raises:
        BadInput: The shape differs, or a choice is out of range.
    """
    check_shape(array, space.shape or (), name)
    if isinstance(space, gym.spaces.Box):
        return
    if not np.issubdtype(array.dtype, np.integer):
        raise BadInput(f"the {name} are {array.dtype}; whole numbers are needed for {space}")
    low, high = choices_of(space)
    if ((array < low) | (array >= high)).any():
        raise BadInput(f"the {name} have choices in them that are not in {space}")


def check_shape(array: np.ndarray, shape: tuple[int, ...], name: str) -> None:
    """Check the shape of each observation or action.

    Raises:
        BadInput: It differs.
    """
    if array.shape[1:] != shape:
        raise BadInput(f"the {name} are {array.shape[1:]} each; the space has {shape}")


def choices_of(space: gym.Space) -> tuple[Any, Any]:
    """Return the range of choices of a discrete space: the first, and the one after the last."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.start), int(space.start + space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return np.asarray(space.start), np.asarray(space.start + space.nvec)
    return 0, 2
