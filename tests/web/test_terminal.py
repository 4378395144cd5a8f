import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.store.database import default_url
from rl_teacher.store.records import AssignmentPolicy, NewLabel, RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.web.address import access_token, running_service
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
    store.experiments.set_status(experiment_id, {"phase": "stopped", "message": "stopped"})
    return ids


class Typist:
    """Simulated person at a terminal whose input ends after the given lines."""

    def __init__(self, lines):
        self._lines = list(lines)
        self.read = []

    def ask(self, question):
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)

    def session(self, store):
        return TerminalSession(
            store,
            "owner",
            show=lambda comparison: f"link to {comparison.id}",
            ask=self.ask,
            say=self.read.append,
            sleep=lambda _: None,
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


def test_undo_withdraws_last_answer_and_asks_again(store):
    ids = ask(store, 2)
    typist = Typist(["l", "u", "r", "q"])
    assert typist.session(store).run("mine") == 1
    assert answers(store, ids) == {ids[0]: Answer.RIGHT}


def test_answer_to_repeat_refers_to_swapped_sides(store):
    ask(store, 8)
    assert Typist(["l"] * 8).session(store).run("mine") == 8
    store.experiments.set_assignment(1, AssignmentPolicy(repeats=1.0))
    ask(store, 9)
    Typist(["l", "q"]).session(store).run("mine")
    rows = list(store.labels.export(1))
    [repeat] = [each for each in rows if each.purpose == "repeat"]
    [first] = [each for each in rows if each.comparison_id == repeat.comparison_id][:1]
    assert (repeat.answer, repeat.is_swapped) == (
        mirror_answer(first.answer, swapped=True),
        not first.is_swapped,
    )


def test_answer_given_on_the_page_is_neither_replaced_nor_undone(store):
    first, _ = ids = ask(store, 2)
    typist = Typist(["l", "u", "q"])
    session = typist.session(store)

    def answer_on_page(comparison):
        if not typist.read:
            [claimed] = store.leases.claim(1, "owner", limit=1)
            store.labels.add_many([NewLabel(first, Answer.EQUAL, "owner", lease=claimed.lease)])
        return "link"

    session.show = answer_on_page
    assert session.run("mine") == 0
    assert store.labels.answers(ids) == {first: Answer.EQUAL}
    assert any("equal" in line for line in typist.read)


def test_end_of_run_ends_session(store):
    ask(store, 1)
    typist = Typist(["l"])
    typist.session(store).run("mine")
    assert "No comparison is waiting: the run has stopped." in typist.read


def test_killed_run_is_reported_once_and_its_next_comparison_awaited(database, clock):
    with Store.open(database, now=clock) as store:
        experiment_id = store.experiments.ensure("mine", "ShortHopper-v1", {})
        store.experiments.set_status(experiment_id, {"phase": "training", "message": "training"})
        typist = Typist(["l"])
        num_polls = 0

        def sleep(seconds):
            nonlocal num_polls
            num_polls += 1
            if num_polls == 30:  # its command is repeated
                ask(store, 1)
            clock.advance(seconds)

        session = typist.session(store)
        session.sleep = sleep
        assert session.run("mine") == 1
    assert typist.read[0] == "No comparison is waiting yet (training)."
    assert "Repeat its rl-teacher command to continue" in typist.read[1]
    assert typist.read[2].startswith("0 comparisons labelled.")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_label_command_serves_the_page_and_shows_the_token_at_a_terminal_only(
    home, monkeypatch, capsys, is_terminal
):
    """Logs of daemons and containers have other readers."""
    with Store.open(default_url(home)) as store:
        ids = ask(store, 1)
    pages = []

    def read(prompt):
        pages.append(running_service())
        return "e"

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert main(["label", "mine", "--port", "0", "--no-browser"]) == 0
    assert pages[0] is not None
    printed = capsys.readouterr().out
    assert f"{pages[0].url}/e/mine/label?comparison={ids[0]}" in printed
    assert (f"&token={access_token(home)}" in printed) == is_terminal
    assert (access_token(home) in printed) == is_terminal
    assert running_service() is None
    with Store.open(default_url(home)) as store:
        assert answers(store, ids) == {ids[0]: Answer.EQUAL}
