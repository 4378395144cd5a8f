"""Reward learning from comparisons: queries, labels and fits, behind three methods.

    observe   record a rollout and predict its rewards
    ask       ask the comparisons that are due
    fit       fit the predictor to the answers that have arrived

`PreferenceSession` drives a learner; it also works without a session.
"""

import math
import time
from collections.abc import Mapping, Sequence, Set

import numpy as np

from rl_teacher.clips.recorder import Recorder
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import Diverged
from rl_teacher.common.state_dict import StateDict, array_to_rng, nest, part_of, rng_to_array
from rl_teacher.envs.rollout import Rollout
from rl_teacher.plan import LearningPlan
from rl_teacher.predictor.diagnostics import Diagnostics
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import FitResult
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import EQUAL, LabelledPair
from rl_teacher.predictor.networks import learning_rate
from rl_teacher.queries.pairs import PairChooser, input_rows, labelled_pair
from rl_teacher.queries.planner import QueryPlanner
from rl_teacher.queries.queue import Query, QueryQueue, Recent, mean_target
from rl_teacher.queries.schedules import Progress
from rl_teacher.queries.sorter import ClipSorter
from rl_teacher.rewards.meter import PredictorMeter, share_above, true_agreement
from rl_teacher.rewards.source import Metrics, RewardedRollout, prediction_metrics
from rl_teacher.rewards.trainer import PredictorTrainer

RECORDED_STEPS = 48_000
"""Environment steps, over all environments, from which segments are cut: few enough that they show
the agent's recent behaviour."""
RECORDED_BYTES = 400_000_000
"""Memory limit of the recorded observations, which matters for images."""
REVISIONS_EVERY_S = 1.0
"""Time between reads of the answers while no comparison waits and only revisions can arrive."""
MAX_PREDICTED_REWARD = 1e6
"""Largest magnitude of a predicted reward of one step; fitted ones are of the order of 1."""

COMPARED_CLIPS = 64
"""Clips on each side of the comparison with the untrained agent."""
COMPARED_STEPS = 8_192
"""Newest steps, over all environments, that recent clips are cut from; more if clips are long."""
REMEASURED_SEGMENTS = 64
"""Recent segments on which the reward scale is measured after a fit."""


class RewardLearner:
    """Reward source that learns a predictor from labels.

    Attributes:
        predictor: predicts the rewards.
        recorder: recent steps, from which segments are cut.
        queue: comparisons asked through the store, and their answers.
        planner: says how many to ask.
        chooser: says which.
        trainer: labels of the fits, and the fits.
        meter: measures the predictor.
    """

    def __init__(
        self,
        env_id: str,
        space: InputSpace,
        num_envs: int,
        learning: LearningPlan,
        queue: QueryQueue,
        pretrained: RewardPredictor | None = None,
    ) -> None:
        """Initialise.

        Args:
            env_id: environment id stored with segments.
            space: spaces of observations and actions.
            num_envs: N, environments of a rollout.
            learning: predictor to fit and labels to ask for.
            queue: asks comparisons through the store.
            pretrained: predictor to start from.
        """
        config, labels = learning.predictor, learning.labels
        self._env_id = env_id
        self._space = space = space.for_encoder(config.image_encoder)
        self._learning = learning
        # One generator for query selection and the reward scale: its order of draws is part of
        # what a seed determines.
        self._rng = np.random.default_rng([learning.seed, 6])
        self.predictor = RewardPredictor(space, config, learning.seed)
        if pretrained is not None:
            self.predictor.load_state(pretrained.state())
        # The number of pretraining labels sets the size of the buffer; see `recorded_steps`.
        num_steps = recorded_steps(labels.first, learning.segment_steps, num_envs, space)
        self.recorder = Recorder(
            env_id,
            segment_steps=learning.segment_steps,
            capacity=num_steps // num_envs,
            shows_ends=learning.shows_ends,
        )
        self.queue = queue
        self.planner = QueryPlanner(labels, queue)
        shared: Sequence[Segment] = ()
        if labels.reuses_clips:
            shared = queue.shared_segments(env_id, learning.segment_steps)
        parts = self.recorder, self.predictor, self._rng, shared
        self.chooser: PairChooser | ClipSorter
        if labels.queries == "pairs":
            self.chooser = PairChooser(labels, *parts)
        else:
            self.chooser = ClipSorter(labels, queue, *parts)
        self.trainer = PredictorTrainer(learning, space, pretrained)
        self.meter = PredictorMeter(self.predictor)
        self._num_envs = num_envs
        self._is_pretrained = pretrained is not None
        self._read_s = -math.inf

    @property
    def num_fits(self) -> int:
        """Number of completed fits; that of a pretrained predictor counts as one."""
        return self.trainer.num_fits + self._is_pretrained

    # --- observe ---

    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Record a rollout and predict its rewards.

        The reward scale is updated before it normalises the same rollout, so that the very first
        rewards are on scale.

        Raises:
            Diverged: a predicted reward is not finite, or larger than `MAX_PREDICTED_REWARD`.
        """
        predictor = self.predictor
        self.recorder.observe(rollout)
        rows = self._space.rows(rollout.observations, rollout.actions)
        members = predictor.member_rewards(rows)
        # Also true for NaN.
        if not (np.abs(members) <= MAX_PREDICTED_REWARD).all():
            rate = learning_rate(predictor.config, predictor.networks)
            raise Diverged(
                "The predicted rewards are not finite numbers, or larger than "
                f"{MAX_PREDICTED_REWARD:,.0f}: the reward predictor diverged. The last checkpoint "
                f"was kept. Lower --reward.learning-rate (now {rate:g}), or the learning_rate of "
                "PredictorConfig, and start again under another name."
            )
        predictor.recent.update(members[:, rollout.is_valid])
        rewards = predictor.normalised(members)
        metrics = prediction_metrics(rollout, members, rewards)
        measured = self.meter.observe(rollout, members, metrics.get("correlation"))
        return RewardedRollout(rewards, metrics | measured)

    def add_clip_to_sort(self, rollout: Rollout) -> bool:
        """Cut a clip from a rollout and add it to those to sort; record nothing else of it.

        Returns:
            False if no episode of the rollout is long enough, or complete.
        """
        assert isinstance(self.chooser, ClipSorter)  # noqa: S101 - the settings are checked
        recorder = Recorder(
            self._env_id,
            segment_steps=self._learning.segment_steps,
            capacity=len(rollout.rewards),
        )
        recorder.observe(rollout)
        segments = recorder.segments(recorder.cut(1, self._rng))
        for segment in segments:
            self.chooser.add_clip(segment)
        return len(segments) > 0

    # --- ask ---

    def ask(
        self,
        progress: Progress,
        recent: Recent,
        limit: int | None = None,
        *,
        are_last: bool = False,
    ) -> int:
        """Ask the comparisons that are due.

        Args:
            progress: of the run.
            recent: the agent's latest episodes.
            limit: comparisons of the run, those asked so far included; None: no limit.
            are_last: ask a synthetic teacher even if they are too few for another fit.

        Returns:
            How many were asked: fewer than are due while too few steps are recorded.
        """
        is_fitted = self.trainer.has_fitted
        num_for_fit = 1 if are_last else self.trainer.num_labels_to_next_fit
        before = self.queue.num_asked
        wanted = before + self.planner.num_to_ask(progress, num_for_fit=num_for_fit)
        if limit is not None:
            wanted = min(wanted, limit)
        while (missing := wanted - self.queue.num_asked) > 0:
            pairs = self.chooser.choose(missing, is_fitted=is_fitted)
            self.queue.ask(pairs, progress.step, recent)
            if not pairs or isinstance(self.chooser, PairChooser):
                break
            # A synthetic teacher has answered, and further comparisons depend on the answers.
            self.read_answers()
        return self.queue.num_asked - before

    def read_answers(self) -> int:
        """Read new answers, unless a fit in the background uses the labels.

        Returns:
            How many comparisons are answered.
        """
        if self.trainer.is_fitting:
            return self.queue.num_answered
        self._read_s = time.monotonic()
        if self.queue.read_answers():
            targets = self._targets_of(self.queue.asked())
            # Added before they are evaluated, because the label set holds their input rows. The
            # predictor itself changes with the next fit only.
            new = self.trainer.follow(targets, self._pair_of)
            if self.trainer.has_fitted:
                self.meter.compare(self.trainer.labels, new)
        return self.queue.num_answered

    def _targets_of(self, queries: Sequence[Query]) -> dict[int, float]:
        """Compute label targets by comparison id, in the order of the queries.

        Comparisons with no answer but `cannot_tell` have no target.
        """
        targets = {query.id: mean_target(self.queue.answers_to(query)) for query in queries}
        return {each: target for each, target in targets.items() if target is not None}

    def _pair_of(self, comparison_id: int, target: float) -> LabelledPair:
        left, right = map(self.queue.segment, self.queue.query(comparison_id).segments)
        return labelled_pair(self._space, left, right, target)

    # --- fit ---

    def fit(self, *, force: bool = False) -> bool:
        """Read new answers, and fit if there are enough; return whether a fit was completed.

        Args:
            force: fit even if there are no new labels.
        """
        if self.trainer.is_fitting:
            return self._install(self.trainer.finish(wait=False))
        is_due = time.monotonic() - self._read_s >= REVISIONS_EVERY_S
        if force or is_due or self.queue.num_waiting:
            self.read_answers()
        # The last labels are fitted even if they are fewer than for other fits.
        is_last = self.planner.has_all_answers and self.trainer.has_new_labels
        return self._install(self.trainer.fit_if_due(force=force or is_last))

    def fit_remaining(self) -> bool:
        """Fit to answers that no fit has used yet; wait for it and for a fit in the background.

        Usually a few labels wait until there are enough for another fit.

        Returns:
            Whether a fit was completed.
        """
        is_fitted = self.finish_fit()
        self.read_answers()
        if self.trainer.has_unfitted_labels:
            is_fitted |= self.fit(force=True)
            is_fitted |= self.finish_fit()
        return is_fitted

    def finish_fit(self) -> bool:
        """Wait for a fit in the background; return whether there was one."""
        return self._install(self.trainer.finish(wait=True))

    def _install(self, fitted: FitResult | None) -> bool:
        """Give the predictor the networks of a fit, if any, and measure their reward scale."""
        if fitted is None:
            return False
        self.predictor.set_networks(fitted.networks, fitted.normaliser)
        self.predictor.is_informed = self._is_pretrained or self.trainer.labels.num_decided > 0
        if self._learning.shows_ends:
            # Bradley-Terry compares sums, so a constant added to every step cancels out between
            # segments of equal length. Between unequal ones it does not: there the labels determine
            # the zero. Networks keep it in later fits, whatever the lengths in the label buffer.
            self.predictor.keeps_zero |= self.trainer.labels.has_unequal_lengths
        self._measure_reward_scale()
        self.meter.count_fit(fitted.report, self.trainer.labels)
        return True

    def beats_untrained(self) -> float:
        """Compute the share of recent clips rated above those labelled before training, over pairs.

        Both are rated by the current predictor: each fit has another zero and another scale, so
        that predicted returns of different predictors cannot be compared.

        Returns:
            NaN before the first fit, and without clips that were labelled before training.
        """
        labels = self.trainer.labels
        ids = labels.comparison_ids[: self._learning.labels.first][: COMPARED_CLIPS // 2]
        first = [index for each in ids if (index := labels.index_of(each)) is not None]
        if not self.num_fits or not first:
            return math.nan
        # Its own generator, so that it changes nothing else that a seed determines.
        rng = np.random.default_rng([self._learning.seed, 3])
        newest = max(COMPARED_STEPS // self._num_envs, 2 * self._learning.segment_steps)
        clips = self.recorder.segments(self.recorder.cut(COMPARED_CLIPS, rng, newest))
        if len(clips) < 2:
            return math.nan
        # As labels, so that both have the same sampled steps and discounts.
        recent = self.trainer.empty_label_set(capacity=0)
        for left, right in zip(clips[::2], clips[1::2], strict=False):
            recent.add(labelled_pair(self._space, left, right, EQUAL))
        now, before = (
            self.meter.scores(each, places).ravel()
            for each, places in ((recent, range(len(recent))), (labels, first))
        )
        return share_above(now, before)

    def _measure_reward_scale(self) -> None:
        """Restart the window of predicted rewards with predictions for recent steps."""
        # The window holds rewards of the networks before the fit, whose scale is arbitrary.
        cuts = self.recorder.cut(REMEASURED_SEGMENTS, self._rng)
        self.predictor.recent.clear()
        if len(cuts):
            rows, is_real = input_rows(self.recorder, self.predictor.space, cuts)
            rows = rows[is_real]
        else:  # nothing is recorded yet, for example with a given data set: use its steps
            labels = self.trainer.labels
            rows = labels.rows[labels.weights > 0]
        self.predictor.recent.update(self.predictor.member_rewards(rows))

    # --- report ---

    def metrics(self) -> Metrics:
        """Return the numbers of labels and fits, and the quality of the last fit."""
        labels = self.trainer.labels
        counts: Metrics = {
            "labels_desired": self.planner.num_due,
            "labels_asked": self.queue.num_asked,
            "labels_answered": self.queue.num_answered,
            "comparisons": len(labels),
            "fits": self.trainer.num_fits,
            "fit_steps": self.trainer.num_fit_steps,
            "labels_decided": labels.num_decided,
        }
        agreement = true_agreement(labels)
        if agreement.num:
            counts["true_agreement"] = agreement.share
            counts["true_agreement_low"] = agreement.low
            counts["true_agreement_high"] = agreement.high
        if isinstance(self.chooser, ClipSorter):
            counts["clips_sorted"] = self.chooser.num_compared
            if self.chooser.max_clips is not None:
                counts["clips_wanted"] = self.chooser.max_clips
        return counts | self.meter.metrics()

    def diagnostics(self, shown: Set[str]) -> Diagnostics | None:
        """Evaluate the predictor on clips that can be shown; None before the first fit.

        Args:
            shown: content hashes of these clips.
        """
        report, labels = self.meter.report, self.trainer.labels
        if report is None:
            return None
        segments = {
            comparison_id: self.queue.query(comparison_id).segments
            for comparison_id in labels.comparison_ids
        }
        indices = {
            comparison_id: index
            for comparison_id, pair in segments.items()
            if shown >= set(pair) and (index := labels.index_of(comparison_id)) is not None
        }
        scores = self.meter.scores(labels, list(indices.values())).tolist() if indices else []
        comparisons = {
            comparison_id: (left, right)
            for comparison_id, (left, right) in zip(indices, scores, strict=True)
        }
        returns = {
            segment: predicted
            for comparison_id, pair in comparisons.items()
            for segment, predicted in zip(segments[comparison_id], pair, strict=True)
        }
        bins = [
            {"predicted": each.predicted, "observed": each.observed, "count": each.num}
            for each in report.calibration
        ]
        return Diagnostics(
            returns, bins, comparisons, self.num_fits, self.trainer.num_labels_of_fit
        )

    # --- state ---

    def state(self) -> StateDict:
        """Return everything needed to resume exactly; segments and answers stay in the store.

        No fit may run in the background: its labels count as fitted already.
        """
        # The label set as places in the order asked, since ids differ between stores.
        place_of = {query.id: place for place, query in enumerate(self.queue.asked())}
        places = [place_of[i] for i in self.trainer.labels.comparison_ids]
        own: StateDict = {
            "rng": rng_to_array(self._rng),
            "labelled": np.array(places, np.int64),
        }
        parts = {
            "predictor": self.predictor.state(),
            "recorder": self.recorder.state(),
            "planner": self.planner.state(),
            "trainer": self.trainer.state(),
            "queue": self.queue.state(),
            "meter": self.meter.state(),
        }
        if isinstance(self.chooser, ClipSorter):
            parts["sorter"] = self.chooser.state()
        return nest({"self": own, **parts})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state.

        The labels are those of the checkpoint, in its order; newer answers are read by the next
        `fit`, as they would have been without the interruption.
        """
        self.predictor.load_state(part_of(state, "predictor"))
        self.recorder.load_state(part_of(state, "recorder"))
        self.planner.load_state(part_of(state, "planner"))
        self.trainer.load_state(part_of(state, "trainer"))
        self.queue.load_state(part_of(state, "queue"), self._env_id)
        self.meter.load_state(part_of(state, "meter"))
        if isinstance(self.chooser, ClipSorter):
            self.chooser.load_state(part_of(state, "sorter"))
        array_to_rng(self._rng, state["self/rng"])
        # Labels are added in the order of the original run, since whether a label is held out
        # depends on its number.
        asked = self.queue.asked()
        queries = [asked[place] for place in state["self/labelled"]]
        self.trainer.follow(self._targets_of(queries), self._pair_of)

    def close(self) -> None:
        """Stop background threads."""
        self.trainer.close()


def recorded_steps(
    pretraining: int, segment_steps: int, num_envs: int, space: InputSpace | None = None
) -> int:
    """Compute how many environment steps to record: enough for all pretraining comparisons.

    Args:
        pretraining: comparisons before training.
        segment_steps: L, length of a segment.
        num_envs: N; the result is a multiple of it.
        space: if given, the memory limit applies to its observations.
    """
    steps = RECORDED_STEPS
    if space is not None:
        size = math.prod(space.observation_shape)
        num_bytes = size if space.image is not None else 4 * size
        steps = min(steps, RECORDED_BYTES // max(num_bytes, 1))
    # Two segments per comparison, none of which has to overlap another; rounded up.
    per_env = -(-max(steps, 2 * pretraining * segment_steps) // num_envs)
    # At least room for two segments of one environment that do not overlap.
    return num_envs * max(per_env, 2 * segment_steps)
