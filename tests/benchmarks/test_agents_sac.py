import numpy as np

from benchmarks import agents_sac
from benchmarks._ours import latest_return
from benchmarks.options import Options


class RecordedRun:
    """Run whose checkpoint has the returns 0, 1, ... of its training episodes."""

    def __init__(self, num_episodes):
        self.arrays = {"true/returns": np.arange(num_episodes, dtype=float)}

    def load_checkpoint(self):
        return self


def test_latest_return_is_mean_of_the_last_episodes():
    assert latest_return(RecordedRun(10), 4) == 7.5  # pyright: ignore[reportArgumentType]
    assert latest_return(RecordedRun(3), 4) is None  # pyright: ignore[reportArgumentType]


def test_returns_are_measured_in_the_same_way_on_both_sides():
    cells = list(agents_sac.cells(Options(run="", only=("returns",), seeds=(0,))))
    asked = [{n: cell.settings[n] for n in ("evaluated", "latest")} for cell in cells]
    assert asked == [{"evaluated": 20, "latest": 16}] * len(cells)
    normalised = {c.who: c.settings["is_normalised"] for c in cells if "config" not in c.settings}
    assert normalised == {"SBX": False, "SBX with VecNormalize": True}


def test_changed_settings_are_a_fact_of_our_cells_only():
    changes = {"sac.gamma": 0.9}
    cells = agents_sac.cells(Options(run="", seeds=(0,), settings=changes))
    changed = {cell.who for cell in cells if cell.facts.get("changes") == changes}
    assert changed == {agents_sac.OURS, agents_sac.DEFAULT}


def make_pace(who, steps, steps_per_second, **changes):
    settings = {"config": {"num_timesteps": steps, **changes}} if "rl" in who else {"steps": steps}
    return {
        "part": "pace",
        "who": who,
        "env_id": "Pendulum-v1",
        "seed": 0,
        "steps": steps,
        "steps_per_second": steps_per_second,
        "settings": settings,
        "source": "a",
        **({"changes": changes} if changes else {}),
    }


def test_pace_is_compared_with_runs_of_as_many_steps():
    records = [
        make_pace(agents_sac.SB3, 6000, 100.0),
        make_pace(agents_sac.SB3, 2000, 50.0),
        make_pace(agents_sac.OURS, 6000, 300.0),
        make_pace(agents_sac.OURS, 6000, 500.0, hidden=64),
    ]
    rows = [line for line in agents_sac.report(records) if "rl-teacher |" in line or "=64" in line]
    assert rows == [
        "| Pendulum-v1, rl-teacher | 6,000 | 300 | 3.00x | 1 | a |",
        "| Pendulum-v1, rl-teacher, hidden=64 | 6,000 | 500 | 5.00x | 1 | a |",
    ]
