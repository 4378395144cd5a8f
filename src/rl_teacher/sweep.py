"""The command `rl-teacher sweep`: one experiment for each seed and combination of settings.

A sweep is a TOML file:

    flags = "-p synth -e ShortHopper-v1 -l 100 -t 400000"     # of `rl-teacher teach`
    seeds = [0, 1, 2, 3, 4]

    [grid]                                                    # every combination is run
    "--reward.l2" = [10.0, 100.0]
    "-e" = ["ShortHopper-v1", "ShortWalker-v1"]

Every run is a process of `rl-teacher teach`, on this machine or on a node of a cluster. When the
command is repeated, finished runs are skipped, and stopped ones continue.
"""

import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_teacher.common.errors import BadInput, ClusterUnavailable, RlTeacherError
from rl_teacher.common.parallel import in_parallel
from rl_teacher.common.text import counted
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.report.figures import UNKNOWN, duration, reward
from rl_teacher.report.statistics import interquartile_mean
from rl_teacher.report.summary import area_under_curve, newest
from rl_teacher.runs.config_comparison import flatten
from rl_teacher.runs.folder import Experiment, as_json, shortened_name, stored_experiments
from rl_teacher.runs.status import Phase
from rl_teacher.store.records import ExperimentView

OWN_FLAGS = {"-n": "name", "--name": "name", "-s": "seeds", "--seed": "seeds"}
"""Flags of a run that the sweep sets, with the key of the file that they follow from."""

OUTPUT_TAIL = 2_000
"""Characters of a failed run's output that are shown."""

Process = subprocess.Popen[bytes]

Result = dict[str, Any]
"""Result of a finished run: `settings` and `seed`; `final_return` and `area` of the true return, or
None without one; `labels` and `wall_s`, over all processes of a continued run."""


@dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        name: name of its experiment.
        settings: flags of the grid with their values, as text.
        seed: its seed.
        flags: all arguments of `rl-teacher teach`.
        folder: working folder, in which relative paths of the arguments are looked up.
    """

    name: str
    settings: str
    seed: int
    flags: tuple[str, ...]
    folder: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Sweep:
    """Contents of a file.

    Attributes:
        name: name of the file without its suffix; the experiments' names begin with it.
        flags: arguments of `rl-teacher teach` of every run.
        seeds: seeds of each combination.
        grid: values of each flag that is varied, each as one or more words.
    """

    name: str
    flags: tuple[str, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, Sequence[tuple[str, ...]]]

    def runs(self) -> Iterator[Run]:
        """Yield every run: all combinations of one seed, then those of the next."""
        for seed, values in itertools.product(self.seeds, itertools.product(*self.grid.values())):
            varied = dict(zip(self.grid, values, strict=True))
            settings = ", ".join(
                f"{flag.lstrip('-')}={' '.join(value)}" for flag, value in varied.items()
            )
            # Values may be paths, with characters that names cannot have.
            parts = [self.name, *re.sub(r"[/\\,]", "", settings).split()]
            name = shortened_name("_".join(parts), f"_seed={seed}")
            flags = [word for flag, value in varied.items() for word in (flag, *value)]
            own = ("-s", str(seed), "-n", name)
            yield Run(name, settings, seed, (*self.flags, *flags, *own))


Words = str | int | float | list[str | int | float]
"""Value of a flag, as one or more words."""


class SweepFile(BaseModel):
    """Contents of a TOML file, see the module."""

    model_config = ConfigDict(strict=True, extra="forbid")

    flags: str
    seeds: Annotated[list[int], Field(min_length=1)]
    grid: dict[
        Annotated[str, Field(pattern="^-")], Annotated[list[Words], Field(min_length=1)]
    ] = {}


def read_sweep(path: Path) -> Sweep:
    """Read a sweep from a TOML file.

    Raises:
        BadInput: the file cannot be read, or has other keys or types than needed.
    """
    try:
        given = SweepFile.model_validate(tomllib.loads(path.read_text()))
        words = shlex.split(given.flags)
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            wrong = error.errors()[0]
            reason = f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
        raise BadInput(
            f"The sweep {path} cannot be read: {reason}. Name a TOML file with `flags`, the "
            "arguments of `rl-teacher teach` as text, `seeds`, a list of integers, and optionally "
            'a [grid] of flags with lists of values, such as "--reward.l2" = [10.0, 100.0].'
        ) from None
    for word in [*words, *given.grid]:
        if (flag := word.partition("=")[0]) in OWN_FLAGS:
            raise BadInput(
                f"{flag} is given in {path}, but the sweep sets the {OWN_FLAGS[flag]} of its runs. "
                "Omit it."
            )
    grid = {
        flag: [
            tuple(map(str, value)) if isinstance(value, list) else (str(value),) for value in values
        ]
        for flag, values in given.grid.items()
    }
    return Sweep(path.stem, tuple(words), tuple(given.seeds), grid)


class RunFailed(RlTeacherError):
    """A run ended with an error."""


def sweep(
    runs: Mapping[Run, TeachConfig],
    parallel: int,
    report: Callable[[str], None],
    executor: Callable[[Run], None],
    cancel: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Execute the runs that are not finished yet.

    Args:
        runs: the runs, with their parsed flags.
        parallel: number of simultaneous runs.
        report: called with a line of progress.
        executor: executes a run, see `execute`.
        cancel: ends what the executor executes, after Ctrl-C.

    Returns:
        The results of all runs, in order.

    Raises:
        RunFailed: some runs failed. It is raised after all others are finished.
    """
    stored = stored_experiments()
    missing = [run for run, config in runs.items() if not is_finished(run, config, stored)]
    report(f"{counted(len(runs), 'run')}, {len(missing)} of them to do")
    failures = []
    for run, ended in in_parallel(executor, missing, parallel, cancel):
        try:
            ended.result()
        except (RunFailed, ClusterUnavailable) as error:
            failures.append(run.name)
            report(f"{run.name} failed:\n{error}")
            continue
        result = result_of(run)
        report(
            f"{run.name}: return {reward(result['final_return'])} in {duration(result['wall_s'])}"
        )
    if failures:
        raise RunFailed(
            f"{len(failures)} of {counted(len(runs), 'run')} failed: {', '.join(failures)}. "
            "Repeat the command to try them again."
        )
    return [result_of(run) for run in runs]


def is_finished(run: Run, config: TeachConfig, stored: Mapping[str, ExperimentView]) -> bool:
    """Return whether the experiment of a run has these settings and has taken all its steps.

    One with other settings is not: `rl-teacher teach` extends it, or refuses them.
    """
    experiment = Experiment.find_or_none(run.name)
    if experiment is None or experiment.summary(stored).phase is not Phase.FINISHED:
        return False
    return flatten(experiment.config) == flatten(as_json(config.saved()))


def execute(run: Run, on_start: Callable[[Process], None] = lambda _: None) -> None:
    """Execute a run in a process, or continue it.

    Args:
        run: the run.
        on_start: called with the process.

    Raises:
        RunFailed: the process failed, or it was stopped before its last step; the message has the
            end of its output.
    """
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "rl_teacher.cli", "teach", *run.flags],
        # Processes of a cluster have another working folder.
        cwd=run.folder if run.folder.is_dir() else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        on_start(process)
        printed, _ = process.communicate()
    output = printed.decode(errors="replace")
    if process.returncode < 0:
        output += f"\nIt was killed by signal {-process.returncode}."
    if process.returncode != 0:
        raise RunFailed(output[-OUTPUT_TAIL:].strip() or f"exit code {process.returncode}")
    if Experiment.find(run.name).summary().phase is not Phase.FINISHED:
        raise RunFailed("It was stopped and saved.")


def result_of(run: Run) -> Result:
    """Return the result of a finished run."""
    rows = Experiment.find(run.name).metrics()
    return {
        "settings": run.settings,
        "seed": run.seed,
        "final_return": newest(rows, "true_return"),
        "area": area_under_curve(rows),
        "labels": newest(rows, "labels_answered"),
        "wall_s": newest(rows, "wall_s"),
    }


HEADINGS = ("settings", "seeds", "final return", "area under the curve", "labels")
"""Headings of `table_rows`."""


def table_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the table of a sweep, with one row for each combination of settings.

    Returns are interquartile means over the seeds with 95 % bootstrap intervals.
    """
    combinations: dict[str, list[Result]] = {}
    for result in results:
        combinations.setdefault(result["settings"], []).append(result)
    return [
        (
            settings or UNKNOWN,
            str(len(runs)),
            over_seeds(runs, "final_return"),
            over_seeds(runs, "area"),
            numbers_of_labels(runs),
        )
        for settings, runs in combinations.items()
    ]


def numbers_of_labels(runs: Sequence[Result]) -> str:
    """Format the smallest and the largest number of labels; one number if they are equal."""
    labels = [int(run["labels"] or 0) for run in runs]
    return " to ".join(f"{each:,}" for each in sorted({min(labels), max(labels)}))


def over_seeds(runs: Sequence[Result], metric: str) -> str:
    """Format the interquartile mean of a metric with its interval; a dash if a run has none."""
    values = {run["seed"]: run[metric] for run in runs}
    if None in values.values():
        return UNKNOWN
    estimate = interquartile_mean({"": values})
    if len(values) == 1:
        return reward(estimate.value)
    return f"{reward(estimate.value)} ({reward(estimate.low)} to {reward(estimate.high)})"
