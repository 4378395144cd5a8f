from benchmarks import agents, agents_matrix
from benchmarks.options import Options


def make_record(part, who, pace, final_return, seed=0, source="a"):
    return {
        "part": part,
        "who": who,
        "env_id": "CartPole-v1",
        "seed": seed,
        "source": source,
        "settings": {"seed": seed, "steps": 1000},
        "steps": 1000,
        "final_return": final_return,
        "steps_per_second": pace / 2,
        "steady_steps_per_second": pace,
    }


def test_report_shows_ratio_of_mean_paces_at_the_same_source():
    records = [
        make_record("ga3c", "our A2C", 100.0, 480.0),
        make_record("ga3c", "our GA3C", 150.0, 500.0),
        make_record("ga3c", "our GA3C", 250.0, 490.0, seed=1),
        make_record("ga3c", "our A2C", 400.0, 480.0, source="b"),
        make_record("ga3c", "our GA3C", 400.0, 480.0, source="b"),
    ]
    rows = [line for line in agents.report(records) if line.startswith("| CartPole-v1, our GA3C")]
    assert ["**2.00x** | 0, 1 | a" in rows[0], "**1.00x** | 0 | b" in rows[1]] == [True, True]


def test_pace_is_compared_with_runs_of_as_many_steps_and_equal_changes():
    changes = {"settings": {"steps": 1000, "gamma": 0.9}, "changes": {"a2c.gamma": 0.9}}
    records = [
        make_record("ga3c", "our A2C", 100.0, 480.0),
        make_record("ga3c", "our A2C", 700.0, 480.0) | {"settings": {"steps": 200}},
        make_record("ga3c", "our A2C", 700.0, 480.0) | changes,
        make_record("ga3c", "our GA3C", 150.0, 500.0),
    ]
    rows = [line for line in agents.report(records) if line.startswith("| CartPole-v1, our GA3C")]
    assert "**1.50x**" in rows[0]


def test_matrix_has_every_agent_with_and_without_labels():
    cells = list(agents_matrix.cells(Options(run="", seeds=(0,))))
    on_cartpole, on_hopper = 4, 5  # SAC needs continuous actions, CartPole's are discrete
    assert len({cell.key for cell in cells}) == 2 * (on_cartpole + on_hopper)


def test_matrix_shows_difference_of_changed_settings_in_pairs_of_equal_seed():
    def run(seed, final_return, steps=1_000, changes=None):
        return {
            "who": "a2c",
            "env_id": "CartPole-v1",
            "labels": 200,
            "seed": seed,
            "final_return": final_return,
            "steps": steps,
            "source": "abc",
            "settings": {"config": {"num_timesteps": steps, "changes": changes}},
            **({"changes": changes} if changes else {}),
        }

    changes = {"a2c.gamma": 0.9}
    records = [
        run(0, 100.0),
        run(1, 300.0),
        run(2, 490.0),  # has no pair
        run(1, 500.0, steps=2_000),  # took more steps
        run(0, 140.0, changes=changes),
        run(1, 320.0, changes=changes),
    ]
    rows = [line.split(" | ") for line in agents_matrix.report(records) if "labels, a2c" in line]
    assert [row[3] for row in rows] == ["-", "-", "30.0"]
