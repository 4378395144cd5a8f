"""Film the labelling page: `python -m docs.make_labelling_film` (a minute or two).

Writes images/labelling.gif: a simulated person answers comparisons of a hopper.
"""

import io
import re
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from docs.make_screenshots import IMAGES, INSTRUCTIONS
from rl_teacher.clips.answer import Answer
from tests.browser import chromium
from tests.browser.labelling_page import LabellingPage
from tests.browser.person import Person
from tests.browser.processes import Running, Service, open_store

SIZE = {"width": 1280, "height": 800}
WIDTH, NUM_COLOURS = 720, 64
NUM_BEFORE, NUM_FILMED = 90, 4
"""Comparisons that are answered before the film, so that the hopper moves, and in it."""
FRAMES_PER_PICTURE, PICTURE_MS, ANSWER_MS = 3, 100, 900
RUN = "-p human -e ShortHopper-v1 -l 120 -L 20 -t 600000 -n hopper --no-tensorboard --no-browser"
BUTTONS = {Answer.LEFT: re.compile("^Left is"), Answer.RIGHT: re.compile("^Right is")}


def film(page: Page, person: Person) -> tuple[list[Image.Image], list[int]]:
    """Return pictures of some comparisons, and how long each is shown."""
    pictures, durations_ms = [], []

    def take(duration_ms: int) -> None:
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        height = round(picture.height * WIDTH / picture.width)
        small = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
        # One palette for all pictures keeps what does not move equal, so that it compresses.
        palette = pictures[0] if pictures else small.quantize(NUM_COLOURS)
        pictures.append(small.quantize(palette=palette, dither=Image.Dither.NONE))
        durations_ms.append(duration_ms)

    for _ in range(NUM_FILMED):
        comparison_id = person.labelling.shown_comparison()
        answer = person.preferred(comparison_id)
        page.mouse.move(0, 0)
        time_s = -1.0
        while person.labelling.hook("time_s") > time_s:
            time_s = person.labelling.hook("time_s")
            take(PICTURE_MS)
            for _ in range(FRAMES_PER_PICTURE):
                person.labelling.press(".")
            page.wait_for_timeout(50)
        page.get_by_role("button", name=BUTTONS[answer]).hover()
        page.wait_for_timeout(100)
        take(ANSWER_MS)
        person.labelling.answer(answer)
    return pictures, durations_ms


def main() -> None:
    """Label, film, and write the animation."""
    with (
        tempfile.TemporaryDirectory(prefix="rl-teacher-") as folder,
        chromium.launched() as browser,
    ):
        home = Path(folder) / "home"
        service = Service(home)
        run = Running(home, "hopper", "teach", *RUN.split(), "--instructions", INSTRUCTIONS)
        try:
            run.printed_link()
            # Clips that do not start by themselves can be stepped through.
            options = {"viewport": SIZE, "reduced_motion": "reduce", "color_scheme": "light"}
            page = browser.new_context(**options).new_page()  # pyright: ignore[reportArgumentType]
            page.goto(service.link("/e/hopper/label"))
            with open_store(home) as store:
                person = Person(LabellingPage(page), home, store)
                person.answer_until(NUM_BEFORE)
                for notice in page.get_by_role("button", name="Dismiss", exact=True).all():
                    notice.click()
                (first, *others), durations_ms = film(page, person)
        finally:
            run.end()
            service.end()
    path = IMAGES / "labelling.gif"
    first.save(path, save_all=True, append_images=others, duration=durations_ms, loop=0)
    print(f"{path.name}: {len(durations_ms)} pictures, {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
