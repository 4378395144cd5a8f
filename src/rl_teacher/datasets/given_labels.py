"""Labels that exist before a run or a fit: which are trained on, and which are only evaluated."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.common.files import unpacked_limit
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.datasets.dataset import Dataset
from rl_teacher.datasets.import_export import labels_in_home, labels_of
from rl_teacher.datasets.reading import load
from rl_teacher.envs.registry import EnvInfo, env_spaces
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair
from rl_teacher.queries.pairs import labelled_pair
from rl_teacher.runs.folder import Experiment, experiments_folder
from rl_teacher.runs.warm_start import predictor_folder

COPY = "labels.zip"
"""Data set in the folder of an experiment: labels from elsewhere that its predictor is fitted to or
evaluated on. The experiment continues with them even if the original changes or disappears."""

logger = logging.getLogger(__name__)


class Labelled(Protocol):
    """A labelled comparison."""

    @property
    def left(self) -> Segment:
        """First segment."""
        ...

    @property
    def right(self) -> Segment:
        """Second segment."""
        ...

    @property
    def target(self) -> float:
        """Preference for the left segment: 1, 0, or 1/2 where both are equal."""
        ...


@dataclass(frozen=True)
class GivenLabels:
    """Labels that a run starts with.

    Attributes:
        dataset: the labels, with their held-out part.
        are_fitted: whether the saved predictor that the run starts with was fitted to them.
        is_copy: whether they were read from the run's own copy.
    """

    dataset: Dataset
    are_fitted: bool
    is_copy: bool = False

    def keep(self, experiment: Experiment) -> None:
        """Keep a copy in the folder of the run."""
        if not self.is_copy:
            self.dataset.save(experiment.folder / COPY)


def given_labels(
    config: TeachConfig,
    env_info: EnvInfo,
    num_steps: int,
    *,
    force_new: bool,
) -> GivenLabels | None:
    """Load the labels that a run starts with: when it continues, its own copy.

    Args:
        config: settings of the run.
        env_info: its environment.
        num_steps: L, length of its segments.
        force_new: whether the run starts over.

    Returns:
        The labels of --labels and of the saved predictor, and those of --held-out as a held-out
        part; None if there are none.

    Raises:
        BadInput: labels do not exist, cannot be used for fitting, or do not suit the run.
    """
    if config.collect_only or not config.learns:
        return None
    are_fitted = config.labels is None
    experiment = None if force_new else Experiment.find_or_none(config.name)
    if experiment is not None and experiment.has_records:
        copy = experiment.folder / COPY
        return GivenLabels(load_copy(copy), are_fitted, is_copy=True) if copy.exists() else None
    space = InputSpace.from_spaces(*env_spaces(env_info.id, config.frames))
    check = partial(check_suits, env_info=env_info, needed=space, num_steps=num_steps)
    earlier = None
    if config.predictor_path is not None:
        earlier = _labels_to_keep(config.predictor_path, check)
    given = None
    if config.labels is not None:
        given = usable_labels(config.labels)
        check(given, f"--labels {config.labels}")
    held_out = None
    if config.held_out is not None:
        held_out = usable_labels(config.held_out)
        check(held_out, f"--held-out {config.held_out}")
    parts = [each for each in (earlier, given) if each is not None]
    if not parts and held_out is None:
        return None
    dataset = with_held_out(parts, held_out)
    if earlier is not None:
        check_unseen(dataset.held_out, earlier, str(config.predictor_path))
    return GivenLabels(dataset, are_fitted)


def load_copy(copy: Path) -> Dataset:
    """Load the labels that an experiment has kept."""
    return load(copy, unpacked_limit(copy.stat().st_size))


def usable_labels(name_or_path: str) -> Dataset:
    """Load the labels of an experiment or a data set.

    Raises:
        BadInput: there is no such label, or none that can be used for fitting.
    """
    dataset = labels_of(name_or_path)
    if not len(dataset):
        raise BadInput(
            f"{name_or_path} has no label that can be used for fitting (left, right or equal). "
            "Label some comparisons first."
        )
    return dataset


def with_held_out(parts: Iterable[Dataset], held_out: Dataset | None) -> Dataset:
    """Merge labels with others that are held out: a comparison in both is held out.

    Raises:
        BadInput: labels were given to train on, and all of them are held out.
    """
    parts = list(parts)
    every = parts if held_out is None else [*parts, held_out.all_held_out()]
    dataset = every[0] if len(every) == 1 else Dataset.merged(every)
    if parts and not len(dataset.training):
        raise BadInput(
            f"All {len(dataset):,} labelled comparisons are held out, so there is nothing to fit "
            "the predictor to. Hold out other comparisons, or a part of them."
        )
    return dataset


def check_unseen(held_out: Dataset, fitted: Dataset, predictor: str) -> None:
    """Check that a saved predictor was not fitted to held-out comparisons.

    Raises:
        BadInput: it was.
    """
    seen = {frozenset(each.pair) for each in fitted.training}
    num = sum(frozenset(each.pair) in seen for each in held_out)
    if num:
        raise BadInput(
            f"The predictor {predictor} was fitted to {num:,} of the {len(held_out):,} comparisons "
            "to hold out, so that they cannot show how well it generalises. Hold out others, or "
            "start without this predictor."
        )


# --- do they suit the run? ---


def check_suits(
    dataset: Dataset, source: str, env_info: EnvInfo, needed: InputSpace, num_steps: int
) -> None:
    """Check that labels are of the environment, the spaces and the clip length of a run.

    Args:
        dataset: the labels.
        source: option that names them, for the error text.
        env_info: the environment.
        needed: input space of the predictor.
        num_steps: L, length of segments.

    Raises:
        BadInput: they are not.
    """
    env_id = env_info.id
    if dataset.env_id != env_id:
        raise BadInput(
            f"{source} has labels of {dataset.env_id}, and the run is in {env_id}. Give "
            f"-e {dataset.env_id}, or labels of {env_id}."
        )
    shapes = {each.observations.shape[1:] for each in dataset.segments.values()}
    if dataset.space != needed or shapes != {needed.observation_shape}:
        raise BadInput(
            f"{source} has labels for {dataset.space.description}; {env_id} has "
            f"{needed.description}. Give labels that were recorded with the same "
            "preprocessing (--stacked-frames, --frame-size and --colour for images)."
        )
    longest = max(len(each) for each in dataset.segments.values())
    # Where episodes may end early, all segments of a small data set may be shorter.
    is_equal = longest == num_steps
    if not is_equal and not (env_info.can_terminate and longest < num_steps):
        fps = env_info.fps
        raise BadInput(
            f"{source} compares clips of {longest} steps, and those of the run have "
            f"{num_steps} ({num_steps / fps:.6g} s). Give --clip-length "
            f"{longest / fps:.6g}, or labels of clips with {num_steps} steps."
        )


# --- labels of a saved predictor ---


def _labels_to_keep(predictor_path: str, check: Callable[[Dataset, str], None]) -> Dataset | None:
    """Return the labels that a saved predictor was fitted to; warn if they cannot be kept."""
    try:
        dataset = labels_of_predictor(predictor_path)
        check(dataset, predictor_path)
    except RlTeacherError as error:
        logger.warning(
            "The labels that the predictor %s was fitted to are not used, only newer ones: %s",
            predictor_path,
            error,
        )
        return None
    return dataset


def labels_of_predictor(name_or_folder: str) -> Dataset:
    """Load the labels that the predictor of an experiment was fitted to.

    They are those of the experiment itself, and those that it started with.

    Raises:
        BadInput: it is not the predictor of an experiment, or the experiment has no labels.
    """
    experiment = experiment_of_predictor(name_or_folder)
    parts = []
    if (experiment.folder / COPY).exists():
        parts.append(load_copy(experiment.folder / COPY))
    is_here = experiment.folder.resolve() == (experiments_folder() / experiment.name).resolve()
    try:
        if is_here:
            parts.append(labels_in_home(experiment.name))
    except RlTeacherError:
        if not parts:
            raise
    if not parts:
        raise BadInput(f"Experiment {experiment.folder} belongs to another home folder.")
    return Dataset.merged(parts)


def experiment_of_predictor(name_or_folder: str) -> Experiment:
    """Return the experiment of a saved predictor.

    Raises:
        BadInput: the predictor belongs to none.
    """
    folder = predictor_folder(name_or_folder)
    folder = folder.parent if folder.name == "predictor" else folder
    if not (folder / "config.json").exists():
        raise BadInput(
            f"{name_or_folder} is the folder of a predictor alone. Name its labels with --labels."
        )
    return Experiment(folder.name, folder)


# --- conversion ---


def labelled_pairs(comparisons: Iterable[Labelled], space: InputSpace) -> list[LabelledPair]:
    """Convert labelled comparisons to the training pairs of a predictor."""
    return [labelled_pair(space, each.left, each.right, float(each.target)) for each in comparisons]
