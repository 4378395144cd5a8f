"""Page object of the labelling page."""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Error, Locator, Page

from rl_teacher.clips.answer import Answer

PATIENCE_MS = 60_000

KEYS = {
    Answer.LEFT: "ArrowLeft",
    Answer.RIGHT: "ArrowRight",
    Answer.EQUAL: "ArrowDown",
    Answer.CANNOT_TELL: "ArrowUp",
}

Hook = Literal[
    "comparisonId", "outboxLength", "numAhead", "draw_ms", "swap_ms", "fps", "time_s", "isPlaying"
]


def text_on(page: Page, text: str, *, exact: bool = False) -> Locator:
    """Find a text on a page, but not where it is repeated 0.1 s later for screen readers."""
    return page.get_by_text(text, exact=exact).and_(page.locator(":not(.visually-hidden)"))


class LabellingPage:
    """Page object of the labelling page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def hook(self, name: Hook) -> Any:
        """Return a value that the page exposes for tests."""
        return self.page.evaluate("name => window.__rlTeacher?.[name] ?? null", name)

    def wait_until(self, expression: str, argument: Any = None) -> None:
        """Wait until a JavaScript expression of `hooks` and `given` is true."""
        source = f"given => {{ const hooks = window.__rlTeacher; return hooks && ({expression}) }}"
        with self._with_page_content(expression):
            self.page.wait_for_function(source, arg=argument, timeout=PATIENCE_MS)

    def shown_comparison(self, other_than: int | None = None) -> int:
        """Wait until a comparison, other than `other_than`, is drawn and return its id."""
        self.wait_until("hooks.comparisonId !== null && hooks.comparisonId !== given", other_than)
        return self.hook("comparisonId")

    def wait_for_comparison(self, comparison_id: int) -> None:
        """Wait until this comparison is drawn."""
        self.wait_until("hooks.comparisonId === given", comparison_id)

    def wait_until_idle(self) -> None:
        """Wait until the page reports that nothing is left to label."""
        idle = self.page.get_by_role("heading", name="Nothing to label right now")
        with self._with_page_content("nothing to label"):
            idle.wait_for(timeout=PATIENCE_MS)

    def wait_for_picture(self, side: int, is_wanted: Callable[[np.ndarray], bool]) -> None:
        """Wait until a screenshot of a clip is as wanted."""
        deadline_s = time.monotonic() + PATIENCE_MS / 1000
        while not is_wanted(self.screenshot(side)):
            assert time.monotonic() < deadline_s, "the clip never looked as wanted"
            self.page.wait_for_timeout(50)

    @contextmanager
    def _with_page_content(self, awaited: str) -> Iterator[None]:
        """Add the content of the page to a timeout error."""
        try:
            yield
        except Error as error:
            hooks = self.page.evaluate("() => ({...window.__rlTeacher})")
            text = self.page.locator("body").inner_text()
            raise AssertionError(
                f"waited in vain for: {awaited}\nat {self.page.url}\nhooks: {hooks}\n{text}"
            ) from error

    def press(self, key: str) -> None:
        """Press a key."""
        self.page.keyboard.press(key)

    def answer(self, answer: Answer) -> int:
        """Answer the current comparison by keyboard and return its id."""
        comparison_id = self.shown_comparison()
        self.press(KEYS[answer])
        self.wait_until("hooks.comparisonId !== given", comparison_id)
        return comparison_id

    def wait_until_sent(self) -> None:
        """Wait until the service has acknowledged every answer."""
        self.wait_until("hooks.outboxLength === 0")

    def pane(self, side: int) -> tuple[float, float, float, float]:
        """Return x, y, width and height of a clip in CSS pixels."""
        box = self.page.locator(f".pane.side-{side}").bounding_box()
        assert box is not None
        return box["x"], box["y"], box["width"], box["height"]

    def screenshot(self, side: int) -> np.ndarray:
        """Return a screenshot of a clip, [H, W, 3]."""
        x, y, width, height = self.pane(side)
        png = self.page.screenshot(clip={"x": x, "y": y, "width": width, "height": height})
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
