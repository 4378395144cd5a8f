"""Access, resources and accessibility of every page."""

import os
import re
from pathlib import Path

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.web.address import label_path
from tests.browser.conftest import PHONE, WIDE
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "web-ui" / "node_modules" / "axe-core" / "axe.min.js"
INSTALL_AXE = f"There is no axe-core ({AXE} is not there): cd web-ui && npm ci"


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
            "predicted_return": 0.1 * step,
            "held_out_accuracy": 0.9 - 1 / (step + 2),
            "correlation": 0.8,
            "labels_answered": step,
            "episodes": 10 * step,
        }
        store.metrics.append(experiment.id, 1000 * step, metrics)
    rewards = [0.1 * (frame % 7) - 0.2 for frame in range(30)]
    clip = experiment.add_model_clip(99)
    episode = {"clip": clip, "predicted_rewards": rewards, "true_return": 240.0, "step": 29_000}
    store.experiments.set_latest_episode(experiment.id, episode)
    liked = {"clip": clip, "predicted_return": 1.5}
    bins = [{"predicted": 0.1, "observed": 0.2, "count": 7}]
    diagnostics = {"step": 29_000, "best": [liked], "least": [liked], "calibration": bins}
    store.experiments.set_diagnostics(experiment.id, diagnostics)
    return experiment


def go_to_experiments(page, service, full):
    page.goto(service.link("/"))
    page.get_by_role("link", name=full.name, exact=True).wait_for(timeout=PATIENCE_MS)


def go_to_experiment(page, service, full):
    page.goto(service.link(f"/e/{full.name}"))
    page.get_by_text("Episode at step").wait_for(timeout=PATIENCE_MS)


def go_to_labelling(page, service, full):
    page.goto(service.label_link(full.name))
    LabellingPage(page).shown_comparison()


def go_to_help(page, service, full):
    go_to_labelling(page, service, full)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def go_to_idle_labelling(page, service, full):
    go_to_labelling(page, service, full)
    for _ in range(3):
        LabellingPage(page).shown_comparison()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(150)
    LabellingPage(page).wait_until_idle()


def go_to_unknown_experiment(page, service, full):
    page.goto(service.label_link("no-such"))
    page.get_by_role("heading", name="Experiment not found").wait_for(timeout=PATIENCE_MS)


def go_without_token(page, service, full):
    page.goto(service.address.url + "/")
    page.get_by_role("heading", name="This page needs its key").wait_for(timeout=PATIENCE_MS)


def go_to_tab(name, waits_for):
    """Return a function that opens a tab of an experiment's page."""

    def go(page, service, full):
        page.goto(service.link(f"/e/{full.name}?tab={name}"))
        page.locator(waits_for).first.wait_for(timeout=PATIENCE_MS)

    return go


def go_to_opened_comparison(page, service, full):
    go_to_tab("comparisons", "main li button")(page, service, full)
    page.locator("main li button").first.click()
    page.locator("dialog canvas").wait_for(timeout=PATIENCE_MS)


def go_to_created_invite(page, service, full):
    go_to_tab("labelers", ".labelers dd .line")(page, service, full)
    page.get_by_role("button", name="Create link").click()
    page.get_by_label("Invite link").wait_for()


def go_to_confirmation(page, service, full):
    go_to_tab("labelers", ".labelers dd .line")(page, service, full)
    page.get_by_role("button", name="Sign out").first.click()
    page.get_by_role("dialog").wait_for()


def go_to_unknown_invite(page, service, full):
    go_to_invite(page, service, full)
    page.get_by_label("Your name").fill("Zoë")
    page.get_by_role("button", name="Start labelling").click()
    page.get_by_role("heading", name="Unknown invite").wait_for()


def go_to_invite(page, service, full):
    page.goto(f"{service.address.url}/join?invite=none")
    page.get_by_label("Your name").wait_for(timeout=PATIENCE_MS)


PAGES = {
    "experiments": go_to_experiments,
    "experiment": go_to_experiment,
    "labelling": go_to_labelling,
    "help": go_to_help,
    "idle labelling": go_to_idle_labelling,
    "unknown experiment": go_to_unknown_experiment,
    "no token": go_without_token,
    "comparisons": go_to_tab("comparisons", "main li button"),
    "an opened comparison": go_to_opened_comparison,
    "disagreements": go_to_tab("disagreements", "main li button"),
    "clips": go_to_tab("clips", "figure canvas"),
    "labelers": go_to_tab("labelers", ".labelers dd .line"),
    "a made link": go_to_created_invite,
    "a question": go_to_confirmation,
    "settings": go_to_tab("settings", "textarea"),
    "audit trail": go_to_tab("audit", "main .card"),
    "an invite": go_to_invite,
    "an invite that leads nowhere": go_to_unknown_invite,
}

PAGES_OF_EXPERIMENT = [
    *(go_to_experiments, go_to_experiment, go_to_labelling, go_to_help),
    *(PAGES[name] for name in ("comparisons", "disagreements", "clips", "settings", "audit trail")),
    *(go_to_created_invite, go_to_confirmation, go_to_opened_comparison),
]


class TestAccess:
    @pytest.mark.parametrize("path", ["/", "/e/some", label_path("some")])
    @pytest.mark.parametrize("query", ["", "?token=", "?token=" + "x" * 43])
    def test_missing_or_wrong_token_returns_help_page(self, open_context, service, path, query):
        page = open_context().new_page()
        answered = page.goto(service.address.url + path + query)
        assert answered.status == 401
        text = page.locator("body").inner_text()
        assert "Open the link that you were given" in text
        assert page.context.cookies() == []

    def test_token_is_removed_from_address_and_hidden_from_scripts(
        self, open_context, service, full
    ):
        page = open_context().new_page()
        go_to_labelling(page, service, full)
        assert page.url == service.address.url + label_path(full.name)
        assert page.evaluate("document.cookie") == ""
        assert service.token not in page.content()

    def test_lost_cookie_shows_message_and_keeps_answer(self, open_page, full):
        opened = open_page(full.name)
        opened.shown_comparison()
        opened.page.context.clear_cookies()
        answered = opened.shown_comparison()
        opened.press("ArrowDown")
        opened.page.get_by_text("This browser is no longer signed in.").wait_for()
        assert opened.hook("outboxLength") == 1
        assert answered not in full.answers()


class TestEveryPage:
    @pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
    def test_pages_load_no_external_resources_and_log_no_errors(
        self, open_context, service, full, size
    ):
        context = open_context(viewport=size, has_touch=size == PHONE)
        requests, complaints = [], []
        context.on("request", lambda request: requests.append(request.url))
        context.on("console", lambda message: complaints.append((message.type, message.text)))
        page = context.new_page()
        for visit in PAGES_OF_EXPERIMENT:
            visit(page, service, full)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        allowed = (service.address.url + "/", "data:", f"blob:{service.address.url}/")
        assert [url for url in requests if not url.startswith(allowed)] == []
        assert any("/api/v1/clips/" in url for url in requests)
        assert [text for kind, text in complaints if kind == "error"] == []

    def test_experiment_list_follows_changes(self, open_context, service, full):
        page = open_context().new_page()
        go_to_experiments(page, service, full)
        row = page.get_by_role("listitem").filter(has_text=full.name)
        full.set_status("training", "Learning to hop.", step=123_456)
        row.get_by_text("123.5k of 400k steps").wait_for(timeout=PATIENCE_MS)

    def test_experiment_page_follows_changes(self, open_context, service, full):
        page = open_context().new_page()
        go_to_experiment(page, service, full)
        full.store.metrics.append(full.id, 50_000, {"held_out_accuracy": 0.123})
        page.get_by_text(re.compile(r"^12\s%$")).first.wait_for(timeout=PATIENCE_MS)

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("page_name", PAGES)
    def test_pages_meet_accessibility_rules(self, open_context, service, full, page_name, scheme):
        if not AXE.is_file():
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(INSTALL_AXE)
        page = open_context(color_scheme=scheme, reduced_motion="reduce").new_page()
        PAGES[page_name](page, service, full)
        page.evaluate(AXE.read_text())
        found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        serious = [
            f"{rule['id']}: {node['target']} {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
            if rule["impact"] in ("serious", "critical")
        ]
        assert serious == []
