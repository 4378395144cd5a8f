"""Fits of the reward predictor as labels arrive."""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int64

from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import FitResult, evaluate, fit, initial_state, warm_start
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import ClipExamples, Examples, LabelledPair, LabelSet
from rl_teacher.queries.ranking import RankingAnswers, certainties, fit_qualities, rank_targets

FIT_GROWTH = 0.02
"""A fit is due when the number of labels has grown by this share, or by one label."""
FIT_GROWTH_CNN = 0.1
"""The same with a CNN, a fit of which takes some ten seconds of a core."""
REFIT_STEPS = 32
"""Gradient steps, at most, of a fit after the first; it starts warm."""
REFIT_PATIENCE = 1
"""Chunks without improvement after which such a fit ends."""
MIN_LABELS_TO_FINE_TUNE = 20
"""Labels before a pretrained predictor is fitted further: fewer would only make it forget."""


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of the predictor's fits.

    Attributes:
        config: hyperparameters of the predictor.
        first_fit_steps: maximum gradient steps of the first fit.
        in_background: fit in a thread while training continues, instead of between rollouts.
        seed: seed of networks, held-out labels and query selection.
        pretrained: predictor to start from, with networks of the same size; it predicts from the
            first step and is fine-tuned.
    """

    config: PredictorConfig
    first_fit_steps: int
    in_background: bool
    seed: int
    pretrained: RewardPredictor | None = None


def examples_of(labels: LabelSet, config: PredictorConfig) -> Examples:
    """Return what the objective fits: the comparisons, or their clips by rank.

    Args:
        labels: the comparisons.
        config: hyperparameters of the predictor.
    """
    if config.objective == "preferences":
        return labels
    clips, places, sides = np.unique(labels.clips, return_index=True, return_inverse=True)
    targets, certainty = _ranks(labels, sides.reshape(-1, 2), len(clips), config.error_rate)
    return ClipExamples(
        labels,
        places[:, None],
        targets.astype(np.float32),
        certainty.astype(np.float32),
        labels.held_out_of_clips(clips),
    )


def _ranks(
    labels: LabelSet, sides: Int64[np.ndarray, "comparison side"], num_clips: int, error_rate: float
) -> tuple[Float[np.ndarray, " clip"], Float[np.ndarray, " clip"]]:
    """Return the rank targets and certainties that follow from all comparisons of the set."""
    left, right = sides.T
    error_rates = np.full(len(labels), error_rate)
    answers = RankingAnswers(left, right, labels.targets.astype(np.float64), error_rates)
    qualities = fit_qualities(answers, np.zeros(num_clips))
    return rank_targets(qualities), certainties(answers, qualities)


class PredictorTrainer:
    """Keeps the labels, decides when a fit is due, and runs it.

    Attributes:
        labels: labels that the predictor is fitted to.
        num_fits: completed fits.
        num_fit_steps: gradient steps of all fits.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        space: InputSpace,
        segment_steps: int,
        min_labels_to_fine_tune: int = MIN_LABELS_TO_FINE_TUNE,
    ) -> None:
        """Initialise without labels.

        Args:
            settings: of the fits.
            space: input space of the networks.
            segment_steps: L, the length of a segment.
            min_labels_to_fine_tune: labels before a pretrained predictor is fitted further.
        """
        self._settings = settings
        self._space = space
        self._segment_steps = segment_steps
        self._min_labels_to_fine_tune = min_labels_to_fine_tune
        self._fit_growth = FIT_GROWTH_CNN if space.has_byte_rows else FIT_GROWTH
        self._state = initial_state(space, settings.config, settings.seed)
        pretrained = settings.pretrained
        if pretrained is not None:
            self._state = warm_start(self._state, pretrained.networks, pretrained.normaliser)
        self._given: list[LabelledPair] = []
        self._fits_given = False
        self.labels = self._empty_label_set()
        self._held_out: Examples | None = None
        self.num_fits = self.num_fit_steps = 0
        self._num_labels_fitted = 0
        # Answers to labels that were fitted before, which change targets but not the number of
        # labels.
        self._num_updated = 0
        self._is_revised = False
        self._thread = ThreadPoolExecutor(1, "reward-fit") if settings.in_background else None
        self._running: Future[FitResult] | None = None

    def _empty_label_set(self, capacity: int | None = None) -> LabelSet:
        config, pretrained = self._settings.config, self._settings.pretrained
        labels = LabelSet(
            self._segment_steps,
            self._space,
            config.ensemble_size,
            self._settings.seed,
            config.segment_discount,
            config.label_buffer if capacity is None else capacity,
        )
        if pretrained is not None:
            labels.warm_start_from(pretrained.normaliser)
        return labels

    @property
    def has_fitted(self) -> bool:
        """True if the predictor is fitted, here or as a pretrained one."""
        return self.num_fits > 0 or self._settings.pretrained is not None

    @property
    def num_labels_of_fit(self) -> int:
        """Number of labels of the latest fit."""
        # A full label buffer holds fewer labels than were ever added.
        return min(self._num_labels_fitted, len(self.labels))

    @property
    def num_labels_to_next_fit(self) -> int:
        """Number of further labels, at least one, for which the next fit is due."""
        return max(self._num_for_fit - self._num_new, 1)

    @property
    def is_fitting(self) -> bool:
        """True while a fit runs in the background, during which the labels must not change."""
        return self._running is not None

    @property
    def has_new_labels(self) -> bool:
        """True if labels were added since the last fit began."""
        return self.labels.num_added > self._num_labels_fitted

    @property
    def has_unfitted_labels(self) -> bool:
        """True if labels were added, updated or revised since the last fit began."""
        return self._is_revised or self._num_new > 0

    @property
    def _num_for_fit(self) -> int:
        """Number of new labels for which a fit is due."""
        return max(math.ceil(self._fit_growth * self.num_labels_of_fit), 1)

    @property
    def _num_new(self) -> int:
        return self.labels.num_added - self._num_labels_fitted + self._num_updated

    # --- labels ---

    def add_given(self, pairs: Iterable[LabelledPair], *, are_fitted: bool = False) -> None:
        """Add labels that do not belong to a comparison of this experiment, before all others.

        Args:
            pairs: the labels.
            are_fitted: whether the pretrained predictor was fitted to them, so that the next fit is
                due with further labels only.
        """
        for pair in pairs:
            self._given.append(pair)
            self.labels.add(pair)
        self._fits_given = not are_fitted and len(self._given) > 0
        if are_fitted:
            self._num_labels_fitted = self.labels.num_added

    def hold_out(self, pairs: Iterable[LabelledPair]) -> None:
        """Evaluate every fit on these labels, which are never trained on."""
        labels = self._empty_label_set(capacity=0)
        for pair in pairs:
            labels.add(pair)
        self._held_out = examples_of(labels, self._settings.config)

    def update_targets(
        self, targets: Mapping[int, float], pair_of: Callable[[int, float], LabelledPair]
    ) -> None:
        """Add new labels and change the targets of known ones.

        Args:
            targets: by comparison id, in the order in which new labels are added.
            pair_of: loads the segments of a comparison, given its id and target.
        """
        for comparison_id, target in targets.items():
            if comparison_id in self.labels:
                self.labels.set_target(comparison_id, target)
            else:
                self.labels.add(pair_of(comparison_id, target), comparison_id)

    def count_updated(self, num: int) -> None:
        """Count further answers to known comparisons as news for the next fit."""
        self._num_updated += num

    def rebuild(
        self, targets: Mapping[int, float], pair_of: Callable[[int, float], LabelledPair]
    ) -> None:
        """Replace all labels after one was revised; the next fit is due at once.

        Known labels keep their order, since whether one is held out depends on its number.
        """
        known = [each for each in self.labels.comparison_ids if each in targets]
        self.labels = self._empty_label_set()
        for pair in self._given:
            self.labels.add(pair)
        self.update_targets({each: targets[each] for each in (*known, *targets)}, pair_of)
        self._is_revised = len(self.labels) > 0
        if not self._is_revised:
            # Without labels there is no fit to reset these counts.
            self._num_labels_fitted = self._num_updated = 0

    # --- fits ---

    def fit_if_due(self, *, force: bool = False) -> FitResult | None:
        """Fit if there are enough new labels; return None if no fit was completed.

        Args:
            force: fit even if there are no new labels.
        """
        has_enough = self._num_new >= self._num_for_fit
        if not (self._is_revised or has_enough or (force and len(self.labels) > 0)):
            return None
        is_fine_tuned = self._settings.pretrained is not None and not self._fits_given
        if is_fine_tuned and self.labels.num_added < self._min_labels_to_fine_tune:
            return None
        self._num_labels_fitted, self._num_updated = self.labels.num_added, 0
        self._is_revised = False
        if not self.has_fitted or (self.num_fits == 0 and self._fits_given):
            # The first fit runs to convergence, and training waits for it.
            return self._count(self._fit(self._settings.first_fit_steps, None))
        if self._thread is None:
            return self._count(self._refit())
        self._running = self._thread.submit(self._refit)
        return None

    def _refit(self) -> FitResult:
        return self._fit(REFIT_STEPS, REFIT_PATIENCE)

    def _fit(self, max_steps: int, patience: int | None) -> FitResult:
        """Fit to all labels; the report is on the held-out set if there is one."""
        examples = examples_of(self.labels, self._settings.config)
        result = fit(self._state, examples, max_steps, patience=patience)
        if self._held_out is None:
            return result
        return replace(result, report=evaluate(result, self._held_out))

    def finish(self, *, wait: bool) -> FitResult | None:
        """Return the fit in the background if it is done.

        Args:
            wait: block until it is done.
        """
        if self._running is None or not (wait or self._running.done()):
            return None
        # `result` raises the exception of a fit that failed.
        fitted, self._running = self._running.result(), None
        return self._count(fitted)

    def _count(self, fitted: FitResult) -> FitResult:
        self._state = fitted.state
        self.num_fits += 1
        self.num_fit_steps += fitted.report.num_steps
        return fitted

    # --- state ---

    def state(self) -> StateDict:
        """Return everything needed to resume exactly, except the labels themselves."""
        own = {
            "num_fits": np.asarray(self.num_fits),
            "num_fit_steps": np.asarray(self.num_fit_steps),
            "num_labels_fitted": np.asarray(self._num_labels_fitted),
            "num_updated": np.asarray(self._num_updated),
            "is_revised": np.asarray(self._is_revised),
        }
        return nest({"counts": own, "fitter": self._state.arrays()})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state; the caller adds the labels."""
        self._state = self._state.restored(part_of(state, "fitter"))
        self.num_fits = int(state["counts/num_fits"])
        self.num_fit_steps = int(state["counts/num_fit_steps"])
        self._num_labels_fitted = int(state["counts/num_labels_fitted"])
        self._num_updated = int(state["counts/num_updated"])
        self._is_revised = bool(state["counts/is_revised"])

    def close(self) -> None:
        """Stop background threads."""
        if self._thread is not None:
            self._thread.shutdown()
