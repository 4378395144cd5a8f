"""Running mean and variance."""

import numpy as np
from jaxtyping import Float, Shaped

UNMOVING = 1e30
"""A count beside which any number of samples is nothing."""


def unmoving(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The state of moments that are 0 and 1, and stay so whatever is taken in."""
    return {"mean": np.zeros(shape), "variance": np.ones(shape), "count": np.array(UNMOVING)}


class RunningMeanStd:
    """Mean and variance over everything seen (Chan et al. 1979, parallel variance)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = np.array(1e-4)

    def update(self, batch: Shaped[np.ndarray, "batch *shape"]) -> None:
        """Take in a batch of B samples."""
        if not len(batch):
            return
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

    @property
    def is_unmoving(self) -> bool:
        """Whether nothing that is taken in changes them."""
        return bool(self.count >= UNMOVING)

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on exactly."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self.mean, self.variance, self.count = state["mean"], state["variance"], state["count"]
