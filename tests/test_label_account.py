"""Account of a run's labels: every answer is stored exactly once, and the last fit uses all."""

from collections import Counter
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.rewards import trainer
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.session import PreferenceSession
from rl_teacher.store.database import default_url
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store
from rl_teacher.teach import teach
from tests.test_person_teaches import CONFIG, OPTIONS, extend, running, seconds_until, status, stop

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page", "_prompt_control")

TARGETS = {Answer.LEFT: 1.0, Answer.EQUAL: 0.5, Answer.RIGHT: 0.0}
PATIENCE_S = 120.0
LAST_STEP = 4_096

ACCOUNT = """\
state                   given  stored  used
before training             8       8     8
training                    1       1     1
waiting for labels          2       2     2
paused                      2       2     2
stopped                     1       1     1
killed                      2       2     2
resumed                     8       8     8
after the last step         1       1     1
finished                    3       3     3
extended                    6       6     6"""


class Killed(BaseException):
    pass


class Given(NamedTuple):
    """An answer and the state of the run when it was given; None withdraws an earlier answer."""

    state: str
    comparison_id: int
    labeler: str
    answer: Answer | None


class Account:
    """Labelers who answer through the store, and the account of their answers."""

    def __init__(self, store):
        self._store = store
        self.given = []

    def claim(self, labeler, num):
        """Wait until a labeler has so many comparisons on screen; return them."""
        claimed = []

        def has_claimed():
            experiment_id = self._store.experiments.get("mine").id
            claimed[:] = self._store.leases.claim(experiment_id, labeler, num)
            return len(claimed) == num

        seconds_until(has_claimed, PATIENCE_S)
        return claimed

    def give(self, state, comparison_id, answer, labeler="owner", lease=None):
        self._store.labels.add_many([NewLabel(comparison_id, answer, labeler, lease=lease)])
        self.given.append(Given(state, comparison_id, labeler, answer))

    def answer(self, state, num=1):
        """Answer comparisons as the owner, sometimes one side and sometimes the other."""
        for _ in range(num):
            [claimed] = self.claim("owner", 1)
            answer = list(TARGETS)[len(self.given) % len(TARGETS)]
            self.give(state, claimed.comparison.id, answer, "owner", claimed.lease)

    def answer_until(self, state, phase, step):
        """Answer every comparison that the run asks until it reaches a phase at a step."""

        def is_reached():
            if self._store.experiments.get("mine").waiting:
                self.answer(state)
            return status()["phase"] == phase and status()["step"] >= step

        seconds_until(is_reached, PATIENCE_S)

    def stored(self):
        """Return how often the store has each answer."""
        labels = self._store.labels.export(self._store.experiments.get("mine").id)
        return Counter((each.comparison_id, each.labeler, each.answer) for each in labels)

    def targets(self):
        """Compute each comparison's target: the mean over the labelers' latest answers."""
        latest = {(each.comparison_id, each.labeler): each.answer for each in self.given}
        return {
            comparison_id: fmean(
                TARGETS[answer]
                for (labelled, _), answer in latest.items()
                if labelled == comparison_id and answer is not None
            )
            for comparison_id, _ in latest
        }

    def table(self, fitted):
        """Return how many answers of each state were given, stored, and used by a fit."""
        stored, targets = self.stored(), self.targets()
        rows = [f"{'state':24}given  stored  used"]
        for state in dict.fromkeys(each.state for each in self.given):
            given = [each for each in self.given if each.state == state]
            num_stored = sum(stored[each[1:]] for each in given)
            ids = [each.comparison_id for each in given]
            num_used = sum(fitted.get(each) == targets[each] for each in ids)
            rows.append(f"{state:24}{len(given):5}{num_stored:8}{num_used:6}")
        return "\n".join(rows)


@pytest.fixture
def fits(monkeypatch):
    """Data set of each fit, as targets by comparison id."""
    recorded = []
    fit = trainer.fit

    def fit_and_record(state, examples, *args, **options):
        labels = examples.labels
        ids = labels.comparison_ids
        recorded.append({each: float(labels.targets[labels.index_of(each)]) for each in ids})
        return fit(state, examples, *args, **options)

    monkeypatch.setattr(trainer, "fit", fit_and_record)
    return recorded


@pytest.fixture
def before_next(monkeypatch):
    """Return a function that runs an action in the trainer, once, before a method's next call."""

    def install(method, action, from_step):
        original = getattr(PreferenceSession, method)

        def act_first(session, *args, **options):
            if session.step >= from_step:
                monkeypatch.setattr(PreferenceSession, method, original)
                action()
            return original(session, *args, **options)

        monkeypatch.setattr(PreferenceSession, method, act_first)

    return install


def kill():
    raise Killed


def test_answers_of_every_state_are_stored_once_and_used_by_last_fit(fits, before_next):
    config = replace(CONFIG, n_labels=24)
    stays = replace(OPTIONS, exit_when_finished=False)
    with Store.open(default_url(home())) as store:
        account = Account(store)
        before_next("observe", lambda: account.answer("training"), from_step=513)
        with running(config):
            account.answer("before training", 8)
            seconds_until(lambda: status()["phase"] == "waiting" and status()["step"] == 1_024)
            account.answer("waiting for labels", 2)
            extend(state="pause")
            seconds_until(lambda: status()["phase"] == "paused")
            account.answer("paused", 2)
            extend(state="run")
            seconds_until(lambda: status()["phase"] == "waiting")
            stop()
        account.answer("stopped")

        before_next("observe", kill, from_step=1_536)
        with pytest.raises(Killed):
            teach(config, OPTIONS)
        # The owner answers two comparisons that are on the screen of another labeler as well.
        on_screen = account.claim("Ada", 2)
        for each in on_screen:
            account.give("killed", each.comparison.id, Answer.LEFT)

        late = [("Ada", each.comparison.id, each.lease) for each in on_screen]

        def answer_late(state):
            labeler, comparison_id, lease = late.pop()
            account.give(state, comparison_id, Answer.RIGHT, labeler, lease)

        before_next("wait_for_due_labels", lambda: answer_late("after the last step"), LAST_STEP)
        with running(config, stays):
            account.answer_until("resumed", "finished", LAST_STEP)
            assert fits[-1] == account.targets()
            shown = store.experiments.diagnostics(store.experiments.get("mine").id)
            assert shown is not None
            assert shown["num_fits"] == Experiment.find("mine").metrics()[-1]["fits"]
            answer_late("finished")
            revised = account.given[0].comparison_id
            account.give("finished", revised, None)
            account.give("finished", revised, Answer.EQUAL)
            extend(target_labels=30, target_steps=6_144)
            account.answer_until("extended", "finished", 6_144)
            stop()

        assert account.table(fits[-1]) == ACCOUNT
        assert account.stored() == Counter(each[1:] for each in account.given)
        assert fits[-1] == account.targets()
