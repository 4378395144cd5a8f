import json

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.state_dict import array_to_text, text_to_array
from rl_teacher.queries.queue import (
    QueryQueue,
    RecentEpisodes,
    Respondent,
    Shelf,
    library_of,
)
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.teachers.human import through_the_store

LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer
ENV_ID = "ShortReacher-v1"
RECENT = RecentEpisodes(1.0, 10.0)


def a_segment(number):
    steps = np.full((6, 1), number, np.float32)
    return Segment(ENV_ID, steps, steps, steps[:, 0], steps.astype(np.float64))


class Survey:
    """A query_queue with three questions that several people answer through the store."""

    def __init__(self, folder, database):
        self.store = Store.open(database)
        experiment_id = self.store.experiments.ensure("mine", ENV_ID, {})
        self._shelf = Shelf(self.store, experiment_id, SegmentFiles(folder / "segments"))
        self.questions = self.new_questionnaire()
        pairs = [(a_segment(2 * i), a_segment(2 * i + 1)) for i in range(3)]
        self.questions.ask(pairs, 0, RECENT)
        self.ids = [each.id for each in self.questions.asked()]

    def new_questionnaire(self):
        return QueryQueue(self._shelf, Respondent(through_the_store, "", 0))

    def say(self, who, place, answer):
        self.store.labels.add(self.ids[place], answer, who)

    def take(self):
        """What came, as places of questions: new ones, second opinions, and whether to revise."""
        taken = self.questions.take_answers()
        places = ([self.ids.index(each.id) for each in some] for some in (taken.new, taken.more))
        return *places, taken.has_revised

    def answers(self, place, questions=None):
        questions = questions or self.questions
        return sorted(questions.answers_to(questions.asked()[place]).values())


@pytest.fixture
def survey(tmp_path, database):
    survey = Survey(tmp_path, database)
    yield survey
    survey.store.close()


def test_a_first_answer_is_new_and_a_second_labelers_is_an_addition(survey):
    survey.say("ann", 1, LEFT)
    assert survey.take() == ([1], [], False)
    survey.say("bob", 1, RIGHT)
    assert survey.take() == ([], [1], False)
    assert survey.answers(1) == [LEFT, RIGHT]
    assert survey.questions.num_answered == 1
    assert survey.take() == ([], [], False)


def test_answers_of_two_that_come_at_once_are_one_new_question(survey):
    survey.say("ann", 0, LEFT)
    survey.say("bob", 0, LEFT)
    assert survey.take() == ([0], [], False)
    assert survey.answers(0) == [LEFT, LEFT]


def test_who_changes_an_answer_revises_and_nobody_elses_is_touched(survey):
    survey.say("ann", 0, LEFT)
    survey.say("bob", 0, LEFT)
    survey.take()
    survey.say("ann", 0, RIGHT)
    assert survey.take() == ([], [], True)
    assert survey.answers(0) == [LEFT, RIGHT]


def test_an_answer_that_is_given_again_changes_nothing(survey):
    survey.say("ann", 0, LEFT)
    survey.take()
    survey.say("ann", 0, LEFT)
    assert survey.take() == ([], [], False)


def test_an_answer_taken_back_revises_and_the_question_waits_if_it_was_the_only_one(survey):
    for who, place in (("ann", 0), ("ann", 1), ("bob", 1)):
        survey.say(who, place, LEFT)
    survey.take()
    survey.say("ann", 0, None)
    survey.say("ann", 1, None)
    assert survey.take() == ([], [], True)
    assert survey.questions.num_waiting == 2
    assert survey.answers(0) == []
    assert survey.answers(1) == [LEFT]


def test_an_excluded_labelers_answers_count_no_more_and_come_back(survey):
    for who, place in (("ann", 0), ("bob", 0), ("bob", 1)):
        survey.say(who, place, LEFT)
    survey.take()
    survey.store.labelers.set_excluded("bob", True)
    assert survey.take() == ([], [], True)
    assert (survey.answers(0), survey.answers(1)) == ([LEFT], [])
    assert survey.questions.num_waiting == 2
    survey.store.labelers.set_excluded("bob", False)
    assert survey.take() == ([1], [0], False)
    assert survey.questions.num_waiting == 1


def test_what_an_excluded_labeler_answers_is_not_taken_in(survey):
    survey.say("bob", 1, LEFT)
    survey.store.labelers.set_excluded("bob", True)
    assert survey.take() == ([], [], False)
    survey.say("bob", 0, LEFT)
    assert survey.take() == ([], [], False)
    assert survey.questions.num_answered == 0


def test_a_saved_state_has_what_each_labeler_had_said_by_then(survey):
    survey.say("ann", 0, LEFT)
    survey.say("bob", 0, EQUAL)
    survey.say("bob", 2, CANNOT_TELL)
    survey.take()
    survey.store.labelers.set_excluded("bob", True)
    state = survey.questions.state()
    other = survey.new_questionnaire()
    other.load_state(state, ENV_ID)
    assert [survey.answers(place, other) for place in range(3)] == [
        [EQUAL, LEFT],
        [],
        [CANNOT_TELL],
    ]
    assert other.num_waiting == 1
    survey.questions = other
    assert survey.take() == ([], [], True)
    assert survey.answers(0) == [LEFT]


def test_an_exclusion_is_part_of_the_saved_state(survey):
    survey.say("bob", 0, LEFT)
    survey.take()
    survey.store.labelers.set_excluded("bob", True)
    survey.take()
    other = survey.new_questionnaire()
    other.load_state(survey.questions.state(), ENV_ID)
    assert other.num_answered == 0
    assert other.take_answers().has_revised is False


def of_an_older_version(state):
    """Before several people could label, a question had one answer, or none."""
    saved = json.loads(array_to_text(state["questions"]))
    questions = [[left, right, next(iter(said.values()), None)] for left, right, said in saved]
    return {
        "questions": text_to_array(json.dumps(questions)),
        "num_repeated": state["num_repeated"],
    }


def test_an_older_checkpoint_is_read_and_its_answers_find_who_gave_them(survey):
    survey.say("ann", 0, LEFT)
    survey.say("ann", 1, RIGHT)
    survey.take()
    state = of_an_older_version(survey.questions.state())
    survey.say("bob", 1, LEFT)
    survey.questions = survey.new_questionnaire()
    survey.questions.load_state(state, ENV_ID)
    assert survey.answers(0) == [LEFT]
    assert survey.take() == ([], [1], False)
    assert survey.answers(1) == [LEFT, RIGHT]
    survey.say("ann", 0, RIGHT)
    assert survey.take() == ([], [], True)


def test_an_answer_of_an_older_checkpoint_that_was_changed_since_is_a_revision(survey):
    survey.say("ann", 0, LEFT)
    survey.take()
    state = of_an_older_version(survey.questions.state())
    survey.say("ann", 0, RIGHT)
    survey.questions = survey.new_questionnaire()
    survey.questions.load_state(state, ENV_ID)
    assert survey.take() == ([], [], True)
    assert survey.answers(0) == [RIGHT]


@pytest.mark.parametrize("shows_others", [True, False])
def test_what_others_lived_is_borrowed_only_if_it_can_be_shown(survey, tmp_path, shows_others):
    shown = survey.questions.asked()[0].left
    clip = RenderedClip(ENV_ID, 6, "video", f"clips/{shown}.mp4", None, 6, 10.0)
    survey.store.clips.publish({shown: clip})
    own_id = survey.store.experiments.ensure("other", ENV_ID, {})
    segments = SegmentFiles(tmp_path / "segments")
    shelf = Shelf(survey.store, own_id, segments, shows_others=shows_others)
    library = {each.content_hash for each in library_of(shelf, ENV_ID, 6)}
    assert shown in library
    assert len(library) == (6 if shows_others else 1)
