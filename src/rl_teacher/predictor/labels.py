"""Training examples of the predictor as arrays: labelled comparisons, or clips with targets.

C: comparisons, T: steps of a segment, F: features of an input row, M: ensemble members; E:
examples, which are comparisons of S = 2 sides or clips, S = 1.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped

from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.predictor.inputs import InputNormaliser, InputSpace

MAX_IMAGES_PER_SEGMENT = 30
"""Images stored per segment for a CNN; of a longer segment every k-th is stored, with weight k."""
MIN_WEIGHT = 1e-3
"""Weight of a discounted step, relative to the first one, below which it is left out. Otherwise the
steps that a fit samples might be those without weight alone."""
MIN_STD = 1e-3
"""Added to every input's standard deviation, so that a constant input is not amplified."""
WARM_START_COUNT = 10_000
"""Steps that the input statistics of a pretrained predictor count for: a few labels must not
shift the inputs of networks that were fitted with those statistics."""

EQUAL = 0.5
"""Target of a label that prefers neither segment."""
HELD_OUT_SHARE = 0.15
"""Share of the labels that each member does not train on. With 50 labels, the bootstrap samples of
Christiano et al. 2017, which hold out 37 %, fit worse (`benchmarks/offline_fits.py`)."""

CLIP_STREAM = 9
"""Random stream of what is held out; docs/reproducibility.md lists those of others."""


@dataclass(frozen=True)
class LabelledPair:
    """One labelled comparison as input rows.

    Attributes:
        left: [T, F] input rows; segments shorter than T are padded in the label set.
        right: [T, F].
        target: 1 for left, 0 for right, 1/2 for equal, or between where labelers disagree.
        true_rewards: the environment's rewards of both segments, for diagnostics; None if unknown.
    """

    left: Shaped[np.ndarray, "left_time features"]
    right: Shaped[np.ndarray, "right_time features"]
    target: float
    true_rewards: (
        tuple[Float32[np.ndarray, " left_time"], Float32[np.ndarray, " right_time"]] | None
    ) = None


@dataclass(frozen=True)
class Examples:
    """Segments with targets: comparisons, S = 2, or the clips of a label set, each once, S = 1.

    Attributes:
        labels: the label set that holds the segments.
        places: [E, S] numbers of the segments: comparison c of the label set has 2c and 2c + 1.
        targets: [E] what the scores are fitted to; see `likelihood`.
        certainty: [E] weights in the loss, with mean 1.
        is_held_out: [M, E] whether a member does not train on an example.
    """

    labels: "LabelSet"
    places: Int64[np.ndarray, "example side"]
    targets: Float32[np.ndarray, " example"]
    certainty: Float32[np.ndarray, " example"]
    is_held_out: Bool[np.ndarray, "member example"]


def image_stride(num_steps: int) -> int:
    """Return the k of which every k-th image of a segment is stored."""
    return -(-num_steps // MAX_IMAGES_PER_SEGMENT)


def num_weighted_steps(num_steps: int, discount: float) -> int:
    """Return the number of steps of a segment that have weight; see `MIN_WEIGHT`."""
    return int(np.count_nonzero(discount ** np.arange(num_steps) >= MIN_WEIGHT))


def draw_examples(
    is_held_out: Bool[np.ndarray, "member example"],
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Int64[np.ndarray, "member ..."]:
    """Draw indices of the examples that each member trains on, with replacement: [M, *shape].

    A member for which all examples are held out draws from all of them.
    """
    trained = ~is_held_out | is_held_out.all(1, keepdims=True)
    return np.stack([rng.choice(np.flatnonzero(each), shape) for each in trained])


class LabelSet:
    """The comparisons a predictor learns from: all of them, or the newest.

    Each member has its own held-out clips: whether one is held out is drawn once, when it is added,
    so that later fits never train on what earlier ones were validated on (Christiano et al. 2017,
    2.2.3). A comparison is held out if one of its clips is: clips that are compared several times,
    as in a sorted list, would otherwise be known from the other comparisons.

    Attributes:
        num_added: comparisons added so far, including those that were replaced by newer ones.
        has_byte_rows: whether rows are the bytes of images, for a CNN; see `InputSpace`.
        num_steps: T, the stored steps of a segment: all that have weight, or every k-th.
        input_stats: running mean and standard deviation of all labelled input rows; for byte rows,
            whose scale is known, of the vectors at their end.
        feature_scales: [F] standard deviation that each feature gets after normalisation; [V] for
            byte rows with vectors of size V.
    """

    def __init__(
        self,
        num_steps: int,
        space: InputSpace,
        num_members: int,
        seed: int,
        discount: float = 1.0,
        capacity: int = 0,
    ) -> None:
        """Create an empty label set.

        Args:
            num_steps: steps of the longest segment.
            space: input space of the rows.
            num_members: M.
            seed: seed of what is held out.
            discount: weight of step t of a segment is discount^t, or 0 below `MIN_WEIGHT`.
            capacity: number of newest comparisons to keep; 0 keeps all.
        """
        self._seed = seed
        self._space = space
        self.has_byte_rows = space.has_byte_rows
        num_steps = num_weighted_steps(num_steps, discount)
        self._stride = image_stride(num_steps) if self.has_byte_rows else 1
        self.num_steps = -(-num_steps // self._stride)
        # R = sum_t discount^t r_t is the return of a segment.
        self._step_weights = discount ** np.arange(num_steps, dtype=np.float32)
        self.num_members = num_members
        self.num_added = 0
        self._capacity = capacity
        # The operating system allocates a page of zeros only when it is first written.
        size = capacity or 64
        self._rows = np.zeros((size, 2, self.num_steps, space.num_features), space.row_dtype)
        self._weights = np.zeros((size, 2, self.num_steps), np.float32)
        self._true_rewards = np.zeros((size, 2, self.num_steps), np.float32)
        self._targets = np.zeros(size, np.float32)
        self._is_held_out = np.zeros((num_members, size), bool)
        # Number of the clip on each side, and of each clip by a hash of its rows.
        self._clips = np.zeros((size, 2), np.int64)
        self._clip_numbers: dict[bytes, int] = {}
        self._draws: list[np.ndarray] = []
        self._numbers: dict[int, int] = {}
        self.feature_scales = space.feature_scales
        self.input_stats = RunningMeanStd(self.feature_scales.shape)

    def __len__(self) -> int:
        return min(self.num_added, self._capacity or self.num_added)

    def __contains__(self, comparison_id: int) -> bool:
        return comparison_id in self._numbers

    @property
    def num_decided(self) -> int:
        """Number of comparisons with a preference."""
        return int(np.count_nonzero(self.targets != EQUAL))

    @property
    def comparison_ids(self) -> list[int]:
        """Ids of the comparisons that were added with one, in that order."""
        return list(self._numbers)

    def warm_start_from(self, normaliser: InputNormaliser) -> None:
        """Start the input statistics from those of a pretrained predictor."""
        # The inverse of `normaliser`, below.
        std = normaliser.std * self.feature_scales - MIN_STD
        self.input_stats.mean = normaliser.mean.astype(np.float64)
        self.input_stats.variance = np.square(np.maximum(std, 0.0), dtype=np.float64)
        self.input_stats.count = np.array(float(WARM_START_COUNT))

    def normaliser(self, mask: np.ndarray) -> InputNormaliser:
        """Return the normalisation of the labelled rows, with a mask [F] of the features used."""
        # (x - mean) / std then has the standard deviation `feature_scales`.
        std = (self.input_stats.std + MIN_STD) / self.feature_scales
        return InputNormaliser(
            self.input_stats.mean.astype(np.float32), std.astype(np.float32), mask
        )

    def add(self, pair: LabelledPair, comparison_id: int | None = None) -> None:
        """Add a comparison; replace the oldest one when the set is full.

        Args:
            pair: input rows and target.
            comparison_id: id by which the target can be changed later.
        """
        number = self.num_added
        if comparison_id is not None:
            self._numbers[comparison_id] = number
        if number == len(self._targets) and not self._capacity:
            # Doubling copies each comparison once on average, however many there will be.
            self._rows, self._weights, self._true_rewards, self._targets, self._clips = (
                np.concatenate([array, np.zeros_like(array)])
                for array in (
                    self._rows,
                    self._weights,
                    self._true_rewards,
                    self._targets,
                    self._clips,
                )
            )
            self._is_held_out = np.tile(self._is_held_out, 2)
        slot = number % len(self._targets)
        for side, rows in enumerate((pair.left, pair.right)):
            weighted = rows[: len(self._step_weights)]
            stored = weighted[:: self._stride]
            self._rows[slot, side, : len(stored)] = stored
            # Every k-th step is stored. It carries the weights of the k steps from it on, so that
            # the sum over stored steps estimates the return.
            step_weights = self._step_weights[: len(rows)]
            weights = np.add.reduceat(step_weights, np.arange(0, len(weighted), self._stride))
            self._weights[slot, side] = 0
            self._weights[slot, side, : len(stored)] = weights
            true = np.full(len(weighted), np.nan)
            if pair.true_rewards is not None:
                true = pair.true_rewards[side][: len(weighted)]
            self._true_rewards[slot, side, : len(stored)] = true[:: self._stride]
            self._clips[slot, side] = self._number_of_clip(stored)
            self.input_stats.update(self._space.normalised_part(rows))
        self._targets[slot] = pair.target
        # 1 - (1 - p)^2 = HELD_OUT_SHARE for a comparison of two clips
        share = 1 - math.sqrt(1 - HELD_OUT_SHARE)
        self._is_held_out[:, slot] = self.held_out_clips(self._clips[slot], share).any(1)
        self.num_added += 1

    def _number_of_clip(self, rows: Shaped[np.ndarray, "time features"]) -> int:
        """Return the number of a clip, the next one if it is new."""
        content = hashlib.sha256(rows.tobytes()).digest()
        number = self._clip_numbers.setdefault(content, len(self._clip_numbers))
        if number == len(self._draws):
            # It depends on the number alone, so a resumed run repeats it.
            rng = np.random.default_rng([self._seed, CLIP_STREAM, number])
            self._draws.append(rng.random(self.num_members))
        return number

    def index_of(self, comparison_id: int) -> int | None:
        """Return the index of a comparison in the arrays, or None if it was replaced."""
        number = self._numbers[comparison_id]
        if number < self.num_added - len(self):
            return None
        return number % len(self._targets)

    def set_target(self, comparison_id: int, target: float) -> None:
        """Change a comparison's target, for example after a second labeler's answer.

        Held-out comparisons remain held out.
        """
        index = self.index_of(comparison_id)
        if index is not None:
            self._targets[index] = target

    @property
    def has_unequal_lengths(self) -> bool:
        """True if any comparison is between segments of different lengths."""
        lengths = self.weights.sum(-1)
        return bool((lengths[:, 0] != lengths[:, 1]).any())

    @property
    def comparisons(self) -> Examples:
        """The comparisons as examples."""
        places = np.arange(2 * len(self)).reshape(-1, 2)
        certainty = np.ones(len(self), np.float32)
        return Examples(self, places, self.targets, certainty, self.is_held_out)

    @property
    def clips(self) -> Int64[np.ndarray, "comparison side"]:
        """[C, 2] numbers of the clips, in order of arrival; equal rows are one clip."""
        return self._clips[: len(self)]

    def held_out_clips(
        self, clips: Int64[np.ndarray, " clip"], share: float = HELD_OUT_SHARE
    ) -> Bool[np.ndarray, "member clip"]:
        """Return [M, N] whether clips are held out for each member, a share of all clips."""
        return np.stack([self._draws[each] for each in clips.tolist()], axis=1) < share

    @property
    def rows(self) -> Shaped[np.ndarray, "comparison side time features"]:
        """[C, 2, T, F] input rows, left then right."""
        return self._rows[: len(self)]

    @property
    def weights(self) -> Float32[np.ndarray, "comparison side time"]:
        """[C, 2, T] weight of each step; 0 for padding."""
        return self._weights[: len(self)]

    @property
    def true_rewards(self) -> Float32[np.ndarray, "comparison side time"]:
        """[C, 2, T] the environment's rewards; NaN where they are unknown."""
        return self._true_rewards[: len(self)]

    @property
    def targets(self) -> Float32[np.ndarray, " comparison"]:
        """[C] 1 for left, 0 for right, 1/2 for equal, or between."""
        return self._targets[: len(self)]

    @property
    def is_held_out(self) -> Bool[np.ndarray, "member comparison"]:
        """[M, C] whether a member does not train on a comparison."""
        return self._is_held_out[:, : len(self)]
