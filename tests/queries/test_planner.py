"""Number and time of the comparisons to ask."""

import json
from dataclasses import asdict, replace
from unittest.mock import create_autospec

import pytest

from rl_teacher.common.state_dict import text_to_array
from rl_teacher.plan import LabelPlan
from rl_teacher.queries.planner import QueryPlanner
from rl_teacher.queries.queue import QueryQueue
from rl_teacher.queries.schedules import Progress

FOLLOWING = {"is_paced": True, "follows_labeler": True, "seconds_between": 0.0}
LABELS = LabelPlan(total=60, first=15, num_steps=1000, schedule="annealed", seconds_between=3.0)


def queue_of(num_asked, num_waiting):
    queue = create_autospec(QueryQueue, instance=True)
    queue.num_asked, queue.num_waiting = num_asked, num_waiting
    queue.num_answered = num_asked - num_waiting
    return queue


def planner_of(num_asked=0, num_waiting=0, **settings):
    """Return a planner of 60 annealed labels, 15 of them first, of which some have been asked."""
    return QueryPlanner(replace(LABELS, **settings), queue_of(num_asked, num_waiting))


@pytest.mark.parametrize(
    ("asked", "waiting", "settings", "step", "num"),
    [
        (15, 0, {"is_paced": True}, 0, 5),
        (20, 0, {"is_paced": True}, 0, 0),
        (58, 0, {"is_paced": True}, 1000, 2),
        (20, 0, FOLLOWING, 0, 5),
        (25, 5, FOLLOWING, 0, 0),
        (58, 3, FOLLOWING, 0, 2),
        (90, 5, FOLLOWING | {"total": None, "schedule": "constant"}, 0, 0),
        (90, 2, FOLLOWING | {"total": None, "schedule": "constant"}, 0, 3),
        (20, 0, FOLLOWING | {"seconds_between": 3.0}, 0, 0),
        (15, 0, {"is_person": True}, 1000, 20),
        (15, 12, {"is_person": True}, 1000, 8),
        (0, 0, {}, 1000, 50),
    ],
    ids=[
        "lead",
        "reached",
        "budget",
        "fast person",
        "some left",
        "fast at end",
        "without end",
        "fast without end",
        "pace of owner",
        "waiting",
        "some wait",
        "per rollout",
    ],
)
def test_number_to_ask_follows_schedule_lead_and_limits(asked, waiting, settings, step, num):
    planner = planner_of(asked, waiting, **settings)
    assert planner.num_to_ask(Progress(step, 0.0)) == num


def test_lead_grows_by_the_answers_since_the_last_call():
    queue = queue_of(25, 5)
    labels = replace(LABELS, **FOLLOWING | {"total": None, "is_person": True})
    planner = QueryPlanner(labels, queue)
    queue.num_answered, queue.num_waiting = 24, 1
    assert [planner.num_to_ask(Progress(0, 0.0)) for _ in range(2)] == [24 + 4 + 5 - 25, 4]
    resumed_queue = queue_of(0, 0)
    resumed = QueryPlanner(labels, resumed_queue)
    resumed.load_state(planner.state())
    resumed_queue.num_asked, resumed_queue.num_answered = 25, 24
    assert resumed.num_to_ask(Progress(0, 0.0)) == 4


@pytest.mark.parametrize(
    ("asked", "waiting", "settings", "last"),
    [
        (60, 0, FOLLOWING, 800_000),
        (60, 1, FOLLOWING, None),
        (60, 0, FOLLOWING | {"total": None}, None),
        (60, 0, {}, None),
    ],
    ids=["all answered", "one missing", "any number", "given steps"],
)
def test_last_label_determines_the_last_step_unless_steps_are_given(asked, waiting, settings, last):
    assert planner_of(asked, waiting, **settings).last_step(400_000) == last


def test_schedule_begins_after_the_exploration_and_ends_with_the_run():
    """After 200 of 1000 steps of exploration, half of the training is over at step 600."""
    planner = planner_of()
    assert planner.num_to_ask(Progress(200, 0.0, is_training=False)) == 15
    dues = [planner.num_labels_due(Progress(step, 1.0)) for step in (200, 600, 1000)]
    # 15 + 45 * 0.9 / 0.99 = 55.9
    assert dues == [15, 56, 60]


@pytest.mark.parametrize(
    ("asked", "step", "num_for_fit", "num"), [(15, 19, 9, 0), (15, 19, 4, 4), (58, 1000, 9, 2)]
)
def test_synthetic_teacher_is_asked_when_a_fit_is_due_and_at_the_end(asked, step, num_for_fit, num):
    planner, progress = planner_of(asked), Progress(step, 0.0)
    assert planner.num_to_ask(progress, num_for_fit=num_for_fit) == num


def test_labels_that_could_not_be_asked_are_not_missing():
    assert planner_of(30, 4).num_missing(Progress(1000, 0.0)) == 4
    assert planner_of(30, 4).num_missing(Progress(0, 0.0)) == -11


@pytest.mark.parametrize(("total", "due"), [(None, 56), (100, 93), (10, 10)])
def test_changed_total_applies_at_once(total, due):
    """Annealed, 60 in all, 15 first: 56 are due at half time; of 100 in all 93, of 10 all."""
    planner, half = planner_of(15), Progress(500, 0.0)
    planner.follow(half, total=total)
    planner.num_to_ask(half)
    assert planner.num_due == due


def test_settings_that_the_owner_has_cleared_are_the_runs_own_again():
    changed, resumed, progress = planner_of(), planner_of(), Progress(500, 20.0)
    changed.follow(progress, 10.0, 40)
    resumed.load_state(changed.state())
    assert (resumed.budget.seconds_between, resumed.budget.total) == (10.0, 40)
    resumed.follow(progress)
    assert (resumed.budget.seconds_between, resumed.budget.total) == (3.0, 60)


def test_run_without_labels_is_given_none():
    planner = planner_of(total=0, first=0)
    planner.follow(Progress(500, 0.0), 1.0, 100, 2000)
    assert planner.budget.total == 0


@pytest.mark.parametrize(("num_steps", "total"), [(2000, 100), (600, 55)])
def test_other_steps_distribute_the_remaining_labels(num_steps, total):
    planner, progress = planner_of(50), Progress(500, 0.0)
    own = planner.budget
    planner.follow(progress, num_steps=1000)
    assert planner.budget == own
    planner.follow(progress, total=total, num_steps=num_steps)
    assert planner.num_labels_due(progress) == 50
    assert planner.num_labels_due(Progress(num_steps, 0.0)) == total


@pytest.mark.parametrize("is_training", [False, True])
def test_finished_run_waits_for_no_label(is_training):
    """The owner finishes after 7 of 20 comparisons; 15 labels were wanted before training."""
    planner, progress = planner_of(20, 13), Progress(500, 0.0, is_training=is_training)
    planner.follow(progress, total=7, num_steps=500)
    assert planner.num_missing(progress) == 0
    assert planner.num_to_ask(progress) <= 0
    assert planner.budget.pretraining == 7


@pytest.mark.parametrize("damaged", [{"total": [60]}, {"fraction": None}])
def test_saved_budget_of_other_types_is_refused(damaged):
    planner = planner_of()
    budget = json.dumps({**asdict(planner.budget), **damaged})
    with pytest.raises(ValueError, match=next(iter(damaged))):
        planner.load_state({**planner.state(), "budget": text_to_array(budget)})
