from types import SimpleNamespace

import pytest

from rl_teacher.config.experiment import RunOptions
from rl_teacher.runs.control import RunControl
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.store import Store


@pytest.fixture
def desk(database):
    with Store.open(database) as store:
        experiment_id = store.experiments.ensure("mine", "ShortHopper-v1", {})
        yield SimpleNamespace(store=store, id=experiment_id, clock=SimpleNamespace(s=100.0))


def orders_of(desk):
    return RunControl(desk.store, desk.id, lambda: desk.clock.s)


def test_the_store_is_looked_into_once_a_second(desk):
    run_control = orders_of(desk)
    desk.store.experiments.set_control(desk.id, Control(state="pause"))
    assert not run_control.is_paused
    desk.clock.s += 1.0
    assert run_control.is_paused


@pytest.mark.parametrize("state", ["pause", "stop"])
def test_who_starts_a_run_wants_it_to_go_on_whatever_was_said_of_the_last_one(desk, state):
    desk.store.experiments.set_control(desk.id, Control(state=state, target_labels=70))
    assert orders_of(desk).latest().state == "run"
    assert desk.store.experiments.control(desk.id).state == "run"
    assert desk.store.experiments.control(desk.id).target_labels == 70


def test_what_is_not_given_of_a_study_stays_as_it_was(desk):
    policy = AssignmentPolicy(overlap=0.3, overlap_labelers=3)
    desk.store.experiments.set_assignment(desk.id, policy)
    orders_of(desk).set_assignment(RunOptions(repeats=0.1))
    expected = AssignmentPolicy(overlap=0.3, overlap_labelers=3, repeats=0.1)
    assert desk.store.experiments.assignment(desk.id) == expected
