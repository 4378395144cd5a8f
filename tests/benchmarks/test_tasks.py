import json

import pytest

from benchmarks import ablate, machine, tasks
from benchmarks.options import Options
from benchmarks.settings import setting, teach_config
from benchmarks.tasks import grids

HOPPER, REACHER = "ShortHopper-v1", "ShortReacher-v1"
CHANGE = dict([setting("agent_reset=0")])


def record(env_id, seed, final_return, who=tasks.OURS, labels=None, source="a", **changes):
    settings = {"episodes": 200}
    if who not in tasks.POLICIES:
        config = teach_config({"env_id": env_id, "seed": seed, "num_timesteps": 800_000}, changes)
        settings = {"config": config.saved()}
    return {
        "who": who,
        "env_id": env_id,
        "seed": seed,
        "final_return": final_return,
        "auc": None if who in tasks.POLICIES else final_return / 2,
        "settings": settings,
        "source": source,
        "commit": "c" + source,
        "date": "2026-01-01",
        "process_s": 1.0,
        **({} if labels is None else {"labels": labels}),
        **({"changes": changes} if changes else {}),
    }


def task_records(env_id, zero, random, true, by_labels, source="a"):
    """Return the runs of one task; lists have the returns of seeds 0, 1, ..."""
    arms = [
        *[(tasks.ZERO, None, zero), (tasks.RANDOM, None, random), (tasks.OURS, 0, true)],
        *[(tasks.OURS, labels, returns) for labels, returns in by_labels.items()],
    ]
    return [
        record(env_id, seed, value, who, labels, source)
        for who, labels, returns in arms
        for seed, value in enumerate(returns)
    ]


HOPPER_RECORDS = task_records(
    HOPPER, [5.0] * 3, [10.0] * 3, [110.0] * 3, {100: [60.0, 85.0, 110.0]}
)


def row_of(lines, start):
    return next(line for line in lines if line.startswith(f"| {start} |"))


def test_score_is_0_for_random_policy_and_1_for_true_reward():
    (grid,) = grids(HOPPER_RECORDS)
    assert grid.scores("100 labels", "final_return") == {HOPPER: {0: 0.5, 1: 0.75, 2: 1.0}}
    assert grid.scores("true reward", "final_return") == {HOPPER: {0: 1.0, 1: 1.0, 2: 1.0}}
    assert grid.scores(tasks.ZERO, "final_return")[HOPPER][0] == -0.05
    # The areas of the learners are half of their returns: (30 - 10) / (55 - 10).
    assert grid.scores("100 labels", "auc")[HOPPER][0] == pytest.approx(20 / 45)


def test_task_whose_true_reward_did_not_learn_has_no_score():
    (grid,) = grids(task_records(HOPPER, [0.0], [10.0], [9.0], {100: [60.0]}))
    assert grid.scores("100 labels", "final_return") == {}


def test_report_pools_all_seeds_and_pairs_them_with_true_reward():
    row = row_of(tasks.report(HOPPER_RECORDS), "100 labels")
    assert row.startswith("| 100 labels | 1 x 3 | 0.75 |")
    assert row.endswith("| -0.25 |")


def test_task_that_doing_nothing_solves_is_marked_and_left_out_of_means():
    easy = task_records(REACHER, [90.0] * 3, [0.0] * 3, [100.0] * 3, {100: [0.0] * 3})
    report = tasks.report([*HOPPER_RECORDS, *easy])
    assert row_of(report, "100 labels").startswith("| 100 labels | 1 x 3 | 0.75 ")
    assert any("score 0.8 or more: ShortReacher-v1." in line for line in report)
    assert row_of(report, "ShortReacher-v1 (solved by doing nothing), 100 labels")


def test_means_use_only_seeds_that_all_tasks_have():
    other = task_records(REACHER, [0.0] * 2, [0.0] * 2, [1.0] * 2, {100: [1.0, 1.0]})
    row = row_of(tasks.report([*HOPPER_RECORDS, *other]), "100 labels")
    assert row.startswith("| 100 labels | 2 x 2 | 0.88 ")  # of 0.5, 0.75, 1 and 1


def test_runs_of_another_source_are_shown_separately():
    later = task_records(HOPPER, [0.0], [0.0], [100.0], {100: [20.0]}, source="b")
    both = grids([*HOPPER_RECORDS, *later])
    assert {grid.key[0] for grid in both} == {"a", "b"}
    assert {len(grid.values("100 labels", "final_return")[HOPPER]) for grid in both} == {1, 3}
    headings = [line for line in tasks.report([*HOPPER_RECORDS, *later]) if "###" in line]
    assert headings == [
        f"### ppo, 800,000 steps, seeds of decisions, source {source}" for source in "ab"
    ]


def test_runs_of_seeds_of_claims_and_of_decisions_are_never_pooled():
    unseen = [{**each, "seed": each["seed"] + 10} for each in HOPPER_RECORDS]
    claims, decisions = sorted(
        grids([*HOPPER_RECORDS, *unseen]), key=lambda grid: grid.is_claim, reverse=True
    )
    assert set(claims.values("100 labels", "final_return")[HOPPER]) == {10, 11, 12}
    assert set(decisions.values("100 labels", "final_return")[HOPPER]) == {0, 1, 2}
    assert {seed for seed, _ in tasks.seeds_and_tasks(Options(run=""))} == set(range(10, 20))
    changing = Options(run="", settings=CHANGE, only=(HOPPER,), labels=(100,))
    assert {cell.facts["seed"] for cell in ablate.cells(changing)} == set(range(5))


def test_change_without_runs_of_the_true_reward_is_left_out():
    runs = [record(HOPPER, 0, 60.0, labels=100), record(HOPPER, 0, 70.0, labels=100, **CHANGE)]
    assert not [line for line in ablate.report(runs) if "agent_reset" in line]
    assert [line for line in ablate.report([*HOPPER_RECORDS, runs[1]]) if "agent_reset" in line]


def test_later_source_with_the_same_returns_counts_as_the_earlier_one():
    again = task_records(HOPPER, [5.0] * 2, [10.0] * 2, [110.0] * 2, {100: [60.0, 85.0]}, "b")
    change = record(HOPPER, 0, 20.0, labels=100, source="b", **CHANGE)
    default, changed = sorted(
        grids([*HOPPER_RECORDS, *again, change]), key=lambda g: len(g.changes)
    )
    assert (default.source, len(default.records)) == ("a", len(HOPPER_RECORDS))
    assert (changed.source, changed.changes) == ("a", CHANGE)
    # One equal run may be chance, and one unequal run is a difference.
    for returns in [60.0], [60.0, 85.5]:
        other = task_records(HOPPER, [5.0], [10.0], [110.0], {100: returns}, "b")
        assert {grid.source for grid in grids([*HOPPER_RECORDS, *other])} == {"a", "b"}


def test_changed_settings_are_compared_with_defaults_by_seed():
    changed = [
        record(HOPPER, seed, value, labels=100, **CHANGE)
        for seed, value in enumerate([70.0, 95.0, 120.0])
    ]
    assert "120" not in str(tasks.report([*HOPPER_RECORDS, *changed]))
    report = ablate.report([*HOPPER_RECORDS, *changed])
    (name, value), *_ = CHANGE.items()
    summary = row_of(report, f"{name}={value}, 100 labels")
    assert "| 1 | 0.75 | 0.85 | 0.10 | 1.00 | 0.11 | ppo" in summary


def test_repeated_run_with_another_result_counts_with_its_mean():
    again = record(HOPPER, 0, 70.0, labels=100)
    (grid,) = grids([*HOPPER_RECORDS, again])
    assert grid.values("100 labels", "final_return")[HOPPER] == {0: 65.0, 1: 85.0, 2: 110.0}


def test_scores_of_another_agent_are_relative_to_that_agent():
    sac = dict([setting("agent=sac")])
    options = Options(run="", seeds=(0,), only=(HOPPER,), labels=(100,), settings=sac | CHANGE)
    for benchmark in (tasks, ablate):
        configs = [
            json.loads(cell.key)["settings"].get("config") for cell in benchmark.cells(options)
        ]
        assert {config["agent"] for config in configs if config} == {"sac"}
    changed = [json.loads(cell.key)["facts"].get("changes") for cell in ablate.cells(options)]
    assert [each for each in changed if each] == [CHANGE]
    runs = [record(HOPPER, 0, value, labels=n, **sac) for n, value in ((0, 210.0), (100, 110.0))]
    for each in runs:
        del each["changes"]
    of_sac = next(grid for grid in grids([*HOPPER_RECORDS, *runs]) if grid.key[2] == "sac")
    assert of_sac.scores("100 labels", "final_return") == {HOPPER: {0: 0.5}}


def test_source_depends_on_learning_code_and_not_on_web_service(tmp_path):
    for name in ("agents", "web"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text("x = 1\n")
    before = machine.source(tmp_path)
    (tmp_path / "web" / "module.py").write_text("x = 2\n")
    assert machine.source(tmp_path) == before
    (tmp_path / "agents" / "module.py").write_text("x = 2\n")
    assert machine.source(tmp_path) != before
