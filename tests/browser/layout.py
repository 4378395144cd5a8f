"""Check that a page fits its window."""

from playwright.sync_api import Page

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

ZOOMED_WINDOWS = [(640, 360), (320, 568), (320, 256)]
"""CSS pixels of a window of 1280 x 720 and of 640 pixels at 200 %, and of 1280 x 1024 at 400 %."""


def assert_fits(page: Page) -> None:
    """Assert that nothing scrolls sideways and that no control is cut off."""
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CUT_OFF_CONTROLS) == []


def assert_fits_when_zoomed(page: Page) -> None:
    """Assert that a page fits narrow and low windows."""
    for width, height in ZOOMED_WINDOWS:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(NEXT_FRAMES)
        assert_fits(page)
