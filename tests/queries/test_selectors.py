import numpy as np
import pytest

from rl_teacher.common.errors import UnknownName
from rl_teacher.queries.selectors import SELECTORS, Candidates, selector

RNG = np.random.default_rng
# Four candidates: confident, undecided, strong disagreement, mild disagreement.
LOGITS = np.array([[5.0, 0.0, 4.0, 1.0], [5.0, 0.1, -4.0, -1.0], [5.0, 0.0, 4.0, 1.0]])
FEATURES = np.array([[0.0], [1.0], [10.0], [11.0]])
CANDIDATES = Candidates(LOGITS, FEATURES)


def test_disagreement_selects_pairs_with_largest_variance():
    assert selector("disagreement")(CANDIDATES, 2, RNG(0)).tolist() == [2, 3]


def test_disagreement_is_variance_of_member_probabilities():
    chances = 1 / (1 + np.exp(-LOGITS[:, 2]))
    assert CANDIDATES.chances.var(axis=0)[2] == pytest.approx(chances.var())


@pytest.mark.parametrize("seed", range(5))
def test_k_center_covers_both_clusters(seed):
    chosen = selector("k_center")(CANDIDATES, 2, RNG(seed))
    assert {int(FEATURES[c, 0] > 5) for c in chosen} == {0, 1}


def test_uniform_selects_every_pair_equally_often():
    chosen = [selector("uniform")(CANDIDATES, 1, RNG(s))[0] for s in range(400)]
    assert np.bincount(chosen) == pytest.approx([100] * 4, abs=35)


@pytest.mark.parametrize("features", [FEATURES, np.zeros((4, 1))])
@pytest.mark.parametrize("name", SELECTORS)
def test_selector_returns_each_pair_at_most_once(name, features):
    chosen = selector(name)(Candidates(LOGITS, features), 10, RNG(0))
    assert sorted(chosen) == [0, 1, 2, 3]


def test_unknown_selector_suggests_nearest_name():
    with pytest.raises(UnknownName, match="disagreement"):
        selector("disagree")
