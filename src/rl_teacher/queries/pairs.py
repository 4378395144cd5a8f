"""Pairs of recorded segments that are worth comparing.

M: ensemble members, C: candidate pairs, L: steps of a segment, F: features of an input row.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from rl_teacher.clips.recorder import Recorder, SegmentSpans
from rl_teacher.clips.segment import Segment
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import subsampled_weights, subsampling_stride
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import num_weighted_steps
from rl_teacher.queries.queue import Pair
from rl_teacher.queries.selectors import Candidates, Selector, uniform

SHARED_EVERY = 4
"""Period at which one of the first comparisons, or of the clips to sort, uses a segment of another
experiment."""
ALIKE_SHARE = 0.25
"""Share of the candidate pairs, those with the most similar segments, that a person is not asked:
people cannot tell them apart."""
PIXEL_STRIDE = 16
"""Subsampling stride of the image bytes that the k-center selector compares."""


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


@dataclass(frozen=True)
class PairSettings:
    """Settings of `PairChooser`.

    Attributes:
        selector: chooses among candidate pairs.
        candidates_per_pair: candidate pairs per chosen pair.
        is_person: whether a person compares: pairs of similar segments are left out.
        shared_segments: segments of other experiments in the same environment.
    """

    selector: Selector
    candidates_per_pair: int
    is_person: bool = False
    shared_segments: Sequence[Segment] = ()


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
        settings: PairSettings,
        recorder: Recorder,
        predictor: RewardPredictor,
        rng: np.random.Generator,
    ) -> None:
        """Initialise.

        Args:
            settings: of the choice.
            recorder: recent steps from which segments are cut.
            predictor: predicts the returns of segments, once it is fitted.
            rng: generator of the caller.
        """
        self._settings = settings
        self._recorder = recorder
        self._predictor = predictor
        self._rng = rng
        self._shared = list(settings.shared_segments)
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
            and self._known.isdisjoint((one.content_hash, other.content_hash))
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

    def _candidates(
        self, left: SegmentSpans, right: SegmentSpans, *, is_fitted: bool
    ) -> Candidates:
        """Compute logits and features of pairs, as differences of their sides.

        Logits are 0 before the first fit: networks are not evaluated.
        """
        predictor, features = self._predictor, []
        returns = [np.zeros((1, len(left)))] * 2
        for side, cuts in enumerate((left, right)):
            rows, is_real = input_rows(self._recorder, predictor.space, cuts, self._stride)
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
