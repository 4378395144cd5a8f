"""Labelling in a terminal with single-letter answers.

The clips are shown on the page, which is opened for each comparison.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.common.text import counted
from rl_teacher.config.experiment import PageOptions
from rl_teacher.runs.config_comparison import RUN, kind_of
from rl_teacher.runs.folder import open_store
from rl_teacher.runs.status import ENDED
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.records import ClaimedComparison, ComparisonView, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.web.address import label_path, link, one_time_link
from rl_teacher.web.experiment_views import ExperimentViews, label_target
from rl_teacher.web.service_process import PageService, check_page, open_in_browser

ANSWERS = {
    "l": Answer.LEFT,
    "r": Answer.RIGHT,
    "e": Answer.EQUAL,
    "": Answer.CANNOT_TELL,
}
KEYS = "[L]eft, [R]ight, [E]qual, Enter cannot tell, [U]ndo, [Q]uit"
POLL_S = 0.5


def label_at_terminal(name: str, options: PageOptions) -> int:
    """Label an experiment's comparisons in the terminal and return their number.

    Args:
        name: Name of the experiment.
        options: Address of the page, which is served meanwhile if no service runs.

    Raises:
        ExperimentNotFound: No experiment has this name.
        BadInput: The page cannot be served at this address.
    """
    check_page(options)
    with open_store() as store:
        store.experiments.get(name)
        with closing(PageService(options)) as page:
            address = page.address()

            def show(comparison: ComparisonView) -> str:
                url = link(address, label_path(name), comparison=str(comparison.id))
                if not options.no_browser:
                    open_in_browser(one_time_link(address, url))
                return url

            return TerminalSession(store, OWNER, show, input, print).run(name)


@dataclass
class TerminalSession:
    """Labelling session of one labeler in a terminal.

    Attributes:
        store: Store of comparisons and labels.
        labeler: Name of the labeler.
        show: Shows a comparison on the page and returns the link to it.
        ask: Prints a prompt and reads a line; raises EOFError at the end of the input.
        say: Prints a line.
        sleep: Waits for a number of seconds.
    """

    store: Store
    labeler: str
    show: Callable[[ComparisonView], str]
    ask: Callable[[str], str]
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    _labelled: list[ClaimedComparison] = field(default_factory=list)
    _undone: ClaimedComparison | None = None

    def run(self, name: str) -> int:
        """Label comparisons until the experiment has ended and return their number.

        Raises:
            ExperimentNotFound: No experiment has this name.
        """
        instructions = self.store.experiments.get(name).instructions
        if instructions:
            self.say(instructions)
        with suppress(EOFError):
            for claimed in self._comparisons(name):
                if not self._label(claimed):
                    break
        self.say(f"{counted(len(self._labelled), 'comparison')} labelled. Thank you.")
        return len(self._labelled)

    def _comparisons(self, name: str) -> Iterator[ClaimedComparison]:
        """Yield claimed comparisons until the run has ended, waiting for the next one.

        A run that does not report any more may be continued, so that it is waited for.
        """
        views = ExperimentViews(self.store, self.store.database.now)
        said = None
        while True:
            experiment = self.store.experiments.get(name)
            if self._undone is not None:
                claimed, self._undone = [self._undone], None
            else:
                claimed = self.store.leases.claim(experiment.id, self.labeler, limit=1)
            if claimed:
                target = label_target(experiment)
                of_target = "" if target is None else f"/{target}"
                link = self.show(claimed[0].comparison)
                self.say(f"{experiment.answered}{of_target} comparisons labelled. {link}")
                try:
                    yield claimed[0]
                finally:
                    # Without an answer, others may claim it at once; an answer has ended the lease.
                    self.store.leases.release(self.labeler, [claimed[0].lease])
                said = None
                continue
            if (kind := kind_of(experiment.config)) != RUN:
                self.say(
                    f"No comparison is waiting, and none will be: {name} is {kind}. "
                    "`rl-teacher collect` collects labels."
                )
                return
            status = experiment.status or {}
            if status.get("phase") in ENDED:
                self.say(f"No comparison is waiting: the run has {status['phase']}.")
                return
            phase = views.phase(experiment)
            silence = views.silent_message(experiment, phase) if status else None
            # The message of a run that reports changes often, and is printed once.
            if said is None or silence not in (None, said):
                message = status.get("message", "no run has begun")
                said = silence or f"No comparison is waiting yet ({message})."
                self.say(said)
            self.sleep(POLL_S)

    def _label(self, claimed: ClaimedComparison) -> bool:
        """Label a comparison or undo the previous label; return False to stop.

        Answers refer to the order of sides that the page shows.
        """
        comparison = claimed.comparison
        began_s = time.monotonic()
        key = self._ask()
        if key == "q":
            return False
        if key == "u":
            last = self._labelled.pop()
            self.store.labels.add_many([NewLabel(last.comparison.id, None, self.labeler)])
            # The answer has ended its lease, without which the page does not exchange the sides.
            self._undone = replace(last, purpose="answer")
            self.say("The label was withdrawn; the comparison is shown again.")
            return True
        swapped = is_swapped(comparison.id, self.labeler) != (claimed.purpose == "repeat")
        label = NewLabel(
            comparison.id,
            mirror_answer(ANSWERS[key], swapped=swapped),
            self.labeler,
            is_swapped=swapped,
            response_ms=round(1000 * (time.monotonic() - began_s)),
            lease=claimed.lease,
        )
        stored = self.store.labels.add_many([label]).get(label.request_id)
        if stored is None:
            self._labelled.append(claimed)
        else:
            answer = mirror_answer(stored, swapped=swapped)
            self.say(f"You answered this comparison with {answer} on the page already.")
        return True

    def _ask(self) -> str:
        """Ask until a key can be used, and return it."""
        while True:
            key = self.ask(f"Which is better? {KEYS}: ").strip().lower()[:1]
            if key in ANSWERS or key == "q" or (key == "u" and self._labelled):
                return key
            self.say(f"{key!r} is not an answer: {KEYS}")
