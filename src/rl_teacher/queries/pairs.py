"""Pairs of recorded segments that are worth comparing.

M: ensemble members, C: candidate pairs, L: steps of a segment, F: features of an input row.
"""

from collections.abc import Sequence, Set

import numpy as np
from jaxtyping import Bool, Float, Int64, Shaped

from rl_teacher.clips.recorder import Recorder, SegmentSpans
from rl_teacher.clips.segment import Segment
from rl_teacher.common.sigmoid import sigmoid
from rl_teacher.plan import LabelPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import subsampled_weights, subsampling_stride
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, num_weighted_steps
from rl_teacher.queries.queue import Pair
from rl_teacher.queries.selectors import selector, uniform

SHARED_EVERY = 4
"""Period at which one of the first comparisons, or of the clips to sort, uses a segment of another
experiment."""
ALIKE_SHARE = 0.25
"""Share of the candidate pairs, those with the most similar segments, that a person is not asked:
people cannot tell them apart."""
CANDIDATES_PER_PAIR = 10
"""Candidate pairs per chosen pair (Christiano et al. 2017, 2.2.4)."""
PIXEL_STRIDE = 16
"""Stride at which the bytes of images are sampled to compare segments."""
EPSILON = 1e-8


def input_rows(
    recorder: Recorder, space: InputSpace, cuts: SegmentSpans, stride: int = 1
) -> tuple[Shaped[np.ndarray, "segment time features"], Bool[np.ndarray, "segment time"]]:
    """Return the predictor's input rows of segments, and which of them are not padding.

    Args:
        recorder: holds the segments.
        space: input space of the predictor.
        cuts: C segments.
        stride: subsampling stride within a segment.

    Returns:
        [C, L/stride, F] input rows and [C, L/stride] mask.
    """
    observations, is_real = recorder.gather("observations", cuts, stride)
    actions, _ = recorder.gather("actions", cuts, stride)
    return space.rows(observations, actions), is_real


def labelled_pair(space: InputSpace, left: Segment, right: Segment, target: float) -> LabelledPair:
    """Convert a comparison and its target to the input rows that a predictor is fitted to."""
    one, other = (space.rows(each.observations, each.actions) for each in (left, right))
    return LabelledPair(one, other, target, (left.rewards, right.rewards))


def sampled_steps(segment_steps: int, predictor: RewardPredictor) -> tuple[int, int]:
    """Return the steps of a segment that a predictor's score depends on.

    Returns:
        Number of its first steps that have weight, and the subsampling stride within them.
    """
    num_weighted = num_weighted_steps(segment_steps, predictor.config.segment_discount)
    has_byte_rows = predictor.space.has_byte_rows
    return num_weighted, subsampling_stride(num_weighted, has_byte_rows=has_byte_rows)


class PairChooser:
    """Chooses comparisons among random pairs of recorded segments."""

    def __init__(
        self,
        labels: LabelPlan,
        recorder: Recorder,
        predictor: RewardPredictor,
        rng: np.random.Generator,
        shared_segments: Sequence[Segment] = (),
    ) -> None:
        """Initialise.

        Args:
            labels: how pairs are chosen, and whether a person compares them: pairs of similar
                segments are left out then.
            recorder: recent steps from which segments are cut.
            predictor: predicts the returns of segments, once it is fitted.
            rng: generator of the caller.
            shared_segments: segments of other experiments in the same environment.
        """
        self._is_person = labels.is_person
        chosen = labels.selector
        self._select = chosen if callable(chosen) else selector(chosen)
        self._recorder = recorder
        self._predictor = predictor
        self._rng = rng
        self._shared = list(shared_segments)
        self._known: Set[str] = frozenset()
        self._num_weighted, self._stride = sampled_steps(recorder.segment_steps, predictor)

    def leave_out(self, clips: Set[str], *, are_shared: bool) -> None:
        """Choose no recorded segments with these content hashes.

        Args:
            clips: the content hashes.
            are_shared: choose no segments of other experiments with them either.
        """
        self._known |= clips
        if are_shared:
            self._shared = [each for each in self._shared if each.content_hash not in clips]

    def choose(self, num: int, *, is_fitted: bool) -> list[Pair]:
        """Choose pairs among random candidates; fewer than `num` if too little is recorded.

        Args:
            num: pairs wanted.
            is_fitted: False before the first fit. Pairs are then uniformly random, and some of
                them contain a segment of another experiment.
        """
        if num <= 0:
            return []
        is_evaluated = is_fitted or self._is_person
        left, right = self._candidate_cuts(num * (CANDIDATES_PER_PAIR if is_evaluated else 1))
        if not len(left):
            return []
        # Before the first fit, the networks' disagreement means nothing.
        select, chances = uniform, np.zeros((1, len(left)))
        distinct = np.arange(len(left))
        if is_evaluated:
            # Random pairs need neither predictions nor features.
            recorder, space = self._recorder, self._predictor.space
            sides = [input_rows(recorder, space, cuts, self._stride) for cuts in (left, right)]
            if self._is_person:
                # Also before the first fit: features do not depend on the networks.
                distinct = most_different(*(self._features(*each) for each in sides))
                chances = chances[:, distinct]
            if is_fitted:
                (rows, _), (other_rows, _) = sides
                logits = self._returns(left, rows) - self._returns(right, other_rows)
                select, chances = self._select, sigmoid(logits)[:, distinct]
        chosen = distinct[select(chances, num, self._rng)]
        segments = (self._recorder.segments(cuts.take(chosen)) for cuts in (left, right))
        # Environments without randomness repeat themselves, and so do runs of one seed.
        by_hashes = {
            (one.content_hash, other.content_hash): (one, other)
            for one, other in zip(*segments, strict=True)
            if one.content_hash != other.content_hash
        }
        pairs = [pair for hashes, pair in by_hashes.items() if self._known.isdisjoint(hashes)]
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

    def _features(
        self, rows: Shaped[np.ndarray, "segment time features"], is_real: np.ndarray
    ) -> Float[np.ndarray, "segment features"]:
        """Compute [C, F] features of segments, by which a person can tell them apart."""
        # The mean over time, without the padding of segments that ended early.
        is_real = is_real[..., None]
        if self._predictor.space.has_byte_rows:
            # Nearby pixels are alike, so every n-th is enough to compare segments.
            pixels = rows[..., ::PIXEL_STRIDE]
            return pixels.mean(1, dtype=np.float32, where=is_real) / 255
        return self._predictor.normaliser(rows).mean(1, where=is_real)

    def _returns(
        self, cuts: SegmentSpans, rows: Shaped[np.ndarray, "segment time features"]
    ) -> Float[np.ndarray, "member segment"]:
        """Estimate [M, C] returns from every k-th step, as a fit does; see `fit.gather_steps`."""
        discount = self._predictor.config.segment_discount
        weights, scale = subsampled_weights(
            cuts.num_steps, self._num_weighted, self._stride, discount
        )
        rewards = self._predictor.member_rewards(rows)
        return scale * (rewards[..., : weights.shape[-1]] * weights).sum(-1)


def most_different(
    left: Float[np.ndarray, "candidate features"], right: Float[np.ndarray, "candidate features"]
) -> Int64[np.ndarray, " kept"]:
    """Return the indices of the pairs whose sides differ most, in their order.

    Args:
        left: [C, F] features of the left segments.
        right: [C, F] features of the right segments.
    """
    difference = left - right
    # Features have different units: each counts in standard deviations.
    distance = np.linalg.norm(difference / (difference.std(axis=0) + EPSILON), axis=1)
    return np.flatnonzero(distance >= np.quantile(distance, ALIKE_SHARE))
