"""Writing of data sets."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.common.files import check_no_other_files, write_atomically, write_errors
from rl_teacher.common.paths import user_path
from rl_teacher.datasets.arrays import add_member, pack_npz
from rl_teacher.datasets.dataset import Dataset, used
from rl_teacher.report.label_export import ENCODERS, FORMATS

FORMAT_NAME = "rl-teacher-labels"
SCHEMA_VERSION = 1
"""Version of the format; it is raised when an older reader would misinterpret a file."""
DESCRIPTION = "dataset.json"
SEGMENTS = "segments.npz"
LABELS = {name: f"labels.{name}" for name in FORMATS}


def save(dataset: Dataset, path: Path | str, format: str = "jsonl") -> None:  # noqa: A002
    """Write a data set; equal data sets result in equal bytes.

    Args:
        dataset: Data set.
        path: New folder, folder with a data set, or file that ends with `.zip`.
        format: Format of the labels: jsonl or parquet.

    Raises:
        BadInput: The format is unknown or its library is missing, there is nothing to write, or the
            folder contains other files.
        RunFolderUnusable: The path cannot be written.
    """
    path = user_path(path)
    if format not in ENCODERS:
        raise BadInput(f"--format {format} was given; {' or '.join(FORMATS)} is possible.")
    if not dataset.segments:
        raise BadInput(f"There are no labels of {dataset.env_id} to write into {path}.")
    files = files_of(dataset, format)
    with write_errors(f"The data set cannot be written to {path}", "Name another place."):
        if path.suffix == ".zip":
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, zipped(files), is_synced=False)
            return
        remedy = "Name a new folder with --out, or a file that ends with .zip."
        check_no_other_files(path, {DESCRIPTION, SEGMENTS, *LABELS.values()}, remedy)
        path.mkdir(parents=True, exist_ok=True)
        # Removed first and written last: without it, an interrupted write is no data set.
        (path / DESCRIPTION).unlink(missing_ok=True)
        for name, content in files.items():
            write_atomically(path / name, content, is_synced=False)
        for name in set(LABELS.values()) - files.keys():
            (path / name).unlink(missing_ok=True)


def files_of(dataset: Dataset, format_name: str) -> dict[str, bytes]:
    """Encode the three files by name; the description comes last."""
    segments = used(dataset.segments, dataset.rows)
    contents = {
        LABELS[format_name]: b"".join(ENCODERS[format_name](dataset.rows)),
        SEGMENTS: pack_npz(arrays_of(segments)),
    }
    description = {
        "format": FORMAT_NAME,
        "schema_version": SCHEMA_VERSION,
        "env_id": dataset.env_id,
        "spaces": dataset.spaces.to_json(),
        "num_labels": len(dataset.rows),
        "num_comparisons": len(dataset),
        "num_held_out": len(dataset.held_out),
        "num_segments": len(segments),
        "num_steps": sum(map(len, segments.values())),
        "sha256": {name: hashlib.sha256(each).hexdigest() for name, each in contents.items()},
    }
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    return contents | {DESCRIPTION: text.encode()}


def arrays_of(segments: Mapping[str, Segment]) -> dict[str, np.ndarray]:
    """Concatenate the arrays of segments, with their offsets and hashes.

    Raises:
        BadInput: Shapes or types differ.
    """
    parts = list(segments.values())
    for name in SEGMENT_ARRAYS:
        kinds = {(a.shape[1:], a.dtype.str) for a in (getattr(each, name) for each in parts)}
        if len(kinds) > 1:
            raise BadInput(f"The segments' {name} are of several kinds: {sorted(kinds)}.")
    hashes = b"".join(bytes.fromhex(each) for each in segments)
    return {
        **{
            name: np.concatenate([getattr(each, name) for each in parts]) for name in SEGMENT_ARRAYS
        },
        "offsets": np.cumsum([0, *map(len, parts)], dtype=np.int64),
        "hashes": np.frombuffer(hashes, np.uint8).reshape(-1, 32),
    }


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Encode files as a zip archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in files.items():
            add_member(file, name, content)
    return archive.getvalue()
