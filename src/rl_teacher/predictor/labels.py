"""The labelled comparisons a predictor is fitted to, as arrays.

C: comparisons, T: steps of a segment, F: features of an input row, M: members.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from rl_teacher.common.running_stats import RunningMeanStd
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
    """The comparisons a predictor learns from: all of them, or the newest.

    Each member has its own bootstrap sample, drawn once per label when it arrives: the number of
    times it counts is a Poisson draw with mean 1, the limit of |D| draws with replacement. The
    share 1/e that a member drew zero times is its held-out set, for good: warm starts never train
    on what they are validated on.

    Attributes:
        num_added: comparisons taken in so far; those that newer ones took the place of count too.
        are_pictures: whether the rows are bytes of pictures.
        num_steps: T, of those that are kept.
        input_moments: mean and spread of all labelled input rows; of nothing where they are
            pictures, which come on a known scale.
        input_weights: [F] what spread each of their numbers is given; of nothing there, too.
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
        """Begin empty.

        Args:
            num_steps: T.
            space: what the rows are made of.
            num_members: M.
            seed: of the bootstrap samples.
            discount: step t of a segment counts discount^t.
            capacity: comparisons, at most, that are kept: the newest; 0: all.
        """
        self._seed = seed
        self.are_pictures = space.is_bytes
        self._thinned = -(-num_steps // MOST_PICTURES) if self.are_pictures else 1
        self.num_steps = num_kept = -(-num_steps // self._thinned)
        self._step_weights = discount ** np.arange(num_steps, dtype=np.float32)
        self.num_members = num_members
        self.num_added = 0
        self._capacity = capacity
        room = capacity or 64  # Note: memory is taken only where something is written.
        self._rows = np.zeros((room, 2, num_kept, space.num_features), space.row_type)
        self._weights = np.zeros((room, 2, num_kept), np.float32)
        self._targets = np.zeros(room, np.float32)
        self._counts = np.zeros((num_members, room), np.int64)
        self.input_weights = space.input_weights
        self.input_moments = RunningMeanStd(self.input_weights.shape)

    def __len__(self) -> int:
        return min(self.num_added, self._capacity or self.num_added)

    def begin_with_moments(
        self, mean: Float32[np.ndarray, " features"], std: Float32[np.ndarray, " features"]
    ) -> None:
        """Take input moments that a fit gave before as if measured over so many steps.

        Note: of what it left out it had no spread.
        """
        measured = np.where(np.isfinite(std), std * self.input_weights - LEAST_STD, 0.0)
        variance = np.square(np.maximum(measured, 0.0), dtype=np.float64)
        moments = {"mean": mean.astype(np.float64), "variance": variance}
        self.input_moments.load_state(moments | {"count": np.array(float(EARLIER_STEPS))})

    def add(self, pair: LabelledPair) -> int:
        """Take in one comparison, in place of the oldest where there is no more room.

        Returns:
            Its number: how many were taken in before it.
        """
        number = self.num_added
        if number == len(self._targets) and not self._capacity:
            self._grow()
        place = number % len(self._targets)
        for side, rows in enumerate((pair.left, pair.right)):
            kept = slice(None, None, self._thinned)
            num_kept = len(rows[kept])
            self._rows[place, side, :num_kept] = rows[kept]
            weights = np.add.reduceat(
                self._step_weights[: len(rows)], np.arange(0, len(rows), self._thinned)
            )
            self._weights[place, side] = 0
            self._weights[place, side, :num_kept] = weights
            if not self.are_pictures:
                self.input_moments.update(rows)
        self._targets[place] = pair.target
        rng = np.random.default_rng([self._seed, 3, number])
        self._counts[:, place] = rng.poisson(1.0, self.num_members)
        self.num_added += 1
        return number

    def place(self, number: int) -> int | None:
        """Where among the comparisons kept the one of a number is; None where it is no more."""
        if number < self.num_added - len(self):
            return None
        return number % len(self._targets)

    def change_target(self, number: int, target: float) -> None:
        """Somebody else has answered a comparison too; who held it out still does."""
        place = self.place(number)
        if place is not None:
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
        return self._rows[: len(self)]

    @property
    def weights(self) -> Float32[np.ndarray, "comparison side time"]:
        """[C, 2, T] what each step counts; 0 where it is padding."""
        return self._weights[: len(self)]

    @property
    def targets(self) -> Float32[np.ndarray, " comparison"]:
        """[C] 1 left, 0 right, 1/2 equal, or between."""
        return self._targets[: len(self)]

    @property
    def counts(self) -> Int64[np.ndarray, "member comparison"]:
        """[M, C] how often each label is in each member's bootstrap sample; 0 is held out."""
        return self._counts[:, : len(self)]
