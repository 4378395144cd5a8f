"""Metrics as JSON lines: one append-only file per benchmark."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine

RESULTS = Path(__file__).parent / "results"

Record = dict[str, Any]


class Records:
    """File of one benchmark.

    Args:
        name: name of the benchmark.
        is_quick: store the metrics of a smoke run separately, where they are not committed.
        folder: folder of the files.
    """

    def __init__(self, name: str, is_quick: bool = False, folder: Path = RESULTS) -> None:
        self.path = (folder / "quick" if is_quick else folder) / f"{name}.jsonl"

    def append(self, source: str | None = None, /, **metrics: Any) -> Record:
        """Append a record of metrics, with their circumstances.

        Args:
            source: source that was measured; the present one by default.
            metrics: fields of the record.

        Returns:
            The record as written.
        """
        record = {**metrics, "date": machine.now(), **machine.circumstances()}
        record["source"] = source or record["source"]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record).encode() + b"\n"
        with self.path.open("ab+") as file:
            # A truncated line is ended first, or the new record would be lost with it.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
        return record

    def all(self) -> list[Record]:
        """Return all records, oldest first, without a truncated line of a killed process."""
        if not self.path.exists():
            return []
        return list(_parsed(self.path.read_text().splitlines()))


def _parsed(lines: Iterable[str]) -> Iterable[Record]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def groups(
    records: Iterable[Record], *fields: str, ignored: Iterable[str] = ()
) -> list[list[Record]]:
    """Group runs that differ in seeds only: of equal fields, settings and source.

    No run is left out: one that was repeated is there as often as it was made.

    Args:
        records: runs, oldest first.
        fields: fields besides settings and source.
        ignored: settings that may differ, besides the seed.
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        settings = _without(record["settings"], {"seed", *ignored})
        key = key_of({"": [source_of(record), settings, *map(record.get, fields)]})
        found.setdefault(key, []).append(record)
    return [sorted(group, key=lambda record: record["seed"]) for group in found.values()]


def _without(settings: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {
        name: _without(value, names) if isinstance(value, dict) else value
        for name, value in settings.items()
        if name not in names
    }


def latest_run(records: list[Record]) -> list[Record]:
    """Return the records of the newest run."""
    return [record for record in records if record["run"] == records[-1]["run"]] if records else []


def source_of(record: Record) -> str:
    """Return what identifies the code of a run: its source, or the commit of an older record."""
    return record.get("source") or record["commit"]


def asked_steps(record: Record) -> int:
    """Return the steps that a run was given; ours takes more, to the end of the last rollout."""
    settings = record["settings"]
    return settings["config"]["num_timesteps"] if "config" in settings else settings["steps"]


def conditions(record: Record, *fields: str) -> list[Any]:
    """Return what must be equal in runs that are compared: source, steps and these fields."""
    return [source_of(record), asked_steps(record), *map(record.get, fields)]


def key_of(settings: Mapping[str, Any]) -> str:
    """Return a key that is equal for equal settings, regardless of their order."""
    return json.dumps(settings, sort_keys=True)
