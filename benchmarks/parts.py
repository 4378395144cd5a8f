"""Benchmarks that are measured in parts: the loop over them and their records."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.children import Finished
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_run
from rl_teacher.config.experiment import TeachConfig

Measure = Callable[[Options, Records], None]


def measure_parts(parts: Mapping[str, Measure], options: Options, records: Records) -> None:
    """Measure the selected parts in order."""
    for name, measure in parts.items():
        if options.wants(name):
            measure(options, records)


def describe_parts(
    parts: Mapping[str, Callable[[list[Record]], list[str]]], records: list[Record]
) -> list[str]:
    """Build the report of the newest run of each part, in order."""
    lines: list[str] = []
    for name, describe in parts.items():
        newest = latest_run([record for record in records if record["part"] == name])
        lines += describe(newest) if newest else []
    return lines


def keep(options: Options, records: Records, part: str, **metrics: Any) -> None:
    """Record metrics and print them."""
    records.append(run=options.run, part=part, **metrics)
    text = ", ".join(f"{name} {value}" for name, value in metrics.items())
    print(f"  {part}: {text}", flush=True)


def pace_of(finished: Finished, config: TeachConfig) -> dict[str, Any]:
    """Return the speed of a whole run, with and without its first rollout."""
    return {
        "settings": config.saved(),
        "steps": finished.figures["steps"],
        "steps_per_second": finished.figures["steady_steps_per_second"],
        "with_compilation": finished.figures["steps_per_second"],
        "rollout_us_per_step": finished.figures["rollout_us_per_step"],
        "update_us_per_step": finished.figures["update_us_per_step"],
        "peak_mb": finished.peak_mb,
    }
