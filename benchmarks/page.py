"""Speed and size of the labelling page, in Chromium with software rendering."""

import gzip
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page

from benchmarks._ours import curve_figures
from benchmarks.children import ChildFailed
from benchmarks.options import Options
from benchmarks.parts import describe_parts, keep, measure_parts
from benchmarks.records import Record, Records
from benchmarks.tables import middle, number, ratio, table
from rl_teacher.clips.answer import Answer
from rl_teacher.envs.mujoco.suite import SUITE
from rl_teacher.runs.folder import Experiment
from rl_teacher.store.media import SegmentFiles
from tests.browser import chromium
from tests.browser.labelling_page import KEYS, LabellingPage
from tests.browser.processes import Running, as_home

HOW = "python -m benchmarks.run page"
WINDOW = {"width": 1280, "height": 720}
GIVE_UP_S = 120.0
POLL_S = 0.02
SWAPS = 20
SETTLE_MS = 300
SECONDS_WATCHED = 5
FIRST_LABELS = 25
ANSWERING_POLL_S = 2.0


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: launch, swap, pace, training, wire, bundle.

    Raises:
        ChildFailed: there is no Chromium, the page is not built, or a run ended.
    """
    missing = chromium.missing()
    if missing:
        raise ChildFailed(missing)
    parts = {
        "launch": measure_launch,
        "swap": measure_swap,
        "pace": measure_pace,
        "training": measure_training,
        "wire": measure_wire,
        "bundle": measure_bundle,
    }
    measure_parts(parts, options, records)


# --- runs answered by a person ---


@contextmanager
def teach_run(env_id: str, *flags: str) -> Iterator[Running]:
    """Run `rl-teacher teach` in an empty home until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
        always = ["-e", env_id, "-n", "page", "--no-tensorboard", "--no-browser"]
        started = Running(Path(home), "run", "teach", *always, *flags)
        try:
            yield started
        finally:
            started.end()


def human_run(env_id: str, pretrain_labels: int) -> AbstractContextManager[Running]:
    """Run `rl-teacher teach -p human`; see `teach_run`."""
    return teach_run(env_id, "-p", "human", "-L", str(pretrain_labels), "--port", "0")


@contextmanager
def opened(started: Running, browser: Browser) -> Iterator[LabellingPage]:
    """Open the labelling page of a run in a browser without cookies or cache."""
    context = browser.new_context(viewport=WINDOW)  # pyright: ignore[reportArgumentType]
    try:
        page: Page = context.new_page()
        page.goto(started.printed_link())
        yield LabellingPage(page)
    finally:
        context.close()


# --- launch: from the command to the first comparison on screen ---


def measure_launch(options: Options, records: Records) -> None:
    """Measure the time from the command to the first comparison in a browser."""
    with chromium.launched() as browser:
        for number_of_round in range(1 if options.is_quick else 5):
            start_s = time.perf_counter()
            with (
                human_run("ShortHopper-v1", 25) as started,
                opened(started, browser) as labelling,
            ):
                labelling.shown_comparison()
                first_s = time.perf_counter() - start_s
            keep(options, records, "launch", round=number_of_round, first_comparison_s=first_s)


# --- swap: from a key press to the next comparison on screen ---


def measure_swap(options: Options, records: Records) -> None:
    """Measure the time between comparisons with the timers of the page."""
    num_swaps = 3 if options.is_quick else SWAPS
    with (
        chromium.launched() as browser,
        human_run("ShortHopper-v1", num_swaps + 5) as started,
        opened(started, browser) as labelling,
    ):
        swaps = [swap(labelling) for _ in range(num_swaps)]
    drawn_ms, shown_ms = zip(*swaps, strict=True)
    keep(
        options,
        records,
        "swap",
        swaps=num_swaps,
        median_ms=middle(shown_ms),
        slowest_ms=max(shown_ms),
        median_draw_ms=middle(drawn_ms),
    )


def swap(labelling: LabellingPage) -> tuple[float, float]:
    """Return the milliseconds from a key press until the next comparison is drawn and displayed."""
    shown = labelling.shown_comparison()
    labelling.wait_until("hooks.numAhead > 0")
    labelling.page.wait_for_timeout(SETTLE_MS)
    labelling.press(KEYS[Answer.LEFT])
    labelling.shown_comparison(other_than=shown)
    return labelling.hook("draw_ms"), labelling.hook("swap_ms")


# --- pace: frames per second ---


def measure_pace(options: Options, records: Records) -> None:
    """Measure the frame rate of two moving clips of the body with the most parts."""
    seconds = 2 if options.is_quick else SECONDS_WATCHED
    with (
        chromium.launched() as browser,
        human_run("ShortHumanoid-v1", 4) as started,
        opened(started, browser) as labelling,
    ):
        labelling.shown_comparison()
        labelling.page.wait_for_timeout(5_000)
        # At a quarter of its speed a clip moves for 6 s. Nothing is drawn in the pause between two
        # rounds, which would look like a low frame rate.
        labelling.press("1")
        labelling.press("r")
        paces = [frame_rate(labelling) for _ in range(seconds)]
    window = f"{WINDOW['width']} x {WINDOW['height']}"
    keep(
        options,
        records,
        "pace",
        env_id="ShortHumanoid-v1",
        window=window,
        median_fps=middle(paces),
        slowest_fps=min(paces),
    )


def frame_rate(labelling: LabellingPage) -> float:
    """Return the frames drawn in one second."""
    labelling.page.wait_for_timeout(1_000)
    return labelling.hook("fps")


# --- training: speed while a person answers ---


def measure_training(options: Options, records: Records) -> None:
    """Compare runs answered by a client with synthetic runs of as many labels."""
    steps = options.steps or (20_000 if options.is_quick else 400_000)
    for number_of_round in range(1 if options.is_quick else 3):
        answered, pace = human_pace(steps)
        synthetic = synthetic_pace(
            *("-p", "synth", "-l", str(answered), "-L", str(FIRST_LABELS), "-t", str(steps))
        )
        keep(
            options,
            records,
            "training",
            round=number_of_round,
            steps=steps,
            labels=answered,
            person_steps_per_second=pace,
            synthetic_steps_per_second=synthetic,
        )


def human_pace(steps: int) -> tuple[int, float]:
    """Return the number of answers and the steps/s of training."""
    flags = ["-p", "human", "-L", str(FIRST_LABELS), "-t", str(steps), "--port", "0"]
    flags += ["--pace", "steps", "--exit-when-finished"]
    with teach_run("Hopper-v1", *flags) as started:
        answered = answer_all(started)
        return answered, pace_of(started.home)


def synthetic_pace(*flags: str) -> float:
    """Return the steps/s of training without a labeler."""
    with teach_run("Hopper-v1", *flags) as started:
        started.process.wait()
        return pace_of(started.home)


def answer_all(started: Running) -> int:
    """Answer all comparisons through the page's API until the run ends; return their number.

    Answers follow the true return, as those of the synthetic teacher. With other answers, the agent
    would fall more or less often, which changes the cost of the physics.
    """
    segments = SegmentFiles(started.home / "segments")
    link = started.printed_link()
    origin = re.sub(r"(https?://[^/]+).*", r"\1", link)
    answered: set[int] = set()
    own = {"Origin": origin}
    # The service ends shortly before its run, so transport errors are expected.
    client = httpx.Client(trust_env=False, follow_redirects=True, headers=own)
    with suppress(httpx.TransportError), client:
        client.get(link)
        while started.is_running:
            response = client.get(f"{origin}/api/v1/experiments/page/comparisons/next").json()
            for comparison in response["comparisons"]:
                sides = comparison["left"], comparison["right"]
                for side in sides:
                    client.get(origin + side["url"])
                left, right = (segments.load(side["hash"]).true_return for side in sides)
                answer = "equal" if left == right else "left" if left > right else "right"
                label = {"request_id": str(uuid.uuid4()), "comparison_id": comparison["id"]}
                label |= {"answer": answer}
                client.post(f"{origin}/api/v1/labels", json={"labels": [label]}).raise_for_status()
                answered.add(comparison["id"])
            time.sleep(ANSWERING_POLL_S)
    return len(answered)


def pace_of(home: Path) -> float:
    """Return the steps/s of training without the first rollout, which includes compilation."""
    with as_home(home):
        return curve_figures(Experiment.find("page").metrics())["steady_steps_per_second"]


# --- wire: bytes of a comparison ---


def measure_wire(options: Options, records: Records) -> None:
    """Measure a comparison of every environment of the suite, as sent by the service."""
    for env_id in ["Hopper-v1"] if options.is_quick else suite():
        with human_run(env_id, 2) as started:
            keep(
                options, records, "wire", env_id=env_id, **bytes_on_the_wire(started.printed_link())
            )


def suite() -> list[str]:
    """Return the long environments of the suite; the short ones have the same clips."""
    return [env_id for env_id in SUITE if not env_id.startswith("Short")]


def bytes_on_the_wire(link: str) -> dict[str, int]:
    """Measure the bytes that a page fetches for a comparison; the scene is fetched once.

    Raises:
        ChildFailed: no comparison was asked.
    """
    with httpx.Client(trust_env=False, follow_redirects=True) as client:
        origin = re.sub(r"(https?://[^/]+).*", r"\1", link)
        client.get(link)
        deadline = time.perf_counter() + GIVE_UP_S
        while time.perf_counter() < deadline:
            response = client.get(f"{origin}/api/v1/experiments/page/comparisons/next").json()
            for comparison in response["comparisons"]:
                sides = [comparison["left"], comparison["right"]]
                return {
                    "clips_bytes": sum(received(client, origin + side["url"]) for side in sides),
                    "scene_bytes": received(client, origin + sides[0]["scene_url"]),
                }
            time.sleep(POLL_S)
    raise ChildFailed("no comparison was asked")


def received(client: httpx.Client, url: str) -> int:
    """Return the size of a response body as sent, possibly compressed."""
    return client.get(url).raise_for_status().num_bytes_downloaded


# --- bundle: the page itself ---


def measure_bundle(options: Options, records: Records) -> None:
    """Measure the files of the built page, each compressed separately."""
    files = [path for path in chromium.INDEX.parent.rglob("*") if path.is_file()]
    sizes = [len(gzip.compress(path.read_bytes(), 6)) for path in files]
    keep(options, records, "bundle", files=len(files), gzip_bytes=sum(sizes))


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the report of the newest run of each part."""
    parts = {
        "launch": _launch,
        "swap": _swap,
        "pace": _pace,
        "training": _training,
        "bundle": _bundle,
        "wire": _wire,
    }
    return describe_parts(parts, records)


def _launch(records: list[Record]) -> list[str]:
    seconds = middle(record["first_comparison_s"] for record in records)
    return [
        f"* From `rl-teacher teach -p human -e ShortHopper-v1 -L 25` to the first comparison in "
        f"the browser: **{number(seconds)} s** (to reach: under 15 s); nothing compiled yet, "
        f"median of {len(records)}.",
    ]


def _swap(records: list[Record]) -> list[str]:
    newest = records[-1]
    return [
        f"* From a key to the next comparison on screen: **{number(newest['median_ms'])} ms** (to "
        f"reach: under 50 ms), median of {newest['swaps']}; the slowest "
        f"{number(newest['slowest_ms'])} ms. The page itself has drawn it after "
        f"{number(newest['median_draw_ms'])} ms; the rest is the processor drawing the pixels.",
    ]


def _pace(records: list[Record]) -> list[str]:
    newest = records[-1]
    return [
        f"* Two {newest['env_id']} clips in a window of {newest['window']}, drawn by the "
        f"processor: **{number(newest['median_fps'])} frames a second** (to reach: "
        f"20); in the slowest second {number(newest['slowest_fps'])}.",
    ]


def _training(records: list[Record]) -> list[str]:
    person = middle(record["person_steps_per_second"] for record in records)
    synthetic = middle(record["synthetic_steps_per_second"] for record in records)
    return [
        f"* Training while a person answers every comparison: **{ratio(person / synthetic)}** the "
        f"pace of a synthetic run with as many labels (to reach: 0.9x); {number(person)} over "
        f"{number(synthetic)} steps/s, medians of {len(records)} rounds, in turn.",
    ]


def _wire(records: list[Record]) -> list[str]:
    rows = [
        [
            record["env_id"],
            *(f"{record[name] / 1000:.1f}" for name in ("clips_bytes", "scene_bytes")),
        ]
        for record in records
    ]
    return [
        "",
        "A comparison on the wire, both clips of 1.5 s (to reach: Hopper 10 KB, any 50 KB); the "
        "scene is sent once. KB of 1,000 bytes:",
        "",
        *table(["", "both clips", "scene, once"], rows),
        "",
    ]


def _bundle(records: list[Record]) -> list[str]:
    size = records[-1]["gzip_bytes"] / 1000
    return [f"* The page itself, compressed: **{number(size)} KB** (to reach: 250 KB)."]
