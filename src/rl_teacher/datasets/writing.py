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
from rl_teacher.common.files import write_atomically, write_errors
from rl_teacher.common.paths import user_path
from rl_teacher.datasets.arrays import add_member, pack_npz
from rl_teacher.datasets.dataset import Dataset, used
from rl_teacher.report.label_export import jsonl

FORMAT_NAME = "rl-teacher-labels"
SCHEMA_VERSION = 1
"""Version of the format; it is raised when an older reader would misinterpret a file."""
DESCRIPTION = "dataset.json"
SEGMENTS = "segments.npz"
LABELS = "labels.jsonl"


def save(dataset: Dataset, path: Path | str) -> None:
    """Write a data set as a .zip file; equal data sets result in equal bytes.

    Args:
        dataset: Data set.
        path: File, which is replaced if it exists.

    Raises:
        BadInput: There is nothing to write.
        RunFolderUnusable: The path cannot be written.
    """
    path = user_path(path)
    if not dataset.segments:
        raise BadInput(f"There are no labels of {dataset.env_id} to write into {path}.")
    content = zipped(files_of(dataset))
    with write_errors(f"The data set cannot be written to {path}", "Name another file."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, is_synced=False)


def files_of(dataset: Dataset) -> dict[str, bytes]:
    """Encode the three files by name."""
    segments = used(dataset.segments, dataset.rows)
    contents = {LABELS: b"".join(jsonl(dataset.rows)), SEGMENTS: pack_npz(arrays_of(segments))}
    description = {
        "format": FORMAT_NAME,
        "schema_version": SCHEMA_VERSION,
        "env_id": dataset.env_id,
        "space": dataset.space.to_json(),
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
