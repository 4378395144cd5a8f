import numpy as np
import pytest

from rl_teacher.common.errors import UnknownName
from rl_teacher.queries.selectors import SELECTORS, Candidates, selector

RNG = np.random.default_rng
# Four candidates: agreed and sure, agreed and undecided, split, mildly split.
LOGITS = np.array([[5.0, 0.0, 4.0, 1.0], [5.0, 0.1, -4.0, -1.0], [5.0, 0.0, 4.0, 1.0]])
FEATURES = np.array([[0.0], [1.0], [10.0], [11.0]])
CANDIDATES = Candidates(LOGITS, FEATURES)


def test_disagreement_takes_the_pairs_on_which_members_differ_most():
    assert selector("disagreement")(CANDIDATES, 2, RNG(0)).tolist() == [2, 3]


def test_entropy_takes_the_pairs_closest_to_a_coin_toss():
    assert selector("entropy")(CANDIDATES, 1, RNG(0)).tolist() == [1]


def test_disagreement_is_the_variance_of_probabilities_by_hand():
    chances = 1 / (1 + np.exp(-LOGITS[:, 2]))
    assert CANDIDATES.chances.var(axis=0)[2] == pytest.approx(chances.var())


@pytest.mark.parametrize("seed", range(5))
def test_k_center_covers_both_clusters(seed):
    chosen = selector("k_center")(CANDIDATES, 2, RNG(seed))
    assert {int(FEATURES[c, 0] > 5) for c in chosen} == {0, 1}


def test_uniform_takes_every_pair_about_as_often():
    chosen = [selector("uniform")(CANDIDATES, 1, RNG(s))[0] for s in range(400)]
    assert np.bincount(chosen) == pytest.approx([100] * 4, abs=35)


@pytest.mark.parametrize("name", SELECTORS)
def test_no_pair_is_chosen_twice_nor_more_than_there_are(name):
    chosen = selector(name)(CANDIDATES, 10, RNG(0))
    assert sorted(chosen) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", SELECTORS)
def test_the_same_seed_chooses_the_same(name):
    one, other = (selector(name)(CANDIDATES, 2, RNG(7)) for _ in range(2))
    assert one.tolist() == other.tolist()


def test_an_unknown_selector_gets_the_nearest_name():
    with pytest.raises(UnknownName, match="disagreement"):
        selector("disagree")
