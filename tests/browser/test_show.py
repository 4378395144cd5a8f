"""End-to-end runs in which a person labels on the page despite interruptions."""

import signal
from statistics import fmean

import pytest

from rl_teacher.runs.folder import Experiment
from tests.browser.experiments import labels_given
from tests.browser.labelling_page import LabellingPage
from tests.browser.person import Person
from tests.browser.processes import Running, Service, as_home, open_store

pytestmark = pytest.mark.browser


def teach(home, env_id, *flags):
    """Start `rl-teacher teach -p human`."""
    command = ["teach", "-p", "human", "-e", env_id, "-n", "mine", "--no-tensorboard"]
    command += ["--exit-when-finished"]
    return Running(home, "run", *command, "--no-browser", *flags)


def stored_labels(home):
    """Return every label in the store, oldest first."""
    with open_store(home) as store:
        experiment = store.experiments.get("mine")
        log = labels_given(store, experiment.id)
        assert store.experiments.counts(experiment.id).answered == len(dict(log))
        return log


@pytest.fixture
def home(tmp_path):
    return tmp_path / "teaching"


@pytest.fixture
def store(home):
    home.mkdir()
    with open_store(home) as opened:
        yield opened


def test_run_prints_link_through_which_a_person_labels(home, store, open_context):
    flags = ["-L", "6", "-l", "12", "-t", "30000", "-i", "500", "--port", "0"]
    run = teach(home, "ShortReacher-v1", *flags)
    try:
        page = open_context().new_page()
        page.goto(run.printed_link())
        person = Person(LabellingPage(page), home, store)
        person.answer_until(2)
        person.answer_wrong_and_undo()
        page.context.set_offline(True)
        person.answer()
        page.wait_for_timeout(2_000)
        page.context.set_offline(False)
        person.answer_until(5)
        person.reload()
        person.answer_until(12)
        person.labelling.wait_until_sent()
        assert run.process.wait(120) == 0, run.printed()
    finally:
        run.end()
    assert stored_labels(home) == person.log
    with as_home(home):
        assert Experiment.find("mine").metrics()[-1]["labels_answered"] == 12


@pytest.mark.slow
def test_agent_learns_from_60_labels_despite_interruptions(home, store, open_context):
    service = Service(home)
    flags = ["-L", "20", "-l", "60", "-t", "600000", "--instructions", "Prefer the faster one."]
    run = teach(home, "ShortHopper-v1", *flags)
    try:
        assert service.address.url in run.printed_link()
        page = open_context().new_page()
        page.goto(service.label_link("mine"))
        person = Person(LabellingPage(page), home, store)
        person.answer_until(10)
        person.answer_wrong_and_undo()
        person.answer_until(15)
        person.reload()
        person.answer_until(30)
        page.context.set_offline(True)
        person.answer_prefetched()
        page.wait_for_timeout(10_000)
        page.context.set_offline(False)
        person.answer_until(42)
        person.labelling.shown_comparison()
        service.end(signal.SIGKILL)
        person.answer()
        service = Service(home, service.address.port)
        person.answer_until(60)
        person.labelling.wait_until_sent()
        assert run.process.wait(600) == 0, run.printed()
    finally:
        run.end()
        service.end()
    assert stored_labels(home) == person.log
    assert len(dict(person.log)) == 60
    with as_home(home):
        returns = [row["true_return"] for row in Experiment.find("mine").metrics()]
    known = [each for each in returns if each is not None]
    assert fmean(known[-3:]) > 2 * known[0]
