from types import SimpleNamespace

import pytest

from rl_teacher.common import timer as clock_module
from rl_teacher.common.timer import RunTimer


@pytest.fixture
def now(monkeypatch):
    """Replace the monotonic clock by one that the test advances."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def test_paused_time_is_not_training_time(now):
    clock = RunTimer()
    clock.begin_training()
    now.s += 2.0
    with clock.paused():
        now.s += 8.0
        # The schedule of a run that waits for labels must not proceed.
        assert clock.training_s == 2.0
    assert clock.training_s == 2.0
    assert clock.wall_s == 10.0


def test_pause_before_training_does_not_reduce_training_time(now):
    clock = RunTimer()
    with clock.paused():
        now.s += 8.0
    assert clock.training_s == 0.0
    clock.begin_training()
    now.s += 2.0
    assert clock.training_s == 2.0


def test_times_of_parts_continue_across_runs(now):
    first = RunTimer()
    with first.part("fit"):
        now.s += 3.0
    second = RunTimer()
    second.resume(first.to_json())
    with second.part("fit"):
        now.s += 2.0
    with second.part("rollout"):
        now.s += 1.0
    assert second.parts_s == {"fit": 5.0, "rollout": 1.0}
    assert second.wall_s == 6.0


@pytest.mark.parametrize("name", ["wall_s", "training_s"])
@pytest.mark.parametrize("value", [None, [1.0], "x"])
def test_totals_that_are_no_numbers_are_refused(name, value):
    saved = RunTimer().to_json() | {name: value}
    with pytest.raises((TypeError, ValueError)):
        RunTimer().resume(saved)
