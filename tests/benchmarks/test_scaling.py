from dataclasses import asdict
from statistics import median

import pytest

from benchmarks.scale_model import (
    Cluster,
    Load,
    RequestCosts,
    ServiceCosts,
    simulate_rollouts,
    simulate_service,
)
from benchmarks.scaling import CONSTANTS, costs_of, error, report
from benchmarks.scaling_rollouts import policy_costs, worker_costs
from benchmarks.settings import teach_config

COSTS = {
    **dict.fromkeys(CONSTANTS, 0.0),
    "env_step_s": 50e-6,
    "update_step_s": 5e-6,
    "receive_byte_s": 1e-9,
    "step_bytes": 100.0,
}
ROLLOUTS = {"run": "a", "part": "rollouts", "env_id": "X", "num_envs": 64, "rollout_steps": 128}
SERVICE_COSTS = ServiceCosts(
    client_s=1e-4,
    loop_s=1e-3,
    look_up=RequestCosts(2e-4, 1e-4, 3e-4),
    claim=RequestCosts(1e-3, 5e-4, 1e-3),
    answer=RequestCosts(2e-3, 5e-4, 1e-3),
    further=0.5,
)


def measured_rollouts(factor):
    """Return a record whose paces are those of the simulation, times a factor."""
    record = {**ROLLOUTS, "costs": COSTS}
    pace = simulate_rollouts(Cluster(2, 64, 128, num_local=1), costs_of(record)).steps_per_second
    return {**record, "paces": {"2": factor * pace}}


def measured_service():
    result = simulate_service(Load(50, 2.0, 4.0, is_random=True), SERVICE_COSTS)
    load = {
        "labelers": 50,
        "period_s": 2.0,
        "seconds": 4,
        "answers_per_second": result.answers_per_second,
        "service_cores": result.service_cores,
        "database_cores": result.database_cores,
        "median_ms": 1000 * median(result.next_s + result.answer_s),
        "mean_ms": 1.5 * 1000 * result.mean_s,
        "p99_ms": 100.0,
    }
    return {
        "run": "a",
        "part": "service",
        "database": "postgresql",
        "cores": 2,
        "costs": asdict(SERVICE_COSTS),
        "transactions": 12.0,
        "loads": [load],
        "comparison_bytes": 2_000.0,
        "label_bytes": 500.0,
    }


def cells_of(lines, start):
    """Return the cells of the table row that starts as given."""
    [row] = [line for line in lines if line.startswith(f"| {start}")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_error_above_the_limit_is_bold():
    assert [error(1.1, 1.0), error(1.2, 1.0), error(0.8, 1.0), error(1.0, 0.0)] == [
        "+10 %",
        "**+20 %**",
        "**-20 %**",
        "-",
    ]


def test_report_compares_simulated_paces_with_measured_ones():
    assert cells_of(report([measured_rollouts(1.0)]), "X, two nodes")[-1] == "+0 %"
    assert cells_of(report([measured_rollouts(2.0)]), "X, two nodes")[-1] == "**-50 %**"


def test_report_compares_simulated_loads_with_measured_ones():
    row = cells_of(report([measured_service()]), "postgresql, 50 labelers")
    assert [cell.split(" / ")[-1] for cell in row[1:4]] == ["+0 %"] * 3
    assert row[5].endswith("**-33 %**")


def test_forecast_of_rollouts_saturates_at_the_pace_of_updates():
    lines = report([measured_rollouts(1.0)])
    rows = [line.split("|") for line in lines if line.startswith("| X | 1,000 ")]
    measured, faster = (float(row[4].replace(",", "")) for row in rows)
    # Updates alone are 200,000 steps/s, and 4,000,000 if they are 20 times as fast.
    assert 150_000 < measured < 200_000
    assert 1_000_000 < faster < 4_000_000


def test_forecast_of_labelers_needs_cores_in_proportion_to_answers():
    lines = report([measured_service()])
    rows = [cells_of(lines, f"{number} |") for number in ("100", "1,000", "10,000")]
    # 5.4 ms of the service and 1.2 ms of the database for each of 33.3, 333 and 3,333 answers.
    assert [row[5] for row in rows] == ["1", "3", "26"]
    assert float(rows[0][7]) == pytest.approx(0.040, rel=0.2)
    assert float(rows[1][2].replace(",", "")) == pytest.approx(667, rel=0.05)


def test_costs_of_rollouts_are_measured_on_real_environments():
    config = teach_config({"env_id": "Hopper-v5"}, {"ppo.num_envs": 8, "ppo.rollout_steps": 16})
    from rl_teacher.agents.registry import make_agent
    from rl_teacher.envs.registry import make_vector

    venv = make_vector("Hopper-v5", 8, 1)
    policy = make_agent(config, venv).acting_policy()  # pyright: ignore[reportAttributeAccessIssue]
    venv.close()
    costs = policy_costs(policy) | worker_costs(config, policy, 2)
    assert costs["policy_bytes"] > 10_000
    # 11 float32 observations and 6 float64 of the scene, among others.
    assert 11 * 4 + 6 * 8 < costs["step_bytes"] < 300
    # The cost of a single environment is a difference of two durations, which may be negative.
    assert 1e-6 < costs["vector_step_s"] + 8 * costs["env_step_s"] < 1.0
