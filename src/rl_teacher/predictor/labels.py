"""The labelled comparisons a predictor is fitted to, as arrays.

C: comparisons, T: steps of a segment, F: features of an input row, M: members.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from rl_teacher.moments import RunningMoments
from rl_teacher.predictor.inputs import InputSpace

MOST_PICTURES = 30
"""Of a segment, at most, that are kept; of a longer one only every k-th, which counts for k."""
LEAST_STD = 1e-3
"""Added to the spread of every input: one that never changes is not blown up."""
EARLIER_STEPS = 10_000
"""What moments that were measured before count, in steps: networks that learned with them must not
lose their footing over a few labels."""


@dataclass(frozen=True)
class LabelledPair:
    """One comparison with what was said of it.

    Attributes:
        left: [T, F] input rows; shorter segments than T are padded.
        right: [T, F].
        target: 1 for left, 0 for right, 1/2 for equal; or between, where labelers disagree.
    """

    left: Shaped[np.ndarray, "left_time features"]
    right: Shaped[np.ndarray, "right_time features"]
    target: float


class LabelSet:
    """All comparisons a predictor may learn from; grows, never forgets.

    Each member has its own bootstrap sample, drawn once per label when it arrives: the number of
    times it counts is a Poisson draw with mean 1, the limit of |D| draws with replacement. The
    share 1/e that a member drew zero times is its held-out set, for good: warm starts never train
    on what they are validated on.

    Attributes:
        are_pictures: whether the rows are bytes of pictures.
        num_steps: T, of those that are kept.
        input_moments: mean and spread of all labelled input rows; of nothing where they are
            pictures, which come on a known scale.
    """

    def __init__(
        self,
        num_steps: int,
        space: InputSpace,
        num_members: int,
        seed: int,
        discount: float = 1.0,
    ) -> None:
        """Begin empty.

        Args:
            num_steps: T.
            space: what the rows are made of.
            num_members: M.
            seed: of the bootstrap samples.
            discount: step t of a segment counts discount^t.
        """
        self._seed = seed
        self.are_pictures = space.picture is not None
        self._thinned = -(-num_steps // MOST_PICTURES) if self.are_pictures else 1
        self.num_steps = num_kept = -(-num_steps // self._thinned)
        self._step_weights = discount ** np.arange(num_steps, dtype=np.float32)
        self.num_members = num_members
        self._size = 0
        self._rows = np.zeros((64, 2, num_kept, space.num_features), space.row_type)
        self._weights = np.zeros((64, 2, num_kept), np.float32)
        self._targets = np.zeros(64, np.float32)
        self._counts = np.zeros((num_members, 64), np.int64)
        self.input_moments = RunningMoments((0 if self.are_pictures else space.num_features,))

    def __len__(self) -> int:
        return self._size

    def begin_with_moments(
        self, mean: Float32[np.ndarray, " features"], std: Float32[np.ndarray, " features"]
    ) -> None:
        """Take input moments that were measured before as if over so many steps."""
        variance = np.square(np.maximum(std - LEAST_STD, 0.0), dtype=np.float64)
        moments = {"mean": mean.astype(np.float64), "variance": variance}
        self.input_moments.load_state(moments | {"count": np.array(float(EARLIER_STEPS))})

    def add(self, pair: LabelledPair) -> int:
        """Take in one comparison; its place among the others."""
        if self._size == len(self._targets):
            self._grow()
        index = self._size
        for side, rows in enumerate((pair.left, pair.right)):
            kept = slice(None, None, self._thinned)
            num_kept = len(rows[kept])
            self._rows[index, side, :num_kept] = rows[kept]
            weights = np.add.reduceat(
                self._step_weights[: len(rows)], np.arange(0, len(rows), self._thinned)
            )
            self._weights[index, side, :num_kept] = weights
            if not self.are_pictures:
                self.input_moments.update(rows)
        self._targets[index] = pair.target
        rng = np.random.default_rng([self._seed, 3, index])
        self._counts[:, index] = rng.poisson(1.0, self.num_members)
        self._size += 1
        return index

    def change_target(self, place: int, target: float) -> None:
        """Somebody else has answered a comparison too; who held it out still does."""
        self._targets[place] = target

    def _grow(self) -> None:
        def doubled(array: np.ndarray, axis: int = 0) -> np.ndarray:
            return np.concatenate([array, np.zeros_like(array)], axis=axis)

        self._rows, self._weights = doubled(self._rows), doubled(self._weights)
        self._targets, self._counts = doubled(self._targets), doubled(self._counts, axis=1)

    @property
    def compares_lengths(self) -> bool:
        """Whether some comparison is of two segments of different lengths."""
        lengths = self.weights.sum(-1)
        return bool((lengths[:, 0] != lengths[:, 1]).any())

    @property
    def rows(self) -> Shaped[np.ndarray, "comparison side time features"]:
        """[C, 2, T, F] left, then right."""
        return self._rows[: self._size]

    @property
    def weights(self) -> Float32[np.ndarray, "comparison side time"]:
        """[C, 2, T] what each step counts; 0 where it is padding."""
        return self._weights[: self._size]

    @property
    def targets(self) -> Float32[np.ndarray, " comparison"]:
        """[C] 1 left, 0 right, 1/2 equal, or between."""
        return self._targets[: self._size]

    @property
    def counts(self) -> Int64[np.ndarray, "member comparison"]:
        """[M, C] how often each label is in each member's bootstrap sample; 0 is held out."""
        return self._counts[:, : self._size]
