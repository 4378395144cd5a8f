"""A simulated person who teaches on the real page in Chromium, in real time.

The person takes about 3 s for an answer, errs, cannot tell clips of nearly the same quality apart,
and takes breaks. Nothing is accelerated: a case takes as long as a person would. The agent is
copied every five minutes; afterwards, an episode of each copy is filmed.
"""

import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Error

from benchmarks.backflip import EPISODES, SECONDS
from benchmarks.children import ChildFailed, run_ours
from benchmarks.options import Options
from benchmarks.parts import keep
from benchmarks.records import Record, Records
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, average, number, table
from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.report.figures import percent
from rl_teacher.runs.folder import Experiment
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.teachers.tasks import TASKS
from tests.browser import chromium
from tests.browser.experiments import in_shown_order
from tests.browser.labelling_page import KEYS, LabellingPage
from tests.browser.processes import Running, as_home, open_store

HOW = "python -m benchmarks.run person [--only forward backflip] [--seeds 0 1 2]"
POLL_S = 0.05
ANSWER_S = 3.0
BREAK_EVERY = 100
BREAK_S = 60.0
ALIKE_SHARE = 0.05
"""Difference of two clips, as a share of the range seen so far, that the person cannot see."""
GIVE_UP_S = 3_600.0
FILM_EVERY_S = 300.0
FILMS = Path(__file__).parent / "results" / "person"


@dataclass(frozen=True)
class Case:
    """One task for the person.

    Attributes:
        flags: of `rl-teacher teach -p human`.
        task: name of the task teacher whose score the person follows; empty for the true return.
        error_rate: probability of the opposite answer.
        seconds: after which the person stops, and the run with them.
    """

    flags: tuple[str, ...]
    task: str = ""
    error_rate: float = 0.1
    seconds: float = GIVE_UP_S


HOPPER = ("-e", "Hopper-v1", "-l", "60", "-L", "15")
FORWARD = (*HOPPER, "-t", "300000")
# As many labels as fit into 20 minutes. Without the page, SAC learned to flip with all of five
# seeds, PPO with three of four.
BACKFLIP = ("-e", "ShortHopper-v1", "-c", "2.5", "-l", "270", "-L", "50", "-a", "sac")
BACKFLIP += ("-t", "260000")
CASES = {
    "forward, 10 % errors": Case(FORWARD),
    "forward, 20 % errors": Case(FORWARD, error_rate=0.2),
    "forward by SAC, 10 % errors": Case((*HOPPER, "-a", "sac", "-t", "60000")),
    "forward, paced by steps": Case((*FORWARD, "--pace", "steps")),
    "backflip, 10 % errors": Case(BACKFLIP, "backflip", seconds=1_200.0),
    "backflip, 20 % errors": Case(BACKFLIP, "backflip", error_rate=0.2, seconds=1_200.0),
}
QUICK = Case(("-e", "ShortHopper-v1", "-l", "6", "-L", "3", "-t", "10000"))


def run(options: Options, records: Records) -> None:
    """Let the person teach each selected case.

    Raises:
        ChildFailed: there is no Chromium, the page is not built, or a run failed.
    """
    missing = chromium.missing()
    if missing:
        raise ChildFailed(missing)
    for name, case in ({"quick": QUICK} if options.is_quick else CASES).items():
        for seed in options.seeds or (0,):
            if options.wants(name.split(",")[0]) or options.wants(name):
                with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as folder:
                    home = Path(folder)
                    metrics = teach_once(case, seed, home)
                    films = [] if options.is_quick else film(home, f"{options.run}-{name}-{seed}")
                    keep(options, records, name, seed=seed, **metrics, films=films)


def film(home: Path, run: str) -> list[str]:
    """Film one episode of each copied agent, into `FILMS`; return the names of the files."""
    FILMS.mkdir(exist_ok=True)
    name = re.sub(r"[^a-zA-Z0-9]+", "-", run)
    films = []
    for copy in sorted(home.glob("minute-*")):
        video = FILMS / f"{name}-{copy.name}.mp4"
        filming = Running(copy, "film", "play", "person", "--episodes", "1", "--video", str(video))
        if filming.process.wait() == 0:
            films.append(video.name)
        else:  # the run's figures are worth more than its films
            print(filming.printed())
    return films


def teach_once(case: Case, seed: int, home: Path) -> dict[str, Any]:
    """Teach one agent; return labels, minutes, waiting and what the agent does."""
    flags = ["teach", "-p", "human", *case.flags, "-n", "person", "-s", str(seed)]
    flags += ["--no-tensorboard", "--no-browser", "--port", "0", "--exit-when-finished"]
    started = Running(home, "run", *flags)
    launched_s = time.perf_counter()
    try:
        with chromium.launched() as browser, open_store(home) as store:
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            page.goto(started.printed_link())
            person = Person(case, seed, LabellingPage(page), store, home)
            person.teach(started)
    finally:
        started.end()
    person.copy_agent()
    minutes = (time.perf_counter() - launched_s) / 60
    with as_home(home):
        last = Experiment.find("person").metrics()[-1]
    metrics = {
        "flags": " ".join(case.flags),
        "labels": last["labels_answered"],
        "answers": person.num_answers,
        "minutes": minutes,
        "present_minutes": (person.present_s - person.waits[-1]) / 60,
        "waiting_share": sum(person.waits[:-1]) / (person.present_s - person.waits[-1]),
        "waits": {num: round(wait, 1) for num, wait in enumerate(person.waits) if wait > 1.0},
        "first_comparison_s": person.first_s and person.first_s - launched_s,
        "steps": last["step"],
        "true_return": last["true_return"],
        "held_out_accuracy": last.get("held_out_accuracy"),
        "error_rate": case.error_rate,
    }
    if case.task == "backflip":
        with as_home(home):
            saved = Experiment.find("person").config
        config = teach_config(saved)
        flips = run_ours(
            "flips", str(home), saved=config.saved(), num_episodes=EPISODES, seconds=SECONDS
        )
        metrics["turns_in_10_s"] = {
            name: average(figures["backward_turns"]) for name, figures in flips.figures.items()
        }
    return metrics


class Person:
    """The simulated person.

    Attributes:
        num_answers: answers given.
        waits: [num_answers + 1] time at the page without a comparison, after each answer.
        present_s: time at the page; breaks are not counted.
        first_s: time at which the first comparison was seen; None before.
    """

    def __init__(
        self, case: Case, seed: int, labelling: LabellingPage, store: Store, home: Path
    ) -> None:
        self._case, self._labelling, self._store = case, labelling, store
        self._segments = SegmentFiles(home / "segments")
        self._home = home
        self._rng = np.random.default_rng([seed, 200])
        self._seen: list[float] = []
        self.num_answers = 0
        self.waits = [0.0]
        self.present_s = 0.0
        self.first_s: float | None = None
        self._began_s = time.perf_counter()

    def teach(self, started: Running) -> None:
        """Answer until the run ends or the person's time is over."""
        now_s = copied_s = self._began_s
        while started.is_running and now_s - self._began_s < self._case.seconds:
            comparison_id = self._shown()
            if comparison_id is None:
                time.sleep(POLL_S)
                self.waits[-1] += time.perf_counter() - now_s
            else:
                self.first_s = self.first_s or now_s
                self._answer(comparison_id)
                self.waits.append(0.0)
            self.present_s += time.perf_counter() - now_s
            if comparison_id is not None and self.num_answers % BREAK_EVERY == 0:
                time.sleep(BREAK_S)
            now_s = time.perf_counter()
            if now_s - copied_s > FILM_EVERY_S and self.copy_agent():
                copied_s = now_s

    def copy_agent(self) -> bool:
        """Copy the experiment's folder for a film; return False if it changes meanwhile."""
        minute = round((time.perf_counter() - self._began_s) / 60)
        copy = self._home / f"minute-{minute:02}"
        try:
            shutil.copytree(self._home / "experiments", copy / "experiments", dirs_exist_ok=True)
        except shutil.Error:
            shutil.rmtree(copy)
            return False
        return True

    def _shown(self) -> int | None:
        try:
            return self._labelling.hook("comparisonId")
        except Error:  # the service ends with its run
            return None

    def _answer(self, comparison_id: int) -> None:
        time.sleep(ANSWER_S * float(self._rng.lognormal(-0.045, 0.3)))
        self._labelling.press(KEYS[self._preferred(comparison_id)])
        self.num_answers += 1
        deadline = time.perf_counter() + 1.0
        while self._shown() == comparison_id and time.perf_counter() < deadline:
            time.sleep(POLL_S)

    def _preferred(self, comparison_id: int) -> Answer:
        view = self._store.comparisons.get(comparison_id)
        sides = in_shown_order(comparison_id, (view.left, view.right))
        left, right = (self._score(self._segments.load(side.content_hash)) for side in sides)
        self._seen += [left, right]
        if abs(left - right) < ALIKE_SHARE * float(np.ptp(self._seen)):
            return Answer.CANNOT_TELL
        is_left = (left > right) != (self._rng.random() < self._case.error_rate)
        return Answer.LEFT if is_left else Answer.RIGHT

    def _score(self, segment: Segment) -> float:
        return TASKS[self._case.task].score(segment) if self._case.task else segment.true_return


def report(records: list[Record]) -> list[str]:
    """Build the table of all runs."""
    rows = [
        [
            f"`{record['flags']}`",
            f"{record['error_rate']:.0%}",
            record["seed"],
            record["labels"],
            number(record["minutes"]),
            percent(record["waiting_share"]),
            number(record["first_comparison_s"]),
            number(record["true_return"]),
            number(record.get("turns_per_episode")),
            _both(record.get("turns_in_10_s")),
            " ".join(f"[{name[-6:-4]}](results/person/{name})" for name in record["films"]),
        ]
        for record in records
    ]
    headings = ["", "errors", "seed", "labels", "minutes", "waiting", "first comparison s"]
    headings += ["true return", "turns in 7.5 s", "turns in 10 s", "films at minute"]
    return [
        f"A simulated person on the page in Chromium: {ANSWER_S:g} s an answer, a break of "
        f"{BREAK_S:g} s after each {BREAK_EVERY} answers, `can't tell` where clips differ by less "
        f"than {ALIKE_SHARE:.0%} of the range seen. Waiting: share of "
        "the person's time at the page, until the last answer, without a comparison. Turns: means "
        f"of {EPISODES} episodes with the most likely actions, and with exploration; in the first "
        "runs with exploration only, in episodes of 7.5 s.",
        "",
        *table(headings, rows),
        "",
    ]


def _both(turns: dict[str, float] | None) -> str:
    if turns is None:
        return NONE
    return f"{number(turns['deterministic'])} / {number(turns['exploring'])}"
