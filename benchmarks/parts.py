"""Benchmarks that are measured part by part: the loop over them, and what they keep."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.options import Options
from benchmarks.records import Records

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
