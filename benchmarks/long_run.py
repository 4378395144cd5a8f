"""Resources of a long run: memory, descriptors, threads and disk while labels are answered.

`rl-teacher teach --serve` is the real command, in a process of its own, with the page's service.
"""

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.children import ROOT, ChildFailed
from benchmarks.machine import resident_mb
from benchmarks.options import Options
from benchmarks.records import Record, Records
from benchmarks.tables import number, table
from rl_teacher.report.plot import Panel, draw
from rl_teacher.runs.metrics_file import MetricsFile
from tests.browser.processes import Running

HOW = "python -m benchmarks.run long_run [--only Hopper-v1] [--labels 5000] [--steps 5000000]"
STEPS = 5_000_000
LABELS = 5_000
SAMPLES = 250
"""Samples of a run, about one for each row of its metrics."""
POLL_S = 0.5
PICTURE = ROOT / "docs" / "images" / "long-run.png"
PANELS = (
    Panel("trainer_mb", "Memory of the training process", "resident MB"),
    Panel("service_mb", "Memory of the service", "resident MB"),
    Panel("disk_mb", "Files of the home", "MB"),
    Panel("descriptors", "Open files and connections", "both processes"),
    Panel("threads", "Threads", "both processes"),
    Panel("labels_answered", "Labels", "comparisons answered"),
)


def run(options: Options, records: Records) -> None:
    """Train once for each environment, and record samples of the resources."""
    steps = options.steps or (60_000 if options.is_quick else STEPS)
    for env_id in options.only or ("Hopper-v1",):
        for labels in options.labels or (60 if options.is_quick else LABELS,):
            with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
                samples, wall_s = watch(Path(home), env_id, steps, labels)
            kept_record = records.append(
                run=options.run,
                env_id=env_id,
                steps=steps,
                labels=labels,
                wall_s=wall_s,
                samples=samples,
            )
            if not options.is_quick:
                draw_picture(kept_record)
            print(f"  {env_id}: {len(samples)} samples in {number(wall_s)} s", flush=True)


def watch(home: Path, env_id: str, steps: int, labels: int) -> tuple[list[Record], float]:
    """Train in a process and sample its resources.

    Returns:
        Samples in order, and the seconds of the whole run.

    Raises:
        ChildFailed: the run failed.
    """
    flags = ("-p", "synth", "-e", env_id, "-l", str(labels), "-t", str(steps), "-n", "long")
    began_s = time.perf_counter()
    samples: list[Record] = []
    teaching = Running(home, "teach", "teach", *flags, "--serve", "--no-browser", "--port", "0")
    try:
        while teaching.is_running:
            rows = MetricsFile(home / "experiments" / "long" / "metrics.jsonl").last()
            step = int(rows.get("step") or 0)
            if steps * len(samples) / SAMPLES <= step < steps and step:
                samples.append({"step": step, **resources(teaching.process.pid, home)})
                samples[-1]["labels_answered"] = rows.get("labels_answered")
            time.sleep(POLL_S)
        if teaching.process.returncode != 0:
            raise ChildFailed(teaching.printed()[-2000:])
    finally:
        teaching.end()
    return samples, time.perf_counter() - began_s


def resources(pid: int, home: Path) -> Record:
    """Measure the training process, its service, and the files of the home."""
    processes = list(tree(pid))
    service = [each for each in processes if is_service(each)]
    files = [path for path in home.rglob("*") if path.is_file()]
    return {
        "trainer_mb": sum(resident_mb(each) for each in processes if each not in service),
        "service_mb": sum(map(resident_mb, service)),
        "disk_mb": sum(map(size_bytes, files)) / 1e6,
        "descriptors": sum(entries(each, "fd") for each in processes),
        "threads": sum(entries(each, "task") for each in processes),
    }


def tree(pid: int) -> Iterable[int]:
    """Yield a process and its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in content(children).split():
            yield from tree(int(child))


def is_service(pid: int) -> bool:
    """Return whether a process is `rl-teacher serve`."""
    return "\0serve\0" in content(Path(f"/proc/{pid}/cmdline"))


def entries(pid: int, folder: str) -> int:
    """Count the entries of a folder of a process: `fd` or `task`; 0 if it has ended."""
    try:
        return len(list(Path(f"/proc/{pid}/{folder}").iterdir()))
    except OSError:
        return 0


def content(path: Path) -> str:
    """Return the text of a file of `/proc`; empty if its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def size_bytes(path: Path) -> int:
    """Return the size of a file; 0 if it has been deleted."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def report(records: list[Record]) -> list[str]:
    """Build the table of the newest run of each environment."""
    newest = {record["env_id"]: record for record in records}
    rows = []
    for record in newest.values():
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            sample = at_share(record, share)
            rows.append(
                [
                    record["env_id"],
                    f"{sample['step']:,}",
                    number(sample["labels_answered"]),
                    *(number(sample[panel.key]) for panel in PANELS[:-1]),
                ]
            )
    headings = ["", "steps", "labels", *(panel.title.lower() for panel in PANELS[:-1])]
    return [
        "`rl-teacher teach -p synth --serve` in a process of its own, with the service that it "
        "starts. Memory and files in MB of 10^6 bytes.",
        "",
        *table(headings, rows),
        "",
    ]


def at_share(record: Record, share: float) -> Record:
    """Return the last sample within a share of a run's steps."""
    samples = record["samples"]
    within = [each for each in samples if each["step"] <= share * record["steps"]]
    return (within or samples)[-1 if within else 0]


def draw_picture(record: Record) -> None:
    """Plot every resource of a run against its steps."""
    figure = Figure(figsize=(10, 6), dpi=130)
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    canvas = FigureCanvasAgg(figure)
    for panel, axes in zip(PANELS, figure.subplots(2, 3).flat, strict=True):
        draw(axes, panel, [(record["env_id"], record["samples"])])
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    canvas.print_png(str(PICTURE), pil_kwargs={"optimize": True})
