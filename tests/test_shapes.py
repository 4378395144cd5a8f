"""The shapes in the annotations are checked wherever a test calls what has them."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from rl_teacher.predictor.likelihood import preference_logit


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(TypeCheckError, match="rewards_right"):
        preference_logit(jnp.zeros((2, 3)), jnp.zeros((2, 4)))


@pytest.mark.usefixtures("_shapes_unchecked")
def test_whole_runs_are_spared_the_checks():
    assert preference_logit(jnp.zeros((2, 3)), jnp.zeros((2, 1))).shape == (2,)
