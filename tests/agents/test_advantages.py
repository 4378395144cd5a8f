import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.advantages import generalized_advantage_estimation, vtrace

T, N, GAMMA = 7, 3, 0.9


def some(rng):
    ended = rng.random((T, N)) < 0.3
    return {
        "log_rho_t": rng.normal(size=(T, N)),
        "r_t": rng.normal(size=(T, N)),
        "v_t": rng.normal(size=(T, N)),
        "v_tp1": rng.normal(size=(T, N)),
        "terminated_t": ended & (rng.random((T, N)) < 0.5),
        "ended_t": ended,
    }


def as_arrays(lived):
    return {name: jnp.asarray(x, jnp.float32) for name, x in lived.items()}


def by_the_definition(lived, rho_bar, c_bar):
    """Equation 1 of the paper: a sum over the steps to come, environment by environment."""
    targets, advantages = np.empty((T, N)), np.empty((T, N))
    ratio = np.exp(lived["log_rho_t"])
    rho, c = np.minimum(ratio, rho_bar), np.minimum(ratio, c_bar)
    after = np.where(lived["terminated_t"], 0.0, lived["v_tp1"])
    delta = rho * (lived["r_t"] + GAMMA * after - lived["v_t"])
    for n in range(N):
        for s in range(T):
            target, factor = lived["v_t"][s, n], 1.0
            for t in range(s, T):
                target += factor * delta[t, n]
                if lived["ended_t"][t, n]:
                    break
                factor *= GAMMA * c[t, n]
            targets[s, n] = target
        for s in range(T):
            is_last = s == T - 1 or lived["ended_t"][s, n]
            v_next = after[s, n]
            if not is_last:
                v_next += targets[s + 1, n] - lived["v_t"][s + 1, n]
            advantages[s, n] = rho[s, n] * (
                lived["r_t"][s, n] + GAMMA * v_next - lived["v_t"][s, n]
            )
    return targets, advantages


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (2.0, 0.5), (100.0, 100.0)])
def test_it_is_the_papers_sum(rho_bar, c_bar):
    lived = some(np.random.default_rng(0))
    targets, advantages = by_the_definition(lived, rho_bar, c_bar)
    found = vtrace(**as_arrays(lived), gamma=GAMMA, rho_bar=rho_bar, c_bar=c_bar)
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
        gamma=0.5,
        rho_bar=1.0,
        c_bar=1.0,
    )
    np.testing.assert_allclose(found.targets[:, 0], [1.875, 3.5], rtol=1e-6)
    np.testing.assert_allclose(found.advantages[:, 0], [0.875, 1.5], rtol=1e-6)


def test_on_policy_its_advantages_are_those_of_a2c():
    lived = some(np.random.default_rng(1)) | {"log_rho_t": np.zeros((T, N))}
    # Note: V(x_{s+1}) of one step is V(x_s) of the next one, where no episode ends.
    follows = np.logical_not(lived["ended_t"][:-1])
    lived["v_tp1"][:-1][follows] = lived["v_t"][1:][follows]
    found = vtrace(**as_arrays(lived), gamma=GAMMA, rho_bar=1.0, c_bar=1.0)
    columns = as_arrays(lived)
    columns.pop("log_rho_t")
    wanted = generalized_advantage_estimation(**columns, gamma=GAMMA, gae_lambda=1.0)
    np.testing.assert_allclose(found.advantages, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.targets - columns["v_t"], wanted, rtol=1e-4, atol=1e-5)
