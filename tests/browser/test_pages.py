"""Accessibility, layout and resources of every page."""

import pytest

from rl_teacher.clips.answer import Answer
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import WIDE
from tests.browser.experiments import LABELER
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.layout import assert_fits_when_zoomed

pytestmark = pytest.mark.browser

TABS = {
    "comparisons": "main li button",
    "ranking": "main ol canvas",
    "clips": "figure canvas",
    "labelers": ".labelers dd .line",
    "settings": "textarea",
    "audit": "main ol",
}
"""Tabs of an experiment, and what each shows when it is loaded."""


@pytest.fixture
def visit(open_context, service):
    """Return a function that opens and checks a page, which logs nothing and stays on the host."""
    context = open_context(device_scale_factor=2, reduced_motion="reduce")
    requests, complaints = [], []
    context.on("request", lambda request: requests.append(request.url))
    context.on("console", lambda message: complaints.append((message.type, message.text)))
    page = context.new_page()

    def visited(path, *waits_for, act=None):
        page.set_viewport_size(WIDE)
        page.emulate_media(color_scheme="light")
        page.goto(service.link(path))
        page.locator(*waits_for).first.wait_for(timeout=PATIENCE_MS)
        if act is not None:
            act(page)
        assert_accessible(page)
        assert_fits_when_zoomed(page)

    yield visited
    allowed = (service.address.url + "/", "data:", f"blob:{service.address.url}/")
    assert [url for url in requests if not url.startswith(allowed)] == []
    # Chromium warns that its software rendering reads frames back.
    assert [text for _, text in complaints if "GPU stall" not in text and "404" not in text] == []


def test_pages_of_owner_are_accessible_and_fit_zoomed_windows(visit, full):
    visit("/", "main li .name a")
    visit(f"/e/{full.name}", "text=Episode at step")
    for tab, waits_for in TABS.items():
        visit(f"/e/{full.name}?tab={tab}", waits_for)

    def open_clip(page):
        page.get_by_role("button", name="Play the clip").first.click()
        page.locator("dialog .clip-player").wait_for(timeout=PATIENCE_MS)

    visit(f"/e/{full.name}?tab=clips", TABS["clips"], act=open_clip)

    def open_comparison(page):
        page.locator("main li button").first.click()
        page.locator("dialog canvas").wait_for(timeout=PATIENCE_MS)

    visit(f"/e/{full.name}?tab=disagreements", "main li button", act=open_comparison)

    def create_invite(page):
        page.get_by_role("button", name="Create link").click()
        page.get_by_label("Invite link").wait_for()

    visit(f"/e/{full.name}?tab=labelers", ".labelers dd .line", act=create_invite)
    full.set_status(
        "finished", "Finished.", problems={"reward": "Few labels agree."}, is_extendable=True
    )
    visit(f"/e/{full.name}", "text=After: step")
    visit(f"/e/{full.name}/label", "text=After: step")
    visit("/e/no-such/label", "text=Experiment not found")


def test_pages_of_labeler_are_accessible_and_fit_zoomed_windows(visit, full):
    label = f"/e/{full.name}/label"
    shown = ".clip-player"
    full.set_status(
        "waiting", "7 more labels", num_missing=7, problems={"reward": "Few labels agree. " * 6}
    )
    full.store.experiments.describe(full.id, "Prefer the clip that hops higher. " * 55, 60)
    visit(label, shown, act=lambda page: LabellingPage(page).shown_comparison())
    visit(label, shown, act=lambda page: page.keyboard.press("?"))
    ids = full.ask(4)
    for each in ids:
        full.store.labels.add(each, Answer.LEFT, LABELER)
    full.set_predictions({each: (0.5 * n - 1.0, 0.25 * n) for n, each in enumerate(ids)})

    def open_effect(page):
        page.get_by_role("button", name="Show what your labels changed").click()

    visit(label, "text=Predictor agrees", act=open_effect)

    def answer_all(page):
        labelling = LabellingPage(page)
        for _ in range(3):
            labelling.answer(Answer.EQUAL)
        labelling.wait_until_idle()

    visit(label, shown, act=answer_all)
    visit(f"/e/{full.name}/watch", "text=After 29k steps")
    visit(f"{label}?tutorial", shown, act=lambda page: page.keyboard.press("ArrowLeft"))


@pytest.mark.slow
def test_theme_overrides_system_survives_reload_and_reaches_the_clips(
    open_context, service, experiment
):
    experiment.ask()
    page = open_context(color_scheme="light").new_page()
    page.goto(service.label_link(experiment.name))
    labelling = LabellingPage(page)
    labelling.shown_comparison()
    labelling.wait_for_picture(0, lambda picture: picture.mean() > 150)
    page.get_by_role("button", name="Switch to light").click()
    page.get_by_role("button", name="Switch to dark").click()
    labelling.wait_for_picture(0, lambda picture: picture.mean() < 100)
    page.reload()
    page.get_by_role("button", name="Theme: dark. Switch to auto").click(timeout=PATIENCE_MS)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 246, 243)"
