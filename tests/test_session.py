import json

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.answer import Answer
from rl_teacher.common.state_dict import array_to_text, text_to_array
from rl_teacher.config.experiment import LabelerWeights, PredictorConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.queue import QueryQueue, RecentEpisodes, Respondent, Shelf
from rl_teacher.queries.schedules import Budget, Progress, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.session import Asking, Fitting, RewardLearner, Subject, TrueReward
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.teachers.synthetic import ORACLE
from rl_teacher.teachers.teacher import Teacher

NOW = Progress(0, 0.0)
RECENT = RecentEpisodes(1.0, 10.0)


class World:
    """A learner, its store, and rollouts of random actions to feed it."""

    def __init__(
        self,
        folder,
        teacher: Teacher = ORACLE,
        seed=0,
        weights: LabelerWeights = "equal",
        label_buffer=0,
    ):
        self.venv = make_vector("ShortReacher-v1", 8)
        self.collector = Collector(self.venv, seed=seed)
        self.store = Store.open(folder / "labels.sqlite")
        experiment_id = self.store.experiments.ensure("test", "ShortReacher-v1", {})
        space = InputSpace.from_spaces(
            self.venv.single_observation_space, self.venv.single_action_space
        )
        budget = Budget(total=60, pretraining=20, num_steps=1000)
        shelf = Shelf(self.store, experiment_id, SegmentFiles(folder / "segments"))
        self.query_queue = QueryQueue(shelf, Respondent(teacher, "synthetic:oracle", 0))
        self.learner = RewardLearner(
            Subject("ShortReacher-v1", space, 8, 10),
            Asking(selector("disagreement"), schedule("annealed"), budget, 10),
            Fitting(
                PredictorConfig(hidden=(16, 16), label_buffer=label_buffer), 100, False, 0, weights
            ),
            self.query_queue,
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
    assert world.store.experiments.counts(1).answered == 20


def test_it_asks_nothing_before_anything_was_lived(world):
    assert world.learner.ask(NOW, RECENT) == 0


def test_what_it_asked_is_on_disk_and_answered_by_the_true_return(world):
    world.live(3)
    world.learner.ask(NOW, RECENT)
    for each in world.store.comparisons.answered(1):
        left, right = map(world.query_queue.segment, (each.left_hash, each.right_hash))
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
    question = list(world.query_queue._questions.values())[4]
    world.store.labels.add(question.id, Answer.LEFT, "somebody")
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


def test_a_learner_that_forgets_old_labels_goes_on_exactly(tmp_path):
    """Of 60 labels 16 are kept; the predictor is fitted to them as new ones come."""
    one = World(tmp_path, label_buffer=16)
    one.live(3)
    for step in (0, 100):
        one.once_round(step)
    state, envs = one.learner.state(), one.collector.state()
    expected = [one.once_round(step) for step in (200, 900)]
    assert one.learner.figures()["comparisons"] == 16
    assert one.learner.figures()["labels_answered"] > 50
    assert one.learner.figures()["fits"] > 2
    one.store.close()

    other = World(tmp_path, seed=5, label_buffer=16)
    other.learner.load_state(state)
    other.collector.load_state(envs)
    for rewards, step in zip(expected, (200, 900), strict=True):
        np.testing.assert_array_equal(other.once_round(step), rewards)


def test_a_comparison_asked_again_after_a_crash_finds_its_answer(tmp_path):
    """The teacher would now say otherwise; the answer that was given stands."""
    before = World(tmp_path)
    before.live(3)
    before.learner.ask(NOW, RECENT)
    given = before.store.comparisons.answered(1)
    before.store.close()
    after = World(tmp_path, teacher=lambda left, right, circumstances: Answer.EQUAL)
    after.live(3)
    after.learner.ask(NOW, RECENT)
    assert after.store.comparisons.answered(1) == given


# --- several labelers ---


def nobody(left, right, circumstances):
    """Everything is answered through the store."""


def survey_world(folder, weights: LabelerWeights = "equal"):
    world = World(folder, teacher=nobody, weights=weights)
    world.live(3)
    world.learner.ask(NOW, RECENT)
    return world


def say(world, who, *answers):
    """Their answers to the first comparisons, in order; None leaves one out."""
    for question, answer in zip(world.query_queue.asked(), answers, strict=False):
        if answer is not None:
            world.store.labels.add(question.id, answer, who)


def targets(world):
    return world.learner._labels.targets.tolist()


LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer


def test_a_second_opinion_changes_the_target_in_place_and_the_next_fit_starts_warm(tmp_path):
    world = survey_world(tmp_path)
    say(world, "ann", LEFT, LEFT, RIGHT)
    world.learner.fit()
    labels = world.learner._labels
    say(world, "bob", None, RIGHT)
    assert world.learner.fit() is not None
    assert world.learner._labels is labels
    assert targets(world) == [1, 0.5, 0]
    assert world.learner.figures()["comparisons"] == 3


def test_who_thinks_better_of_an_answer_has_everything_learned_anew(tmp_path):
    world = survey_world(tmp_path)
    say(world, "ann", LEFT, LEFT)
    say(world, "bob", LEFT)
    world.learner.fit()
    labels = world.learner._labels
    say(world, "bob", RIGHT)
    assert world.learner.fit() is not None
    assert world.learner._labels is not labels
    assert targets(world) == [0.5, 1]


def test_an_excluded_labelers_answers_are_unlearned_and_learned_again(tmp_path):
    world = survey_world(tmp_path)
    say(world, "ann", LEFT)
    say(world, "bob", RIGHT, RIGHT)
    world.learner.fit()
    world.store.labelers.set_excluded("bob", True)
    assert world.learner.fit() is not None
    assert targets(world) == [1]
    world.store.labelers.set_excluded("bob", False)
    assert world.learner.fit() is not None
    assert targets(world) == [0.5, 0]


def test_who_cannot_tell_leaves_the_comparison_to_others(tmp_path):
    world = survey_world(tmp_path)
    say(world, "ann", CANNOT_TELL, LEFT)
    world.learner.fit()
    assert targets(world) == [1]
    say(world, "bob", RIGHT)
    assert world.learner.fit() is not None
    assert targets(world) == [1, 0]


def test_reliable_labelers_count_more_where_that_is_wanted(tmp_path):
    """Cid contradicts the others everywhere, so of the last comparison Ann is believed."""
    world = survey_world(tmp_path, weights="reliability")
    say(world, "ann", *[LEFT] * 9)
    say(world, "bob", *[LEFT] * 8)
    say(world, "cid", *[RIGHT] * 9)
    world.learner.take_answers()
    assert all(target > 0.9 for target in targets(world)[:8])
    assert targets(world)[8] > 0.7


def test_gold_tells_who_is_right_where_labelers_contradict_each_other(tmp_path):
    world = survey_world(tmp_path, weights="reliability")
    say(world, "ann", *[LEFT] * 9)
    say(world, "bob", *[RIGHT] * 9)
    for question in world.query_queue.asked()[:8]:
        world.store.comparisons.set_gold(question.id, RIGHT)
    world.learner.take_answers()
    assert all(target < 0.2 for target in targets(world))


def test_with_equal_weights_it_is_the_mean(tmp_path):
    world = survey_world(tmp_path)
    say(world, "ann", LEFT, EQUAL)
    say(world, "bob", LEFT, RIGHT)
    say(world, "cid", RIGHT, CANNOT_TELL)
    world.learner.take_answers()
    assert targets(world) == pytest.approx([2 / 3, 0.25])


@pytest.mark.parametrize("weights", ["equal", "reliability"])
def test_restored_labels_have_the_order_the_targets_and_the_pace_they_had(tmp_path, weights):
    world = survey_world(tmp_path, weights)
    say(world, "ann", None, None, LEFT, RIGHT)
    world.learner.fit()
    say(world, "bob", RIGHT, EQUAL, RIGHT)
    world.learner.plan(Progress(0, 5.0), 1.5, 77)
    world.learner.fit()
    state = world.learner.state()
    world.store.close()
    other = World(tmp_path, teacher=nobody, weights=weights)
    other.learner.load_state(state)
    assert targets(other) == targets(world)
    np.testing.assert_array_equal(other.learner._labels.rows, world.learner._labels.rows)
    assert other.learner._budget == world.learner._budget
    assert other.learner.fit() is None


def of_an_older_version(state):
    """Before several people could label, a question had one answer, and the order was not kept."""
    questions = json.loads(array_to_text(state["query_queue/questions"]))
    single = [[left, right, next(iter(said.values()), None)] for left, right, said in questions]
    report = json.loads(array_to_text(state["self/report"]))
    del report["calibration"]
    newer = {"self/budget", "self/learned", "self/num_more", "query_queue/excluded"}
    return {name: array for name, array in state.items() if name not in newer} | {
        "query_queue/questions": text_to_array(json.dumps(single)),
        "self/report": text_to_array(json.dumps(report)),
    }


def test_a_learner_goes_on_exactly_from_an_older_versions_state(tmp_path):
    one = World(tmp_path)
    one.live(3)
    one.once_round(0)
    state, envs = of_an_older_version(one.learner.state()), one.collector.state()
    expected = [one.once_round(step) for step in (100, 200)]
    one.store.close()
    other = World(tmp_path, seed=5)
    other.learner.load_state(state)
    other.collector.load_state(envs)
    for rewards, step in zip(expected, (100, 200), strict=True):
        np.testing.assert_array_equal(other.once_round(step), rewards)


def test_another_number_of_labels_is_asked_at_once_but_never_fewer_than_before_training(world):
    """Annealed, 60 in all, 20 first: 57 are due at half time; of 100 in all 93, of 10 only 20."""
    world.live(3)
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    for total, due in ((None, 57), (100, 93), (10, 20)):
        world.learner.plan(Progress(500, 0.0), None, total)
        world.learner.ask(Progress(500, 0.0), RECENT)
        assert world.learner.figures()["labels_desired"] == due


def test_findings_are_predicted_returns_of_shown_segments_and_the_bins_of_the_last_fit(world):
    world.live(3)
    assert world.learner.diagnostics({"x"}) is None
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    question = world.query_queue.asked()[0]
    diagnostics = world.learner.diagnostics({question.left, question.right})
    assert diagnostics.predicted_returns.keys() == {question.left, question.right}
    segment = world.query_queue.segment(question.left)
    predicted = world.learner.predictor(segment.observations, segment.actions).sum()
    assert diagnostics.predicted_returns[question.left] == pytest.approx(predicted, rel=1e-4)
    assert sum(each["count"] for each in diagnostics.calibration) > 0


def test_looking_at_findings_changes_nothing(world):
    world.live(3)
    world.learner.ask(NOW, RECENT)
    world.learner.fit()
    before = world.learner.state()
    world.learner.diagnostics({each.left for each in world.query_queue.asked()})
    after = world.learner.state()
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
