import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.answer import Answer
from rl_teacher.config import PredictorConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.schedules import Budget, Progress, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.questionnaire import Questionnaire, RecentEpisodes, Respondent, Shelf
from rl_teacher.reward_learner import Asking, Fitting, RewardLearner, Subject, TrueReward
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.teachers.synthetic import ORACLE
from rl_teacher.teachers.teacher import Teacher

NOW = Progress(0, 0.0)
RECENT = RecentEpisodes(1.0, 10.0)


class World:
    """A learner, its store, and rollouts of random actions to feed it."""

    def __init__(self, folder, teacher: Teacher = ORACLE, seed=0):
        self.venv = make_vector("ShortReacher-v1", 8)
        self.collector = Collector(self.venv, seed=seed)
        self.store = Store.open(folder / "labels.sqlite")
        experiment_id = self.store.ensure_experiment("test", "ShortReacher-v1", {})
        space = InputSpace.of(self.venv.single_observation_space, self.venv.single_action_space)
        budget = Budget(total=60, pretraining=20, num_steps=1000)
        shelf = Shelf(self.store, experiment_id, SegmentFiles(folder / "segments"))
        self.questionnaire = Questionnaire(shelf, Respondent(teacher, "synthetic:oracle", 0))
        self.learner = RewardLearner(
            Subject("ShortReacher-v1", space, 8, 10),
            Asking(selector("disagreement"), schedule("annealed"), budget, 10),
            Fitting(PredictorConfig(hidden=(16, 16)), 100, in_background=False, seed=0),
            self.questionnaire,
        )

    def live(self, num_rollouts=1):
        for _ in range(num_rollouts - 1):
            self.live()
        rollout = self.collector.collect(self.collector.random_actions, 32)
        return rollout, self.learner.observe(rollout)

    def once_round(self, step):
        _, observed = self.live()
        self.learner.ask(Progress(step, 0.0), RECENT)
        self.learner.fit()
        return observed.rewards


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_the_true_reward_is_passed_on_unchanged(world):
    rollout, _ = world.live()
    np.testing.assert_array_equal(TrueReward().observe(rollout).rewards, rollout.rewards)


def test_it_asks_what_is_due_and_not_more(world):
    world.live(3)
    assert world.learner.ask(NOW, RECENT) == 20
    assert world.learner.ask(NOW, RECENT) == 0
    assert world.store.counts(1).answered == 20


def test_it_asks_nothing_before_anything_was_lived(world):
    assert world.learner.ask(NOW, RECENT) == 0


def test_what_it_asked_is_on_disk_and_answered_by_the_true_return(world):
    world.live(3)
    world.learner.ask(NOW, RECENT)
    for each in world.store.answered_comparisons(1):
        left, right = map(world.questionnaire.segment, (each.left_hash, each.right_hash))
        is_left = left.true_return > right.true_return
        assert each.answer == (Answer.LEFT if is_left else Answer.RIGHT)


def test_it_fits_when_labels_have_come_and_not_otherwise(world):
    world.live(3)
    assert world.learner.fit() is None
    world.learner.ask(NOW, RECENT)
    assert world.learner.fit() is not None
    assert world.learner.fit() is None


def test_its_rewards_have_mean_0_and_std_1(world):
    world.live(3)
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    rewards = np.concatenate([world.live()[1].rewards for _ in range(20)])
    assert rewards.mean() == pytest.approx(0, abs=0.25)
    # The mean of members that do not fully agree has a spread below one.
    assert 0.5 < rewards.std() < 1.2


def test_after_fitting_its_rewards_follow_the_true_ones(world):
    world.live(6)
    for step in (0, 300, 600, 900):
        world.once_round(step)
    rollout, observed = world.live()
    assert np.corrcoef(observed.rewards.ravel(), rollout.rewards.ravel())[0, 1] > 0.5
    assert observed.figures["correlation"] > 0.3


def test_a_teacher_who_answers_later_is_not_waited_for(tmp_path):
    world = World(tmp_path, teacher=lambda left, right, circumstances: None)
    world.live(3)
    world.learner.ask(NOW, RECENT)
    assert world.learner.fit() is None
    question = list(world.questionnaire._questions.values())[4]
    world.store.answer(question.id, Answer.LEFT, "somebody")
    assert world.learner.fit() is not None
    assert world.learner.figures()["labels_answered"] == 1


def test_cannot_tell_counts_as_answered_and_is_not_trained_on(tmp_path):
    world = World(tmp_path, teacher=lambda left, right, circumstances: Answer.CANNOT_TELL)
    world.live(3)
    world.learner.ask(NOW, RECENT)
    assert world.learner.fit() is None
    assert world.learner.figures()["labels_answered"] == 20
    assert world.learner.figures()["comparisons"] == 0


def test_a_learner_restored_from_its_state_goes_on_exactly(tmp_path):
    (tmp_path / "one").mkdir()
    one = World(tmp_path / "one")
    one.live(3)
    for step in (0, 100):
        one.once_round(step)
    state, envs = one.learner.state(), one.collector.state()
    expected = [one.once_round(step) for step in (200, 300)]
    one.store.close()

    other = World(tmp_path / "one", seed=5)
    other.learner.load_state(state)
    other.collector.load_state(envs)
    for rewards, step in zip(expected, (200, 300), strict=True):
        np.testing.assert_array_equal(other.once_round(step), rewards)


def test_a_comparison_asked_again_after_a_crash_finds_its_answer(tmp_path):
    """The teacher would now say otherwise; the answer that was given stands."""
    before = World(tmp_path)
    before.live(3)
    before.learner.ask(NOW, RECENT)
    given = before.store.answered_comparisons(1)
    before.store.close()
    after = World(tmp_path, teacher=lambda left, right, circumstances: Answer.EQUAL)
    after.live(3)
    after.learner.ask(NOW, RECENT)
    assert after.store.answered_comparisons(1) == given
