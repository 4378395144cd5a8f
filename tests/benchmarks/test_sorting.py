import numpy as np
import pytest

from benchmarks import sorting


def test_tau_is_share_of_concordant_less_discordant_pairs():
    truth = np.array([0, 1, 2])
    assert sorting.tau([0, 10, 20], truth) == 1.0
    assert sorting.tau([2, 1, 0], truth) == -1.0
    assert sorting.tau([0, 2, 1], truth) == pytest.approx(1 / 3)
    assert sorting.tau([0, 1, 1], truth) == pytest.approx(2 / 3)  # a tie counts neither way


def test_insertion_without_errors_finds_true_order():
    found = sorting.simulate(20, wrong=0.0, seed=0)
    assert found["insertion"]["order"] == 1.0
    assert found["neighbours"]["16"] > found["random"]["16"]


def test_screen_is_ranked_by_judgements_of_pairs():
    truth = np.array([3, 0, 2, 1])

    def answer(left, right):
        return sorting.Answer.LEFT if truth[left] > truth[right] else sorting.Answer.RIGHT

    assert sorting.rank_screen([1, 0, 3], answer) == ([0, 3, 1], 3)
    assert sorting.rank_screen([0, 1], answer) == ([0, 1], 1)


def test_screens_of_several_clips_give_more_answers_per_judgement():
    budgets = {"16": 16 * 20}
    pairs, fives = (
        sorting.rank_screens(20, size, 0.0, 0, budgets, lambda _, judged: judged) for size in (2, 5)
    )
    assert pairs["answers_per_judgement"] == 1.0
    assert pairs["watched_per_judgement"] == 2.0
    assert fives["answers_per_judgement"] > 1.2  # ten answers from at most eight judgements
    assert fives["watched_per_judgement"] < 1.0
    assert 0.9 < fives["taus"]["16"] <= 1.0


def test_simulated_person_watches_each_clip_and_pays_for_each_judgement():
    assert sorting.person_seconds(2, 1) == pytest.approx(0.5 + 2 * 1.5 + 1.0)
    found = sorting.rank_screens(20, 2, 0.0, 0, {"6": 360.0}, sorting.person_seconds)
    # 4.5 s for a pair: 80 of them in six minutes.
    assert 60 * found["judgements_per_cost"] == pytest.approx(60 / 4.5)
    assert found["taus"]["6"] > 0.7
