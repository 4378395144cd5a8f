from types import SimpleNamespace

import pytest

from rl_teacher.common import timer as clock_module
from rl_teacher.common.timer import RunTimer


@pytest.fixture
def now(monkeypatch):
    """The moment, in seconds; it passes only when told to."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def test_time_that_stands_still_is_no_training(now):
    clock = RunTimer()
    clock.begin_training()
    now.s += 2.0
    with clock.standing_still():
        now.s += 8.0
    assert clock.training_s == 2.0
    assert clock.whole_s == 10.0


def test_standing_still_before_training_takes_nothing_away_from_it(now):
    clock = RunTimer()
    with clock.standing_still():
        now.s += 8.0
    assert clock.training_s == 0.0
    clock.begin_training()
    now.s += 2.0
    assert clock.training_s == 2.0
