from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.common.errors import UnknownName
from rl_teacher.queries.schedules import (
    SCHEDULES,
    Budget,
    Progress,
    annealed,
    change_rate,
    change_steps,
    constant,
    schedule,
)

BUDGET = Budget(total=1400, pretraining=350, num_steps=1000)


@pytest.mark.parametrize(
    ("step", "labels"), [(0, 350), (100, 742), (250, 1076), (500, 1305), (750, 1378), (1000, 1400)]
)
def test_annealed_schedule_equals_original_scaled_to_total(step, labels):
    assert annealed(BUDGET, Progress(step, 0.0)) == labels


@pytest.mark.parametrize("name", ["annealed", "hyperbolic"])
def test_schedule_of_a_fraction_equals_that_of_a_shorter_run(name):
    half, short = replace(BUDGET, fraction=0.5), replace(BUDGET, num_steps=500)
    steps = [Progress(step, 0.0) for step in (0, 100, 250, 500, 1000)]
    assert [schedule(name)(half, at) for at in steps] == [schedule(name)(short, at) for at in steps]


@pytest.mark.parametrize("name", SCHEDULES)
@given(step=st.integers(0, 1000))
def test_schedule_stays_within_budget(name, step):
    assert 350 <= schedule(name)(BUDGET, Progress(step, 1e9)) <= 1400


@pytest.mark.parametrize("name", ["annealed", "hyperbolic", "constant"])
@given(step=st.integers(0, 999))
def test_schedule_never_decreases(name, step):
    rule = schedule(name)
    now, later = (rule(BUDGET, Progress(s, float(s))) for s in (step, step + 1))
    assert later >= now


EXTENDED = replace(change_steps(BUDGET, 2000, 1400, Progress(1000, 5.0)), total=2400)


@pytest.mark.parametrize(("step", "labels"), [(1000, 1400), (1500, 2310), (2000, 2400)])
def test_annealed_schedule_of_extension_spreads_new_labels_over_new_steps(step, labels):
    # half of the new steps: 1400 + 1000 * 0.9 / 0.99 = 2309.1
    assert annealed(EXTENDED, Progress(step, 0.0)) == labels


def test_hyperbolic_schedule_of_extension_spreads_new_labels_over_new_steps():
    # log((1 + 1500/2e6) / (1 + 1000/2e6)) / log((1 + 2000/2e6) / (1 + 1000/2e6)) = 0.50006
    rule = schedule("hyperbolic")
    steps = (1000, 1500, 2000)
    assert [rule(EXTENDED, Progress(step, 0.0)) for step in steps] == [1400, 1900, 2400]


def test_extension_before_training_keeps_pretraining_labels():
    extended = change_steps(BUDGET, 3000, 0, Progress(0, 0.0, is_training=False))
    assert extended == replace(BUDGET, num_steps=3000)


def test_extension_by_steps_alone_keeps_total():
    extended = change_steps(BUDGET, 2000, 1400, Progress(1000, 0.0))
    assert [annealed(extended, Progress(step, 0.0)) for step in (1000, 2000)] == [1400, 1400]


def test_extension_of_unlimited_run_keeps_its_rate():
    budget = Budget(total=None, pretraining=10, num_steps=100, seconds_between=0, steps_between=20)
    extended = change_steps(budget, 200, 15, Progress(100, 0.0))
    assert [constant(extended, Progress(step, 0.0)) for step in (100, 200)] == [15, 20]


def test_hyperbolic_rate_halves_at_two_million_steps():
    budget = Budget(total=10**9, pretraining=0, num_steps=10**8)
    rule = schedule("hyperbolic")
    rate_at = [
        rule(budget, Progress(step + 1000, 0.0)) - rule(budget, Progress(step, 0.0))
        for step in (0, 2_000_000)
    ]
    assert rate_at[1] / rate_at[0] == pytest.approx(0.5, rel=1e-2)


def test_upfront_schedule_asks_whole_budget_at_start():
    assert schedule("upfront")(BUDGET, Progress(0, 0.0)) == 1400


def test_constant_rate_counts_seconds_for_person():
    budget = Budget(total=None, pretraining=10, num_steps=1000, seconds_between=3.0)
    assert constant(budget, Progress(10**6, 31.0)) == 20


def test_constant_rate_counts_steps_without_person():
    budget = Budget(None, 10, 1000, seconds_between=0.0, steps_between=2000)
    assert constant(budget, Progress(6000, 1e9)) == 13


def test_unknown_schedule_suggests_nearest_name():
    with pytest.raises(UnknownName, match="annealed"):
        schedule("aneal")


def test_changed_rate_applies_from_time_of_change():
    """10 at first; one every 3 s for 60 s is 30; then one a second: 35 after 65 s."""
    budget = Budget(total=None, pretraining=10, num_steps=1000, seconds_between=3.0)
    changed = change_rate(budget, 1.0, Progress(0, 60.0))
    assert constant(changed, Progress(0, 60.0)) == constant(budget, Progress(0, 60.0)) == 30
    assert constant(changed, Progress(0, 65.0)) == 35
    slower = change_rate(changed, 10.0, Progress(0, 65.0))
    assert constant(slower, Progress(0, 75.0)) == 36
