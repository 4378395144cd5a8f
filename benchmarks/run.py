"""Run benchmarks: `python -m benchmarks.run [name ...] [--quick]`; all of them without a name."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import machine, results
from benchmarks.children import ChildFailed
from benchmarks.options import Options
from benchmarks.registry import BENCHMARKS, records_of
from benchmarks.settings import setting


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, record and regenerate RESULTS.md; return the exit code."""
    given = parser().parse_args(arguments)
    options = options_of(given)
    code = 0
    for name in given.names or BENCHMARKS:
        print(f"{name}:", flush=True)
        records = records_of(name, options.is_quick)
        try:
            BENCHMARKS[name].run(options, records)
        except ChildFailed as error:
            print(f"{name} failed: {error}", file=sys.stderr)
            code = 1
        if recorded := records.all():
            summarise = getattr(BENCHMARKS[name], "summary", BENCHMARKS[name].report)
            print("\n".join(summarise(recorded)), flush=True)
        if not options.is_quick:
            results.write()
    return code


def parser() -> argparse.ArgumentParser:
    """Build the argument parser."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    flags.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    flags.add_argument("--quick", action="store_true", help="check only that the benchmarks run")
    flags.add_argument("--only", nargs="+", default=[], help="environment ids, or parts")
    flags.add_argument("--labels", nargs="+", type=int, default=[], help="0 is the true reward")
    flags.add_argument("--seeds", nargs="+", type=int, default=[], help="seeds of the runs")
    flags.add_argument("--parallel", type=int, default=0, help="number of simultaneous runs")
    flags.add_argument(
        "--steps", type=lambda text: int(float(text)), default=0, help="environment steps of a run"
    )
    flags.add_argument("--again", action="store_true", help="repeat what is already recorded")
    flags.add_argument(
        "--no-controls",
        dest="has_controls",
        action="store_false",
        help="tasks: do not train on predictors that are never fitted",
    )
    flags.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings of our runs, named as in `rl-teacher teach`: ppo.num_envs=16",
    )
    return flags


def options_of(given: argparse.Namespace) -> Options:
    """Validate the flags."""
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser().error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    settings: dict[str, Any] = {}
    for text in given.set:
        try:
            settings |= [setting(text)]
        except (ValueError, KeyError) as error:
            parser().error(f"--set {text}: {error}")
    return Options(
        run=machine.now(),
        is_quick=given.quick,
        only=tuple(given.only),
        labels=tuple(given.labels),
        seeds=tuple(given.seeds),
        parallel=given.parallel,
        steps=given.steps,
        settings=settings,
        is_again=given.again,
        has_controls=given.has_controls,
    )


if __name__ == "__main__":
    sys.exit(main())
