"""RESULTS.md, generated from the records: `python -m benchmarks.results`."""

from pathlib import Path

from benchmarks import registry
from benchmarks.records import Record, Records

PATH = Path(__file__).parent / "RESULTS.md"


def write(path: Path = PATH) -> None:
    """Write the results of every recorded benchmark, favourable or not."""
    path.write_text(document({name: Records(name).all() for name in registry.BENCHMARKS}))


def document(records: dict[str, list[Record]]) -> str:
    """Build the whole page."""
    lines = [
        "# Results",
        "",
        "Written by `python -m benchmarks.results` from `results/*.jsonl`, which hold every figure "
        "with its settings, seeds, versions, machine and commit; the newest are shown here. "
        "[README.md](README.md) says what is measured and how.",
        "",
    ]
    for name, benchmark in registry.BENCHMARKS.items():
        lines += [f"## {name}", ""]
        if not records.get(name):
            lines += [f"Not measured yet: `{benchmark.HOW}`.", ""]
            continue
        lines += [*benchmark.report(records[name]), *provenance(records[name]), ""]
        lines += [f"Again: `{benchmark.HOW}`.", ""]
    return "\n".join(lines).rstrip() + "\n"


def provenance(records: list[Record]) -> list[str]:
    """Describe machine, versions, commits and dates of the newest record, and list the others."""
    newest = records[-1]
    versions = newest["versions"] | _peer_versions(records)
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    commits = list(dict.fromkeys(record["commit"] for record in records))
    dates = sorted({record["date"][:10] for record in records})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return [
        f"{newest['cpu']}, {newest['cores']} cores, {newest['machine']}, Python "
        f"{newest['python']}; {words}. Commits {', '.join(commits[-3:])} (+ means with changes); "
        f"{span}."
    ]


def _peer_versions(records: list[Record]) -> dict[str, str]:
    """Return the versions in the environment of the newest peer."""
    found = [record["peer_versions"] for record in records if "peer_versions" in record]
    return {f"the peer's {name}": number for name, number in found[-1].items()} if found else {}


if __name__ == "__main__":
    write()
    print(PATH.name)
