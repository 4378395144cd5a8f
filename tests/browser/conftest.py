"""Fixtures with Chromium and a service that serves the built page."""

import itertools
import os

import pytest

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
    return Experiment(store, media_of(service.home), f"hopper-{next(_numbers)}")


@pytest.fixture
def open_context(browser):
    """Return a function that creates browser contexts; script errors fail the test."""
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
