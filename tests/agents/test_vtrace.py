import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.on_policy import advantages_of
from rl_teacher.agents.vtrace import vtrace

T, N, GAMMA = 7, 3, 0.9


def some(rng):
    ended = rng.random((T, N)) < 0.3
    return {
        "log_ratios": rng.normal(size=(T, N)),
        "rewards": rng.normal(size=(T, N)),
        "values": rng.normal(size=(T, N)),
        "next_values": rng.normal(size=(T, N)),
        "terminated": ended & (rng.random((T, N)) < 0.5),
        "ended": ended,
    }


def as_arrays(lived):
    return {name: jnp.asarray(x, jnp.float32) for name, x in lived.items()}


def by_the_definition(lived, rho_bar, c_bar):
    """Equation 1 of the paper: a sum over the steps to come, environment by environment."""
    targets, advantages = np.empty((T, N)), np.empty((T, N))
    ratio = np.exp(lived["log_ratios"])
    rho, c = np.minimum(ratio, rho_bar), np.minimum(ratio, c_bar)
    after = np.where(lived["terminated"], 0.0, lived["next_values"])
    delta = rho * (lived["rewards"] + GAMMA * after - lived["values"])
    for n in range(N):
        for s in range(T):
            target, factor = lived["values"][s, n], 1.0
            for t in range(s, T):
                target += factor * delta[t, n]
                if lived["ended"][t, n]:
                    break
                factor *= GAMMA * c[t, n]
            targets[s, n] = target
        for s in range(T):
            is_last = s == T - 1 or lived["ended"][s, n]
            v_next = after[s, n]
            if not is_last:
                v_next += targets[s + 1, n] - lived["values"][s + 1, n]
            advantages[s, n] = rho[s, n] * (
                lived["rewards"][s, n] + GAMMA * v_next - lived["values"][s, n]
            )
    return targets, advantages


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (2.0, 0.5), (100.0, 100.0)])
def test_it_is_the_papers_sum(rho_bar, c_bar):
    lived = some(np.random.default_rng(0))
    targets, advantages = by_the_definition(lived, rho_bar, c_bar)
    found = vtrace(**as_arrays(lived), discount=GAMMA, rho_bar=rho_bar, c_bar=c_bar)
    np.testing.assert_allclose(found.targets, targets, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.advantages, advantages, rtol=1e-4, atol=1e-5)


def test_two_steps_by_hand():
    # delta = rho * (r + 0.5 * V' - V) = [0.5 * (1 + 1 - 1), 1 * (2 + 1.5 - 2)] = [0.5, 1.5]
    # v_1 = 2 + 1.5 = 3.5; v_0 = 1 + 0.5 + 0.5 * 0.5 * 1.5 = 1.875
    # advantages: 0.5 * (1 + 0.5 * 3.5 - 1) = 0.875; 2 + 0.5 * 3 - 2 = 1.5
    found = vtrace(
        jnp.log(jnp.array([[0.5], [3.0]])),
        jnp.array([[1.0], [2.0]]),
        jnp.array([[1.0], [2.0]]),
        jnp.array([[2.0], [3.0]]),
        jnp.zeros((2, 1)),
        jnp.zeros((2, 1)),
        discount=0.5,
        rho_bar=1.0,
        c_bar=1.0,
    )
    np.testing.assert_allclose(found.targets[:, 0], [1.875, 3.5], rtol=1e-6)
    np.testing.assert_allclose(found.advantages[:, 0], [0.875, 1.5], rtol=1e-6)


def test_on_policy_its_advantages_are_those_of_a2c():
    lived = some(np.random.default_rng(1)) | {"log_ratios": np.zeros((T, N))}
    # Note: V(x_{s+1}) of one step is V(x_s) of the next one, where no episode ends.
    follows = np.logical_not(lived["ended"][:-1])
    lived["next_values"][:-1][follows] = lived["values"][1:][follows]
    found = vtrace(**as_arrays(lived), discount=GAMMA, rho_bar=1.0, c_bar=1.0)
    columns = as_arrays(lived)
    columns.pop("log_ratios")
    wanted = advantages_of(**columns, discount=GAMMA, trace=1.0)
    np.testing.assert_allclose(found.advantages, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.targets - columns["values"], wanted, rtol=1e-4, atol=1e-5)
