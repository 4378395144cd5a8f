"""Take the screenshots in the docs: `python -m docs.make_screenshots` (minutes)."""

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page

from docs.screenshot_study import ScreenshotStudy
from rl_teacher.web.address import Address
from tests.browser import chromium
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.person import Person
from tests.browser.processes import Running, Service, media_of, open_store

IMAGES = Path(__file__).parent / "images"
SIZES = {
    "wide": {"width": 1280, "height": 800},
    "phone": {"width": 390, "height": 844},
}
INSTRUCTIONS = "Prefer the clip that hops forward, upright and far."
CLIP_TIME_S = 0.6
"""Time within a clip at which screenshots are taken."""


@dataclass(frozen=True)
class View:
    """Page and state of one screenshot.

    Attributes:
        name: prefix of the file names.
        path: path of the page.
        visit: waits until the page is ready.
        is_full_page: include what is below the window.
    """

    name: str
    path: str
    visit: Callable[[Page], None]
    is_full_page: bool = False


@dataclass(frozen=True)
class PlayService:
    """Service that `rl-teacher play` started.

    Attributes:
        address: its address.
        token: its access token.
    """

    address: Address
    token: str

    def link(self, path: str) -> str:
        """Return the link of a path, with the token."""
        return f"{self.address.url}{path}?token={self.token}"


@dataclass(frozen=True)
class ScreenshotTaker:
    """Browser that takes the screenshots.

    Attributes:
        browser: Chromium.
        service: service of the pages.
    """

    browser: Browser
    service: Service | PlayService

    @contextmanager
    def page(self, path: str, size: str, scheme: str) -> Iterator[Page]:
        """Open a page in a new window, in which clips do not start by themselves."""
        options = {
            "viewport": SIZES[size],
            "color_scheme": scheme,
            "reduced_motion": "reduce",
            "has_touch": size == "phone",
            "is_mobile": size == "phone",
        }
        context = self.browser.new_context(**options)  # pyright: ignore[reportArgumentType]
        try:
            page = context.new_page()
            # A token in the link would make the visitor of the invite an owner.
            is_invite = path.startswith("/join")
            page.goto(self.service.address.url + path if is_invite else self.service.link(path))
            yield page
        finally:
            context.close()

    def take(self, view: View, *looks: str) -> None:
        """Take a screenshot of a page once it is ready.

        Args:
            view: the page.
            looks: sizes and colour schemes, such as `wide-light`.
        """
        for look in looks:
            size, scheme = look.split("-")
            with self.page(view.path, size, scheme) as page:
                view.visit(page)
                is_full_page = view.is_full_page and size == "wide"
                if is_full_page:
                    scroll_through(page)
                page.wait_for_timeout(500)
                image = page.screenshot(full_page=is_full_page)
                save(image, IMAGES / f"{view.name}-{look}.png")


def save(png: bytes, path: Path) -> None:
    """Reduce an image to 256 colours: a third of the bytes without a visible difference."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB", flush=True)


def scroll_through(page: Page) -> None:
    """Scroll through the page once, because clips are drawn when they become visible."""
    page.mouse.wheel(0, 10_000)
    page.wait_for_timeout(1_500)
    page.mouse.wheel(0, -10_000)


# --- states of the pages ---


def wait_for_clips(page: Page) -> None:
    """Show two clips, shortly after their start."""
    labelling = LabellingPage(page)
    labelling.shown_comparison()
    labelling.wait_until("hooks.numAhead > 0")
    go_to_clip_time(labelling)


def wait_for_experiment(page: Page) -> None:
    """Show curves, metrics and an episode."""
    page.get_by_text("Episode at step").wait_for(timeout=PATIENCE_MS)
    go_to_clip_time(LabellingPage(page))


def wait_for(selector: str) -> Callable[[Page], None]:
    """Return a function that waits for an element, and then for its content."""

    def wait(page: Page) -> None:
        page.locator(selector).first.wait_for(timeout=PATIENCE_MS)
        page.wait_for_timeout(1_500)

    return wait


def wait_for_replay(page: Page) -> None:
    """Open a disputed comparison."""
    wait_for("main li button")(page)
    page.locator("main li button").first.click()
    page.locator("dialog canvas").wait_for(timeout=PATIENCE_MS)
    go_to_clip_time(LabellingPage(page))


def wait_for_four_clips(page: Page) -> None:
    """Rank three of four clips, two of them equal."""
    wait_for_clips(page)
    page.get_by_role("button", name="Rank 4 clips").click()
    page.locator(".pane.side-3").wait_for(timeout=PATIENCE_MS)
    labelling = LabellingPage(page)
    labelling.shown_comparison()
    for key in ("3", "1", "=", "4"):
        labelling.press(key)
    go_to_clip_time(labelling)


def wait_for_invite(page: Page) -> None:
    """Fill in a name on the invite page."""
    page.get_by_label("Your name").fill("Fatima")


def wait_for_play(page: Page) -> None:
    """Show an episode and the next one in the table."""
    page.locator(".reward-curve").first.wait_for(timeout=PATIENCE_MS)
    page.wait_for_timeout(3_000)
    go_to_clip_time(LabellingPage(page))


def go_to_clip_time(labelling: LabellingPage) -> None:
    """Step through the clips until the bodies move."""
    while labelling.hook("time_s") < CLIP_TIME_S:
        labelling.press(".")
        labelling.page.wait_for_timeout(50)


# --- the run ---


def main() -> None:
    """Train an experiment, label it, and take the screenshots."""
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="rl-teacher-") as folder,
        chromium.launched() as browser,
    ):
        home = Path(folder) / "home"
        service = Service(home)
        runs = start_runs(home)
        try:
            screenshots = ScreenshotTaker(browser, service)
            take_labelling_pages(screenshots, home, runs)
            take_owner_pages(screenshots, ScreenshotStudy(home, "hopper").fill())
            take_rankings(screenshots, home)
            take_play(browser, home)
            take_game(screenshots, home)
        finally:
            for running in [*runs.values(), service]:
                running.end()


def start_runs(home: Path) -> Mapping[str, Running]:
    """Run one experiment with a person as the teacher, and one with a synthetic teacher."""
    common = ["--no-tensorboard", "--no-browser"]
    synthetic = ["-p", "synth", "-e", "ShortReacher-v1", "-l", "60", "-t", "60000", "-n", "reacher"]
    human = ["-p", "human", "-e", "ShortHopper-v1", "-L", "20", "-l", "90", "-t", "1000000"]
    reacher = Running(home, "reacher", "teach", *synthetic, "--serve", *common)
    reacher.process.wait()
    named = ["-n", "hopper", "--instructions", INSTRUCTIONS]
    return {"hopper": Running(home, "hopper", "teach", *human, *named, *common)}


def take_labelling_pages(
    screenshots: ScreenshotTaker, home: Path, runs: Mapping[str, Running]
) -> None:
    """Take screenshots of every page when it has content."""
    runs["hopper"].printed_link()
    label = "/e/hopper/label"
    with open_store(home) as store, screenshots.page(label, "wide", "light") as page:
        person = Person(LabellingPage(page), home, store)
        person.answer_until(60)
        person.labelling.shown_comparison()
        screenshots.take(View("label", label, wait_for_clips), "wide-light", "phone-light")


def take_owner_pages(screenshots: ScreenshotTaker, invite: str) -> None:
    """Take screenshots of the pages of a study with several labelers."""
    page = "/e/hopper"
    views = (
        View("experiment", page, wait_for_experiment, is_full_page=True),
        View("disagreements", f"{page}?tab=disagreements", wait_for("main li canvas")),
        View("labelers", f"{page}?tab=labelers", wait_for(".labelers dd"), is_full_page=True),
    )
    for view in views:
        screenshots.take(view, "wide-light")
    replay = View("replay", f"{page}?tab=disagreements", wait_for_replay)
    screenshots.take(replay, "wide-dark")
    screenshots.take(View("join", invite, wait_for_invite), "phone-light")


def take_rankings(screenshots: ScreenshotTaker, home: Path) -> None:
    """Take screenshots of 200 ranked clips, and of four on one screen."""
    with open_store(home) as store:
        experiment = Experiment(store, media_of(home), "sorted", "ShortHopper-v1")
        experiment.rank_clips(200)
        experiment.ask(20)
        store.experiments.describe(experiment.id, INSTRUCTIONS, 1_200)
        experiment.set_status("paused", "Paused by the owner.")
    page = "/e/sorted?tab=ranking"
    views = (
        View("ranking", page, wait_for("main ol li canvas"), is_full_page=True),
        View("label-four", "/e/sorted/label", wait_for_four_clips),
    )
    for view in views:
        screenshots.take(view, "wide-light")


def take_game(screenshots: ScreenshotTaker, home: Path) -> None:
    """Take screenshots of clips of Pong while a run waits for its first answers."""
    human = ["-p", "human", "-e", "Pong-v0", "-L", "8", "-l", "20", "-n", "pong"]
    asks = ["--instructions", "Prefer the clip in which the green paddle meets the ball."]
    running = Running(home, "pong", "teach", *human, *asks, "--no-tensorboard", "--no-browser")
    try:
        running.printed_link()
        view = View("label-pong", "/e/pong/label", wait_for_clips)
        screenshots.take(view, "wide-light")
    finally:
        running.end()


def take_play(browser: Browser, home: Path) -> None:
    """Take screenshots of a played agent, and of two checkpoints side by side."""
    rl = ["-p", "rl", "-e", "ShortHopper-v1", "-n", "true-reward", "-t", "200000"]
    Running(home, "true-reward", "teach", *rl, "--no-tensorboard").process.wait()
    looks = {"play": "wide-light", "play-two": "wide-dark"}
    for name, look in looks.items():
        more = ["--compare", "true-reward"] if name == "play-two" else []
        running = Running(home, name, "play", "hopper", *more, "--no-browser", "--port", "0")
        try:
            link = urlsplit(running.printed_link())
            address = Address(f"{link.scheme}://{link.netloc}", "", "", 0, 0, "", "", "")
            screenshots = ScreenshotTaker(
                browser, PlayService(address, parse_qs(link.query)["token"][0])
            )
            screenshots.take(View(name, link.path, wait_for_play, is_full_page=True), look)
        finally:
            running.end()


if __name__ == "__main__":
    main()
