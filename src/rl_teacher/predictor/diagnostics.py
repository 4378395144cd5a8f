"""What can be told of a reward predictor: the clips it likes, and how far it can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_LIKED = 4
"""Clips, at most, that are named as liked best, and as many as liked least."""


@dataclass(frozen=True)
class Diagnostics:
    """What a reward predictor has made of the labels.

    Attributes:
        predicted_returns: of segments that were compared, by content hash.
        calibration: bins of held-out labels: what was predicted, what was observed, how many.
    """

    predicted_returns: Mapping[str, float]
    calibration: Sequence[Mapping[str, float]]

    def to_json(self, step: int) -> dict[str, Any]:
        """As the page is told: no clip is both among those liked best and those liked least.

        Args:
            step: environment steps of training done.
        """
        by_return = sorted(self.predicted_returns.items(), key=lambda each: (each[1], each[0]))
        num = min(MOST_LIKED, len(by_return) // 2)
        liked = [{"clip": clip, "predicted_return": round(value, 3)} for clip, value in by_return]
        return {
            "step": step,
            "best": liked[len(liked) - num :][::-1],
            "least": liked[:num],
            "calibration": list(self.calibration),
        }
