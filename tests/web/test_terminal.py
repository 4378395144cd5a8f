import pytest

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.common.errors import ExperimentNotFound
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.web.terminal import TerminalSession

SHOWN = RenderedClip("ShortHopper-v1", 60, "poses", "clips/x.poses", "5" * 64, 30, 20.0)


@pytest.fixture
def store(database):
    with Store.open(database) as opened:
        yield opened


def ask(store, num):
    experiment_id = store.experiments.ensure("mine", "ShortHopper-v1", {})
    pairs = [(f"{i:064x}", f"{i + 100:064x}") for i in range(num)]
    ids = store.comparisons.add(experiment_id, pairs, "ShortHopper-v1", 60, 0)
    store.clips.publish({name: SHOWN for pair in pairs for name in pair})
    store.experiments.set_status(experiment_id, {"phase": "finished", "says": "finished"})
    return ids


class Typist:
    """Simulated terminal input, which ends after the given lines."""

    def __init__(self, lines):
        self._lines = list(lines)
        self.read = []

    def ask(self, question):
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)

    def session(self, store):
        return TerminalSession(
            store, "owner", lambda c: f"link to {c.id}", self.ask, self.read.append, lambda _: None
        )


def answers(store, ids):
    return {
        i: mirror_answer(answer, swapped=is_swapped(i, "owner"))
        for i, answer in store.labels.answers(ids).items()
    }


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("L", Answer.LEFT),
        ("r", Answer.RIGHT),
        ("e", Answer.EQUAL),
        ("E", Answer.EQUAL),
        ("", Answer.CANNOT_TELL),
        (" left ", Answer.LEFT),
    ],
)
def test_letter_of_either_case_answers_for_shown_side(store, typed, answer):
    ids = ask(store, 4)
    typist = Typist([typed] * 4)
    assert typist.session(store).run("mine") == 4
    assert answers(store, ids) == dict.fromkeys(ids, answer)


def test_prompt_contains_link_and_count(store):
    ids = ask(store, 2)
    typist = Typist(["l"])
    typist.session(store).run("mine")
    assert typist.read[0] == f"0/2 comparisons labeled. link to {ids[0]}"


def test_undo_withdraws_last_answer_and_asks_again(store):
    ids = ask(store, 2)
    typist = Typist(["l", "u", "r", "q"])
    assert typist.session(store).run("mine") == 1
    assert answers(store, ids) == {ids[0]: Answer.RIGHT}


def test_undo_without_answer_prints_message(store):
    ask(store, 1)
    typist = Typist(["u", "q"])
    typist.session(store).run("mine")
    assert "There is nothing to undo." in typist.read


def test_unknown_input_stores_no_answer(store):
    ids = ask(store, 1)
    typist = Typist(["x", "q"])
    typist.session(store).run("mine")
    assert answers(store, ids) == {}
    assert any("'x' is no answer" in line for line in typist.read)


def test_end_of_run_ends_session(store):
    ask(store, 1)
    typist = Typist(["l"])
    typist.session(store).run("mine")
    assert "Nothing waits for an answer: the run has finished." in typist.read


def test_instructions_are_printed_first(store):
    ask(store, 1)
    store.experiments.describe(1, "Prefer the higher jump.", 5)
    typist = Typist(["q"])
    typist.session(store).run("mine")
    assert typist.read[:2] == ["Prefer the higher jump.", "0/5 comparisons labeled. link to 1"]


def test_unknown_experiment_raises_error(store):
    with pytest.raises(ExperimentNotFound, match="nobody"):
        Typist([]).session(store).run("nobody")
