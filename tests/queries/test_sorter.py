"""Tests of comparisons that sort clips, asked through a real store."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.clips.answer import MIRRORED, Answer
from rl_teacher.clips.segment import SEGMENT_ARRAYS
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.queries.pairs import SHARED_EVERY
from rl_teacher.queries.sorter import consensus
from rl_teacher.teachers.registry import teacher_named
from rl_teacher.teachers.teacher import human_teacher
from tests.queries.sorting import ENV_ID, SORT, SPACE, TREE, Sorting, recorded

LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer


@pytest.fixture
def sorting(tmp_path, database):
    made = []

    def make(*arguments):
        made.append(Sorting(tmp_path, database, *arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


def rank_correlation(found, truth):
    signs = [np.sign(np.subtract.outer(each, each)) for each in (found, truth)]
    return np.sum(signs[0] * signs[1]) / (len(truth) * (len(truth) - 1))


def saved(sort):
    """Return what a checkpoint has."""
    generator = copy.deepcopy(sort.sorter._rng.bit_generator.state)
    return sort.queue.state(), sort.sorter.state(), generator


def resume(sort, settings, checkpoint):
    """Start again from a checkpoint."""
    queue, sorter, generator = checkpoint
    sort.start(settings)
    sort.queue.load_state(queue, ENV_ID)
    sort.sorter.load_state(sorter)
    sort.sorter._rng.bit_generator.state = generator


def test_tree_sorts_all_clips_with_few_comparisons(sorting):
    tree = sorting(TREE)
    while not tree.queue.num_asked or tree.sorter._order.pending:
        assert tree.ask(5)
    truth = tree.true_returns()
    order = [clip for (clip,) in tree.sorter._order.groups]
    assert sorted(truth) == truth[order].tolist()
    assert len(order) == TREE.n_clips
    assert tree.queue.num_asked <= 20 * (math.log2(20) + 1)


def test_tree_that_has_all_clips_compares_neighbours(sorting):
    tree = sorting(replace(TREE, n_clips=4))
    tree.sort(9)
    assert tree.sorter.num_clips == 4
    assert tree.queue.num_asked == 9


def test_ranking_of_neighbours_agrees_with_true_returns(sorting):
    sort = sorting(SORT)
    sort.sort(160)
    assert sort.sorter.num_clips == 21
    sort.sorter._read()
    assert rank_correlation(sort.sorter._fit(None), sort.true_returns()) > 0.9


@pytest.mark.parametrize(
    ("objective", "discount", "scores"),
    [("preferences", 1.0, [5.0, 2.0]), ("preferences", 0.5, [1.9375, 1.5]), ("rank", 1.0, [1, 1])],
)
def test_clip_that_ended_early_has_the_predicted_score_of_the_objective(
    sorting, monkeypatch, objective, discount, scores
):
    """The predicted reward of each step is 1."""
    sort = sorting(SORT)
    config = PredictorConfig(objective=objective, segment_discount=discount)
    sort.predictor = RewardPredictor(SPACE, config)
    monkeypatch.setattr(
        sort.predictor, "member_rewards", lambda rows: np.ones((3, *rows.shape[:-1]), np.float32)
    )
    sort.start(SORT)
    [whole] = sort.recorder.segments(sort.recorder.cut(1, np.random.default_rng(0)))
    ended = replace(whole, **{name: getattr(whole, name)[:2] for name in SEGMENT_ARRAYS})
    for clip in (whole, ended):
        sort.sorter.add_clip(clip)
    np.testing.assert_allclose(sort.sorter._predicted_scores(), scores)


@pytest.mark.parametrize("settings", [SORT, TREE])
@pytest.mark.parametrize("name", ["noisy", "equal"])
def test_teacher_who_errs_or_ties_sorts_better_than_chance(sorting, settings, name):
    sort = sorting(settings, teacher_named(name))
    sort.sort(60)
    sort.sorter._read()
    assert sort.queue.num_asked == 60
    qualities = sort.sorter._fit(None)
    assert rank_correlation(qualities, sort.true_returns()) > 0.3


@pytest.mark.parametrize("settings", [SORT, TREE])
def test_comparisons_wait_for_answers_on_which_they_depend(sorting, settings):
    sort = sorting(settings, human_teacher)
    asked = sort.ask(10)
    while more := sort.ask(10):
        asked += more
    clips = [each.content_hash for pair in asked for each in pair]
    assert len(set(clips)) == len(clips)
    assert sort.queue.num_waiting == len(asked)
    for each in sort.queue.asked():
        sort.store.labels.add(each.id, LEFT, "ann")
    sort.queue.read_answers()
    assert sort.ask(10)


@pytest.mark.parametrize("settings", [SORT, TREE])
def test_resumed_sorter_asks_the_same_comparisons(sorting, settings):
    sort = sorting(settings)
    sort.sort(24)
    checkpoint = saved(sort)
    expected = sort.sorter.choose(9, is_fitted=True)
    resume(sort, settings, checkpoint)
    found = sort.sorter.choose(9, is_fitted=True)
    assert len(found) > 1
    assert [[s.content_hash for s in pair] for pair in found] == [
        [s.content_hash for s in pair] for pair in expected
    ]


def test_resumed_tree_whose_answers_came_in_another_order_has_equal_order_and_fit(sorting):
    settings = replace(TREE, n_clips=12)
    tree = sorting(settings, human_teacher)
    while not tree.queue.num_asked or tree.sorter._order.pending:
        tree.ask(5)
        for query in reversed(tree.queue.asked()):
            if not tree.queue.answers_to(query):
                left, right = (tree.queue.segment(each).true_return for each in query.segments)
                tree.store.labels.add(query.id, LEFT if left > right else RIGHT, "ann")
                tree.queue.read_answers()
                tree.sorter.choose(1, is_fitted=False)

    groups, qualities = copy.deepcopy(tree.sorter._order.groups), tree.sorter._fit(None)
    resume(tree, settings, saved(tree))
    tree.sorter._read()
    assert tree.sorter._order.groups == groups
    np.testing.assert_array_equal(tree.sorter._fit(None), qualities)


@pytest.mark.parametrize("settings", [SORT, TREE])
def test_sorter_without_checkpoint_takes_over_comparisons_of_killed_run(sorting, settings):
    sort = sorting(settings)
    sort.sort(12)
    compared = {each for query in sort.queue.asked() for each in query.segments}
    sort.start(settings)
    sort.queue.recover()
    sort.queue.read_answers()
    assert sort.ask(3)
    assert compared <= set(sort.clips)


def test_changed_answer_moves_clip_in_tree(sorting):
    tree = sorting(replace(TREE, n_clips=2), human_teacher)
    tree.ask(1)
    (query,) = tree.queue.asked()
    for answer, groups in ((LEFT, [[0], [1]]), (RIGHT, [[1], [0]]), (EQUAL, [[0, 1]])):
        tree.store.labels.add(query.id, answer, "ann")
        tree.queue.read_answers()
        tree.ask(1)
        assert tree.sorter._order.groups == groups
    tree.store.labels.add(query.id, None, "ann")
    tree.queue.read_answers()
    tree.ask(1)
    assert list(tree.sorter._order.pending) == [1]


def test_ranking_follows_the_labeler_whose_answers_to_gold_comparisons_are_right(sorting):
    sort, true = sorting(SORT, human_teacher), {}
    while sort.queue.num_asked < 12 and (pairs := sort.ask(4)):
        for query in sort.queue.asked()[-len(pairs) :]:
            left, right = (sort.queue.segment(each).true_return for each in query.segments)
            true[query.id] = LEFT if left > right else RIGHT
            sort.store.labels.add(query.id, true[query.id], "ann")
            sort.store.labels.add(query.id, MIRRORED[true[query.id]], "bob")
        sort.queue.read_answers()
    sort.sorter._read()
    qualities = sort.sorter._fit(None)
    np.testing.assert_allclose(qualities, 0.0, atol=1e-3)
    for comparison_id, answer in [*true.items()][:8]:
        sort.store.comparisons.set_gold(comparison_id, answer)
    qualities = sort.sorter._fit(None)
    assert rank_correlation(qualities, sort.true_returns()) > 0.5


@pytest.mark.parametrize("settings", [SORT, replace(TREE, n_clips=12)])
@pytest.mark.parametrize("lost", ["every second clip", "every clip"])
def test_clips_that_cannot_be_shown_are_replaced(sorting, settings, lost):
    sort = sorting(settings)
    sort.sort(20)
    clips = set(sort.clips[:: 2 if lost == "every second clip" else 1])
    sort.lose_media(clips)
    sort.sort(60)
    asked = [each for query in sort.queue.asked()[20:] for each in query.segments]
    assert len(asked) == 2 * 40
    assert not clips & set(asked)
    if settings.queries == "tree":
        assert len(set(sort.clips) - sort.queue.hidden) == 12


def test_clips_of_other_experiments_join(sorting):
    shared = recorded(seed=1)
    segments = shared.segments(shared.cut(3, np.random.default_rng(0)))
    sort = sorting(replace(SORT, n_clips=SORT.total), None, segments)
    sort.sort(16)
    positions = [sort.clips.index(each.content_hash) for each in segments]
    assert sorted(positions) == [SHARED_EVERY * i for i in range(3)]


def test_held_out_clips_of_other_experiments_are_not_sorted(sorting):
    shared = recorded(seed=1)
    segments = shared.segments(shared.cut(3, np.random.default_rng(0)))
    sort = sorting(replace(SORT, n_clips=SORT.total), None, segments)
    first, *others = (each.content_hash for each in segments)
    sort.sorter.leave_out({first}, are_shared=True)
    sort.sort(16)
    assert first not in sort.clips
    assert set(others) <= set(sort.clips)


@given(st.lists(st.sampled_from(Answer), min_size=1, max_size=5))
def test_consensus_is_the_side_of_the_majority(answers):
    found = consensus(dict(enumerate(answers)))
    margin = answers.count(LEFT) - answers.count(RIGHT)
    if set(answers) == {CANNOT_TELL}:
        assert found is CANNOT_TELL
    else:
        assert found is (LEFT if margin > 0 else RIGHT if margin < 0 else EQUAL)
