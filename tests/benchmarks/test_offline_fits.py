import pytest

from benchmarks import offline_fits
from benchmarks.children import ChildFailed
from benchmarks.options import Options
from benchmarks.settings import setting

HOPPER, WALKER = "ShortHopper-v1", "ShortWalker-v1"


def make_records(options, qualities):
    """Return the records of the cells in `qualities`, in which every fit has the same quality."""
    cells = {
        (cell.facts["env_id"], cell.facts["seed"]): cell for cell in offline_fits.cells(options)
    }
    return [
        {
            **cells[key].facts,
            "settings": cells[key].settings,
            "source": "a",
            "fits": {
                str(num): {
                    name: dict.fromkeys(offline_fits.FIELDS, quality)
                    for name in cells[key].settings["variants"]
                }
                for num in cells[key].settings["labels"]
            },
        }
        for key, quality in qualities
    ]


def rows_of(records):
    return [line for line in offline_fits.report(records) if " labels, defaults |" in line]


def test_runs_with_other_labels_have_a_table_of_their_own():
    full = make_records(Options(run=""), [((HOPPER, 0), 0.5)])
    some = make_records(Options(run="", only=(HOPPER,), labels=(100,)), [((HOPPER, 0), 0.7)])
    assert [row.split(" | ")[:2] for row in rows_of([*full, *some])] == [
        ["| 50 labels, defaults", "0.50"],
        ["| 100 labels, defaults", "0.50"],
        ["| 350 labels, defaults", "0.50"],
        ["| 100 labels, defaults", "0.70"],
    ]


def test_unfinished_seed_is_left_out_and_repeated_run_counts_with_its_mean():
    qualities = [
        *[((HOPPER, 0), 0.2), ((WALKER, 0), 0.4), ((WALKER, 0), 0.8)],
        ((HOPPER, 1), 0.9),
    ]
    records = make_records(Options(run="", labels=(100,)), qualities)
    assert rows_of(records)[0].startswith("| 100 labels, defaults | 0.40 |")  # of 0.2 and 0.6


def test_changed_settings_are_a_variant_with_their_name():
    changes = dict([setting("reward.l2=0.5")])
    records = make_records(Options(run="", settings=changes, seeds=(0,)), [((HOPPER, 0), 0.5)])
    assert "| 50 labels, reward.l2=0.5 | 0.50 | 0.00 |" in "\n".join(offline_fits.report(records))


def test_more_labels_than_half_of_the_collected_ones_are_refused():
    with pytest.raises(ChildFailed, match="--labels 500 is more than half of the 700 labels"):
        list(offline_fits.cells(Options(run="", labels=(500,))))


@pytest.mark.parametrize("is_quick", [False, True])
def test_default_numbers_of_labels_are_accepted(is_quick):
    assert next(offline_fits.cells(Options(run="", is_quick=is_quick))).settings["labels"]
