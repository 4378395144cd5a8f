import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.reliability import Reliability
from rl_teacher.queries.ranking import (
    PRIOR_STD,
    RankingAnswers,
    answer_probabilities,
    certainties,
    error_rate,
    fit_qualities,
    rank_targets,
    standard_deviations,
)

LEFT, RIGHT, EQUAL = Answer.LEFT, Answer.RIGHT, Answer.EQUAL
NUM_CLIPS = 6
CERTAIN = Reliability(1.0, 100)
PAIRS = st.lists(st.integers(0, NUM_CLIPS - 1), min_size=2, max_size=2, unique=True)
ANSWERS = st.lists(
    st.builds(lambda pair, answer: (*pair, answer, 0), PAIRS, st.sampled_from(Answer)),
    max_size=20,
)
RELIABILITIES = st.sampled_from([1.0, 0.9, 0.8, 0.6])


def arrays(answers, reliability=1.0):
    return RankingAnswers.of(answers, {0: Reliability(reliability, 100)})


def fit(answers, reliability=1.0, num_clips=NUM_CLIPS):
    return fit_qualities(arrays(answers, reliability), np.zeros(num_clips))


def sampled(num_clips, num_answers, seed=0):
    """Sample answers from qualities between -3 and 3."""
    rng = np.random.default_rng(seed)
    quality = np.linspace(-3, 3, num_clips)
    pairs = (rng.choice(num_clips, 2, replace=False).tolist() for _ in range(num_answers))
    return [
        (i, j, LEFT if rng.logistic() < quality[i] - quality[j] else RIGHT, 0) for i, j in pairs
    ]


# --- small cases ---


def test_no_answers_return_prior():
    prior_mean = np.array([1.0, -2.0])
    answers = arrays([])
    np.testing.assert_array_equal(fit_qualities(answers, prior_mean), prior_mean)
    np.testing.assert_allclose(standard_deviations(answers, prior_mean), PRIOR_STD)


def test_cannot_tell_carries_no_information():
    answers = RankingAnswers.of([(0, 1, Answer.CANNOT_TELL, 0), (0, 1, LEFT, 0)])
    assert answers.target.tolist() == [1.0]


def test_single_answer_balances_prior_and_likelihood():
    """At the mode q = std^2 sigmoid(-2 q), where the qualities are q and -q."""
    q, mirrored = fit([(0, 1, LEFT, 0)], num_clips=2)
    assert q == pytest.approx(-mirrored)
    assert q == pytest.approx(PRIOR_STD**2 / (1 + np.exp(2 * q)), abs=1e-3)


def test_tie_has_hand_computed_standard_deviation():
    """The Hessian is [[13, -9], [-9, 13]] / 36, as the prior variance is 9; 117 / 22 results."""
    answers = arrays([(0, 1, EQUAL, 0)])
    np.testing.assert_array_equal(fit_qualities(answers, np.zeros(2)), 0.0)
    np.testing.assert_allclose(standard_deviations(answers, np.zeros(2)), np.sqrt(117 / 22))


def test_error_rate_is_twice_the_chance_of_wrong_answer():
    assert error_rate(Reliability(0.9, 1)) == pytest.approx(0.2)
    assert error_rate(Reliability(0.3, 1)) == 1.0


def test_labeler_who_answers_at_random_is_ignored():
    means = fit([(0, 1, LEFT, 0)] * 5, reliability=0.5, num_clips=2)
    np.testing.assert_array_equal(means, 0.0)


# --- oracles ---


def test_fit_without_errors_equals_choix():
    answers = sampled(20, 200)
    pairs = [(i, j) if answer is LEFT else (j, i) for i, j, answer, _ in answers]
    # choix adds alpha times the sum of squares, without a factor 1/2.
    expected = choix.opt_pairwise(20, pairs, alpha=0.5 * PRIOR_STD**-2, tol=1e-10)
    np.testing.assert_allclose(fit(answers, num_clips=20), expected, atol=2e-3)


def test_fit_with_errors_maximises_posterior():
    answers = sampled(8, 60)
    data = arrays(answers, 0.9)

    def negative_log_density(q):
        chance = 0.8 / (1 + np.exp(-(q[data.left] - q[data.right]))) + 0.1
        log_p = np.where(data.target == 1, np.log(chance), np.log(1 - chance))
        return 0.5 * np.sum(q**2) / PRIOR_STD**2 - log_p.sum()

    best = optimize.minimize(negative_log_density, np.zeros(8), tol=1e-10)
    np.testing.assert_allclose(fit(answers, 0.9, 8), best.x, atol=5e-3)


# --- warm start ---


def test_warm_start_reaches_same_fit_as_cold_start():
    answers = sampled(50, 600)
    before = fit(answers[:-1], 0.9, 50)
    warm = fit_qualities(arrays(answers, 0.9), np.zeros(50), before)
    np.testing.assert_allclose(warm, fit(answers, 0.9, 50), atol=5e-3)


# --- properties ---


@settings(max_examples=25)
@given(ANSWERS, RELIABILITIES, st.permutations(range(NUM_CLIPS)), st.randoms())
def test_fit_is_invariant_to_numbers_of_clips_and_order_of_answers(
    answers, reliability, numbers, random
):
    renumbered = [(numbers[i], numbers[j], answer, 0) for i, j, answer, _ in answers]
    random.shuffle(renumbered)
    means = fit(renumbered, reliability)
    np.testing.assert_allclose(means[numbers], fit(answers, reliability), atol=1e-6)


# --- results ---


def test_probability_of_an_answer_leaves_out_errors():
    """sigmoid(log 3) = 0.75 for left, however often the labeler errs."""
    answers = arrays([(0, 1, LEFT, 0), (0, 1, RIGHT, 0), (0, 1, EQUAL, 0)], reliability=0.9)
    means = np.array([np.log(3), 0])
    assert answer_probabilities(answers, means) == pytest.approx([0.75, 0.25, 0.5])


# --- regression targets ---


def test_rank_targets_match_hand_computation():
    # Ranks 3, 1.5, 1.5 and 0 of 4; Phi^-1 of 7/8, 1/2, 1/2 and 1/8.
    targets = rank_targets(np.array([3.0, 1.0, 1.0, -2.0]))
    np.testing.assert_allclose(targets, [1.150349, 0, 0, -1.150349], atol=1e-6)


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=30))
def test_rank_targets_keep_order_and_are_symmetric(values):
    qualities = np.array(values, float)
    targets = rank_targets(qualities)
    above, below = np.subtract.outer(qualities, qualities), np.subtract.outer(targets, targets)
    np.testing.assert_array_equal(np.sign(above), np.sign(below))
    np.testing.assert_allclose(rank_targets(-qualities), -targets, atol=1e-12)


@given(ANSWERS)
def test_rank_targets_of_clips_with_answers_alike_are_equal(answers):
    """The second half of the clips repeats the answers of the first."""
    repeated = [(left + NUM_CLIPS, right + NUM_CLIPS, *rest) for left, right, *rest in answers]
    targets = rank_targets(fit([*answers, *repeated], 0.9, 2 * NUM_CLIPS))
    np.testing.assert_array_equal(targets[:NUM_CLIPS], targets[NUM_CLIPS:])


def test_certainties_match_hand_computation():
    # One answer at equal qualities carries p (1 - p) = 1/4. Precisions 1/9 + 1/4, 1/9 + 1/2 and
    # 1/9 + 1/4, divided by their mean 4/9.
    answers = arrays([(0, 1, LEFT, 0), (1, 2, LEFT, 0)])
    np.testing.assert_allclose(certainties(answers, np.zeros(3)), [0.8125, 1.375, 0.8125])
