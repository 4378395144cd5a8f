"""Metrics as JSON has them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value of any depth without NumPy's types; JSON has no NaN, so that becomes None."""
    match value:
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
