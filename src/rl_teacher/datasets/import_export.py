"""Between data sets and this home: an experiment's labels as a data set, and the way back."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput, ExperimentNotFound
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.datasets.dataset import Dataset
from rl_teacher.datasets.imitation import from_imitation
from rl_teacher.datasets.reading import load
from rl_teacher.datasets.rows import IMPORTED, PREFIX, RESTORED, Row, counts, plain_row
from rl_teacher.datasets.spaces import Spaces
from rl_teacher.envs.registry import env_spaces, get_env_info, make_single_env
from rl_teacher.report.label_export import label_rows
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store

CHUNK = 1_000


def from_experiment(
    store: Store, segments: SegmentFiles, name: str, spaces: Spaces | None = None
) -> Dataset:
    """An experiment's labels, with what they are about.

    Args:
        store: where the labels are.
        segments: what they are about.
        name: of the experiment.
        spaces: of its environment, where whoever calls knows them; else they are found out.

    Raises:
        ExperimentNotFound: there is none of this name.
        BadInput: it has no labels, or its environment cannot be made here.
        CorruptCheckpoint: a segment's file is gone, or damaged.
    """
    rows = tuple(plain_row(row) for row in label_rows(store, name))
    if not rows:
        raise BadInput(f"Experiment {name!r} has no labels yet. Label some, and export it then.")
    view = store.experiments.get(name)
    hashes = dict.fromkeys(row[side] for row in rows for side in ("left_clip", "right_clip"))
    return Dataset(
        env_id=view.env_id,
        spaces=spaces or spaces_kept(view.config) or spaces_lived_in(view.env_id, view.config),
        segments={each: segments.load(each) for each in hashes},
        rows=rows,
    )


def spaces_kept(config: object) -> Spaces | None:
    """The spaces that came with a data set: its environment need not be here."""
    kept = config.get(IMPORTED) if isinstance(config, dict) else None
    return None if kept is None else Spaces.from_json(kept["spaces"])


def spaces_lived_in(env_id: str, config: Mapping[str, Any]) -> Spaces:
    """The spaces of an experiment's environment, as its segments have them.

    Note: a wrapper's segments have pictures as they are, and only what `rl-teacher teach` began has
    an agent among its settings.
    """
    if "agent" not in config and get_env_info(env_id).has_image_observations:
        with closing(make_single_env(env_id)) as env:
            return Spaces(env.observation_space, env.action_space)
    return Spaces(*env_spaces(env_id, FrameSettings.saved_in(config)))


def labels_in_home(name: str) -> Dataset:
    """The labels of an experiment of this home; see `from_experiment`."""
    with Store.open(default_url(home())) as store:
        return from_experiment(store, SegmentFiles(home() / "segments"), name)


def labels_of(name_or_path: str) -> Dataset:
    """The labels of an experiment of this home, or of a data set.

    Args:
        name_or_path: a name, or a path; where both are there, it is the experiment.

    Raises:
        BadInput: neither is there, or it cannot be read.
    """
    try:
        return labels_in_home(name_or_path)
    except ExperimentNotFound as error:
        if Path(name_or_path).exists():
            return load(name_or_path)
        raise ExperimentNotFound(
            f"{name_or_path!r} is neither an experiment nor a data set. {error}"
        ) from error


def read_any(path: Path, env_id: str | None) -> Dataset:
    """A data set of ours, or imitation's preferences.

    Args:
        path: of it.
        env_id: of the environment; imitation's file does not name it, ours does.

    Raises:
        BadInput: it is neither, or the environment is missing, or another one.
    """
    if path.suffix == ".npz" and path.is_file():
        if env_id is None:
            raise BadInput(f"{path} does not say which environment it is of. Say it with --env-id.")
        full_id = get_env_info(env_id).id
        return from_imitation(path, full_id, Spaces(*env_spaces(full_id)))
    dataset = load(path)
    if env_id is not None and get_env_info(env_id).id != dataset.env_id:
        raise BadInput(
            f"{path} is of {dataset.env_id}, and --env-id {env_id} was given. Leave it out."
        )
    return dataset


def import_as(dataset: Dataset, name: str) -> int:
    """Make an experiment of a data set's labels; the number of labels that it has then.

    Only labels that count are taken over, under the names of their labelers with a prefix.
    Importing the same data set again changes nothing.

    Raises:
        BadInput: nothing in it counts.
        ConfigMismatch: the name is that of another experiment.
    """
    rows = [row for row in dataset.rows if counts(row)]
    if not rows:
        raise BadInput("There is no label in it that counts, so there is nothing to import.")
    kept = {"content": dataset.content_hash, "spaces": dataset.spaces.to_json()}
    config = {"env_id": dataset.env_id, IMPORTED: kept}
    with (
        Experiment.open(name, config) as experiment,
        Store.open(default_url(home())) as store,
    ):
        files = SegmentFiles(home() / "segments")
        for row in rows:
            for side in ("left_clip", "right_clip"):
                files.save(dataset.segments[row[side]])
        experiment_id = store.experiments.ensure(experiment.name, dataset.env_id, config)
        for chunk in chunks(rows):
            ids = asked(store, experiment_id, dataset, chunk)
            store.labels.add_many(
                [label_of(row, i, experiment.name) for row, i in zip(chunk, ids, strict=True)]
            )
        experiment.finish()
        return store.experiments.counts(experiment_id).answered


def chunks(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows of one step, some at a time, in order."""
    chunk: list[Row] = []
    for row in rows:
        if chunk and (len(chunk) == CHUNK or row["asked_at_step"] != chunk[0]["asked_at_step"]):
            yield chunk
            chunk = []
        chunk.append(row)
    yield chunk


def asked(store: Store, experiment_id: int, dataset: Dataset, rows: list[Row]) -> list[int]:
    """The comparisons of some rows, in the store."""
    pairs = [(row["left_clip"], row["right_clip"]) for row in rows]
    lengths = {each: len(dataset.segments[each]) for pair in pairs for each in pair}
    step = rows[0]["asked_at_step"]
    return store.comparisons.add(experiment_id, pairs, dataset.env_id, lengths, step)


def label_of(row: Row, comparison_id: int, name: str) -> NewLabel:
    """A label as it is kept here, with what it was before among its details.

    Note: a request id is known once in a store, and the label may have been given in this one.
    """
    before = {name: row[name] for name in RESTORED}
    return NewLabel(
        comparison_id=comparison_id,
        answer=Answer(row["answer"]),
        labeler=f"{PREFIX}{row['labeler']}",
        request_id=uuid5(NAMESPACE_URL, f"{name}/{UUID(row['request_id'])}"),
        is_swapped=row["is_swapped"],
        response_ms=row["response_ms"],
        details={**(row["details"] or {}), IMPORTED: before},
    )
