from benchmarks import versus_imitation
from benchmarks.options import Options
from benchmarks.versus_imitation import OURS, PEERS

PEER, NORMALISED = PEERS


def make_record(who, seed, value, source="a", work_s=10.0):
    return {
        "who": who,
        "asked_steps": 800_000,
        "labels": 700,
        "seed": seed,
        "settings": {"seed": seed},
        "source": source,
        "return": value,
        "final_return": value,
        "training_return": value,
        "work_s": work_s,
        "process_s": work_s + 3.0,
        "evaluation_s": 1.0,
        "peak_mb": 500.0,
    }


def rows_of(records):
    return [line for line in versus_imitation.report(records) if line.startswith("| 800k")]


def test_pooled_table_has_the_mean_of_each_seed_over_all_rounds():
    records = [
        *[make_record(PEER, seed, value, "a", 60.0) for seed, value in enumerate([10.0, 20.0])],
        *[make_record(OURS, seed, value, "a") for seed, value in enumerate([30.0, 60.0])],
        *[make_record(OURS, seed, value, "b") for seed, value in enumerate([90.0, 120.0])],
        make_record(OURS, 1, 120.0, "c"),  # the same run as that of source b
    ]
    peer, ours, *by_source = rows_of(records)
    assert "imitation | 0, 1 | 2 | 15.0 | 60.0 | 15.0" in peer
    assert "**6.00x** (to reach: 6x)" in peer
    assert "rl-teacher | 0, 1 | 5 | 75.0 | - | 75.0" in ours  # of 60 and 90
    assert [row.split(" | ")[-1] for row in by_source] == ["a |", "a |", "b |", "c |"]


def test_peer_runs_with_and_without_normalisation():
    cells = list(versus_imitation.cells(Options(run="", labels=(700,), seeds=(0,))))
    normalised = {cell.who: cell.settings.get("is_normalised") for cell in cells}
    assert normalised == {PEER: False, NORMALISED: True, OURS: None}
    records = [make_record(cell.who, 0, 10.0) for cell in cells]
    assert "**1.00x**" in rows_of(records)[1]
