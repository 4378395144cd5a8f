"""Accessibility and layout of every page: narrow and zoomed windows, alignment, and the theme."""

import pytest

from rl_teacher.store.records import Control
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import PHONE
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.pages import PAGES, go_to_experiment, go_to_experiments, go_to_labelling

pytestmark = pytest.mark.browser

ZOOMED_WINDOWS = [(640, 360), (320, 568), (320, 256)]
"""CSS pixels of a window of 1280 x 720 and of 640 pixels at 200 %, and of 1280 x 1024 at 400 %."""

CUT_OFF_CONTROLS = """() => {
    const room = document.documentElement.clientWidth
    const isVisible = element => element.checkVisibility({ checkVisibilityCSS: true })
    const isScrolled = element => element.closest('[aria-label=Sections], .scroll, .recent ul')
    return [...document.querySelectorAll('button, a, input, select, textarea')]
        .filter(element => isVisible(element) && !isScrolled(element))
        .filter(element => {
            const { left, right, width } = element.getBoundingClientRect()
            const isOutside = width > 2 && (left < -1 || right > room + 1)
            const isClipped = element.scrollWidth > element.clientWidth + 1
            return isOutside || element.matches('.button') && isClipped
        })
        .map(element => element.outerHTML)
}"""

OVERFLOWING = """() => {
    const { clientWidth, scrollWidth } = document.documentElement
    const isOutside = element => element.getBoundingClientRect().right > clientWidth + 1
    return scrollWidth <= clientWidth ? [] : [...document.querySelectorAll('body *')]
        .filter(isOutside).filter(element => !element.closest('[aria-label=Sections]'))
        .map(element => element.outerHTML.slice(0, 200))
}"""
"""Elements beyond the right edge of a page that scrolls sideways."""

NEXT_FRAMES = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)))
)"""
"""Waits until what observes the size of the window has been laid out again."""


@pytest.mark.parametrize("page_name", PAGES)
def test_page_meets_accessibility_rules_and_fits_zoomed_windows(
    open_context, service, full, page_name
):
    page = open_context(device_scale_factor=2, reduced_motion="reduce").new_page()
    PAGES[page_name](page, service, full)
    assert_accessible(page)
    for width, height in ZOOMED_WINDOWS:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(NEXT_FRAMES)
        assert page.evaluate(OVERFLOWING) == []
        assert page.evaluate(CUT_OFF_CONTROLS) == []


def set_long_instructions(experiment):
    instructions = "Prefer the clip that hops higher. " * 55
    control = Control(instructions=instructions)
    experiment.store.experiments.set_control(experiment.id, control, by="owner")


def test_long_instructions_leave_room_for_clips(open_context, service, full):
    set_long_instructions(full)
    size = {"width": 390, "height": 700}
    page = open_context(viewport=size, reduced_motion="reduce").new_page()
    go_to_labelling(page, service, full)
    assert page.locator(".clip-player").bounding_box()["height"] > 300
    heading = page.get_by_role("heading", level=1)
    assert heading.evaluate("element => element.scrollHeight > element.clientHeight")
    assert_accessible(page)


def test_long_instructions_do_not_stretch_latest_episode(open_context, service, full):
    set_long_instructions(full)
    size = {"width": 1280, "height": 800}
    page = open_context(viewport=size, reduced_motion="reduce").new_page()
    go_to_experiment(page, service, full)
    assert page.locator(".clip-player").bounding_box()["height"] < 500
    assert_accessible(page)


def test_command_with_long_name_fits_phone(open_context, service, full):
    named = Experiment(full.store, full.media, f"{full.name}-{'w' * 80}")
    episode = {"clip": full.add_model_clip(5), "true_return": 240.0, "step": 30_000}
    full.store.experiments.set_latest_episode(named.id, episode)
    page = open_context(viewport=PHONE).new_page()
    go_to_experiment(page, service, named)
    assert page.evaluate(OVERFLOWING) == []


def test_notice_with_file_name_fits_phone(open_page, experiment):
    clips = [experiment.add_model_clip(seed) for seed in range(2)]
    experiment.media.remove(f"clips/{clips[0]}.poses")
    experiment.ask_about([(clips[0], clips[1])])
    page = open_page(experiment.name, viewport=PHONE).page
    dismiss = page.get_by_role("button", name="Dismiss")
    dismiss.wait_for(timeout=PATIENCE_MS)
    box = dismiss.bounding_box()
    assert box["x"] + box["width"] <= PHONE["width"]
    assert dismiss.locator("..").evaluate("banner => banner.scrollWidth <= banner.clientWidth")


def test_brand_bar_is_aligned_with_content_of_wide_window(open_context, service, full):
    page = open_context(viewport={"width": 1920, "height": 900}).new_page()
    go_to_experiments(page, service, full)
    brand = page.get_by_role("link", name="rl-teacher").bounding_box()
    title = page.get_by_role("heading", name="Experiments").bounding_box()
    assert brand["x"] == pytest.approx(title["x"], abs=1)


def test_axes_of_calibration_are_readable(open_context, service, full):
    page = open_context(viewport={"width": 1280, "height": 900}).new_page()
    go_to_experiment(page, service, full)
    texts = page.locator("figure").filter(has_text="Calibration").locator("svg text")
    texts.first.wait_for(timeout=PATIENCE_MS)
    sizes = texts.evaluate_all("all => all.map(text => text.getBoundingClientRect().height)")
    assert min(sizes) >= 12
    plotted = page.locator("figure").filter(has_text="Calibration").locator("svg").bounding_box()
    assert plotted["width"] > 200


class TestTheme:
    BACKGROUND = "getComputedStyle(document.body).backgroundColor"
    LIGHT, DARK = "rgb(246, 246, 243)", "rgb(18, 19, 22)"

    def test_choice_overrides_system_and_survives_reload(self, open_context, service, full):
        page = open_context(color_scheme="dark").new_page()
        go_to_experiments(page, service, full)
        assert page.evaluate(self.BACKGROUND) == self.DARK
        page.get_by_role("button", name="Theme: auto. Switch to light").click()
        assert page.evaluate(self.BACKGROUND) == self.LIGHT
        page.reload()
        page.get_by_role("button", name="Theme: light. Switch to dark").click(timeout=PATIENCE_MS)
        assert page.evaluate(self.BACKGROUND) == self.DARK
        page.get_by_role("button", name="Theme: dark. Switch to auto").click()
        page.emulate_media(color_scheme="light")
        assert page.evaluate(self.BACKGROUND) == self.LIGHT

    def test_clips_are_drawn_in_the_chosen_theme(self, open_context, service, full):
        page = open_context(color_scheme="light").new_page()
        go_to_labelling(page, service, full)
        labelling = LabellingPage(page)
        labelling.wait_for_picture(0, lambda picture: picture.mean() > 150)
        page.get_by_role("button", name="Switch to light").click()
        page.get_by_role("button", name="Switch to dark").click()
        labelling.wait_for_picture(0, lambda picture: picture.mean() < 100)


def test_long_name_leaves_header_and_dialog_in_shape(open_context, service, full, store):
    name = f"{full.name}-{'x' * 90}"
    store.experiments.rename(full.name, name)
    page = open_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(service.label_link(name))
    LabellingPage(page).shown_comparison()
    header = page.get_by_role("navigation", name="Breadcrumbs")
    brand = header.get_by_role("link", name="rl-teacher").bounding_box()
    assert brand["height"] < 30
    crumb = header.get_by_text("label", exact=True)
    assert crumb.evaluate("crumb => crumb.scrollWidth <= crumb.clientWidth")
    page.goto(service.link("/"))
    page.get_by_role("button", name=f"Manage {name}").click(timeout=PATIENCE_MS)
    dialog = page.get_by_role("dialog")
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
