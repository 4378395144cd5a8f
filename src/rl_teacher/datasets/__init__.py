"""Label data sets: labels with their segments, in a portable format.

    dataset.json      schema version, environment, spaces, counts, SHA-256 of the other files
    labels.jsonl      every label, as `rl-teacher export --format jsonl`; or labels.parquet
    segments.npz      arrays of the segments, without pickle

A data set is a folder of these three files, or a `.zip` of it. `load` is safe for untrusted files:
it runs nothing, and allocates nothing before the size is known.
"""

from rl_teacher.datasets.dataset import Dataset, LabelledComparison
from rl_teacher.datasets.imitation import from_imitation
from rl_teacher.datasets.reading import load
from rl_teacher.datasets.spaces import Spaces
from rl_teacher.datasets.writing import save

__all__ = ["Dataset", "LabelledComparison", "Spaces", "from_imitation", "load", "save"]
