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


def test_insertion_that_exceeds_budget_has_no_tau():
    truth = np.arange(4)
    asked = [(0, 1, sorting.Answer.RIGHT, 0)] * 50
    taus = sorting.taus_by_answers(
        asked,
        truth=truth,
        answer=lambda left, right: sorting.Answer.RIGHT,
        rng=np.random.default_rng(0),
        prior_mean=np.zeros(4),
        choose=sorting.random_pairs,
    )
    assert taus["8"] is taus["12"] is None
    assert taus["16"] is not None


def test_report_has_newest_run_with_range_over_seeds():
    def make_record(run, seed, value):
        inserted = {"answers": 6.2, "order": value, "fit": value}
        taus = dict.fromkeys(map(str, sorting.PER_CLIP), value) | {"8": None}
        return {
            "run": run, "part": "tau", "clips": 200, "wrong": 0.1, "seed": seed,
            "insertion": inserted,
            **dict.fromkeys(sorting.WAYS, taus),
        }  # fmt: skip

    records = [make_record("old", 0, 0.1), make_record("new", 0, 0.8), make_record("new", 1, 0.9)]
    lines = sorting.report(records)
    assert "| binary insertion: its order | 6.20 | 0.850 (0.80 to 0.90) |" in lines
    assert "| neighbours | 8 | - |" in lines
    assert "| neighbours | 12 | 0.850 (0.80 to 0.90) |" in lines


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


def test_report_of_screens_has_a_row_per_size_and_number_of_judgements():
    records = [
        {
            "run": "new", "part": "screens", "clips": 200, "size": 3, "wrong": 0.1, "seed": seed,
            "taus": dict.fromkeys(map(str, sorting.PER_CLIP), value),
            "answers_per_judgement": 1.125, "watched_per_judgement": 1.126,
        }
        for seed, value in enumerate((0.8, 0.9))
    ]  # fmt: skip
    assert "| 3 | 1.13 | 1.12 | 12 | 0.850 (0.80 to 0.90) |" in sorting.report(records)


def test_simulated_person_watches_each_clip_and_pays_for_each_judgement():
    assert sorting.person_seconds(2, 1) == pytest.approx(0.5 + 2 * 1.5 + 1.0)
    found = sorting.rank_screens(20, 2, 0.0, 0, {"6": 360.0}, sorting.person_seconds)
    # 4.5 s for a pair: 80 of them in six minutes.
    assert 60 * found["judgements_per_cost"] == pytest.approx(60 / 4.5)
    assert found["taus"]["6"] > 0.7


def test_report_of_simulated_person_has_answers_per_minute():
    records = [
        {
            "run": "new", "part": "person", "clips": 200, "size": 3, "wrong": 0.1, "seed": seed,
            "taus": {"30": value}, "answers_per_judgement": 1.125, "watched_per_judgement": 1.0,
            "judgements_per_cost": 0.25,
        }
        for seed, value in enumerate((0.8, 0.9))
    ]  # fmt: skip
    assert "| 3 | 15.0 | 16.9 | 30 | 0.850 (0.80 to 0.90) |" in sorting.report(records)
