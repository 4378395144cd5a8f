from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.answer import Answer
from rl_teacher.config.experiment import Objective, PredictorConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.plan import LabelPlan, LearningPlan
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair
from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore
from rl_teacher.queries.schedules import Progress
from rl_teacher.rewards.learner import RewardLearner
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.teachers.synthetic import ORACLE
from rl_teacher.teachers.teacher import Teacher
from tests.store.comparisons import answered_comparisons

NOW = Progress(0, 0.0)
RECENT = 1.0, 10.0


class World:
    """Reward learner with its store and rollouts of random actions."""

    stores: ClassVar[ExitStack]

    def __init__(
        self,
        folder,
        teacher: Teacher = ORACLE,
        seed=0,
        label_buffer=0,
        objective: Objective = "preferences",
        pretrained=None,
    ):
        self.venv = make_vector("ShortReacher-v1", 8)
        self.collector = Collector(self.venv, seed=seed)
        self.store = self.stores.enter_context(Store.open(folder / "labels.sqlite"))
        experiment_id = self.store.experiments.ensure("test", "ShortReacher-v1", {})
        space = InputSpace.from_spaces(
            self.venv.single_observation_space, self.venv.single_action_space
        )
        query_store = QueryStore(self.store, experiment_id, SegmentFiles(folder / "segments"))
        self.queue = QueryQueue(query_store, NamedTeacher(teacher, "synthetic:oracle", 0))
        learning = LearningPlan(
            predictor=PredictorConfig(
                objective=objective, hidden=(16, 16), label_buffer=label_buffer
            ),
            seed=0,
            segment_steps=10,
            shows_ends=False,
            first_fit_steps=100,
            fits_in_background=False,
            labels=LabelPlan(total=60, first=20, num_steps=1000, schedule="annealed"),
        )
        self.learner = RewardLearner("ShortReacher-v1", space, 8, learning, self.queue, pretrained)

    def roll_out(self, num_rollouts=1):
        for _ in range(num_rollouts - 1):
            self.roll_out()
        rollout = self.collector.collect(self.collector.random_actions, 32)
        return rollout, self.learner.observe(rollout)

    def turn(self, step):
        _, observed = self.roll_out()
        self.learner.ask(Progress(step, 0.0), RECENT)
        self.learner.fit()
        return observed.rewards


@pytest.fixture(autouse=True)
def _stores_are_closed(monkeypatch):
    with ExitStack() as stores:
        monkeypatch.setattr(World, "stores", stores, raising=False)
        yield


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_ask_asks_due_comparisons_once(world):
    assert world.learner.ask(NOW, RECENT) == 0
    world.roll_out(3)
    assert world.learner.ask(NOW, RECENT) == 20
    assert world.learner.ask(NOW, RECENT) == 0
    answered = answered_comparisons(world.store, 1)
    assert len(answered) == 20
    for comparison in answered:
        sides = map(world.queue.segment, (comparison.left_hash, comparison.right_hash))
        left, right = (segment.true_return for segment in sides)
        assert comparison.answer == (Answer.LEFT if left > right else Answer.RIGHT)


def test_fit_runs_only_with_new_labels(world):
    world.roll_out(3)
    assert not world.learner.fit()
    world.learner.ask(NOW, RECENT)
    assert world.learner.fit()
    assert not world.learner.fit()


@pytest.mark.parametrize("objective", ["preferences", "rank"])
def test_agent_beats_the_untrained_one_once_its_segments_are_rated_higher(tmp_path, objective):
    """The teacher prefers small actions; those of the untrained agent are random."""

    def prefers_small_actions(left, right, _context):
        sizes = [np.square(each.actions).sum() for each in (left, right)]
        return Answer.LEFT if sizes[0] < sizes[1] else Answer.RIGHT

    world = World(tmp_path, prefers_small_actions, objective=objective)
    world.roll_out(6)
    assert np.isnan(world.learner.beats_untrained())
    for step in range(0, 3000, 300):  # until all labels are used
        world.turn(step)
    world.roll_out(8)
    assert 0.4 < world.learner.beats_untrained() < 0.6
    for _ in range(60):
        still = world.collector.collect(world.collector.null_actions, 32)
        world.learner.observe(still)
    assert world.learner.beats_untrained() > 0.65


@pytest.mark.parametrize("objective", ["preferences", "rank"])
def test_fitted_rewards_correlate_with_true_rewards(tmp_path, objective):
    world = World(tmp_path, objective=objective)
    world.roll_out(6)
    for step in (0, 300, 600, 900):
        world.turn(step)
    rollout, observed = world.roll_out()
    assert np.corrcoef(observed.rewards.ravel(), rollout.rewards.ravel())[0, 1] > 0.5
    assert observed.metrics["correlation"] > 0.3
    rewards = np.concatenate([world.roll_out()[1].rewards for _ in range(10)])
    assert rewards.mean() == pytest.approx(0, abs=0.3)
    # The mean of members that disagree has a standard deviation below one.
    assert 0.5 < rewards.std() < 1.2


@pytest.mark.parametrize("objective", ["preferences", "rank"])
def test_ties_alone_give_no_reward(tmp_path, objective):
    world = World(tmp_path, lambda _left, _right, _context: Answer.EQUAL, objective=objective)
    world.roll_out(6)
    for step in (0, 300):
        world.turn(step)
    assert world.learner.num_fits
    _, observed = world.roll_out()
    assert not observed.rewards.any()


def test_ask_and_fit_do_not_wait_for_later_answers(tmp_path):
    world = World(tmp_path, teacher=lambda left, right, context: None)
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    assert not world.learner.fit()
    world.store.labels.add(world.queue.asked()[4].id, Answer.LEFT, "somebody")
    assert world.learner.fit()
    assert world.learner.metrics()["labels_answered"] == 1


def test_cannot_tell_counts_as_answered_and_has_no_target(tmp_path):
    world = World(tmp_path, teacher=lambda left, right, context: Answer.CANNOT_TELL)
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    assert not world.learner.fit()
    assert world.learner.metrics()["labels_answered"] == 20
    assert world.learner.metrics()["comparisons"] == 0


@pytest.mark.parametrize(
    ("objective", "label_buffer"), [("preferences", 0), ("preferences", 16), ("rank", 16)]
)
def test_restored_learner_continues_exactly(tmp_path, objective, label_buffer):
    """A buffer keeps 16 of 60 labels."""
    options = {"objective": objective, "label_buffer": label_buffer}
    one = World(tmp_path, **options)
    one.roll_out(3)
    for step in (0, 100):
        one.turn(step)
    state, envs = one.learner.state(), one.collector.state()
    expected = [(one.turn(step), one.learner.metrics()) for step in (200, 900)]
    assert one.learner.metrics()["labels_answered"] > 50
    assert one.learner.metrics()["fits"] > 2
    one.store.close()

    other = World(tmp_path, seed=5, **options)
    other.learner.load_state(state)
    other.collector.load_state(envs)
    for (rewards, metrics), step in zip(expected, (200, 900), strict=True):
        np.testing.assert_array_equal(other.turn(step), rewards)
        np.testing.assert_equal(other.learner.metrics(), metrics)  # NaN equals NaN


# --- several labelers ---


def human_teacher(left, right, context):
    """Leave all answers to the store."""


def survey_world(folder):
    world = World(folder, teacher=human_teacher)
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    return world


def answer(world, labeler, *answers):
    """Answer the first comparisons in order; None leaves one out."""
    for query, each in zip(world.queue.asked(), answers, strict=False):
        if each is not None:
            world.store.labels.add(query.id, each, labeler)


def targets(world):
    return world.learner.trainer.labels.targets.tolist()


LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer


def test_further_answer_changes_target_in_place_and_next_fit_starts_warm(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "ann", LEFT, LEFT, RIGHT)
    world.learner.fit()
    labels = world.learner.trainer.labels
    answer(world, "bob", None, RIGHT)
    assert world.learner.fit()
    assert world.learner.trainer.labels is labels
    assert targets(world) == [1, 0.5, 0]
    assert world.learner.metrics()["comparisons"] == 3


def test_withdrawn_answer_takes_its_label_out_and_the_others_keep_their_order(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "ann", LEFT, None, EQUAL)
    world.learner.fit()
    answer(world, "ann", None, RIGHT)
    world.learner.fit()
    assert targets(world) == [1, 0.5, 0]
    world.store.labels.add(world.queue.asked()[0].id, None, "ann")
    assert world.learner.fit()
    assert targets(world) == [0.5, 0]


def test_zero_is_kept_when_the_label_buffer_holds_no_clip_that_ended_early(tmp_path):
    world = World(tmp_path, teacher=human_teacher, label_buffer=1)
    learner = world.learner
    learner._learning = replace(learner._learning, shows_ends=True)
    steps = np.random.default_rng(0).random((10, learner.trainer.labels.rows.shape[-1]))
    steps = steps.astype(np.float32)
    for ended_after in (4, 10):
        learner.trainer.add_given([LabelledPair(steps, steps[:ended_after] / 2, 1.0)])
        assert learner.fit(force=True)
        assert learner.predictor.keeps_zero
    assert not learner.trainer.labels.has_unequal_lengths


def test_changed_answer_keeps_which_labels_are_held_out(tmp_path):
    """They are answered from the last to the first: their numbers have another order than asked."""
    world = World(tmp_path, teacher=human_teacher)
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    ids = [each.id for each in world.queue.asked()]

    def held_out():
        world.learner.read_answers()
        labels = world.learner.trainer.labels
        return {each: labels.is_held_out[:, labels.index_of(each)].tolist() for each in ids}

    for each in reversed(ids):
        world.store.labels.add(each, LEFT, "ann")
        world.learner.read_answers()
    before = held_out()
    world.store.labels.add(ids[3], RIGHT, "ann")
    assert held_out() == before


def test_revision_is_read_when_it_is_due_while_no_comparison_waits(world, monkeypatch):
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    before = targets(world)
    assert world.queue.num_waiting == 0
    answer(world, "ann", EQUAL)
    monkeypatch.setattr("rl_teacher.rewards.learner.REVISIONS_EVERY_S", float("inf"))
    assert not world.learner.fit()
    assert targets(world) == before
    monkeypatch.setattr("rl_teacher.rewards.learner.REVISIONS_EVERY_S", 0.0)
    assert world.learner.fit()
    assert targets(world) == [(before[0] + 0.5) / 2, *before[1:]]


def test_segments_of_new_answers_are_not_read_from_disk(world, monkeypatch):
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    with monkeypatch.context() as patched:
        patched.setattr(SegmentFiles, "load", lambda *_: pytest.fail("a segment was read"))
        world.learner.read_answers()
    assert len(targets(world)) == 20
    first = world.queue.asked()[0]
    assert world.queue.segment(first.left).content_hash == first.left


def test_single_label_is_fitted_at_the_end(tmp_path):
    """One label more than 50 is less than 2 % more, too little for another fit during training."""
    world = World(tmp_path, teacher=human_teacher)
    world.roll_out(3)
    num_before = sum(world.learner.ask(Progress(1000, 0.0), RECENT) for _ in range(2)) - 2
    assert num_before > 50
    answer(world, "ann", *[LEFT] * num_before)
    world.learner.fit()
    assert not world.learner.fit_remaining()
    answer(world, "ann", *[None] * num_before, RIGHT)
    assert not world.learner.fit()
    assert world.learner.fit_remaining()
    assert world.learner.metrics()["fits"] == 2
    assert not world.learner.fit_remaining()


def test_fit_is_due_at_once_only_where_a_further_answer_changes_a_target(tmp_path):
    """The next fit is due with two labels, 2 % of 51 rounded up."""
    world = World(tmp_path, teacher=human_teacher)
    world.roll_out(3)
    for _ in range(2):  # 50 at a time
        world.learner.ask(Progress(1000, 0.0), RECENT)
    answer(world, "ann", CANNOT_TELL, *[LEFT] * 51)
    world.learner.fit()
    answer(world, "bob", LEFT)
    assert not world.learner.fit()
    answer(world, "bob", None, LEFT)
    assert not world.learner.fit()
    answer(world, "bob", None, RIGHT)
    assert world.learner.fit()


def test_labels_too_few_to_fine_tune_complete_no_fit_at_the_end(tmp_path, world):
    (tmp_path / "later").mkdir()
    later = World(tmp_path / "later", human_teacher, pretrained=world.learner.predictor)
    later.roll_out(3)
    later.learner.ask(NOW, RECENT)
    answer(later, "ann", LEFT)
    assert not later.learner.fit_remaining()
    assert len(later.learner.trainer.labels) == 1


def test_last_comparisons_are_asked_though_no_fit_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_teacher.rewards.trainer.FIT_GROWTH", 0.5)
    world = World(tmp_path)
    world.roll_out(3)
    assert world.learner.ask(NOW, RECENT) == 20
    world.learner.fit()
    later = Progress(20, 0.0)
    assert world.learner.ask(later, RECENT) == 0
    assert world.learner.ask(later, RECENT, are_last=True) == 4


def test_last_of_all_labels_is_fitted_at_once(tmp_path):
    world = World(tmp_path, teacher=human_teacher)
    while world.queue.num_asked < 60:
        world.roll_out(3)
        world.learner.ask(Progress(1000, 0.0), RECENT)
    answer(world, "ann", *[LEFT] * 59)
    world.learner.fit()
    answer(world, "ann", *[None] * 59, RIGHT)
    assert world.learner.fit()
    assert not world.learner.fit()


def test_revision_read_before_a_save_is_fitted_after_resuming(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "ann", LEFT, LEFT)
    world.learner.fit()
    answer(world, "ann", RIGHT)
    world.learner.read_answers()
    state = world.learner.state()
    world.store.close()
    other = World(tmp_path, teacher=human_teacher)
    other.learner.load_state(state)
    assert other.learner.fit()
    assert targets(other) == [0, 1]


def test_labels_follow_exclusion_and_inclusion_of_labeler(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "ann", LEFT)
    answer(world, "bob", RIGHT, RIGHT)
    world.learner.fit()
    world.store.labelers.set_excluded("bob", True)
    assert world.learner.fit()
    assert targets(world) == [1]
    world.store.labelers.set_excluded("bob", False)
    assert world.learner.fit()
    assert targets(world) == [0.5, 0]


def test_first_labels_after_the_only_labeler_was_excluded_are_fitted(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "bob", *[RIGHT] * 5)
    world.learner.fit()
    world.store.labelers.set_excluded("bob", True)
    assert not world.learner.fit()
    assert targets(world) == []
    answer(world, "ann", *[LEFT] * 5)
    assert world.learner.fit_remaining()
    assert world.learner.metrics()["fits"] == 2
    assert targets(world) == [1] * 5


def test_target_is_mean_of_answers(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "ann", LEFT, EQUAL)
    answer(world, "bob", LEFT, RIGHT)
    answer(world, "cid", RIGHT, CANNOT_TELL)
    world.learner.read_answers()
    assert targets(world) == pytest.approx([2 / 3, 0.25])


def test_restored_labels_keep_order_targets_and_budget(tmp_path):
    world = survey_world(tmp_path)
    answer(world, "ann", None, None, LEFT, RIGHT)
    world.learner.fit()
    answer(world, "bob", RIGHT, EQUAL, RIGHT)
    world.learner.planner.follow(Progress(0, 5.0), 1.5, 77)
    world.learner.fit()
    state = world.learner.state()
    world.store.close()
    other = World(tmp_path, teacher=human_teacher)
    other.learner.load_state(state)
    assert targets(other) == targets(world)
    np.testing.assert_array_equal(
        other.learner.trainer.labels.rows, world.learner.trainer.labels.rows
    )
    assert other.learner.planner.budget == world.learner.planner.budget
    assert not other.learner.fit()


def test_rank_objective_reports_accuracy_but_no_calibration(tmp_path):
    world = World(tmp_path, objective="rank")
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    assert 0 < world.learner.metrics()["held_out_accuracy"] <= 1
    diagnostics = world.learner.diagnostics(set(world.queue.asked()[0].segments))
    assert diagnostics is not None
    assert diagnostics.calibration == []
    [predicted] = diagnostics.comparisons.values()
    segments = map(world.queue.segment, world.queue.asked()[0].segments)
    means = [world.learner.predictor(s.observations, s.actions).mean() for s in segments]
    assert predicted == pytest.approx(means, rel=1e-4)


def test_diagnostics_contain_predictions_for_labelled_comparisons(world):
    world.roll_out(3)
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    asked = world.queue.asked()
    shown = {each for query in asked[:-1] for each in query.segments} - {asked[0].left}
    diagnostics = world.learner.diagnostics(shown)
    assert (diagnostics.num_fits, diagnostics.num_labels) == (1, 20)
    assert diagnostics.comparisons.keys() == {query.id for query in asked[1:-1]}
    for query in asked[1:-1]:
        segments = map(world.queue.segment, query.segments)
        returns = [world.learner.predictor(s.observations, s.actions).sum() for s in segments]
        assert diagnostics.comparisons[query.id] == pytest.approx(returns, rel=1e-4)
