"""Offline fitting of a reward predictor: to saved labels, without training or new queries."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rl_teacher.common import runtime
from rl_teacher.common.errors import BadConfig, BadInput, RlTeacherError
from rl_teacher.common.files import check_writable, folder_errors
from rl_teacher.common.paths import user_path
from rl_teacher.config.experiment import PredictorConfig, TeachConfig
from rl_teacher.config.fields import as_flag
from rl_teacher.datasets.dataset import Dataset
from rl_teacher.datasets.given_labels import (
    COPY,
    check_unseen,
    labelled_pairs,
    labels_of_predictor,
    usable_labels,
    with_held_out,
)
from rl_teacher.plan import NETWORK_SETTINGS
from rl_teacher.predictor.diagnostics import FitReport
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import evaluate, fit, initial_state, warm_start
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelSet
from rl_teacher.rewards.trainer import examples_of
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.runs.management import locked_experiment
from rl_teacher.runs.warm_start import (
    hash_arrays,
    load_predictor,
    with_network_settings,
)


@dataclass(frozen=True)
class FitOutcome:
    """Result of a fit.

    Attributes:
        report: diagnostics of the predictor.
        num_comparisons: number of comparisons fitted.
        num_held_out: number of comparisons of the held-out set; 0 if there is none.
        folder: folder of the predictor.
    """

    report: FitReport
    num_comparisons: int
    num_held_out: int
    folder: Path


def fit_labels(config: TeachConfig, out: str | None = None) -> FitOutcome:
    """Fit a reward predictor to saved labels until it stops improving, and save it.

    Args:
        config: settings with the labels; those of agents and of new labels are not read.
        out: folder for the predictor, in place of an experiment.

    Raises:
        BadInput: there are no labels, none can be used for fitting, the held-out ones do not suit
            them, or the initial predictor has other spaces.
        BadConfig: the networks do not fit into the available memory, or other ones were asked for
            than the initial predictor has.
        RunFolderUnusable: the predictor cannot be saved.
    """
    runtime.prepare(home() / "cache" / "xla")
    if bool(config.name) == (out is not None):
        raise BadConfig(
            "The predictor is saved either in an experiment or in a folder. Give -n or --out."
        )
    dataset = labels_to_fit(config)
    space = dataset.space
    initial = None
    if config.predictor_path is not None:
        initial = load_predictor(config.predictor_path, space)
        check_unseen_by(config.predictor_path, dataset.held_out)
        check_network_settings(config.reward, initial.config)
        config = replace(config, reward=with_network_settings(initial, config.reward))
    with open_destination(config, out, dataset, initial) as (folder, experiment):
        predictor, report = fit_predictor(dataset, space, config, initial)
        with folder_errors(folder):
            predictor.save(folder)
        num_labels = len(dataset.training)
        if experiment is not None:
            # A run that continues to fit this predictor keeps its labels.
            dataset.save(experiment.folder / COPY)
            metrics = {"labels_answered": num_labels, "fits": 1, **report.metrics()}
            # Repeating a fit replaces its row.
            experiment.metrics_file.drop_after(-1)
            experiment.metrics_file.append({"step": 0, **metrics})
    num_fitted = min(num_labels, config.reward.label_buffer or num_labels)
    return FitOutcome(report, num_fitted, len(dataset.held_out), folder)


def labels_to_fit(config: TeachConfig) -> Dataset:
    """Load the labels and those to hold out.

    Raises:
        BadInput: there are none, they are of different environments, or all are held out.
    """
    dataset = usable_labels(str(config.labels))
    if config.held_out is None:
        return with_held_out([dataset], None)
    held_out = usable_labels(config.held_out)
    if held_out.env_id != dataset.env_id:
        raise BadInput(
            f"--held-out {config.held_out} has labels of {held_out.env_id}, and {config.labels} of "
            f"{dataset.env_id}. Give labels of one environment."
        )
    return with_held_out([dataset], held_out)


def check_unseen_by(predictor_path: str, held_out: Dataset) -> None:
    """Check that a saved predictor was not fitted to held-out labels, if its labels are known.

    Raises:
        BadInput: it was.
    """
    if not len(held_out):
        return
    try:
        fitted = labels_of_predictor(predictor_path)
    except RlTeacherError:
        return
    check_unseen(held_out, fitted, predictor_path)


def check_network_settings(given: PredictorConfig, saved: PredictorConfig) -> None:
    """Check that no other networks are asked for than those of the initial predictor.

    Raises:
        BadConfig: a setting differs, and is not the default.
    """
    for name in NETWORK_SETTINGS:
        value, kept = getattr(given, name), getattr(saved, name)
        if value not in (kept, getattr(PredictorConfig(), name)):
            raise BadConfig(
                f"{as_flag(f'reward.{name}')} was given with {value}, but the predictor of "
                f"--predictor-path keeps its networks, with {kept}. Leave it out."
            )


@contextlib.contextmanager
def open_destination(
    config: TeachConfig, out: str | None, dataset: Dataset, initial: RewardPredictor | None
) -> Iterator[tuple[Path, Experiment | None]]:
    """Open the folder for the predictor, and its experiment if it has one, which is then locked.

    The experiment has no entry in the store: it has no comparisons. Content hashes, not paths,
    identify its labels and its initial predictor.
    """
    if out is not None:
        folder = user_path(out)
        # The fit may take minutes.
        check_writable(folder, "--out")
        yield folder, None
        return
    settings = {
        "labels": f"sha256:{dataset.content_hash}",
        "seed": config.seed,
        "pretrain_iters": config.pretrain_iters,
        "reward": asdict(config.reward),
        "predictor_path": initial and hash_arrays(initial.state(), initial.space),
    }
    identity = {"env_id": dataset.env_id, "fit": settings}
    with (
        open_store() as store,
        locked_experiment(store, config.name, identity) as (experiment, _),
    ):
        yield experiment.predictor_folder, experiment


def fit_predictor(
    dataset: Dataset, space: InputSpace, config: TeachConfig, initial: RewardPredictor | None
) -> tuple[RewardPredictor, FitReport]:
    """Fit a predictor to a data set and normalise its reward over the fitted segments."""
    space = space.for_encoder(config.reward.image_encoder)
    labels = label_set(dataset.training, space, config, initial)
    held_out = None
    if len(dataset.held_out):
        everything = replace(config, reward=replace(config.reward, label_buffer=0))
        held_out_labels = label_set(dataset.held_out, space, everything, initial)
        held_out = examples_of(held_out_labels, config.reward)
    state = initial_state(space, config.reward, config.seed)
    if initial is not None:
        state = warm_start(state, initial.networks, initial.normaliser)
    outcome = fit(state, examples_of(labels, config.reward), config.pretrain_iters)
    report = outcome.report if held_out is None else evaluate(outcome, held_out)
    predictor = RewardPredictor(space, config.reward, config.seed)
    predictor.set_networks(outcome.networks, outcome.normaliser)
    # Between segments of unequal lengths, the labels determine the zero of the reward.
    predictor.keeps_zero = labels.has_unequal_lengths or (
        initial is not None and initial.keeps_zero
    )
    predictor.is_informed = labels.num_decided > 0 or initial is not None
    is_step = labels.weights > 0  # 0 marks the padding of shorter segments
    predictor.recent.update(predictor.member_rewards(labels.rows[is_step]))
    return predictor, report


def label_set(
    dataset: Dataset, space: InputSpace, config: TeachConfig, initial: RewardPredictor | None
) -> LabelSet:
    """Convert a data set to the arrays of a fit."""
    labels = LabelSet(
        max(len(side) for each in dataset for side in (each.left, each.right)),
        space,
        config.reward.ensemble_size,
        config.seed,
        config.reward.segment_discount,
        config.reward.label_buffer,
    )
    if initial is not None:  # before the labels, which update these statistics
        labels.warm_start_from(initial.normaliser)
    for pair in labelled_pairs(dataset, space):
        labels.add(pair)
    return labels
