from benchmarks import versus_imitation
from benchmarks.options import Options
from benchmarks.versus_imitation import OURS, PEERS

NORMALISED, TUTORIAL, PEER = PEERS


def make_record(who, seed, value, source="a", work_s=10.0):
    return {
        "who": who,
        "asked_steps": 800_000,
        "labels": 700,
        "seed": seed,
        "settings": {"seed": seed},
        "source": source,
        "date": f"2026-01-01, source {source}",
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


def test_table_has_the_newest_round_and_unpaired_differences():
    records = [
        *[make_record(PEER, seed, value, "a", 60.0) for seed, value in enumerate([10.0, 20.0])],
        *[make_record(OURS, seed, value, "a") for seed, value in enumerate([30.0, 60.0])],
        *[make_record(OURS, seed, value, "b") for seed, value in enumerate([90.0, 120.0])],
    ]
    peer, ours, *by_source = rows_of(records)
    assert "imitation | 0, 1 | 15.0 | 90.0 | 15.0" in peer
    assert "**6.00x** (to reach: 6x)" in peer
    assert "rl-teacher | 0, 1 | 105 | - | 105" in ours
    assert [row.split(" | ")[-1] for row in by_source] == ["a |", "a |", "b |"]


def test_peer_is_configured_as_here_and_as_in_its_tutorial():
    options = Options(run="", labels=(700,), seeds=(0,))
    cells = {cell.who: cell.settings for cell in versus_imitation.cells(options)}
    names = ("configuration", "is_normalised", "iterations", "fragment_length")
    assert {who: [settings.get(name) for name in names] for who, settings in cells.items()} == {
        NORMALISED: ["ours", True, 20, 50],
        TUTORIAL: ["tutorial", None, 60, 100],
        PEER: ["ours", False, 20, 50],
        OURS: [None] * 4,
    }
    selected = Options(run="", labels=(700,), seeds=(0,), only=(OURS,))
    assert [cell.who for cell in versus_imitation.cells(selected)] == [OURS]
