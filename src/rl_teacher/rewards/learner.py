"""Reward learning from comparisons: queries, labels and fits, behind three methods.

    observe   record a rollout and predict its rewards
    ask       ask the comparisons that are due
    fit       fit the predictor to the answers that have arrived

`PreferenceSession` drives a learner; it also works without a session.
"""

import json
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.recorder import Recorder
from rl_teacher.common.errors import Diverged
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    array_to_text,
    nest,
    part_of,
    rng_to_array,
    text_to_array,
)
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import (
    Diagnostics,
    FitReport,
    RewardReference,
    unseen_share,
)
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import FitResult, gather_steps
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair
from rl_teacher.predictor.networks import learning_rate
from rl_teacher.quality.reliability import mean_targets
from rl_teacher.quality.votes import Votes
from rl_teacher.queries.planner import PlannerSettings, QueryPlanner
from rl_teacher.queries.queue import Pair, Query, QueryQueue, RecentEpisodes
from rl_teacher.queries.schedules import Progress
from rl_teacher.queries.sorter import ClipSorter
from rl_teacher.rewards.source import Metrics, RewardedRollout, RewardSource, prediction_metrics
from rl_teacher.rewards.trainer import MIN_LABELS_TO_FINE_TUNE, PredictorTrainer, TrainerSettings

RECORDED_STEPS = 48_000
"""Environment steps, over all environments, from which segments are cut: few enough that they show
the agent's recent behaviour."""
RECORDED_BYTES = 400_000_000
"""Memory limit of the recorded observations, which matters for images."""
REVISIONS_EVERY_S = 1.0
"""Time between reads of the answers while no comparison waits and only revisions can arrive."""
MAX_PREDICTED_REWARD = 1e6
"""Largest magnitude of a predicted reward of one step; fitted ones are of the order of 1."""

EQUAL = 0.5
"""Target of a label that prefers neither segment."""
FRESH_LABELS = 40
"""Newest labels whose agreement with the predictor is logged."""
REMEASURED_SEGMENTS = 64
"""Recent segments on which the reward scale is measured after a fit."""
REFERENCE_COMPARISONS = 32
"""Labelled comparisons on which predicted and true rewards are standardised after a fit."""


@dataclass(frozen=True)
class RewardTask:
    """Environments for which a reward is learned.

    Attributes:
        env_id: environment id stored with segments.
        space: spaces of observations and actions.
        num_envs: N, environments of a rollout.
        segment_steps: L, length of a segment.
        shows_ends: let segments be cut short by a termination, after which nothing is earned; see
            `Recorder` and `RewardPredictor.keeps_zero`.
    """

    env_id: str
    space: InputSpace
    num_envs: int
    segment_steps: int
    shows_ends: bool = False


class RewardLearner(RewardSource):
    """Reward source that learns a predictor from labels.

    Attributes:
        recorder: recent steps from which segments are cut.
    """

    def __init__(
        self,
        task: RewardTask,
        queries: PlannerSettings,
        training: TrainerSettings,
        queue: QueryQueue,
    ) -> None:
        config, seed, length = training.config, training.seed, task.segment_steps
        space = task.space.for_encoder(config.image_encoder)
        self._task = replace(task, space=space)
        self._queue = queue
        # One generator for query selection and the reward scale: its order of draws is part of
        # what a seed determines.
        self._rng = np.random.default_rng([seed, 6])
        self._predictor = RewardPredictor(space, config, seed)
        if training.pretrained is not None:
            self._predictor.load_state(training.pretrained.state())
        # The number of pretraining labels sets the size of the buffer; see `recorded_steps`.
        budget = queries.budget
        self._asks = budget.total != 0
        num_steps = recorded_steps(budget.pretraining, length, task.num_envs, space)
        self.recorder = Recorder(
            task.env_id,
            segment_steps=length,
            capacity=num_steps // task.num_envs,
            shows_ends=task.shows_ends,
        )
        self._planner = QueryPlanner(queries, self.recorder, self._predictor, length, self._rng)
        self._sorter = None
        if queries.sorting is not None:
            self._sorter = ClipSorter(queries.sorting, self.recorder, self._predictor, self._rng)
        # A run that wants fewer labels than MIN_LABELS_TO_FINE_TUNE would otherwise never
        # fine-tune.
        wanted = budget.pretraining or budget.total or MIN_LABELS_TO_FINE_TUNE
        self._trainer = PredictorTrainer(
            training, space, length, min(MIN_LABELS_TO_FINE_TUNE, wanted)
        )
        self._is_pretrained = training.pretrained is not None
        self._report: FitReport | None = None
        self._agreed: deque[bool] = deque(maxlen=FRESH_LABELS)
        self._reference: RewardReference | None = None
        # Environment steps observed: in all, until the last fit, and until the newest label; -1
        # before there is one.
        self._num_steps, self._fit_step, self._label_step = 0, -1, -1
        self._read_s = -math.inf

    @property
    def predictor(self) -> RewardPredictor:
        """The reward predictor."""
        return self._predictor

    @property
    def num_asked(self) -> int:
        """Number of comparisons asked so far."""
        return self._queue.num_asked

    @property
    def num_answered(self) -> int:
        """Number of comparisons whose answer has been read from the store."""
        return self._queue.num_answered

    @property
    def num_waiting(self) -> int:
        """Number of comparisons without an answer."""
        return self._queue.num_waiting

    @property
    def num_labels(self) -> int:
        """Number of labels that the predictor is fitted to."""
        return len(self._trainer.labels)

    @property
    def num_fits(self) -> int:
        """Number of completed fits; that of a pretrained predictor counts as one."""
        return self._trainer.num_fits + self._is_pretrained

    def add_given_labels(
        self,
        pairs: Iterable[LabelledPair],
        clips: Set[str] = frozenset(),
        *,
        are_fitted: bool = False,
    ) -> None:
        """Add labels that no comparison of this experiment asked for, before all others.

        Args:
            pairs: the labels.
            clips: content hashes of their clips, which are not compared again. A run with the seed
                of the one that asked for the labels records the same clips.
            are_fitted: whether the pretrained predictor was fitted to them.
        """
        self._trainer.add_given(pairs, are_fitted=are_fitted)
        for chooser in self._choosers:
            chooser.known_clips |= clips

    def hold_out(self, pairs: Iterable[LabelledPair], clips: Set[str] = frozenset()) -> None:
        """Evaluate every fit on these labels, which are never trained on.

        Args:
            pairs: the labels.
            clips: content hashes of their clips; see `leave_out`.
        """
        self._trainer.hold_out(pairs)
        self.leave_out(clips)

    def leave_out(self, clips: Set[str]) -> None:
        """Leave the clips of held-out labels out of all comparisons, also with --reuse-clips.

        Args:
            clips: their content hashes.
        """
        for chooser in self._choosers:
            chooser.known_clips |= clips
            chooser.leave_out_shared(clips)

    @property
    def _choosers(self) -> list[QueryPlanner | ClipSorter]:
        return [self._planner] if self._sorter is None else [self._planner, self._sorter]

    # --- observe ---

    def observe(self, rollout: Rollout) -> RewardedRollout:
        """Record a rollout and predict its rewards.

        The reward scale is updated before it normalises the same rollout, so that the very first
        rewards are on scale.

        Raises:
            Diverged: a predicted reward is not finite, or larger than `MAX_PREDICTED_REWARD`.
        """
        self.recorder.observe(rollout)
        rows = self._task.space.rows(rollout.observations, rollout.actions)
        members = self._predictor.member_rewards(rows)
        # Also true for NaN.
        if not (np.abs(members) <= MAX_PREDICTED_REWARD).all():
            rate = learning_rate(self._predictor.config, self._predictor.networks)
            raise Diverged(
                "The predicted rewards are not finite numbers, or larger than "
                f"{MAX_PREDICTED_REWARD:,.0f}: the reward predictor diverged. The last checkpoint "
                f"was kept. Lower --reward.learning-rate (now {rate:g}), or the learning_rate of "
                "PredictorConfig, and start again under another name."
            )
        is_valid = rollout.is_valid
        self._predictor.recent.update(members[:, is_valid])
        rewards = self._predictor.normalised(members)
        self._num_steps += rollout.num_steps
        metrics = prediction_metrics(rollout, self._predictor, rows, members, rewards)
        labels = self._trainer.labels
        if not self._predictor.space.has_byte_rows and len(labels) and is_valid.any():
            metrics["unseen_inputs"] = unseen_share(
                rows[is_valid], labels.input_low, labels.input_high, self._predictor.normaliser.mask
            )
        if self._reference is not None and is_valid.any():
            metrics["over_estimation"] = self._reference.over_estimation(
                members[:, is_valid], rollout.rewards[is_valid]
            )
        return RewardedRollout(rewards, metrics)

    def add_clip_to_sort(self, rollout: Rollout) -> bool:
        """Cut a clip from a rollout and add it to those to sort; record nothing else of it.

        Returns:
            False if no episode of the rollout is long enough, or complete.
        """
        assert self._sorter is not None  # noqa: S101 - the settings are checked
        recorder = Recorder(
            self._task.env_id,
            segment_steps=self._task.segment_steps,
            capacity=len(rollout.rewards),
        )
        recorder.observe(rollout)
        segments = recorder.segments(recorder.cut(1, self._rng))
        for segment in segments:
            self._sorter.add_clip(segment, self._queue)
        return len(segments) > 0

    # --- ask ---

    def plan(self, progress: Progress, seconds_between: float | None, total: int | None) -> None:
        """Change the rate or the number of comparisons; see `QueryPlanner.change_plan`.

        A run that asks for none has no teacher who could answer.
        """
        if self._asks:
            self._planner.change_plan(progress, seconds_between, total)

    def restore_plan(self, progress: Progress, *, rate: bool, total: bool) -> None:
        """Return to the run's own rate or number; see `QueryPlanner.restore_plan`."""
        if self._asks:
            self._planner.restore_plan(progress, rate=rate, total=total)

    def extend(self, progress: Progress, total: int | None, num_steps: int) -> None:
        """Extend the run to more labels, `total` in all, or to more environment steps."""
        if self._asks:
            self._planner.extend(total, num_steps, self._queue.num_asked, progress)

    def num_labels_missing(self, progress: Progress) -> int:
        """Return how many of the labels that are due by now have not been given.

        Comparisons that could not be asked yet are not waited for.
        """
        missing = self._planner.num_labels_due(progress) - self._queue.num_answered
        return min(missing, self._queue.num_waiting)

    def ask(
        self,
        progress: Progress,
        recent: RecentEpisodes,
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
        is_fitted = self._trainer.has_fitted
        num_for_fit = 1 if are_last else self._trainer.num_labels_to_next_fit
        num = self._planner.num_to_ask(
            progress, self._queue, is_fitted=is_fitted, num_for_fit=num_for_fit
        )
        if limit is not None:
            num = min(num, limit - self._queue.num_asked)
        before = self._queue.num_asked
        while (missing := num + before - self._queue.num_asked) > 0:
            pairs = self._choose(missing, is_fitted=is_fitted)
            self._queue.ask(pairs, progress.step, recent)
            if self._sorter is None or not pairs:
                break
            # A synthetic teacher has answered, and further comparisons depend on the answers.
            self.read_answers()
        return self._queue.num_asked - before

    def _choose(self, num: int, *, is_fitted: bool) -> list[Pair]:
        if self._sorter is None:
            return self._planner.choose(num, is_fitted=is_fitted)
        return self._sorter.choose(num, self._queue, is_fitted=is_fitted)

    def recover_queries(self) -> None:
        """Take over comparisons that an earlier run asked after its last checkpoint."""
        self._queue.recover()

    def withdraw_hidden(self) -> None:
        """Withdraw waiting comparisons whose clips cannot be shown; others are asked instead."""
        self._queue.withdraw_hidden()

    # --- fit ---

    def read_answers(self) -> int:
        """Read new answers, unless a fit in the background uses the labels.

        Returns:
            How many comparisons are answered.
        """
        if not self._trainer.is_fitting:
            self._read_s = time.monotonic()
            answers = self._queue.read_answers()
            if answers.has_revisions or answers.first or answers.further:
                self._label_step = self._num_steps
            if answers.has_revisions:
                targets = self._targets_of(self._queue.answered())
                self._trainer.rebuild(targets, self._pair_of)
            elif answers.first or answers.further:
                # Others were only answered with `cannot_tell` before: they are added now.
                num_updated = sum(each.id in self._trainer.labels for each in answers.further)
                # Added before they are evaluated, because the label set holds their input rows. The
                # predictor itself changes with the next fit only.
                self._learn_from([*answers.first, *answers.further])
                self._evaluate_on_fresh(answers.first)
                self._trainer.count_updated(num_updated)
        return self._queue.num_answered

    def fit(self, *, force: bool = False) -> bool:
        """Read new answers, and fit if there are enough; return whether a fit was completed.

        Args:
            force: fit even if there are no new labels.
        """
        if self._trainer.is_fitting:
            fitted = self._trainer.finish(wait=False)
        else:
            is_due = time.monotonic() - self._read_s >= REVISIONS_EVERY_S
            if force or is_due or self._queue.num_waiting:
                self.read_answers()
            # The last labels are fitted even if they are fewer than for other fits.
            is_last = self._has_all_labels and self._trainer.has_new_labels
            fitted = self._trainer.fit_if_due(force=force or is_last)
        if fitted is not None:
            self._install(fitted)
        return fitted is not None

    @property
    def _has_all_labels(self) -> bool:
        total = self._planner.budget.total
        return total is not None and self._queue.num_answered >= total

    def fit_remaining(self) -> bool:
        """Fit to answers that no fit has used yet; wait for it and for a fit in the background.

        Usually a few labels wait until there are enough for another fit.

        Returns:
            Whether a fit was completed.
        """
        is_fitted = self.finish_fit()
        self.read_answers()
        if self._trainer.has_unfitted_labels:
            is_fitted |= self.fit(force=True)
            is_fitted |= self.finish_fit()
        return is_fitted

    def finish_fit(self) -> bool:
        """Wait for a fit in the background; return whether there was one."""
        fitted = self._trainer.finish(wait=True)
        if fitted is not None:
            self._install(fitted)
        return fitted is not None

    def _evaluate_on_fresh(self, queries: Sequence[Query]) -> None:
        """Record whether the predictor agrees with new labels, which it was not fitted to yet."""
        labels = self._trainer.labels
        known = [each.id for each in queries if each.id in labels]
        indices = [index for each in known if (index := labels.index_of(each)) is not None]
        decided = [index for index in indices if labels.targets[index] != EQUAL]
        if not decided or not self._trainer.has_fitted:
            return
        left, right = self._predicted_scores(decided).T
        self._agreed.extend(((left > right) == (labels.targets[decided] > EQUAL)).tolist())

    def _predicted_scores(self, indices: Sequence[int]) -> Float32[np.ndarray, "comparison 2"]:
        """Predict the scores of both segments of labelled comparisons."""
        batch = gather_steps(self._trainer.labels, np.array(indices), 0)
        rewards = self._predictor.normalised(self._predictor.member_rewards(batch["rows"]))
        return self._predictor.clip_scores(rewards, batch["weights"])

    def _learn_from(self, queries: Sequence[Query]) -> None:
        self._trainer.update_targets(self._targets_of(queries), self._pair_of)

    def _targets_of(self, queries: Sequence[Query]) -> dict[int, float]:
        """Compute label targets by comparison id, in the order of the queries.

        Comparisons with no answer but `cannot_tell` have no target.
        """
        answers = {query.id: self._queue.answers_to(query) for query in queries}
        targets = mean_targets(Votes.of(answers))
        return {query.id: targets[query.id] for query in queries if query.id in targets}

    def _pair_of(self, comparison_id: int, target: float) -> LabelledPair:
        query = self._queue.query(comparison_id)
        left, right = (self._queue.segment(each) for each in query.segments)
        return LabelledPair(
            self._task.space.rows(left.observations, left.actions),
            self._task.space.rows(right.observations, right.actions),
            target,
            (left.rewards, right.rewards),
        )

    def _install(self, fitted: FitResult) -> None:
        """Give the predictor its new networks and measure their reward scale."""
        self._predictor.set_networks(fitted.networks, fitted.normaliser)
        if self._task.shows_ends:
            # Bradley-Terry compares sums, so a constant added to every step cancels out between
            # segments of equal length. Between unequal ones it does not: there the labels determine
            # the zero. Networks keep it in later fits, whatever the lengths in the label buffer.
            self._predictor.keeps_zero |= self._trainer.labels.has_unequal_lengths
        self._measure_reward_scale()
        self._reference = self._measure_reference()
        self._fit_step = self._num_steps
        self._report = fitted.report

    def _measure_reward_scale(self) -> None:
        """Restart the window of predicted rewards with predictions for recent steps."""
        # The window holds rewards of the networks before the fit, whose scale is arbitrary.
        cuts = self.recorder.cut(REMEASURED_SEGMENTS, self._rng)
        self._predictor.recent.clear()
        if len(cuts):
            rows, is_real = self._planner.input_rows(cuts)
            rows = rows[is_real]
        else:  # nothing is recorded yet, for example with a given data set: use its steps
            labels = self._trainer.labels
            rows = labels.rows[labels.weights > 0]
        self._predictor.recent.update(self._predictor.member_rewards(rows))

    def _measure_reference(self) -> RewardReference | None:
        """Measure predicted and true rewards on comparisons spread evenly over the labels."""
        labels = self._trainer.labels
        spread = np.linspace(0, len(labels) - 1, min(len(labels), REFERENCE_COMPARISONS))
        indices = spread.astype(int)
        true = labels.true_rewards[indices]
        is_known = (labels.weights[indices] > 0) & np.isfinite(true)
        members = self._predictor.member_rewards(labels.rows[indices][is_known])
        return RewardReference.measure(members, true[is_known])

    # --- metrics ---

    def metrics(self) -> Metrics:
        """Return the numbers of labels and fits, and the quality of the last fit."""
        counts: Metrics = {
            "labels_desired": self._planner.num_due,
            "labels_asked": self._queue.num_asked,
            "labels_answered": self._queue.num_answered,
            "comparisons": self.num_labels,
            "fits": self._trainer.num_fits,
            "fit_steps": self._trainer.num_fit_steps,
            "labels_decided": int(np.count_nonzero(self._trainer.labels.targets != EQUAL)),
            "fresh_labels": len(self._agreed),
        }
        if self._sorter is not None:
            counts["clips_sorted"] = self._sorter.num_compared(self._queue)
            if self._sorter.max_clips is not None:
                counts["clips_wanted"] = self._sorter.max_clips
        for name, step in (("fit", self._fit_step), ("label", self._label_step)):
            if step >= 0:
                counts[f"steps_since_{name}"] = self._num_steps - step
        if self._agreed:
            counts["fresh_accuracy"] = sum(self._agreed) / len(self._agreed)
        return counts | (self._report.metrics() if self._report is not None else {})

    def diagnostics(self, shown: Set[str]) -> Diagnostics | None:
        """Evaluate the predictor on clips that can be shown; None before the first fit.

        Args:
            shown: content hashes of these clips.
        """
        if self._report is None:
            return None
        bins = [
            {"predicted": each.predicted, "observed": each.observed, "count": each.num}
            for each in self._report.calibration
        ]
        comparisons = self._predicted_comparisons(shown)
        returns = {
            segment: predicted
            for comparison_id, pair in comparisons.items()
            for segment, predicted in zip(
                self._queue.query(comparison_id).segments, pair, strict=True
            )
        }
        return Diagnostics(
            returns, bins, comparisons, self.num_fits, self._trainer.num_labels_of_fit
        )

    def _predicted_comparisons(self, shown: Set[str]) -> dict[int, tuple[float, float]]:
        """Predict the scores of both clips of each labelled comparison that can be shown."""
        labels = self._trainer.labels
        indices = {
            comparison_id: index
            for comparison_id in labels.comparison_ids
            if shown >= set(self._queue.query(comparison_id).segments)
            and (index := labels.index_of(comparison_id)) is not None
        }
        if not indices:
            return {}
        scores = self._predicted_scores(list(indices.values())).tolist()
        return {each: (left, right) for each, (left, right) in zip(indices, scores, strict=True)}

    # --- state ---

    def state(self) -> StateDict:
        """Return everything needed to resume exactly; segments and answers stay in the store."""
        # A fit in the background has counted its labels as fitted; from a checkpoint without its
        # result, a resumed run would not repeat it.
        self.finish_fit()
        # The label set as places in the order asked, since ids differ between stores.
        place_of = {each.id: place for place, each in enumerate(self._queue.asked())}
        places = [place_of[i] for i in self._trainer.labels.comparison_ids]
        own: StateDict = {
            "rng": rng_to_array(self._rng),
            "labelled": np.array(places, np.int64),
            "agreed": np.array(self._agreed, bool),
            "report": text_to_array(json.dumps(self._report and asdict(self._report))),
            "steps": np.array([self._num_steps, self._fit_step, self._label_step]),
        }
        parts = {
            "predictor": self._predictor.state(),
            "recorder": self.recorder.state(),
            "planner": self._planner.state(),
            "trainer": self._trainer.state(),
            "queue": self._queue.state(),
            "sorter": {} if self._sorter is None else self._sorter.state(place_of),
            "reference": {} if self._reference is None else self._reference.state(),
        }
        return nest({"self": own, **parts})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state.

        The labels are those of the checkpoint, in its order; newer answers are read by the next
        `fit`, as they would have been without the interruption.
        """
        self._predictor.load_state(part_of(state, "predictor"))
        self.recorder.load_state(part_of(state, "recorder"))
        self._planner.load_state(part_of(state, "planner"))
        self._trainer.load_state(part_of(state, "trainer"))
        self._queue.load_state(part_of(state, "queue"), self._task.env_id)
        if self._sorter is not None:
            self._sorter.load_state(part_of(state, "sorter"), self._queue)
        array_to_rng(self._rng, state["self/rng"])
        self._agreed.extend(state["self/agreed"].tolist())
        self._num_steps, self._fit_step, self._label_step = state["self/steps"].tolist()
        self._reference = RewardReference.from_state(part_of(state, "reference"))
        report = json.loads(array_to_text(state["self/report"]))
        self._report = None if report is None else FitReport.from_json(report)
        # Labels are added in the order of the original run, since whether a label is held out
        # depends on its number.
        asked = self._queue.asked()
        self._learn_from([asked[place] for place in state["self/labelled"]])

    def close(self) -> None:
        """Stop background threads."""
        self._trainer.close()


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
        num_numbers = math.prod(space.observation_shape)
        num_bytes = num_numbers if space.image is not None else 4 * num_numbers
        steps = min(steps, RECORDED_BYTES // max(num_bytes, 1))
    # Two segments per comparison, none of which has to overlap another; rounded up.
    per_env = -(-max(steps, 2 * pretraining * segment_steps) // num_envs)
    # At least room for two segments of one environment that do not overlap.
    return num_envs * max(per_env, 2 * segment_steps)
