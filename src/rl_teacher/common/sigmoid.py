"""The logistic function in NumPy."""

import numpy as np
from jaxtyping import Float, Num


def sigmoid(x: Num[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Compute 1 / (1 + exp(-x)) in a form that does not overflow for large |x|."""
    return 0.5 * (1 + np.tanh(0.5 * x))
