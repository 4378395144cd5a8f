"""Debian's Chromium, driven by Playwright, drawing with the processor."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

import rl_teacher.web

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
PLAINLY = (
    "--disable-gpu-compositing",
    "--disable-gpu-rasterization",
    "--webgl-antialiasing-mode=none",
)
"""Where the processor draws what a graphics card would, pages that are put together without one,
and no smoothing of edges, save a third of a browser's time; Debian's own settings ask for a card.
Not for what is looked at or measured: screenshots and benchmarks."""
INDEX = Path(rl_teacher.web.__file__).parent / "static" / "index.html"

INSTALL = "There is no Chromium here: apt-get install chromium-headless-shell, or chromium"
BUILD = f"The page is not built ({INDEX} is not there): make page"


def executable() -> str | None:
    """Where Chromium is, if it is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def missing() -> str | None:
    """What must be done before the page can be opened in a browser; None where nothing."""
    if executable() is None:
        return INSTALL
    return None if INDEX.is_file() else BUILD


@contextmanager
def launched(*flags: str) -> Iterator[Browser]:
    """A browser, for as long as the block; `flags` are more than it needs to run at all."""
    # Note: the proxy of whoever runs this has no business with the page.
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=[*FLAGS, *flags], env={**environment}
        )
        try:
            yield browser
        finally:
            browser.close()
