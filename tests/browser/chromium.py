"""Chromium for tests, driven by Playwright with software rendering."""

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
"""Flags that disable GPU compositing and antialiasing: with software rendering they save a third of
the time. Screenshots and benchmarks do not use them."""
INDEX = Path(rl_teacher.web.__file__).parent / "static" / "index.html"

INSTALL = "There is no Chromium here: apt-get install chromium-headless-shell, or chromium"
BUILD = f"The page is not built ({INDEX} is not there): make page"


def executable() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def missing() -> str | None:
    """Return what must be installed or built before the tests can run, or None."""
    if executable() is None:
        return INSTALL
    return None if INDEX.is_file() else BUILD


@contextmanager
def launched(*flags: str) -> Iterator[Browser]:
    """Launch a browser with additional flags and close it at the end."""
    # A proxy in the environment would intercept requests to the local service.
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=[*FLAGS, *flags], env={**environment}
        )
        try:
            yield browser
        finally:
            browser.close()
