"""Fitting a reward predictor to labels that are there already: nothing is lived, nobody asked."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rl_teacher.common import runtime
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.config.experiment import FitConfig, PredictorConfig, validate_fit
from rl_teacher.datasets.dataset import Dataset
from rl_teacher.datasets.import_export import labels_of
from rl_teacher.predictor.diagnostics import FitReport
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import Fitter
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.warm_start import as_large_as, content_name, load_predictor
from rl_teacher.store.files import folder_errors


@dataclass(frozen=True)
class FitOutcome:
    """What came of a fit.

    Attributes:
        report: how good the predictor is.
        num_comparisons: that it was fitted to.
        folder: where it is.
    """

    report: FitReport
    num_comparisons: int
    folder: Path


def fit_labels(config: FitConfig) -> FitOutcome:
    """Fit a reward predictor to saved labels until it stops improving, and save it.

    Raises:
        BadInput: there are no such labels, nothing can be learned from them, or the predictor to
            begin with is for other spaces.
        RunFolderUnusable: it cannot be saved.
    """
    runtime.prepare(home() / "cache" / "xla")
    validate_fit(config)
    dataset = labels_of(config.labels)
    if not len(dataset):
        raise BadInput(
            f"There is nothing to learn from in {config.labels}: no label in it says left, right "
            "or equal. Label some comparisons, and try again."
        )
    space = InputSpace.from_spaces(dataset.spaces.observation, dataset.spaces.action)
    begun_with = beginning_of(config, space)
    if begun_with is not None:
        config = replace(config, reward=as_large_as(begun_with, config))
    with place_of(config, dataset, begun_with) as (folder, experiment):
        predictor, report = fitted(dataset, space, config, begun_with)
        with folder_errors(folder):
            predictor.save(folder)
        if experiment is not None:
            figures = {"labels_answered": len(dataset), "fits": 1, **report.metrics()}
            experiment.truncate_metrics(-1)
            experiment.append_metrics({"step": 0, **figures})
            experiment.finish()
    return FitOutcome(report, len(dataset), folder)


def beginning_of(config: FitConfig, space: InputSpace) -> RewardPredictor | None:
    """The predictor that a fit begins with, if it does.

    Raises:
        BadInput: it is not there, or is for other spaces.
    """
    if config.predictor_path is None:
        return None
    predictor = load_predictor(config.predictor_path)
    if predictor.space != space:
        raise BadConfig(
            f"The predictor {config.predictor_path} was made for {predictor.space.description}, "
            f"and the labels of {config.labels} are about {space.description}. Begin with one "
            "that was made for these, or without."
        )
    return predictor


@contextlib.contextmanager
def place_of(
    config: FitConfig, dataset: Dataset, begun_with: RewardPredictor | None
) -> Iterator[tuple[Path, Experiment | None]]:
    """Where the predictor goes: a folder, or an experiment that is locked meanwhile."""
    if config.name is None:
        yield Path(str(config.out)).expanduser(), None
        return
    defaults = {"fit": {"reward": asdict(PredictorConfig())}}
    identity = described(config, dataset, begun_with)
    with Experiment.open(config.name, identity, defaults=defaults) as experiment:
        yield experiment.folder / "predictor", experiment


def described(
    config: FitConfig, dataset: Dataset, begun_with: RewardPredictor | None
) -> dict[str, Any]:
    """What makes two fits the same: what was learned from, and how; not where it lay."""
    fit = {
        "labels": f"sha256:{dataset.content_hash}",
        "seed": config.seed,
        "pretrain_iters": config.pretrain_iters,
        "reward": asdict(config.reward),
    }
    if begun_with is not None:
        fit["predictor_path"] = content_name(begun_with.state(), begun_with.space)
    return {"env_id": dataset.env_id, "fit": fit}


def fitted(
    dataset: Dataset, space: InputSpace, config: FitConfig, begun_with: RewardPredictor | None
) -> tuple[RewardPredictor, FitReport]:
    """A predictor fitted to all labels of a data set, its scale measured on their segments."""
    space = space.for_encoder(config.reward.image_encoder)
    labels = label_set(dataset, space, config, begun_with)
    fitter = Fitter(space, config.reward, seed=config.seed)
    try:
        if begun_with is not None:
            fitter.warm_start_from(begun_with.networks, begun_with.normaliser)
        outcome = fitter.fit(labels, config.pretrain_iters)
    finally:
        fitter.close()
    predictor = RewardPredictor(space, config.reward, config.seed)
    predictor.set_networks(outcome.networks, outcome.normaliser)
    is_real = labels.weights > 0
    predictor.recent.update(predictor.member_rewards(labels.rows[is_real]))
    return predictor, outcome.report


def label_set(
    dataset: Dataset, space: InputSpace, config: FitConfig, begun_with: RewardPredictor | None
) -> LabelSet:
    """The comparisons as a fit wants them."""
    longest = max(len(side) for each in dataset for side in (each.left, each.right))
    labels = LabelSet(
        longest,
        space,
        config.reward.ensemble_size,
        config.seed,
        config.reward.segment_discount,
        config.reward.label_buffer,
    )
    if begun_with is not None:
        labels.warm_start_from(begun_with.normaliser)
    for each in dataset:
        sides = (space.rows(side.observations, side.actions) for side in (each.left, each.right))
        labels.add(LabelledPair(*sides, target=each.target))
    return labels
