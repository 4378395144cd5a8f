import pytest

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


def test_pace_without_steady_value_is_overall_pace():
    assert agents.pace({"steps_per_second": 7.0}) == 7.0


@pytest.mark.parametrize("part", agents.MATCHES)
def test_single_part_yields_only_its_cells(part):
    cells = list(agents.cells(Options(run="", only=(part,), seeds=(0,))))
    assert {cell.facts["part"] for cell in cells} == {part}
    assert len(cells) == 2 * len(agents.MATCHES[part].env_ids)


def test_matrix_has_every_agent_with_and_without_labels():
    cells = list(agents_matrix.cells(Options(run="", seeds=(0,))))
    on_cartpole, on_hopper = 4, 5  # SAC needs continuous actions, CartPole's are discrete
    assert len({cell.key for cell in cells}) == 2 * (on_cartpole + on_hopper)


def test_agent_alone_is_not_a_change_of_its_cell():
    settings = {"agent": "a2c"}
    cells = agents_matrix.cells(Options(run="", seeds=(0,), settings=settings))
    usual = {cell.key for cell in agents_matrix.cells(Options(run="", seeds=(0,)))}
    assert {cell.key for cell in cells} <= usual


def test_rows_of_agents_name_their_steps_and_changed_settings():
    changed = make_record("a2c", "our A2C", 100.0, 480.0) | {
        "steps": 200,
        "settings": {"steps": 200},
        "changes": {"a2c.gamma": 0.9},
    }
    records = [make_record("a2c", "our A2C", 100.0, 480.0), changed]
    rows = [line for line in agents.report(records) if line.startswith("| CartPole-v1")]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| CartPole-v1, our A2C", "1,000"],
        ["| CartPole-v1, our A2C, a2c.gamma=0.9", "200"],
    ]


def test_changed_settings_are_a_fact_of_our_cells_only():
    changes = {"a2c.gamma": 0.9}
    peer, ours = agents.cells(Options(run="", only=("a2c",), seeds=(0,), settings=changes))
    assert "changes" not in peer.facts
    assert ours.facts["changes"] == changes
    (cell, *_) = agents_matrix.cells(
        Options(run="", labels=(0,), settings={"agent": "a2c", **changes})
    )
    assert cell.facts["changes"] == changes


def test_learns_requires_final_return_above_threshold():
    low, high = ({"env_id": "CartPole-v1", "final_return": x} for x in (399.0, 401.0))
    assert agents_matrix.learns(high)
    assert not agents_matrix.learns(low)
    assert not agents_matrix.learns({"env_id": "CartPole-v1", "final_return": None})


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
