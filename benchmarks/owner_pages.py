"""Load times of the owner's pages for an experiment with very many comparisons."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser
from sqlalchemy import text

from benchmarks.children import ChildFailed
from benchmarks.filled import ENV_ID, LABELS_EACH, fill
from benchmarks.options import Options
from benchmarks.parts import keep
from benchmarks.records import Record, Records
from benchmarks.tables import middle, number, table
from rl_teacher.store.store import Store
from tests.browser import chromium
from tests.browser.experiments import Experiment
from tests.browser.processes import Service, media_of, open_store

PART = "owner_pages"
NUM_OPEN = 200
NUM_CLIPS = 40
ROUNDS = 5
WINDOW = {"width": 1280, "height": 800}

FIRST_DRAWN = {
    "overview": ".facts .big",
    "comparisons": "main li button",
    "disagreements": "main li button",
    "clips": "figure canvas",
    "labelers": ".labelers li",
}
"""Selector of the first rows on each page."""

ONE_IN_FIVE_IS_DISPUTED = "UPDATE comparisons SET is_disputed = id % 5 = 0 WHERE NOT is_open"

REAL_CLIPS = """UPDATE clips SET media_key = real.media_key, scene_hash = real.scene_hash,
    num_frames = real.num_frames, fps = real.fps
FROM (SELECT media_key, scene_hash, num_frames, fps,
    row_number() OVER (ORDER BY content_hash) - 1 AS place FROM clips WHERE num_steps = 60) AS real
WHERE clips.num_steps = 30 AND real.place = CAST(clips.content_hash AS INTEGER) % :num_clips"""
"""Statement that lets inserted clips use the media of really rendered ones."""


def measure_owner_pages(options: Options, records: Records) -> None:
    """Measure each page in a browser with an empty cache, with its requests.

    Raises:
        ChildFailed: there is no browser.
    """
    if missing := chromium.missing():
        raise ChildFailed(missing)
    num_comparisons = 2_000 if options.is_quick else 100_000
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as folder:
        home = Path(folder) / "home"
        service = Service(home)
        try:
            with open_store(home) as store:
                fill_home(store, home, num_comparisons)
            with chromium.launched() as browser:
                # The first request also waits for the start of the service, so it is not measured.
                opened(browser, service, "settings", "textarea")
                for page, selector in FIRST_DRAWN.items():
                    rounds = range(1 if options.is_quick else ROUNDS)
                    first_s = [opened(browser, service, page, selector) for _ in rounds]
                    keep(
                        options,
                        records,
                        PART,
                        page=page,
                        comparisons=num_comparisons,
                        labels=LABELS_EACH * (num_comparisons - NUM_OPEN),
                        median_s=round(middle(first_s), 3),
                        slowest_s=round(max(first_s), 3),
                    )
        finally:
            service.end()


def fill_home(store: Store, home: Path, num_comparisons: int) -> None:
    """Create an experiment with many comparisons, answered by a hundred labelers."""
    store.experiments.ensure("load", ENV_ID, {})
    with store.database.writing() as connection:
        fill(connection, num_comparisons - NUM_OPEN, NUM_OPEN)
        connection.execute(text(ONE_IN_FIVE_IS_DISPUTED))
    experiment = Experiment(store, media_of(home), "load", ENV_ID)
    for seed in range(NUM_CLIPS):
        experiment.add_model_clip(seed)
    with store.database.writing() as connection:
        connection.execute(text(REAL_CLIPS), {"num_clips": NUM_CLIPS})


def opened(browser: Browser, service: Service, page: str, selector: str) -> float:
    """Return the seconds from navigation to the first rows; the browser has only the cookie."""
    context = browser.new_context(viewport=WINDOW)  # pyright: ignore[reportArgumentType]
    try:
        # Sets the cookie without loading any asset of the page.
        context.request.get(service.link("/"))
        tab = context.new_page()
        start_s = time.perf_counter()
        tab.goto(f"{service.address.url}/e/load?tab={page}", wait_until="commit")
        tab.locator(selector).first.wait_for(timeout=60_000)
        return time.perf_counter() - start_s
    finally:
        context.close()


def report(records: Sequence[Record]) -> list[str]:
    """Build the table of the newest run."""
    newest = records[-1]
    rows = [[each["page"], number(each["median_s"]), number(each["slowest_s"])] for each in records]
    return [
        "",
        f"The owner's pages of an experiment with {newest['comparisons']:,} comparisons and "
        f"{newest['labels']:,} labels of a hundred labelers in SQLite, in Chromium with nothing of "
        "the page in its cache, on the same machine as the service. Seconds from the address to "
        f"the first rows drawn, {ROUNDS} times each (to reach: under 1 s):",
        "",
        *table(["page", "median", "slowest"], rows),
        "",
    ]
