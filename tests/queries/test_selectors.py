import numpy as np
import pytest

from rl_teacher.common.errors import UnknownName
from rl_teacher.queries.selectors import SELECTORS, selector

RNG = np.random.default_rng
# Four candidates: confident, undecided, strong disagreement, mild disagreement.
CHANCES = np.array([[0.99, 0.5, 0.98, 0.7], [0.99, 0.52, 0.02, 0.3], [0.99, 0.5, 0.98, 0.7]])


def test_disagreement_selects_pairs_with_largest_variance():
    assert selector("disagreement")(CHANCES, 2, RNG(0)).tolist() == [2, 3]


def test_uniform_selects_every_pair_equally_often():
    chosen = [selector("uniform")(CHANCES, 1, RNG(s))[0] for s in range(400)]
    assert np.bincount(chosen) == pytest.approx([100] * 4, abs=35)


@pytest.mark.parametrize("name", SELECTORS)
def test_selector_returns_each_pair_at_most_once(name):
    assert sorted(selector(name)(CHANCES, 10, RNG(0))) == [0, 1, 2, 3]


def test_unknown_selector_suggests_nearest_name():
    with pytest.raises(UnknownName, match="disagreement"):
        selector("disagree")
