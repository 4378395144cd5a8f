"""Writing a data set: a folder of three files, or a `.zip` of it."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.datasets.arrays import add_member, pack_npz
from rl_teacher.datasets.dataset import Dataset, used
from rl_teacher.report.label_export import ENCODERS, FORMATS
from rl_teacher.store.files import folder_errors, write_atomically

FORMAT_NAME = "rl-teacher-labels"
SCHEMA_VERSION = 1
"""Of the data set; it grows when an older reader would misunderstand it."""
DESCRIPTION = "dataset.json"
SEGMENTS = "segments.npz"
LABELS = {name: f"labels.{name}" for name in FORMATS}
ARRAYS = ("observations", "actions", "rewards", "scene_states")


def save(dataset: Dataset, path: Path | str, format: str = "jsonl") -> None:  # noqa: A002
    """Write a data set; the same one gives the same bytes.

    Args:
        dataset: to write.
        path: a folder, new or with a data set in it; or a file that ends with `.zip`.
        format: of the labels: jsonl or parquet.

    Raises:
        BadInput: no such format, its library is missing, nothing to write, or the folder has
            something else in it.
        RunFolderUnusable: it cannot be written.
    """
    path = Path(path)
    if format not in ENCODERS:
        raise BadInput(f"--format {format} was given; {' or '.join(FORMATS)} is possible.")
    if not dataset.segments:
        raise BadInput(f"There are no labels of {dataset.env_id} to write into {path}.")
    files = files_of(dataset, format)
    with folder_errors(path if path.suffix != ".zip" else path.parent):
        if path.suffix == ".zip":
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, zipped(files), is_synced=False)
            return
        check_is_ours(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / DESCRIPTION).unlink(missing_ok=True)
        for name, content in files.items():
            write_atomically(path / name, content, is_synced=False)
        for name in set(LABELS.values()) - files.keys():
            (path / name).unlink(missing_ok=True)


def files_of(dataset: Dataset, format_name: str) -> dict[str, bytes]:
    """The three files by name; what describes the others comes last."""
    segments = used(dataset.segments, dataset.rows)
    contents = {
        LABELS[format_name]: b"".join(ENCODERS[format_name](parsed_times(dataset, format_name))),
        SEGMENTS: pack_npz(arrays_of(segments)),
    }
    description = {
        "format": FORMAT_NAME,
        "schema_version": SCHEMA_VERSION,
        "env_id": dataset.env_id,
        "spaces": dataset.spaces.to_json(),
        "num_labels": len(dataset.rows),
        "num_comparisons": len(dataset),
        "num_segments": len(segments),
        "num_steps": sum(map(len, segments.values())),
        "sha256": {name: hashlib.sha256(each).hexdigest() for name, each in contents.items()},
    }
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    return contents | {DESCRIPTION: text.encode()}


def parsed_times(dataset: Dataset, format_name: str) -> list[Mapping[str, Any]]:
    """The rows as the format wants them: Parquet has a type of its own for a time."""
    if format_name != "parquet":
        return list(dataset.rows)
    from datetime import datetime  # noqa: PLC0415 - here only

    return [
        {**row, "answered_at": datetime.fromisoformat(row["answered_at"])} for row in dataset.rows
    ]


def arrays_of(segments: Mapping[str, Segment]) -> dict[str, np.ndarray]:
    """Segments one after the other, where each begins, and what each hashes to.

    Raises:
        BadInput: they are of several kinds.
    """
    parts = list(segments.values())
    for name in ARRAYS:
        kinds = {(a.shape[1:], a.dtype.str) for a in (getattr(each, name) for each in parts)}
        if len(kinds) > 1:
            raise BadInput(f"The segments' {name} are of several kinds: {sorted(kinds)}.")
    hashes = b"".join(bytes.fromhex(each) for each in segments)
    return {
        **{name: np.concatenate([getattr(each, name) for each in parts]) for name in ARRAYS},
        "offsets": np.cumsum([0, *map(len, parts)], dtype=np.int64),
        "hashes": np.frombuffer(hashes, np.uint8).reshape(-1, 32),
    }


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Files in an archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in files.items():
            add_member(file, name, content)
    return archive.getvalue()


def check_is_ours(folder: Path) -> None:
    """Refuse a folder in which something else is.

    Raises:
        BadInput: it has other files.
    """
    known = {DESCRIPTION, SEGMENTS, *LABELS.values()}
    others = (
        [each.name for each in folder.iterdir() if each.name not in known]
        if folder.is_dir()
        else []
    )
    if others:
        raise BadInput(
            f"{folder} has other files in it, such as {others[0]}. Name a new folder with --out, "
            "or a file that ends with .zip."
        )
