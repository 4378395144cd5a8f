from functools import partial

from benchmarks import machine, pictures
from benchmarks.options import Options
from benchmarks.run import options_of, parser


def make_record(num_labels, seed, value, gamma, source="a"):
    ppo = {"gamma": gamma, "entropy_coef": 0.03}
    return {
        "env_id": "Pong-v0",
        "labels": num_labels,
        "seed": seed,
        "steps": 2_000_000,
        "final_return": value,
        "reached_s": 60.0,
        "settings": {"config": {"agent": "ppo", "ppo": ppo, "seed": seed}},
        "source": source,
    }


def rows_of(records):
    return [line for line in pictures.report(records) if line.startswith("| Pong-v0")]


def test_runs_with_other_discounts_or_sources_are_separate_rows():
    records = [
        *[make_record(0, 0, -4.0, 0.99), make_record(0, 0, 2.0, 0.95)],
        *[make_record(1000, 0, 7.0, 0.95), make_record(1000, 0, 9.0, 0.95, source="b")],
    ]
    assert [" | ".join(row.split(" | ")[:5]) for row in rows_of(records)] == [
        "| Pong-v0, true reward | 2,000,000 | 0.99 | 0.03 | -4.00",
        "| Pong-v0, true reward | 2,000,000 | 0.95 | 0.03 | 2.00",
        "| Pong-v0, 1000 labels | 2,000,000 | 0.95 | 0.03 | 7.00",
        "| Pong-v0, 1000 labels | 2,000,000 | 0.95 | 0.03 | 9.00",
    ]


def test_discount_of_old_records_is_found_by_its_old_name():
    record = make_record(0, 0, -4.0, 0.99)
    record["settings"]["config"]["ppo"] = {"discount": 0.99, "entropy_bonus": 0.01}
    assert " | 0.99 | 0.01 | -4.00" in rows_of([record])[0]


def test_unfinished_run_is_continued_at_the_same_source_only(monkeypatch):
    def folder():
        work = next(pictures.cells(Options(run=""))).work
        assert isinstance(work, partial)
        return work.args[0]

    names = []
    for source in ("one", "other", "one"):
        monkeypatch.setattr(machine, "source", lambda source=source: source)
        names.append(folder())
    assert names[0] == names[2] != names[1]


def test_command_gives_both_rewards_the_discount_and_entropy_of_runs_with_labels():
    _, _, _, *arguments = pictures.SAME_SETTINGS.split()
    options = options_of(parser().parse_args(arguments))
    true, labelled = (cell.settings["config"] for cell in pictures.cells(options))
    assert (true["predictor"], labelled["predictor"]) == ("rl", "synth")
    assert true["ppo"] == labelled["ppo"]
    usual = pictures.cells(Options(run="", only=("Pong-v0",), labels=(1000,)))
    assert labelled["ppo"] == next(usual).settings["config"]["ppo"]
