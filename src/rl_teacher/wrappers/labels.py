"""Initial labels of a wrapper, from a label data set."""

from collections.abc import Iterable
from pathlib import Path

from rl_teacher.common.errors import BadInput
from rl_teacher.datasets import load
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair
from rl_teacher.wrappers.settings import LabelledComparison


def given_labels(
    labels: str | Path | Iterable[LabelledComparison] | None, space: InputSpace, num_steps: int
) -> list[LabelledPair]:
    """Convert labels to the training pairs of the predictor.

    Args:
        labels: path of a data set, or labelled comparisons.
        space: input space of the predictor.
        num_steps: L, the maximum length of a segment.

    Raises:
        BadInput: segments have other shapes or are longer than L.
    """
    if labels is None:
        return []
    comparisons: Iterable[LabelledComparison] = (
        load(labels) if isinstance(labels, str | Path) else labels
    )
    pairs = [
        LabelledPair(
            space.rows(each.left.observations, each.left.actions),
            space.rows(each.right.observations, each.right.actions),
            float(each.target),
        )
        for each in comparisons
    ]
    longest = max((len(side) for pair in pairs for side in (pair.left, pair.right)), default=0)
    if longest > num_steps:
        raise BadInput(
            f"The labels given compare segments of up to {longest} steps, but segments have "
            f"{num_steps} here. Give segment_length={longest}."
        )
    return pairs
