"""Import and export of data sets from and to experiments."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput, ExperimentNotFound
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.datasets.dataset import (
    Dataset,
    counts,
    held_out_pairs,
    marked_rows,
    pair_of,
    with_newest_current,
)
from rl_teacher.datasets.reading import load
from rl_teacher.envs.registry import env_spaces
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.report.label_export import Row, label_rows
from rl_teacher.runs.folder import find_source, open_store, segment_files, store_to_read
from rl_teacher.runs.management import locked_experiment
from rl_teacher.runs.status import Phase, RunStatus
from rl_teacher.store.labelers import IMPORTED_PREFIX
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store

CHUNK = 1_000

IMPORTED = "imported"
"""Key in the configuration of an imported experiment for what identifies its data set."""
SPACES = "spaces"
"""Key of the input space of the segments, in the configuration of a wrapper or in `IMPORTED`."""
RESTORED = ("labeler", "role", "request_id", "answered_at", "is_held_out")
"""Columns that an import changes and an export restores."""


def from_experiment(store: Store, name: str) -> Dataset:
    """Export the labels of an experiment with their segments.

    Args:
        store: Store with the labels.
        name: Name of the experiment.

    Raises:
        ExperimentNotFound: There is no such experiment.
        BadInput: It has no labels, or its environment cannot be created.
        CorruptCheckpoint: The file of a segment is missing or damaged.
    """
    rows = tuple(label_rows(store, name, restores_imported=True))
    if not rows:
        raise BadInput(
            f"Experiment {name!r} has no labels yet. Answer some of its comparisons first."
        )
    view = store.experiments.get(name)
    hashes = dict.fromkeys(clip for row in rows for clip in pair_of(row))
    segments = segment_files()
    return Dataset(
        env_id=view.env_id,
        space=recorded_space(view.env_id, view.config),
        segments={each: segments.load(each) for each in hashes},
        rows=with_newest_current(rows),
    )


def recorded_space(env_id: str, config: Mapping[str, Any]) -> InputSpace:
    """Return the input space of an experiment's environment, as its segments have it.

    The environment of an imported data set may not be installed, and that of a wrapper may differ
    from the registered one. Both have their space in the configuration.
    """
    kept = config.get(IMPORTED, config)
    if SPACES in kept:
        return InputSpace.from_json(kept[SPACES])
    return InputSpace.from_spaces(*env_spaces(env_id, FrameSettings.saved_in(config)))


def labels_in_home(name: str) -> Dataset:
    """Export an experiment of the home folder; see `from_experiment`."""
    with store_to_read() as store:
        return from_experiment(store, name)


def labels_of(name_or_path: str) -> Dataset:
    """Load the labels of an experiment or a data set.

    Args:
        name_or_path: Name of an experiment, which takes precedence, or path of a data set.

    Raises:
        BadInput: Neither exists, or it cannot be read.
    """
    try:
        return labels_in_home(name_or_path)
    except ExperimentNotFound:
        needed = "the name of an experiment with labels, or a data set (a .zip file),"
        return load(find_source(name_or_path, Path.is_file, needed))


def import_as(dataset: Dataset, name: str) -> int:
    """Import a data set as an experiment, and return its number of answered comparisons.

    Only current labels are imported, with a prefix before the names of their labelers. Importing
    the same data set again changes nothing.

    Raises:
        BadInput: There is no current label, or different labels have the same request id.
        ConfigMismatch: The name belongs to another experiment.
    """
    # Labels that do not count may be those that mark a comparison as held out.
    marked = marked_rows(dataset.rows, held_out_pairs(dataset.rows))
    rows = [row for row in marked if counts(row)]
    if not rows:
        raise BadInput("There is no current label in it, so there is nothing to import.")
    check_request_ids(rows)
    kept = {"content": dataset.content_hash, SPACES: dataset.space.to_json()}
    config = {"env_id": dataset.env_id, IMPORTED: kept}
    with open_store() as store, locked_experiment(store, name, config) as (experiment, _):
        # Segments are written before the comparisons that refer to them.
        files = segment_files()
        for row in rows:
            for clip in pair_of(row):
                files.save(dataset.segments[clip])
        experiment_id = store.experiments.ensure(experiment.name, dataset.env_id, config)
        for chunk in chunks(rows):
            ids = add_comparisons(store, experiment_id, dataset, chunk)
            labels = [label_of(row, i, experiment_id) for row, i in zip(chunk, ids, strict=True)]
            if refused := store.labels.add_many(labels):
                raise BadInput(
                    f"{len(refused):,} of the labels in it have the request_id of a different "
                    f"label in {name}. Import them with another name -n."
                )
        status = RunStatus(Phase.FINISHED, "imported", step=0, num_steps=0)
        store.experiments.set_status(experiment_id, vars(status))
        return store.experiments.get(experiment.name).answered


def check_request_ids(rows: list[Row]) -> None:
    """Check that labels have request ids of their own, before any is stored.

    Raises:
        BadInput: Different labels have the same one.
    """
    content_of: dict[str, tuple[str, ...]] = {}
    for row in rows:
        content = *pair_of(row), row["labeler"], row["answer"]
        if content_of.setdefault(row["request_id"], content) != content:
            raise BadInput(
                f"Different labels in it have the request_id {row['request_id']}. Give each label "
                "its own."
            )


def chunks(rows: list[Row]) -> Iterator[list[Row]]:
    """Split rows into chunks of equal steps, in order."""
    chunk: list[Row] = []
    for row in rows:
        # `Comparisons.add` takes one step for all comparisons.
        if chunk and (len(chunk) == CHUNK or row["asked_at_step"] != chunk[0]["asked_at_step"]):
            yield chunk
            chunk = []
        chunk.append(row)
    yield chunk


def add_comparisons(
    store: Store, experiment_id: int, dataset: Dataset, rows: list[Row]
) -> list[int]:
    """Add the comparisons of rows to the store, and return their ids."""
    pairs = [pair_of(row) for row in rows]
    lengths = {each: len(dataset.segments[each]) for pair in pairs for each in pair}
    step = rows[0]["asked_at_step"]
    return store.comparisons.add(experiment_id, pairs, dataset.env_id, lengths, step)


def label_of(row: Row, comparison_id: int, experiment_id: int) -> NewLabel:
    """Convert a row to a label, with its original values.

    The request id is derived from the original one, because ids are unique in a store and the label
    may have been given in this one. It depends on the id of the experiment, not on its name, which
    another experiment may have had.
    """
    return NewLabel(
        comparison_id=comparison_id,
        answer=Answer(row["answer"]),
        labeler=f"{IMPORTED_PREFIX}{row['labeler']}",
        request_id=uuid5(NAMESPACE_URL, f"{experiment_id}/{UUID(row['request_id'])}"),
        is_swapped=row["is_swapped"],
        response_ms=row["response_ms"],
        is_too_fast=row["is_too_fast"],
        details=row["details"],
        imported={column: row[column] for column in RESTORED},
    )
