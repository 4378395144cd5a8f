"""Benchmarks that are measured part by part: the loop over them, and what they keep."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.children import Finished
from benchmarks.options import Options
from benchmarks.records import Records
from rl_teacher.config.experiment import TeachConfig

Measure = Callable[[Options, Records], None]


def measure_parts(parts: Mapping[str, Measure], options: Options, records: Records) -> None:
    """Measure the parts that are asked for, in their order."""
    for name, measure in parts.items():
        if options.wants(name):
            measure(options, records)


def keep(options: Options, records: Records, part: str, **figures: Any) -> None:
    """Record figures and print them."""
    records.append(run=options.run, part=part, **figures)
    said = ", ".join(f"{name} {value}" for name, value in figures.items())
    print(f"  {part}: {said}", flush=True)


def pace_of(finished: Finished, config: TeachConfig) -> dict[str, Any]:
    """How quick a whole run was, once its first rollout was done, and with it."""
    return {
        "settings": config.saved(),
        "steps": finished.figures["steps"],
        "steps_per_second": finished.figures["steady_steps_per_second"],
        "with_compilation": finished.figures["steps_per_second"],
        "peak_mb": finished.peak_mb,
    }
