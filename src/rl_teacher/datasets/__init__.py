"""Label data sets: labels with the segments they are about, in files that others can read.

    dataset.json      what it is: schema version, environment, spaces, counts, SHA-256 of the others
    labels.jsonl      every label, the rows of `rl-teacher export --format jsonl`; or labels.parquet
    segments.npz      the segments' arrays, without pickle

A data set is a folder of these three files, or a `.zip` of it. `load` reads one from a stranger
safely: nothing in it is ever run, and nothing is allocated before its size is known.
"""

from rl_teacher.datasets.dataset import Dataset, LabelledComparison
from rl_teacher.datasets.imitation import from_imitation
from rl_teacher.datasets.reading import load
from rl_teacher.datasets.spaces import Spaces
from rl_teacher.datasets.writing import save

__all__ = ["Dataset", "LabelledComparison", "Spaces", "from_imitation", "load", "save"]
