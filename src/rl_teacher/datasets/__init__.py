"""Label data sets: labels with their segments, in a portable format.

    dataset.json      schema version, environment, its space, counts, SHA-256 of the other files
    labels.jsonl      every label, as `rl-teacher export --format jsonl`
    segments.npz      arrays of the segments, without pickle

A data set is a `.zip` of these three files. `load` is safe for untrusted files:
it runs nothing, and allocates nothing before the size is known.
"""

from rl_teacher.datasets.dataset import Dataset, LabelledComparison
from rl_teacher.datasets.reading import load
from rl_teacher.datasets.writing import save

__all__ = ["Dataset", "LabelledComparison", "load", "save"]
