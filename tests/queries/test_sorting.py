import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.clips.answer import Answer
from rl_teacher.queries.sorting import (
    MAX_DISTANCE,
    InsertionOrder,
    neighbour_pairs,
)

LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer
NUM_CLIPS = 8
CLIPS = st.integers(0, NUM_CLIPS - 1)
PAIRS = st.lists(CLIPS, min_size=2, max_size=2, unique=True)
ANY_ANSWERS = st.lists(
    st.builds(lambda pair, answer: (*pair, answer), PAIRS, st.sampled_from(Answer)), max_size=40
)
TRUTHS = st.lists(st.integers(0, 5), min_size=NUM_CLIPS, max_size=NUM_CLIPS)
"""Qualities of the clips, some of them equal."""


def true_answer(truth, left, right):
    if truth[left] == truth[right]:
        return EQUAL
    return LEFT if truth[left] > truth[right] else RIGHT


def replay(num_clips, answers):
    """Return the order of clips after these answers."""
    order = InsertionOrder(num_clips)
    for answer in answers:
        order.add_answer(*answer)
    return order


def finish(order, truth, answers=None):
    """Answer one question after the other until every clip has a place; return all answers."""
    answers = [] if answers is None else answers
    while order.pending:
        left, right = next(order.questions())
        answers.append((left, right, true_answer(truth, left, right)))
        order.add_answer(*answers[-1])
    return answers


def assert_valid(order, num_clips, answers):
    placed = [clip for group in order.groups for clip in group]
    assert sorted([*placed, *order.pending]) == list(range(num_clips))
    questions = list(order.questions())
    assert len({clip for pair in questions for clip in pair}) == 2 * len(questions)
    asked = {frozenset(answer[:2]) for answer in answers}
    for clip, pivot in questions:
        assert clip in order.pending
        assert pivot in placed
        assert frozenset((clip, pivot)) not in asked
    assert bool(questions) == bool(order.pending)


def assert_sorted(order, truth):
    """Check that groups are those of equal clips, from the worst to the best."""
    qualities = [{truth[clip] for clip in group} for group in order.groups]
    assert [len(each) for each in qualities] == [1] * len(qualities)
    assert [min(each) for each in qualities] == sorted({truth[clip] for clip in range(len(truth))})


# --- small cases ---


@pytest.mark.parametrize(
    ("answer", "groups"),
    [(LEFT, [[0], [1]]), (RIGHT, [[1], [0]]), (EQUAL, [[0, 1]]), (CANNOT_TELL, [[1], [0]])],
)
def test_answer_places_second_clip(answer, groups):
    assert replay(2, [(1, 0, answer)]).groups == groups


def test_cannot_tell_asks_about_another_clip_and_is_no_tie():
    chain = [(i, i - 1, LEFT) for i in (1, 2)]
    order = replay(4, [*chain, (3, 1, CANNOT_TELL)])
    ((clip, pivot),) = order.questions()
    assert clip == 3
    assert pivot != 1
    order.add_answer(3, 2, LEFT)
    assert order.groups == [[0], [1], [2], [3]]


def test_answer_that_contradicts_bounds_is_ignored():
    """Clip 3 is above 1, so that it cannot be below 0."""
    chain = [(1, 0, LEFT), (2, 1, LEFT)]
    order = replay(4, [*chain, (3, 1, LEFT), (3, 0, RIGHT)])
    assert order.bounds(3) == (2, 3, None)


# --- number of answers ---


@pytest.mark.parametrize("num_clips", [1, 2, 3, 7, 8, 100, 1_000])
def test_binary_insertion_takes_at_most_log2_plus_1_answers_per_clip(num_clips):
    truth = np.random.default_rng(num_clips).permutation(num_clips)
    order = InsertionOrder(num_clips)
    answers = finish(order, truth)
    assert_sorted(order, truth)
    num_answers = np.bincount([answer[0] for answer in answers], minlength=num_clips)
    assert num_answers.max() <= math.log2(num_clips) + 1


def test_ten_concurrent_labelers_sort_without_asking_about_a_clip_twice_at_a_time():
    num_clips, num_labelers = 200, 10
    rng = np.random.default_rng(0)
    truth = rng.permutation(num_clips)
    order, in_flight, num_answers = InsertionOrder(num_clips), [], 0
    widest = 0
    while order.pending:
        busy = {clip for pair in in_flight for clip in pair}
        in_flight += islice(order.questions(busy), num_labelers - len(in_flight))
        clips = [clip for pair in in_flight for clip in pair]
        assert len(set(clips)) == len(clips)
        widest = max(widest, len(in_flight))
        left, right = in_flight.pop(rng.integers(len(in_flight)))
        order.add_answer(left, right, true_answer(truth, left, right))
        num_answers += 1
    assert_sorted(order, truth)
    assert widest == num_labelers
    assert num_answers <= (math.log2(num_clips) + 1) * num_clips


# --- properties ---


@given(ANY_ANSWERS)
def test_any_answers_leave_valid_order(answers):
    order = InsertionOrder(NUM_CLIPS)
    for number, answer in enumerate(answers, 1):
        order.add_answer(*answer)
        assert_valid(order, NUM_CLIPS, answers[:number])


@given(TRUTHS, st.lists(PAIRS, max_size=30), st.randoms())
def test_consistent_answers_sort_clips_in_any_sequence(truth, pairs, random):
    """Arbitrary pairs, the questions of the insertion, and then all of them in another sequence."""
    answers = [(*pair, true_answer(truth, *pair)) for pair in pairs]
    order = replay(NUM_CLIPS, answers)
    finish(order, truth, answers)
    assert_sorted(order, truth)
    random.shuffle(answers)
    replayed = replay(NUM_CLIPS, answers)
    finish(replayed, truth, answers)
    assert_sorted(replayed, truth)


@given(TRUTHS, ANY_ANSWERS, st.data())
def test_undone_and_changed_answers_leave_order_of_remaining_ones(truth, wrong, data):
    """Wrong answers mislead the insertion; each is then undone or corrected, in any sequence."""
    answers = list(wrong)
    order = replay(NUM_CLIPS, answers)
    finish(order, truth, answers)
    for number in data.draw(st.permutations(range(len(answers)))):
        left, right, _ = answers[number]
        is_undone = data.draw(st.booleans())
        answer = CANNOT_TELL if is_undone else true_answer(truth, left, right)
        answers[number] = (left, right, answer)
        # An answer that is taken back is as if it had not been given.
        remaining = [each for each in answers if each[2] is not CANNOT_TELL]
        order = replay(NUM_CLIPS, remaining)
        assert_valid(order, NUM_CLIPS, remaining)
    finish(order, truth)
    assert_sorted(order, truth)


# --- neighbours ---


def pairs_of(qualities, asked=(), busy=(), seed=0):
    rng = np.random.default_rng(seed)
    return list(neighbour_pairs(np.asarray(qualities, float), asked, busy, rng))


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)), st.integers(0, 100))
def test_neighbours_are_disjoint_free_and_near(qualities, busy, seed):
    pairs = pairs_of(qualities, busy=busy, seed=seed)
    clips = [clip for pair in pairs for clip in pair]
    assert len(set(clips)) == len(clips)
    assert not busy & set(clips)
    assert all(1 <= abs(qualities[i] - qualities[j]) <= MAX_DISTANCE for i, j in pairs)


def test_pair_asked_least_comes_first():
    asked = [(i, j) for i in range(4) for j in range(i) if {i, j} != {1, 3}]
    first, *_ = pairs_of(np.arange(4), asked)
    assert set(first) == {1, 3}


def test_clips_asked_about_least_come_first():
    """No pair of neighbours has been asked, but clips 0 to 7 have been compared with clip 20."""
    asked = [(20, i) for i in range(8)]
    first, *_ = pairs_of(np.arange(21), asked)
    assert min(first) >= 8
