import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.ga3c import vtrace
from rl_teacher.agents.rollout_batch import generalized_advantage_estimation

T, N, GAMMA = 7, 3, 0.9


def random_trajectories(rng):
    ended = rng.random((T, N)) < 0.3
    return {
        "log_rho_t": rng.normal(size=(T, N)),
        "r_t": rng.normal(size=(T, N)),
        "v_t": rng.normal(size=(T, N)),
        "v_tp1": rng.normal(size=(T, N)),
        "terminated_t": ended & (rng.random((T, N)) < 0.5),
        "ended_t": ended,
    }


def as_arrays(trajectories):
    return {name: jnp.asarray(x, jnp.float32) for name, x in trajectories.items()}


def vtrace_by_definition(trajectories, rho_bar, c_bar):
    """Compute V-trace by the sum over future steps, equation 1 of Espeholt et al. (2018)."""
    targets, advantages = np.empty((T, N)), np.empty((T, N))
    ratio = np.exp(trajectories["log_rho_t"])
    rho, c = np.minimum(ratio, rho_bar), np.minimum(ratio, c_bar)
    next_values = np.where(trajectories["terminated_t"], 0.0, trajectories["v_tp1"])
    delta = rho * (trajectories["r_t"] + GAMMA * next_values - trajectories["v_t"])
    for n in range(N):
        for s in range(T):
            target, factor = trajectories["v_t"][s, n], 1.0
            for t in range(s, T):
                target += factor * delta[t, n]
                if trajectories["ended_t"][t, n]:
                    break
                factor *= GAMMA * c[t, n]
            targets[s, n] = target
        for s in range(T):
            is_last = s == T - 1 or trajectories["ended_t"][s, n]
            v_next = next_values[s, n]
            if not is_last:
                v_next += targets[s + 1, n] - trajectories["v_t"][s + 1, n]
            advantages[s, n] = rho[s, n] * (
                trajectories["r_t"][s, n] + GAMMA * v_next - trajectories["v_t"][s, n]
            )
    return targets, advantages


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (2.0, 0.5), (100.0, 100.0)])
def test_vtrace_matches_definition(rho_bar, c_bar):
    trajectories = random_trajectories(np.random.default_rng(0))
    targets, advantages = vtrace_by_definition(trajectories, rho_bar, c_bar)
    result = vtrace(**as_arrays(trajectories), gamma=GAMMA, rho_bar=rho_bar, c_bar=c_bar)
    np.testing.assert_allclose(result.targets, targets, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.advantages, advantages, rtol=1e-4, atol=1e-5)


def column(*values):
    return jnp.array(values)[:, None]


@pytest.mark.parametrize(
    ("values", "next_values", "terminated", "ended", "expected"),
    [
        # delta = r + 0.5 * V' - V = [1 + 1 - 1, 2 + 1.5 - 2] = [1, 1.5]
        # A_1 = 1.5, A_0 = 1 + 0.5 * 0.8 * 1.5 = 1.6
        ([1.0, 2.0], [2.0, 3.0], [0.0, 0.0], [0.0, 0.0], [1.6, 1.5]),
        # Termination: delta_0 = 1 - 0.5, and nothing of the next episode is added.
        ([0.5, 2.0], [100.0, 3.0], [1.0, 0.0], [1.0, 0.0], [0.5, 1.5]),
        # Truncation: delta_0 = 1 + 0.5 * 10 - 0.5.
        ([0.5, 2.0], [10.0, 3.0], [0.0, 0.0], [1.0, 0.0], [5.5, 1.5]),
    ],
)
def test_gae_matches_hand_computation(values, next_values, terminated, ended, expected):
    columns = [column(*each) for each in (values, next_values, terminated, ended)]
    advantages = generalized_advantage_estimation(
        column(1.0, 2.0), *columns, gamma=0.5, gae_lambda=0.8
    )
    np.testing.assert_allclose(advantages[:, 0], expected)


def test_vtrace_of_two_steps_matches_hand_computation():
    # delta = rho * (r + 0.5 * V' - V) = [0.5 * (1 + 1 - 1), 1 * (2 + 1.5 - 2)] = [0.5, 1.5]
    # v_1 = 2 + 1.5 = 3.5; v_0 = 1 + 0.5 + 0.5 * 0.5 * 1.5 = 1.875
    # advantages: 0.5 * (1 + 0.5 * 3.5 - 1) = 0.875; 2 + 0.5 * 3 - 2 = 1.5
    result = vtrace(
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
    np.testing.assert_allclose(result.targets[:, 0], [1.875, 3.5], rtol=1e-6)
    np.testing.assert_allclose(result.advantages[:, 0], [0.875, 1.5], rtol=1e-6)


def test_on_policy_vtrace_equals_gae_with_lambda_one():
    trajectories = random_trajectories(np.random.default_rng(1)) | {"log_rho_t": np.zeros((T, N))}
    # Within an episode, V(x_{s+1}) of a step is V(x_s) of the next one.
    continues = np.logical_not(trajectories["ended_t"][:-1])
    trajectories["v_tp1"][:-1][continues] = trajectories["v_t"][1:][continues]
    result = vtrace(**as_arrays(trajectories), gamma=GAMMA, rho_bar=1.0, c_bar=1.0)
    columns = as_arrays(trajectories)
    columns.pop("log_rho_t")
    expected = generalized_advantage_estimation(**columns, gamma=GAMMA, gae_lambda=1.0)
    np.testing.assert_allclose(result.advantages, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.targets - columns["v_t"], expected, rtol=1e-4, atol=1e-5)
