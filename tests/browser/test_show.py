"""End-to-end runs in which a person labels on the page despite interruptions."""

import json
import re
import signal
from statistics import fmean

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.state_dict import array_to_text, part_of
from rl_teacher.runs.folder import Experiment
from tests.browser.experiments import labels_given
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.person import Person
from tests.browser.processes import Running, Service, as_home, open_store
from tests.store.comparisons import counts

pytestmark = pytest.mark.browser


def teach(home, env_id, *flags):
    """Start `rl-teacher teach -p human`."""
    command = ["teach", "-p", "human", "-e", env_id, "-n", "mine", "--no-tensorboard"]
    return Running(home, "run", *command, "--no-browser", *flags)


def stored_labels(home):
    """Return every label in the store, oldest first."""
    with open_store(home) as store:
        experiment = store.experiments.get("mine")
        log = labels_given(store, experiment.id)
        assert counts(store, experiment.id)[1] == len(dict(log))
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
    run = teach(home, "ShortReacher-v1", "--exit-when-finished", *flags)
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
def test_answers_given_while_paused_finished_and_extended_are_stored_and_used(
    home, store, open_context
):
    sizes = ["-L", "4", "-l", "8", "-t", "4096", "-i", "64"]
    ppo = ["--ppo.num-envs", "8", "--ppo.rollout-steps", "64"]
    run = teach(home, "ShortReacher-v1", *sizes, *ppo, "--port", "0")
    try:
        context = open_context()
        labelling, owner = context.new_page(), context.new_page()
        labelling.goto(run.printed_link())
        person = Person(LabellingPage(labelling), home, store)
        person.answer_until(5)

        owner.goto(labelling.url.replace("/label", ""))
        controls = owner.get_by_role("group", name="Run", exact=True)
        controls.get_by_role("button", name="Pause").click(timeout=PATIENCE_MS)
        resume = controls.get_by_role("button", name="Resume")
        resume.wait_for(timeout=PATIENCE_MS)
        person.answer()
        resume.click()
        person.answer_until(7)

        # Another labeler gives the last label that the run needs.
        on_screen = person.labelling.shown_comparison()
        store.labels.add(on_screen, Answer.EQUAL, "Ada")
        labelling.get_by_role("heading", name="The run is finished").wait_for(timeout=PATIENCE_MS)

        labelling.get_by_role("link", name="Change labels and steps").click()
        labelling.get_by_label("Target number of labels").fill("12", timeout=PATIENCE_MS)
        labelling.get_by_label("Steps in all").fill("8192")
        labelling.get_by_role("button", name="Save").click()
        labelling.get_by_role("link", name=re.compile("^Label( |$)")).click()
        person.answer_until(11)
        owner.get_by_text("8.2k of 8.2k steps").wait_for(timeout=PATIENCE_MS)
        owner.get_by_text("Finished", exact=True).wait_for(timeout=PATIENCE_MS)
        person.labelling.wait_until_sent()
        assert run.end(signal.SIGINT) == 0, run.printed()
    finally:
        run.end()
    person.log.insert(7, (on_screen, Answer.EQUAL))
    assert stored_labels(home) == person.log
    fitted = last_fit(home)
    assert [fitted[name] for name in ("num_labels", "is_revised")] == [12, False]
    assert fitted["answers"] == answers_by_clips(store)


def last_fit(home):
    """Return the answers that the last checkpoint contains, and how many the last fit used."""
    with as_home(home):
        checkpoint = Experiment.find("mine").checkpoints.load()
    assert checkpoint is not None
    counts = part_of(checkpoint.arrays, "rewards/trainer/counts")
    queries = json.loads(array_to_text(checkpoint.arrays["rewards/queue/queries"]))
    return {
        "num_labels": counts["num_labels_fitted"],
        "is_revised": counts["is_revised"],
        "answers": {(left, right): set(answers.values()) for left, right, answers in queries},
    }


def answers_by_clips(store):
    """Return the current answers of all labelers by the hashes of the clips."""
    asked = store.comparisons.asked(store.experiments.get("mine").id)
    votes = store.labels.votes(each.id for each in asked)
    return {(each.left_hash, each.right_hash): set(votes[each.id].values()) for each in asked}


@pytest.mark.slow
def test_agent_learns_from_60_labels_despite_interruptions(home, store, open_context):
    service = Service(home)
    flags = ["-L", "20", "-l", "60", "-t", "600000", "--instructions", "Prefer the faster one."]
    run = teach(home, "ShortHopper-v1", "--exit-when-finished", *flags)
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
