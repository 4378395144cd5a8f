"""Labelling in a terminal with single-letter answers.

The clips are shown on the page, so each comparison is printed with its link.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.store.records import ClaimedComparison, ComparisonView, ExperimentView, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.web.address import comparison_link, running_service
from rl_teacher.web.settings import OWNER

ANSWERS = {
    "l": Answer.LEFT,
    "r": Answer.RIGHT,
    "e": Answer.EQUAL,
    "": Answer.CANNOT_TELL,
}
KEYS = "[L]eft, [R]ight, [E]qual, Enter cannot tell, [U]ndo, [Q]uit"
POLL_S = 0.5
NO_PAGE = "Its clips are on the page: start it with `rl-teacher serve`."


def label_at_terminal(name: str) -> int:
    """Label an experiment's comparisons in the terminal and return their number.

    Raises:
        ExperimentNotFound: No experiment has this name.
    """

    def link_of(comparison: ComparisonView) -> str:
        address = running_service()
        return NO_PAGE if address is None else comparison_link(address, name, comparison.id)

    with Store.open(default_url(home())) as store:
        return TerminalSession(store, OWNER, link_of, input, print, time.sleep).run(name)


@dataclass
class TerminalSession:
    """Labelling session of one labeler in a terminal.

    Attributes:
        store: Store of comparisons and labels.
        labeler: Name of the labeler.
        link_of: Returns the link to a comparison.
        ask: Prints a prompt and reads a line; raises EOFError at the end of the input.
        say: Prints a line.
        sleep: Waits for a number of seconds.
    """

    store: Store
    labeler: str
    link_of: Callable[[ComparisonView], str]
    ask: Callable[[str], str]
    say: Callable[[str], None]
    sleep: Callable[[float], None]
    _given: list[int] = field(default_factory=list)

    def run(self, name: str) -> int:
        """Label comparisons until the experiment has ended and return their number.

        Raises:
            ExperimentNotFound: No experiment has this name.
        """
        experiment = self.store.experiments.get(name)
        if experiment.instructions:
            self.say(experiment.instructions)
        try:
            while self._next(name):
                pass
        except EOFError:
            pass
        self.say(f"{len(self._given)} comparisons labeled. Thank you.")
        return len(self._given)

    def _next(self, name: str) -> bool:
        """Label or undo one comparison; return False to stop."""
        experiment = self.store.experiments.get(name)
        claimed = self.store.leases.claim(experiment.id, self.labeler, limit=1)
        if not claimed:
            return self._wait(experiment)
        try:
            return self._answer(experiment, claimed[0])
        finally:
            self.store.leases.release(self.labeler, [claimed[0].lease])

    def _wait(self, experiment: ExperimentView) -> bool:
        status = experiment.status or {}
        if status.get("phase") in ("finished", "stopped"):
            self.say(f"Nothing waits for an answer: the run has {status['phase']}.")
            return False
        self.say(f"Nothing waits for an answer yet ({status.get('says', 'no run has begun')}).")
        while not self.store.leases.claim(experiment.id, self.labeler, limit=1):
            self.sleep(POLL_S)
            phase = (self.store.experiments.get(experiment.name).status or {}).get("phase")
            if phase in ("finished", "stopped"):
                return True
        return True

    def _answer(self, experiment: ExperimentView, claimed: ClaimedComparison) -> bool:
        """Label a comparison in the order of sides that the page shows."""
        comparison = claimed.comparison
        target = experiment.target_labels or experiment.asked
        self.say(f"{experiment.answered}/{target} comparisons labeled. {self.link_of(comparison)}")
        began_s = time.monotonic()
        key = self.ask(f"Which is better? {KEYS}: ").strip().lower()[:1]
        if key == "q":
            return False
        if key == "u":
            self._undo()
        elif key in ANSWERS:
            swapped = is_swapped(comparison.id, self.labeler)
            label = NewLabel(
                comparison.id,
                mirror_answer(ANSWERS[key], swapped=swapped),
                self.labeler,
                is_swapped=swapped,
                response_ms=round(1000 * (time.monotonic() - began_s)),
                lease=claimed.lease,
            )
            self.store.labels.add_many([label])
            self._given.append(comparison.id)
        else:
            self.say(f"{key!r} is no answer: {KEYS}")
        return True

    def _undo(self) -> None:
        if not self._given:
            self.say("There is nothing to undo.")
            return
        self.store.labels.add_many([NewLabel(self._given.pop(), None, self.labeler)])
        self.say("Taken back; it is asked again.")
