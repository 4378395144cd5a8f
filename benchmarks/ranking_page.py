"""The ranking of very many clips: time of the service after an answer, frame times of the page."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import numpy as np
from playwright.sync_api import Browser, Page

from benchmarks.children import ChildFailed
from benchmarks.filled import ENV_ID
from benchmarks.machine import cpu_seconds
from benchmarks.options import Options
from benchmarks.records import Record, Records
from benchmarks.tables import middle, number, table
from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import NewLabel, RenderedClip
from rl_teacher.store.store import Store
from tests.browser import chromium
from tests.browser.experiments import Experiment
from tests.browser.processes import Service, media_of, open_store

PART = "ranking_page"
NUM_RENDERED = 40
MAX_DISTANCE = 20
"""Places between the clips of a pair in the true order, so that there are enough pairs."""
WRONG = 0.1
LABELERS = ("Ada", "Ben")
BATCH = 500
NUM_TIMED = 20
WINDOW = {"width": 1280, "height": 800}
PATIENCE_MS = 60_000
STEPS = 60
STEP_MS = 16

CLIPS = "main ol li button"
STAGE_BOX = """() => {
    const { left, top, width } = document.querySelector('.stage').getBoundingClientRect()
    return [left, top, width]
}"""

WATCH_FRAMES = """() => {
    window.frames_ms = []
    let last = performance.now()
    requestAnimationFrame(function tick(now) {
        window.frames_ms.push(now - last)
        last = now
        window.watching = requestAnimationFrame(tick)
    })
}"""
FRAMES = "() => (cancelAnimationFrame(window.watching), window.frames_ms.slice(1))"


def measure_ranking_page(options: Options, records: Records) -> None:
    """Measure the route after each of some answers, and the page while it is zoomed and dragged.

    Raises:
        ChildFailed: there is no browser.
    """
    if missing := chromium.missing():
        raise ChildFailed(missing)
    num_clips, num_answers = (60, 600) if options.is_quick else (1_000, 16_000)
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as folder:
        home = Path(folder) / "home"
        service = Service(home)
        try:
            with open_store(home) as store, chromium.launched() as browser:
                comparison_ids = fill_home(store, home, num_clips, num_answers)
                times = time_route(store, service, comparison_ids)
                frames = time_frames(browser, service, store, comparison_ids)
        finally:
            service.end()
    records.append(
        run=options.run, part=PART, clips=num_clips, answers=num_answers, **times, frames=frames
    )


def fill_home(store: Store, home: Path, num_clips: int, num_answers: int) -> list[int]:
    """Create an experiment with ranked clips; return the ids of its comparisons."""
    experiment = Experiment(store, media_of(home), "ranked", ENV_ID)
    rendered = [store.clips.get(experiment.add_model_clip(each)) for each in range(NUM_RENDERED)]
    hashes = [f"{each:064x}" for each in range(num_clips)]
    names = set(RenderedClip.__dataclass_fields__) - {"env_id"}
    store.clips.publish(
        {
            each: RenderedClip(
                ENV_ID, **{name: getattr(rendered[place % NUM_RENDERED], name) for name in names}
            )
            for place, each in enumerate(hashes)
        }
    )
    rng = np.random.default_rng(0)
    pairs = [
        (low, low + distance)
        for distance in range(1, MAX_DISTANCE + 1)
        for low in range(num_clips - distance)
    ]
    chosen = rng.permutation(len(pairs))[: num_answers // len(LABELERS)]
    ids = experiment.ask_about([(hashes[pairs[i][0]], hashes[pairs[i][1]]) for i in chosen])
    labels = [
        NewLabel(each, Answer.RIGHT if rng.random() < WRONG else Answer.LEFT, labeler)
        for each in ids
        for labeler in LABELERS
    ]
    for start in range(0, len(labels), BATCH):
        store.labels.add_many(labels[start : start + BATCH])
    return ids


# --- route ---


def time_route(
    store: Store, service: Service, comparison_ids: Sequence[int]
) -> dict[str, list[float]]:
    """Return the milliseconds of the first request, and of one after each of some answers."""
    spent: dict[str, list[float]] = {"cpu_ms": [], "wall_ms": []}
    # The certificate of a service without TLS is not verified.
    with httpx.Client(base_url=service.address.url, trust_env=False, verify=False) as client:  # noqa: S501
        client.get(service.link("/"))
        for place in range(NUM_TIMED + 1):
            store.labels.add(comparison_ids[place], Answer.EQUAL, LABELERS[0])
            cpu_s, start_s = cpu_seconds(service.process.pid), time.perf_counter()
            client.get("/api/v1/experiments/ranked/ranking").raise_for_status()
            spent["wall_ms"].append(1e3 * (time.perf_counter() - start_s))
            spent["cpu_ms"].append(1e3 * (cpu_seconds(service.process.pid) - cpu_s))
    return {
        **{f"first_{name}": times[:1] for name, times in spent.items()},
        **{name: times[1:] for name, times in spent.items()},
    }


# --- frames ---


def time_frames(
    browser: Browser, service: Service, store: Store, comparison_ids: Sequence[int]
) -> dict[str, list[float]]:
    """Return the milliseconds between frames while the page is used."""
    context = browser.new_context(viewport=WINDOW)  # pyright: ignore[reportArgumentType]
    try:
        page = context.new_page()
        page.goto(service.link("/e/ranked?tab=ranking"))
        page.locator(CLIPS).first.wait_for(timeout=PATIENCE_MS)
        page.wait_for_timeout(2_000)
        left, top, width = page.evaluate(STAGE_BOX)
        y = top + 20
        page.mouse.move(left + width / 2, y)
        found = {"still": watched(page, lambda: page.wait_for_timeout(1_000))}
        found["zoom"] = watched(page, lambda: wheel(page, -100))
        page.mouse.move(left + width - 5, y)
        page.mouse.down()
        found["pan"] = watched(page, lambda: page.mouse.move(left + 5, y, steps=STEPS))
        page.mouse.up()
        page.get_by_role("button", name="Show all clips").click()
        found["answer"] = watched(page, lambda: answer(page, store, comparison_ids))
    finally:
        context.close()
    return found


def watched(page: Page, act: Callable[[], object]) -> list[float]:
    """Return the milliseconds between frames while something is done."""
    page.evaluate(WATCH_FRAMES)
    act()
    return [round(each, 1) for each in page.evaluate(FRAMES)]


def wheel(page: Page, delta: float) -> None:
    """Zoom in by turning the wheel."""
    for _ in range(STEPS):
        page.mouse.wheel(0, delta)
        page.wait_for_timeout(STEP_MS)


def answer(page: Page, store: Store, comparison_ids: Sequence[int]) -> None:
    """Change many answers, which moves clips to other places of the ranking."""
    changed = comparison_ids[:BATCH]
    with page.expect_response(lambda response: response.url.endswith("/ranking")):
        store.labels.add_many([NewLabel(each, Answer.RIGHT, "Cleo") for each in changed])
    page.wait_for_timeout(1_000)


# --- report ---


def report(records: Sequence[Record]) -> list[str]:
    """Build the tables of the newest run."""
    newest = records[-1]
    works = {
        "still": "nothing",
        "zoom": "the wheel turns, from all clips to the closest",
        "pan": "the ranking is dragged",
        "answer": f"{BATCH} answers move clips",
    }
    rows = []
    for name, meaning in works.items():
        times = newest["frames"][name]
        slow = float(np.quantile(times, 0.95))
        rows.append([meaning, number(middle(times)), number(slow), number(max(times))])
    cpu_ms, wall_ms = newest["cpu_ms"], newest["wall_ms"]
    return [
        "",
        f"The ranking of {newest['clips']:,} clips by {newest['answers']:,} answers. After an "
        f"answer, the service takes **{number(middle(cpu_ms))} ms** of processor time for all of "
        f"it (to reach: under 250 ms), at most {number(max(cpu_ms))} ms of {len(cpu_ms)}, and "
        f"responds after {number(middle(wall_ms))} ms; the first request takes "
        f"{number(newest['first_cpu_ms'][0])} ms. Milliseconds between two frames of the page in "
        f"Chromium, in a window of {WINDOW['width']} x {WINDOW['height']}, "
        "drawn by the processor:",
        "",
        *table(["while", "median", "95 %", "slowest"], rows),
        "",
    ]
