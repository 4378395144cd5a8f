"""Running mean and variance."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Shaped


class RunningMeanStd:
    """Mean and variance of all samples so far (Chan et al. 1979, parallel variance).

    Attributes:
        frozen: whether updates are ignored.
    """

    def __init__(self, shape: tuple[int, ...], *, frozen: bool = False) -> None:
        """Start with mean 0 and variance 1.

        Args:
            shape: shape of one sample.
            frozen: keep mean and variance as they are.
        """
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        # Not 0, so that the first update does not divide by 0.
        self.count = np.array(1e-4)
        self.frozen = frozen

    def update(self, batch: Shaped[np.ndarray, "batch *shape"]) -> None:
        """Include a batch of B samples."""
        if self.frozen or not len(batch):
            return
        # float64, since differences of large sums lose the precision of float32.
        batch = np.asarray(batch, np.float64)
        batch_mean, batch_variance, batch_count = batch.mean(0), batch.var(0), len(batch)
        delta = batch_mean - self.mean
        total = self.count + batch_count
        # M2 = M2_a + M2_b + delta^2 * n_a * n_b / n
        second_moment = (
            self.variance * self.count
            + batch_variance * batch_count
            + delta**2 * self.count * batch_count / total
        )
        self.mean = np.asarray(self.mean + delta * batch_count / total)
        self.variance = np.asarray(second_moment / total)
        self.count = np.asarray(total)

    @property
    def std(self) -> Float[np.ndarray, "*shape"]:
        """Standard deviation, never 0."""
        return np.asarray(np.sqrt(self.variance + 1e-8))

    def state(self) -> dict[str, np.ndarray]:
        """Return everything needed to continue exactly."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "count": self.count,
            "frozen": np.array(self.frozen),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self.mean, self.variance, self.count = state["mean"], state["variance"], state["count"]
        self.frozen = bool(state["frozen"])
