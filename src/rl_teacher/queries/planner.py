"""Query planning: how many comparisons to ask at a time, and which pairs of segments.

M: ensemble members, C: candidate pairs, L: steps of a segment, F: features of an input row.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Shaped

from rl_teacher.clips.recorder import Recorder, SegmentSpans
from rl_teacher.clips.segment import Segment
from rl_teacher.common.state_dict import StateDict, array_to_text, text_to_array
from rl_teacher.config.fields import has_type, settings_in
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import subsampled_weights, subsampling_stride
from rl_teacher.predictor.labels import num_weighted_steps
from rl_teacher.queries.queue import Pair, QueryQueue
from rl_teacher.queries.schedules import Budget, Progress, Schedule, change_rate, extend
from rl_teacher.queries.selectors import Candidates, Selector, uniform
from rl_teacher.queries.sorter import SHARED_EVERY, SorterSettings

MAX_QUERIES_PER_ROLLOUT = 50
"""Comparisons asked after one rollout of training, if a synthetic teacher answers."""
MAX_WAITING = 20
"""Comparisons that wait for a person during training: about a minute's work."""
LEAD = 5
"""Comparisons asked ahead of the schedule in a run paced by labels, so that a person always has one
to answer while the predictor is fitted and the agent trains."""
ALIKE_SHARE = 0.25
"""Share of the candidate pairs, those with the most similar segments, that a person is not asked:
people cannot tell them apart."""
PIXEL_STRIDE = 16
"""Subsampling stride of the image bytes that the k-center selector compares."""


@dataclass(frozen=True)
class PlannerSettings:
    """Settings of query planning.

    Attributes:
        selector: chooses among candidate pairs.
        schedule: number of comparisons that may have been asked at a point of the run.
        budget: parameters of the schedule.
        candidates_per_pair: candidate pairs per chosen pair.
        max_waiting: limit of unanswered comparisons during training, so that a person who returns
            after an hour compares recent behaviour; None for no limit.
        lead: comparisons asked ahead of the schedule.
        is_person: whether a person compares: pairs of similar segments are left out.
        sorting: sort clips instead of comparing unrelated pairs, if given.
        shared_segments: segments of other experiments in the same environment.
    """

    selector: Selector
    schedule: Schedule
    budget: Budget
    candidates_per_pair: int
    max_waiting: int | None = None
    lead: int = 0
    is_person: bool = False
    sorting: SorterSettings | None = None
    shared_segments: Sequence[Segment] = ()


class QueryPlanner:
    """Chooses the comparisons to ask from the recorded segments.

    Attributes:
        budget: current parameters of the schedule, which the owner may change during the run.
        num_due: comparisons due at the last call of `num_to_ask`.
        known_clips: content hashes of clips that given labels compare; see
            `RewardLearner.add_given_labels`.
    """

    def __init__(
        self,
        settings: PlannerSettings,
        recorder: Recorder,
        predictor: RewardPredictor,
        segment_steps: int,
        rng: np.random.Generator,
    ) -> None:
        self.budget = settings.budget
        self.num_due = 0
        self.known_clips: Set[str] = frozenset()
        self._settings = settings
        self._shared = list(settings.shared_segments)
        self._recorder = recorder
        self._predictor = predictor
        self._num_weighted = num_weighted_steps(segment_steps, predictor.config.segment_discount)
        has_byte_rows = predictor.space.has_byte_rows
        self._stride = subsampling_stride(self._num_weighted, has_byte_rows=has_byte_rows)
        self._rng = rng

    def change_plan(
        self, progress: Progress, seconds_between: float | None, total: int | None
    ) -> None:
        """Change the rate or the number of comparisons; None keeps the current value.

        Args:
            progress: of the run; the constant schedule continues from here at the new rate.
            seconds_between: time between two comparisons of the constant schedule.
            total: labels over the whole run.
        """
        if seconds_between is not None and seconds_between != self.budget.seconds_between:
            self.budget = change_rate(self.budget, seconds_between, progress)
        if total is not None:
            # The run waits for the pretraining labels, so the total cannot be smaller.
            self.budget = replace(self.budget, total=max(total, self.budget.pretraining))

    def restore_plan(self, progress: Progress, *, rate: bool, total: bool) -> None:
        """Return to the run's own rate or number of comparisons, which a checkpoint may lack.

        Args:
            progress: of the run; the constant schedule continues from here at its own rate.
            rate: whether the owner has given no rate.
            total: whether the owner has given no number.
        """
        own = self._settings.budget
        if rate:
            self.change_plan(progress, own.seconds_between, None)
        if total:
            self.budget = replace(self.budget, total=own.total)
            self.change_plan(progress, None, own.total)

    def extend(self, total: int | None, num_steps: int, num_asked: int, progress: Progress) -> None:
        """Extend the run to more labels or more steps; see `schedules.extend`.

        Args:
            total: labels over the whole run, those asked so far included; None to keep it.
            num_steps: environment steps of the whole run.
            num_asked: labels asked so far.
            progress: of the run.
        """
        if num_steps > self.budget.num_steps:
            self.budget = extend(self.budget, total, num_steps, num_asked, progress)

    def num_labels_due(self, progress: Progress) -> int:
        """Return how many labels the schedule wants by now."""
        return self._settings.schedule(self.budget, progress)

    def num_to_ask(
        self, progress: Progress, queue: QueryQueue, *, is_fitted: bool, num_for_fit: int = 1
    ) -> int:
        """Return how many comparisons to ask now; 0 or less for none.

        Args:
            progress: of the run.
            queue: comparisons asked so far.
            is_fitted: False before the first fit, when there is no limit per rollout.
            num_for_fit: further labels for which the next fit is due.
        """
        self.num_due = self.num_labels_due(progress)
        ahead = self.num_due + self._settings.lead
        total = self.budget.total
        num = (ahead if total is None else min(ahead, total)) - queue.num_asked
        # Training waits for the pretraining labels, so all of them are asked at once.
        if not is_fitted or progress.step == 0:
            return num
        max_waiting = self._settings.max_waiting
        if max_waiting is not None:
            return min(num, max_waiting - queue.num_waiting)
        # A synthetic teacher answers at once. Asked just before the fit, it compares what the agent
        # does by then, and the store takes one batch instead of many single comparisons.
        is_last = total is not None and self.num_due >= total
        return min(num, MAX_QUERIES_PER_ROLLOUT) if num >= num_for_fit or is_last else 0

    def choose(self, num: int, *, is_fitted: bool) -> list[Pair]:
        """Choose pairs among random candidates; fewer than `num` if too little is recorded.

        Args:
            num: pairs wanted.
            is_fitted: False before the first fit. Pairs are then uniformly random, and some of
                them contain a segment of another experiment.
        """
        if num <= 0:
            return []
        is_person = self._settings.is_person
        per_pair = self._settings.candidates_per_pair if is_fitted or is_person else 1
        left, right = self._candidate_cuts(num * per_pair)
        if not len(left):
            return []
        if is_fitted or is_person:
            candidates = self._candidates(left, right, is_fitted=is_fitted)
        else:  # random pairs need neither predictions nor features
            candidates = Candidates(np.zeros((1, len(left))), np.zeros((len(left), 1)))
        if is_person:
            # Also before the first fit: features, unlike logits, do not depend on the networks.
            distinct = candidates.distinct(ALIKE_SHARE)
            left, right = left.take(distinct), right.take(distinct)
            candidates = candidates.take(distinct)
        # Before the first fit, the networks' disagreement means nothing.
        select = self._settings.selector if is_fitted else uniform
        chosen = select(candidates, num, self._rng)
        sides = (self._recorder.segments(side.take(chosen)) for side in (left, right))
        # Environments without randomness repeat themselves, and so do runs of one seed.
        pairs = [
            (one, other)
            for one, other in zip(*sides, strict=True)
            if one.content_hash != other.content_hash
            and self.known_clips.isdisjoint((one.content_hash, other.content_hash))
        ]
        return pairs if is_fitted else self._with_shared_segments(pairs)

    def _candidate_cuts(self, num: int) -> tuple[SegmentSpans, SegmentSpans]:
        """Sample the sides of random pairs, without those whose sides share steps."""
        # One draw for both sides: segments come in random order, so that the halves pair at random.
        cuts = self._recorder.cut(2 * num, self._rng)
        num_pairs = len(cuts) // 2
        left, right = cuts.take(slice(num_pairs)), cuts.take(slice(num_pairs, 2 * num_pairs))
        distinct = np.flatnonzero(~left.overlaps(right))
        return left.take(distinct), right.take(distinct)

    def _with_shared_segments(self, pairs: list[Pair]) -> list[Pair]:
        """Replace the right segment of every n-th pair by one of another experiment.

        A random policy rarely shows the wanted behaviour; a trained agent may.
        """
        # Other experiments may have preprocessed the observations differently.
        shared = [each for each in self._shared if pairs and each.layout == pairs[0][0].layout]
        for place in range(0, len(pairs) if shared else 0, SHARED_EVERY):
            other = shared[int(self._rng.integers(len(shared)))]
            # A run that repeats the rollouts of an earlier one records its segments again.
            if other.content_hash != pairs[place][0].content_hash:
                pairs[place] = (pairs[place][0], other)
        return pairs

    def leave_out_shared(self, clips: Set[str]) -> None:
        """Leave these clips out of those of other experiments."""
        self._shared = [each for each in self._shared if each.content_hash not in clips]

    def _candidates(
        self, left: SegmentSpans, right: SegmentSpans, *, is_fitted: bool
    ) -> Candidates:
        """Compute logits and features of pairs, as differences of their sides.

        Logits are 0 before the first fit: networks are not evaluated.
        """
        predictor, features = self._predictor, []
        returns = [np.zeros((1, len(left)))] * 2
        for side, cuts in enumerate((left, right)):
            rows, is_real = self.input_rows(cuts, self._stride)
            if is_fitted:
                returns[side] = self._returns(cuts, predictor.member_rewards(rows))
            # [C, F] mean over time, without the padding of segments that ended early.
            is_real = is_real[..., None]
            if predictor.space.has_byte_rows:
                # Nearby pixels are alike, so every n-th is enough to compare segments.
                pixels = rows[..., ::PIXEL_STRIDE]
                features.append(pixels.mean(1, dtype=np.float32, where=is_real) / 255)
            else:
                features.append(predictor.normaliser(rows).mean(1, where=is_real))
        return Candidates(returns[0] - returns[1], features[0] - features[1])

    def _returns(
        self, cuts: SegmentSpans, rewards: Float[np.ndarray, "member segment time"]
    ) -> Float[np.ndarray, "member segment"]:
        """Estimate [M, C] returns from every k-th step, as a fit does; see `fit.gather_steps`."""
        discount = self._predictor.config.segment_discount
        weights, scale = subsampled_weights(
            cuts.num_steps, self._num_weighted, self._stride, discount
        )
        return scale * (rewards[..., : weights.shape[-1]] * weights).sum(-1)

    def input_rows(
        self, cuts: SegmentSpans, stride: int = 1
    ) -> tuple[Shaped[np.ndarray, "segment time features"], Bool[np.ndarray, "segment time"]]:
        """Return the predictor's input rows of segments, and which of them are not padding.

        Args:
            cuts: C segments.
            stride: subsampling stride within a segment.

        Returns:
            [C, L/stride, F] input rows and [C, L/stride] mask.
        """
        observations, is_real = self._recorder.gather("observations", cuts, stride)
        actions, _ = self._recorder.gather("actions", cuts, stride)
        return self._predictor.space.rows(observations, actions), is_real

    def state(self) -> StateDict:
        """Return everything needed to resume exactly; the generator belongs to the caller."""
        return {
            "budget": text_to_array(json.dumps(asdict(self.budget))),
            "num_due": np.asarray(self.num_due),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state.

        Raises:
            TypeError: a parameter of the schedule is unknown, missing or of another type.
        """
        budget = Budget(**json.loads(array_to_text(state["budget"])))
        for name, kind, _ in settings_in(Budget):
            if not has_type(value := getattr(budget, name), kind):
                raise TypeError(f"{name} is {value!r:.80}")
        self.budget = budget
        self.num_due = int(state["num_due"])
