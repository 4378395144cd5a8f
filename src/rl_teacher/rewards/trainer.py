"""Fits of the reward predictor as labels arrive."""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int64

from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.plan import LearningPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import FitResult, evaluate, fit, initial_state, warm_start
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import Examples, LabelledPair, LabelSet
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


def examples_of(labels: LabelSet, config: PredictorConfig) -> Examples:
    """Return what the objective fits: the comparisons, or their clips by rank.

    Args:
        labels: the comparisons.
        config: hyperparameters of the predictor.
    """
    if config.objective == "preferences":
        return labels.comparisons
    clips, places, sides = np.unique(labels.clips, return_index=True, return_inverse=True)
    targets, certainty = _ranks(labels, sides.reshape(-1, 2), len(clips), config.error_rate)
    return Examples(
        labels,
        places[:, None],
        targets.astype(np.float32),
        certainty.astype(np.float32),
        labels.held_out_clips(clips),
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
        self, learning: LearningPlan, space: InputSpace, pretrained: RewardPredictor | None = None
    ) -> None:
        """Initialise without labels.

        Args:
            learning: settings of the fits, and of the labels.
            space: input space of the networks.
            pretrained: predictor to start from, with networks of the same size; it predicts from
                the first step and is fine-tuned.
        """
        self._learning = learning
        self._space = space
        self._pretrained = pretrained
        # A run that wants fewer labels would otherwise never fine-tune.
        wanted = learning.labels.first or learning.labels.total or MIN_LABELS_TO_FINE_TUNE
        self._min_labels_to_fine_tune = min(MIN_LABELS_TO_FINE_TUNE, wanted)
        self._fit_growth = FIT_GROWTH_CNN if space.has_byte_rows else FIT_GROWTH
        self._state = initial_state(space, learning.predictor, learning.seed)
        if pretrained is not None:
            self._state = warm_start(self._state, pretrained.networks, pretrained.normaliser)
        self._given: list[LabelledPair] = []
        self._fits_given = False
        self.labels = self.empty_label_set()
        # Targets by comparison id.
        self._targets: dict[int, float] = {}
        self._held_out: Examples | None = None
        self.num_fits = self.num_fit_steps = 0
        self._num_labels_fitted = 0
        self._is_revised = False
        self._thread = ThreadPoolExecutor(1, "reward-fit") if learning.fits_in_background else None
        self._running: Future[FitResult] | None = None

    def empty_label_set(self, capacity: int | None = None) -> LabelSet:
        """Return a label set without labels; its capacity is that of the run by default."""
        learning, config = self._learning, self._learning.predictor
        labels = LabelSet(
            learning.segment_steps,
            self._space,
            config.ensemble_size,
            learning.seed,
            config.segment_discount,
            config.label_buffer if capacity is None else capacity,
        )
        if self._pretrained is not None:
            labels.warm_start_from(self._pretrained.normaliser)
        return labels

    @property
    def has_fitted(self) -> bool:
        """True if the predictor is fitted, here or as a pretrained one."""
        return self.num_fits > 0 or self._pretrained is not None

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
        """True if labels were added or revised since the last fit began."""
        return self._is_revised or self._num_new > 0

    @property
    def _num_for_fit(self) -> int:
        """Number of new labels for which a fit is due."""
        return max(math.ceil(self._fit_growth * self.num_labels_of_fit), 1)

    @property
    def _num_new(self) -> int:
        return self.labels.num_added - self._num_labels_fitted

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
        labels = self.empty_label_set(capacity=0)
        for pair in pairs:
            labels.add(pair)
        self._held_out = examples_of(labels, self._learning.predictor)

    def follow(
        self, targets: Mapping[int, float], pair_of: Callable[[int, float], LabelledPair]
    ) -> list[int]:
        """Follow the targets of all labelled comparisons; return the ids of new ones.

        If a target was changed or taken back, the next fit is due at once.

        Args:
            targets: by comparison id, in the order in which new labels are added.
            pair_of: loads the segments of a comparison, given its id and target.
        """
        before, self._targets = self._targets, dict(targets)
        added = new = [each for each in targets if each not in before]
        self._is_revised |= any(targets.get(each) != target for each, target in before.items())
        if before.keys() <= targets.keys():
            for each in before:
                self.labels.set_target(each, targets[each])
        else:
            # Known labels keep their order, since whether one is held out depends on its number.
            added = [*(each for each in self.labels.comparison_ids if each in targets), *new]
            self.labels = self.empty_label_set()
            for pair in self._given:
                self.labels.add(pair)
        for each in added:
            self.labels.add(pair_of(each, targets[each]), each)
        if not len(self.labels):
            # Without labels there is no fit to reset these.
            self._is_revised, self._num_labels_fitted = False, 0
        return new

    # --- fits ---

    def fit_if_due(self, *, force: bool = False) -> FitResult | None:
        """Fit if there are enough new labels; return None if no fit was completed.

        Args:
            force: fit even if there are no new labels.
        """
        has_enough = self._num_new >= self._num_for_fit
        if not (self._is_revised or has_enough or (force and len(self.labels) > 0)):
            return None
        is_fine_tuned = self._pretrained is not None and not self._fits_given
        if is_fine_tuned and self.labels.num_added < self._min_labels_to_fine_tune:
            return None
        self._num_labels_fitted = self.labels.num_added
        self._is_revised = False
        if not self.has_fitted or (self.num_fits == 0 and self._fits_given):
            # The first fit runs to convergence, and training waits for it.
            return self._count(self._fit(self._learning.first_fit_steps, None))
        if self._thread is None:
            return self._count(self._refit())
        self._running = self._thread.submit(self._refit)
        return None

    def _refit(self) -> FitResult:
        return self._fit(REFIT_STEPS, REFIT_PATIENCE)

    def _fit(self, max_steps: int, patience: int | None) -> FitResult:
        """Fit to all labels; the report is on the held-out set if there is one."""
        examples = examples_of(self.labels, self._learning.predictor)
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
            "is_revised": np.asarray(self._is_revised),
        }
        return nest({"counts": own, "fitter": self._state.arrays()})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state; the caller adds the labels."""
        self._state = self._state.restored(part_of(state, "fitter"))
        self.num_fits = int(state["counts/num_fits"])
        self.num_fit_steps = int(state["counts/num_fit_steps"])
        self._num_labels_fitted = int(state["counts/num_labels_fitted"])
        self._is_revised = bool(state["counts/is_revised"])

    def close(self) -> None:
        """Stop background threads."""
        if self._thread is not None:
            self._thread.shutdown()
