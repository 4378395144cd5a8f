import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.predictor.likelihood import (
    mean_reward,
    preference_logit,
    preference_loss,
    regression_loss,
)


def test_logit_is_difference_of_returns():
    left, right = jnp.array([[1.0, 2.0]]), jnp.array([[0.5, 0.25]])
    assert preference_logit(left, right)[0] == pytest.approx(2.25)


@given(st.lists(st.floats(-5, 5, width=32), min_size=6, max_size=6))
def test_swapping_sides_negates_logit(rewards):
    left, right = jnp.array([rewards[:3]]), jnp.array([rewards[3:]])
    there, back = preference_logit(left, right), preference_logit(right, left)
    np.testing.assert_allclose(there, -back, atol=1e-5)


def test_loss_of_even_odds_matches_hand_computation():
    # p = 0.9 * 0.5 + 0.05 = 0.5, -ln 0.5 = 0.6931
    assert preference_loss(jnp.array([0.0]), jnp.array([1.0]))[0] == pytest.approx(0.693147)


def test_loss_of_confident_prediction_matches_hand_computation():
    # sigmoid(2) = 0.880797; p = 0.9 * 0.880797 + 0.05 = 0.842717; -ln p = 0.171124
    assert preference_loss(jnp.array([2.0]), jnp.array([1.0]))[0] == pytest.approx(
        0.171124, abs=1e-5
    )


def test_tie_costs_mean_of_both_answers():
    logits = jnp.array([1.3])
    left, right, tie = (preference_loss(logits, jnp.array([y]))[0] for y in (1.0, 0.0, 0.5))
    assert tie == pytest.approx((left + right) / 2)


def test_loss_of_wrong_answer_is_bounded_by_error_rate():
    # p is at least 0.05, so -ln p is at most 2.9957
    assert preference_loss(jnp.array([1e4]), jnp.array([0.0]))[0] == pytest.approx(
        2.99573, abs=1e-4
    )


def test_loss_without_errors_is_logistic():
    loss = preference_loss(jnp.array([-30.0]), jnp.array([1.0]), 0.0)[0]
    assert loss == pytest.approx(30.0)


@pytest.mark.parametrize("logit", [-200.0, -20.0, 0.0, 20.0, 200.0])
def test_gradient_is_finite_for_extreme_logits(logit):
    gradient = jax.grad(lambda z: preference_loss(z[None], jnp.array([1.0]))[0])(jnp.float32(logit))
    assert np.isfinite(gradient)


def test_gradient_does_not_vanish_for_confident_wrong_prediction():
    gradient = jax.grad(lambda z: preference_loss(z[None], jnp.array([1.0]))[0])(jnp.float32(-5.0))
    # p' / p with sigmoid(-5) = 0.0066929: 0.9 * 0.0066929 * 0.9933071 / (0.9 * 0.0066929 + 0.05)
    assert gradient == pytest.approx(-0.106806, abs=1e-4)


def test_regression_loss_matches_hand_computation():
    # The mean of 1 and 3 is 2; 0.5 * (2 - 1.2)^2 = 0.32. The last step is padding.
    score = mean_reward(jnp.array([[1.0, 3.0, 0.0]]), jnp.array([[1.0, 1.0, 0.0]]))
    assert score[0] == pytest.approx(2.0)
    assert regression_loss(score, jnp.array([1.2]), jnp.array([0.5]))[0] == pytest.approx(0.32)
