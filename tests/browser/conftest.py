"""Fixtures with Chromium and a service that serves the built page."""

import contextlib
import itertools
import os

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ExperimentNotFound
from tests.browser import chromium
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import LabellingPage
from tests.browser.processes import Service, media_of, open_store

WIDE = {"width": 960, "height": 540}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="package")
def browser():
    """Package-scoped browser: in session scope, Playwright's event loop disturbs other tests."""
    missing = chromium.missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    with chromium.launched(*chromium.PLAINLY) as launched:
        yield launched


@pytest.fixture(scope="package")
def service(browser, tmp_path_factory):
    """Shared service; each test has a separate experiment."""
    running = Service(tmp_path_factory.mktemp("served"))
    yield running
    running.end()


@pytest.fixture(scope="package")
def store(service):
    with open_store(service.home) as opened:
        yield opened


@pytest.fixture(scope="package")
def _numbers():
    return itertools.count(1)


@pytest.fixture
def experiment(store, service, _numbers):
    """Experiment that later tests do not see, as its clips may be damaged."""
    created = Experiment(store, media_of(service.home), f"hopper-{next(_numbers)}")
    yield created
    with contextlib.suppress(ExperimentNotFound):  # renamed or deleted
        store.experiments.set_archived(created.name, is_archived=True)


@pytest.fixture
def open_context(browser):
    """Return a function that creates browser contexts; script errors fail the test.

    Pass functions (`() => ...`) to `wait_for_function`: the policy of the pages forbids to evaluate
    plain expressions again, so a wait fails unless they hold at once.
    """
    contexts, errors = [], []

    def make(**options):
        options = {"viewport": WIDE, "reduced_motion": "no-preference"} | options
        context = browser.new_context(**options)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def open_page(open_context, service):
    """Return a function that opens the labelling page in a new browser context."""

    def opened(name, **options):
        page = open_context(**options).new_page()
        page.goto(service.label_link(name))
        return LabellingPage(page)

    return opened


@pytest.fixture
def labelling(open_page, experiment):
    """Labelling page of an experiment with six comparisons."""
    experiment.ask(6)
    opened = open_page(experiment.name)
    opened.shown_comparison()
    return opened


@pytest.fixture
def full(experiment):
    """Experiment with comparisons, labelers, metrics and an episode."""
    disputed, agreed = experiment.ask(2)
    store, names = experiment.store, [f"{who} of {experiment.name}" for who in ("Ada", "Ben")]
    for name, answer in zip(names, (Answer.LEFT, Answer.RIGHT), strict=True):
        store.labels.add(disputed, answer, name)
        store.labels.add(agreed, Answer.LEFT, name)
        store.labels.add(agreed, Answer.EQUAL, "left out")
    store.labelers.set_excluded("left out", is_excluded=True)
    store.comparisons.set_gold(agreed, Answer.LEFT)
    experiment.ask(3)
    for step in range(1, 30):
        metrics = {
            "true_return": 100.0 + 20 * step,
            "beats_untrained": 0.5 + step / 60,
            "held_out_accuracy": 0.9 - 1 / (step + 2),
            "correlation": 0.8,
            "labels_answered": step,
            "episodes": 10 * step,
        }
        store.metrics.append(experiment.id, 1000 * step, metrics)
    rewards = [0.1 * (frame % 7) - 0.2 for frame in range(30)]
    for step, true_return in ((1_000, 10.0), (8_000, 120.0)):
        earlier = {"clip": experiment.add_model_clip(step), "predicted_rewards": rewards}
        earlier |= {"predicted_return": true_return / 100, "true_return": true_return}
        store.episodes.add(experiment.id, earlier | {"step": step})
    clip = experiment.add_model_clip(99)
    episode = {"clip": clip, "predicted_rewards": rewards, "true_return": 240.0, "step": 29_000}
    store.experiments.set_latest_episode(experiment.id, episode)
    liked = {"clip": clip, "predicted_return": 1.5}
    bins = [{"predicted": 0.1, "observed": 0.2, "count": 7}]
    diagnostics = {"step": 29_000, "best": [liked], "least": [liked], "calibration": bins}
    store.experiments.set_diagnostics(experiment.id, diagnostics)
    return experiment
