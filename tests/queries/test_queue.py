from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.queries.queue import (
    NamedTeacher,
    QueryQueue,
    QueryStore,
)
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import NewRanking, RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.teachers.teacher import human_teacher
from tests.queries.sorting import Display

LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer
ENV_ID = "ShortReacher-v1"
RECENT = 1.0, 10.0


def a_segment(number):
    steps = np.full((6, 1), number, np.float32)
    return Segment(ENV_ID, steps, steps, steps[:, 0], steps.astype(np.float64))


class Survey:
    """Queue with three queries that several labelers answer through the store."""

    def __init__(self, folder, database):
        self.store = Store.open(database)
        self.experiment_id = self.store.experiments.ensure("mine", ENV_ID, {})
        files = SegmentFiles(folder / "segments")
        self.query_store = QueryStore(self.store, self.experiment_id, files)
        self.queue = self.new_queue()
        pairs = [(a_segment(2 * i), a_segment(2 * i + 1)) for i in range(3)]
        self.queue.ask(pairs, 0, RECENT)
        self.ids = [each.id for each in self.queue.asked()]

    def new_queue(self):
        return QueryQueue(self.query_store, NamedTeacher(human_teacher, "", 0))

    def show_on(self, display):
        """Continue with a queue whose comparisons are displayed."""
        self.query_store = replace(self.query_store, display=display)
        state = self.queue.state()
        self.queue = self.new_queue()
        self.queue.load_state(state, ENV_ID)

    def publish(self):
        """Add the media of all clips."""
        hashes = [each for query in self.queue.asked() for each in query.segments]
        clip = RenderedClip(ENV_ID, 6, "video", "clips/any.mp4", None, 6, 10.0)
        self.store.clips.publish(dict.fromkeys(hashes, clip))

    def answer(self, labeler, index, answer):
        self.store.labels.add(self.ids[index], answer, labeler)

    def answers(self, index, queue=None):
        queue = queue or self.queue
        return sorted(queue.answers_to(queue.asked()[index]).values())


@pytest.fixture
def survey(tmp_path, database):
    survey = Survey(tmp_path, database)
    yield survey
    survey.store.close()


def test_pair_that_occurs_twice_in_a_batch_is_answered_once(survey):
    teacher = NamedTeacher(lambda *_: LEFT, "synthetic:left", 0)
    queue = QueryQueue(survey.query_store, teacher)
    pair = a_segment(8), a_segment(9)
    queue.ask([pair, pair], 0, RECENT)
    queue.read_answers()
    assert queue.num_asked == queue.num_answered == 2
    assert len(survey.store.labels.since(survey.experiment_id, 0)) == 1


def test_answers_of_several_labelers_are_read_once(survey):
    survey.answer("ann", 1, LEFT)
    assert survey.queue.read_answers()
    survey.answer("bob", 1, RIGHT)
    assert survey.queue.read_answers()
    assert survey.answers(1) == [LEFT, RIGHT]
    assert survey.queue.num_answered == 1
    assert not survey.queue.read_answers()


def test_changed_answer_keeps_other_labelers_answers(survey):
    survey.answer("ann", 0, LEFT)
    survey.answer("bob", 0, LEFT)
    survey.queue.read_answers()
    survey.answer("ann", 0, RIGHT)
    assert survey.queue.read_answers()
    assert survey.answers(0) == [LEFT, RIGHT]


def test_query_waits_again_after_only_answer_is_withdrawn(survey):
    for labeler, index in (("ann", 0), ("ann", 1), ("bob", 1)):
        survey.answer(labeler, index, LEFT)
    survey.queue.read_answers()
    survey.answer("ann", 0, None)
    survey.answer("ann", 1, None)
    assert survey.queue.read_answers()
    assert survey.queue.num_waiting == 2
    assert survey.answers(0) == []
    assert survey.answers(1) == [LEFT]


def test_answers_of_excluded_labeler_are_ignored_until_included_again(survey):
    for labeler, index in (("ann", 0), ("bob", 0), ("bob", 1)):
        survey.answer(labeler, index, LEFT)
    survey.queue.read_answers()
    survey.store.labelers.set_excluded("bob", True)
    assert survey.queue.read_answers()
    assert (survey.answers(0), survey.answers(1)) == ([LEFT], [])
    assert survey.queue.num_waiting == 2
    survey.store.labelers.set_excluded("bob", False)
    assert survey.queue.read_answers()
    assert (survey.answers(0), survey.answers(1)) == ([LEFT, LEFT], [LEFT])
    assert survey.queue.num_waiting == 1


def test_saved_state_contains_each_labelers_answers(survey):
    survey.answer("ann", 0, LEFT)
    survey.answer("bob", 0, EQUAL)
    survey.answer("bob", 2, CANNOT_TELL)
    survey.queue.read_answers()
    survey.store.labelers.set_excluded("bob", True)
    state = survey.queue.state()
    other = survey.new_queue()
    other.load_state(state, ENV_ID)
    assert [survey.answers(index, other) for index in range(3)] == [
        [EQUAL, LEFT],
        [],
        [CANNOT_TELL],
    ]
    assert other.num_waiting == 1
    other.read_answers()
    assert survey.answers(0, other) == [LEFT]


def test_saved_state_contains_exclusions(survey):
    survey.answer("bob", 0, LEFT)
    survey.queue.read_answers()
    survey.store.labelers.set_excluded("bob", True)
    survey.queue.read_answers()
    other = survey.new_queue()
    other.load_state(survey.queue.state(), ENV_ID)
    assert other.num_answered == 0
    other.read_answers()
    assert other.num_answered == 0


def test_answer_to_comparison_of_killed_run_is_read_although_it_was_not_recovered(survey, tmp_path):
    """Its clips are rendered after the recovery, because another comparison shows them as well."""
    experiment_id = survey.store.experiments.ensure("mine", ENV_ID, {})
    segments = SegmentFiles(tmp_path / "segments")
    query_store = QueryStore(survey.store, experiment_id, segments, Display())
    queue = QueryQueue(query_store, NamedTeacher(human_teacher, "", 0))
    queue.recover()
    assert queue.num_asked == 0
    survey.answer("ann", 1, LEFT)
    queue.read_answers()
    assert [each.id for each in queue.asked() if queue.answers_to(each)] == [survey.ids[1]]


def test_recovered_comparison_that_is_asked_again_counts_once(survey):
    survey.answer("ann", 0, LEFT)
    queue = survey.new_queue()
    queue.recover()
    for num_asked in (1, 2):
        queue.ask([(a_segment(0), a_segment(1))], 0, RECENT)
        assert queue.num_asked == num_asked


def test_ranking_of_clips_is_taken_over_and_survives_kill_and_resume(survey, tmp_path):
    """A ranking of two comparisons' clips adds four comparisons that the trainer did not ask."""
    experiment_id = survey.store.experiments.ensure("mine", ENV_ID, {})
    segments = SegmentFiles(tmp_path / "segments")
    query_store = QueryStore(survey.store, experiment_id, segments, Display())

    def resume(state):
        queue = QueryQueue(query_store, NamedTeacher(human_teacher, "", 0))
        queue.load_state(state, ENV_ID)
        queue.recover()
        return queue

    queue = resume(survey.queue.state())
    before = queue.state()
    clips = [side for each in survey.queue.asked()[:2] for side in each.segments]
    rendered = {
        each: RenderedClip(ENV_ID, 6, "video", f"clips/{each}.mp4", None, 6, 10.0)
        for query in survey.queue.asked()
        for each in query.segments
    }
    survey.store.clips.publish(rendered)
    survey.store.leases.claim(experiment_id, "ann", 2)
    ranking = NewRanking("ann", uuid4(), [clips[:1], clips[1:3], clips[3:]])
    ids = survey.store.rankings.add(experiment_id, ranking)

    queue.read_answers()
    assert all(queue.answers_to(queue.query(each)) for each in ids)
    assert (queue.num_asked, queue.num_answered, queue.num_waiting) == (7, 6, 1)
    # Killed before and after a checkpoint that contains the ranking.
    for state in (before, queue.state()):
        resumed = resume(state)
        resumed.read_answers()
        assert (resumed.num_asked, resumed.num_answered) == (7, 6)
        assert [resumed.answers_to(resumed.query(each)) for each in ids] == [
            queue.answers_to(queue.query(each)) for each in ids
        ]
    survey.store.rankings.withdraw(experiment_id, "ann", ranking.request_id)
    queue.read_answers()
    assert (queue.num_asked, queue.num_answered) == (7, 0)


@pytest.fixture
def shown_survey(survey, tmp_path):
    """A survey whose comparisons people see, and its display."""
    display = Display()
    survey.show_on(display)
    return survey, display


def test_pair_with_clip_that_cannot_be_shown_is_not_asked(shown_survey):
    survey, display = shown_survey
    display.gone = {a_segment(10).content_hash}
    pairs = [(a_segment(10), a_segment(11)), (a_segment(12), a_segment(13))]
    survey.queue.ask(pairs, 0, RECENT)
    assert survey.queue.num_asked == 3 + 1
    assert survey.queue.asked()[-1].left == a_segment(12).content_hash


def test_waiting_comparison_whose_clip_is_lost_is_withdrawn(shown_survey):
    survey, display = shown_survey
    survey.publish()
    [claimed] = survey.store.leases.claim(survey.experiment_id, "ann", 1)
    display.gone = {claimed.comparison.left.content_hash}
    survey.queue.withdraw_hidden()
    assert (survey.queue.num_asked, survey.queue.num_waiting) == (2, 2)
    claimed_ids = {
        each.comparison.id for each in survey.store.leases.claim(survey.experiment_id, "ann", 5)
    }
    assert claimed_ids == set(survey.ids) - {claimed.comparison.id}
    survey.queue.recover()
    assert survey.queue.num_asked == 2


def test_answered_comparison_whose_clip_is_lost_keeps_its_answer(shown_survey):
    survey, display = shown_survey
    survey.publish()
    survey.answer("ann", 0, LEFT)
    display.gone = {survey.queue.asked()[0].left}
    survey.queue.withdraw_hidden()
    survey.queue.read_answers()
    assert survey.answers(0) == [LEFT]
    assert survey.queue.num_asked == 3


@pytest.mark.parametrize("shows_others", [True, False])
def test_segments_are_shared_only_if_they_can_be_shown(survey, tmp_path, shows_others):
    shown = survey.queue.asked()[0].left
    clip = RenderedClip(ENV_ID, 6, "video", f"clips/{shown}.mp4", None, 6, 10.0)
    survey.store.clips.publish({shown: clip})
    own_id = survey.store.experiments.ensure("other", ENV_ID, {})
    segments = SegmentFiles(tmp_path / "segments")
    display = Display(shows_others=shows_others)
    query_store = QueryStore(survey.store, own_id, segments, display)
    queue = QueryQueue(query_store, NamedTeacher(human_teacher, "", 0))
    shared = {each.content_hash for each in queue.shared_segments(ENV_ID, 6)}
    assert shown in shared
    assert len(shared) == (6 if shows_others else 1)
    display.gone = {shown}
    assert len(queue.shared_segments(ENV_ID, 6)) == (6 if shows_others else 0)
