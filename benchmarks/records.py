"""Metrics as JSON lines: one file for each benchmark, which only grows."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine

RESULTS = Path(__file__).parent / "results"

Record = dict[str, Any]


class Records:
    """The file of one benchmark.

    Args:
        name: of the benchmark.
        is_quick: a smoke run's figures are kept apart, and are not committed.
        folder: where the files are.
    """

    def __init__(self, name: str, is_quick: bool = False, folder: Path = RESULTS) -> None:
        self.path = (folder / "quick" if is_quick else folder) / f"{name}.jsonl"

    def append(self, **figures: Any) -> Record:
        """Keep some figures, with what they depend on.

        Returns:
            The record as it was written.
        """
        record = {**figures, "date": machine.now(), **machine.circumstances()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def all(self) -> list[Record]:
        """Every record, oldest first; half a line of a killed process is left out."""
        if not self.path.exists():
            return []
        return list(_parsed(self.path.read_text().splitlines()))


def _parsed(lines: Iterable[str]) -> Iterable[Record]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def latest_by(records: Iterable[Record], *fields: str) -> list[Record]:
    """The newest record of each combination of these fields, in the order first seen."""
    latest: dict[str, Record] = {}
    for record in records:
        latest[key_of({field: record.get(field) for field in fields})] = record
    return list(latest.values())


def latest_run(records: list[Record]) -> list[Record]:
    """The records of the newest run."""
    return [record for record in records if record["run"] == records[-1]["run"]] if records else []


def key_of(settings: Mapping[str, Any]) -> str:
    """Equal settings, equal key: whatever the order, whatever the commit."""
    return json.dumps(settings, sort_keys=True)
