from types import SimpleNamespace

import pytest

from rl_teacher.runs.control import RunControl
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.store import Store


@pytest.fixture
def owner(database):
    with Store.open(database) as store:
        experiment_id = store.experiments.ensure("mine", "ShortHopper-v1", {})
        yield SimpleNamespace(store=store, id=experiment_id, clock=SimpleNamespace(s=100.0))


def run_control_of(owner):
    return RunControl(owner.store, owner.id, lambda: owner.clock.s)


def test_commands_are_read_once_per_second(owner):
    run_control = run_control_of(owner)
    owner.store.experiments.set_control(owner.id, Control(state="pause"))
    assert not run_control.is_paused
    owner.clock.s += 1.0
    assert run_control.is_paused


@pytest.mark.parametrize("state", ["pause", "stop"])
def test_starting_run_overrides_earlier_command_and_keeps_settings(owner, state):
    owner.store.experiments.set_control(owner.id, Control(state=state, target_labels=70))
    assert run_control_of(owner).latest().state == "run"
    assert owner.store.experiments.control(owner.id).state == "run"
    assert owner.store.experiments.control(owner.id).target_labels == 70


def test_overlap_of_a_run_keeps_the_other_assignment(owner):
    policy = AssignmentPolicy(overlap_labelers=3, repeats=0.1)
    owner.store.experiments.set_assignment(owner.id, policy)
    run_control_of(owner).set_overlap(0.3)
    expected = AssignmentPolicy(overlap=0.3, overlap_labelers=3, repeats=0.1)
    assert owner.store.experiments.assignment(owner.id) == expected
