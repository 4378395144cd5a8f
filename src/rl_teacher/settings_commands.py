"""Commands whose arguments are settings; `cli` imports them only when they are run."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, Parameter
from pydantic.dataclasses import dataclass

from rl_teacher.cli import PARSING, confirm_deletion, print_summary, print_table, table_of
from rl_teacher.common.errors import BadInput
from rl_teacher.common.text import counted
from rl_teacher.config.arguments import Given, given_type, merged
from rl_teacher.config.experiment import PageOptions, RunOptions, ServeOptions, TeachConfig
from rl_teacher.config.fields import STRICT, WHAT, as_flag, build, fields_of
from rl_teacher.config.presets import PresetName, preset
from rl_teacher.play.options import CircusOptions, PlayOptions

if TYPE_CHECKING:
    from rl_teacher.sweep import Run, Sweep

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, config=STRICT)
class PresetChoice:
    """Choice of a preset."""

    preset: Annotated[PresetName | None, WHAT] = None
    """defaults of the other settings: for vectors, images or Atari, selected by the environment; or
    those of the paper for Atari"""


NOTHING: Given = {}
FIRST_RUN = "-p human -e ShortHopper-v1 -l 200 -L 25 -n mine"
DEMO = "-p synth -e ShortHopper-v1 -l 300 -t 800000 -n demo --serve"


def takes(
    *models: type, only: Sequence[str] = (), shows_all: bool = False
) -> Callable[[Command], Command]:
    """Return a decorator that makes the arguments of a command settings, as its `given`."""

    def decorate(command: Command) -> Command:
        settings = given_type(*models, only=only, shows_all=shows_all)
        command.__annotations__["given"] = Annotated[settings, Parameter(name="*")]
        return command

    return decorate


# --- teach, collect ---


@takes(TeachConfig, RunOptions, PresetChoice)
def teach(*, given: Given = NOTHING) -> int:
    """Train an agent on labels, the true reward or a saved predictor.

    Without options, at a terminal, it teaches a hopper from your labels. `rl-teacher teach
    --help-all` lists all options, as docs/settings.md does.
    """
    if given.keys() <= fields_of(PageOptions).keys() and sys.stdin.isatty():
        given = assumed(FIRST_RUN) | given
    return run_experiment(*settings_of_teach(given))


@takes(PageOptions, shows_all=True)
def demo(*, given: Given = NOTHING) -> int:
    """Watch a synthetic teacher, which answers by the true reward, teach a hopper.

    Args:
        given: options
    """
    return run_experiment(*settings_of_teach(assumed(DEMO) | given))


def assumed(flags: str) -> Given:
    """Return the arguments of a `teach` command that the user did not type, and print it."""
    print(f"Running: rl-teacher teach {flags}")
    return given_by(flags.split())


@takes(TeachConfig, RunOptions, PresetChoice)
def collect(*, given: Given = NOTHING) -> int:
    """Collect labels without training, by default of people."""
    given = {"predictor": "human", "preset": "vectors"} | given
    return run_experiment(*settings_of_teach(given | {"collect_only": True}))


@takes(TeachConfig, RunOptions, PresetChoice, shows_all=True)
def teach_all(*, given: Given = NOTHING) -> int:
    """Train an agent on labels, the true reward or a saved predictor."""
    return teach(given=given)


def settings_of_teach(given: Given) -> tuple[TeachConfig, RunOptions, TeachConfig]:
    """Create the settings of a run from its arguments, and from the preset that they select.

    Returns:
        Settings of the experiment, options of the run, and the settings' defaults.

    Raises:
        BadInput: a setting is missing, or wrong.
    """
    from rl_teacher.envs.registry import get_env_info

    for name in ("env_id", "name"):
        if not given.get(name):
            raise BadInput(f"{as_flag(name)} is missing. Give it with -{name[0]}.")
    chosen: PresetName | None = given.get("preset")
    if chosen is None:
        env_info = get_env_info(given["env_id"])
        kind = "atari" if env_info.backend == "atari" else "images"
        chosen = kind if env_info.has_image_observations else "vectors"
    source = given.get("predictor")
    has_teacher = source in ("synth", "human")
    defaults: Given = preset(chosen, has_labels=source != "rl", has_teacher=has_teacher)
    if source == "human" and chosen in ("images", "atari"):
        del defaults["num_timesteps"]  # proportional to the labels
    settings = {name: given[name] for name in given if name in fields_of(TeachConfig)}
    options = {name: given[name] for name in given if name in fields_of(RunOptions)}
    is_collecting = {"collect_only": True} if given.get("collect_only") else {}
    return (
        build(TeachConfig, merged(defaults, settings)).with_label_budget(),
        build(RunOptions, options),
        build(TeachConfig, defaults | is_collecting),
    )


def parse_teach(arguments: Sequence[str]) -> tuple[TeachConfig, RunOptions, TeachConfig]:
    """Parse the arguments of `rl-teacher teach`; see `settings_of_teach`."""
    return settings_of_teach(given_by(arguments))


def given_by(arguments: Sequence[str]) -> Given:
    """Parse the arguments of `rl-teacher teach` that are given."""
    app = App(default_parameter=PARSING)
    app.default(teach)
    _, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=False)
    return bound.kwargs.get("given") or {}


def run_experiment(config: TeachConfig, options: RunOptions, defaults: TeachConfig) -> int:
    """Run an experiment, with warnings on the terminal, and print its results.

    Args:
        config: settings of the experiment.
        options: options of the run.
        defaults: settings before the command line was read.
    """
    print(f"Loading {config.env_id}...", flush=True)
    import logging

    from rich.console import Console
    from rich.logging import RichHandler

    from rl_teacher.runs.folder import Experiment
    from rl_teacher.teach import teach as run

    console = Console()
    handler = RichHandler(console=console, show_path=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    name = config.name
    if options.force_new:
        confirm_force_new(name)
    outcome = run(config, options, defaults)
    experiment = Experiment.find(name)
    if config.collect_only:
        num_labels = experiment.summary().labels.answered
        print(f"{counted(num_labels, 'label')} in experiment {name}")
    else:
        print_summary(experiment, console)
        console.out(f"plot: {experiment.plot_path}", highlight=False)
    if not outcome.is_finished:
        print("The run was stopped and saved. Repeat the command to continue it.")
    elif config.collect_only:
        quoted = quote(name)
        print(f"next: rl-teacher fit {quoted} -n NEW, or rl-teacher export {quoted}")
    return 0


def confirm_force_new(name: str) -> None:
    """Ask for confirmation before an experiment is deleted.

    Raises:
        BadInput: the answer is no, or the terminal is not interactive.
    """
    from rl_teacher.runs.folder import experiment_names, stored_experiments, validate_name

    name = validate_name(name)
    # A home that shares the database may have an experiment that has no folder in this one.
    if name in experiment_names() or name in stored_experiments():
        confirm_deletion(name, "Choose another name with -n, or omit --force-new.")


# --- fit ---


@takes(TeachConfig, only=("name", "predictor_path", "held_out", "seed", "pretrain_iters", "reward"))
def fit(labels: str, /, *, given: Given = NOTHING, out: str | None = None) -> None:
    """Fit a reward predictor to saved labels and save it.

    Args:
        labels: name of an experiment, or a data set (a .zip file)
        given: settings of the fit
        out: folder for the predictor, instead of an experiment
    """
    from rl_teacher.fit_offline import fit_labels
    from rl_teacher.quality.labelers import Share
    from rl_teacher.report.figures import is_missing, share

    outcome = fit_labels(build(TeachConfig, given | {"labels": labels}), out)
    report = outcome.report
    accuracy = Share.estimate(report.held_out_accuracy, report.held_out_labels)
    num_comparisons = counted(outcome.num_comparisons, "comparison")
    print(f"fitted to {num_comparisons}, {counted(report.num_steps, 'step')}")
    num_held_out = counted(outcome.num_held_out, "held-out comparison")
    on_held_out = f" on {num_held_out}" if outcome.num_held_out else ""
    # Nothing may be held out, or all of it is equal.
    unknown = "unknown: there is no held-out pair of which one clip is better"
    row = {"accuracy": accuracy.share, "accuracy_low": accuracy.low, "accuracy_high": accuracy.high}
    shown = unknown if is_missing(accuracy.share) else share(row, "accuracy") + on_held_out
    print(f"held-out accuracy: {shown}")
    print(f"predictor: {outcome.folder}")


# --- check, play, serve ---


@takes(TeachConfig, only=("predictor", "stacked_frames", "frame_size", "colour"))
def check(env_id: str, /, *, given: Given = NOTHING) -> None:
    """Check an environment for faults; with -p human, its clips too.

    Args:
        env_id: registered id, module:id, or module:function
        given: source of rewards, and settings of images
    """
    from rl_teacher.config.preprocessing import FrameSettings
    from rl_teacher.envs.check import describe_images, inspect_environment

    settings = build(TeachConfig, given)
    env_info, faults = inspect_environment(env_id, is_shown=settings.predictor == "human")
    if settings.frames != FrameSettings() and not env_info.has_image_observations:
        print("ignored: the settings of frames (observations are vectors)")
    for fault in faults:
        print(f"{'error' if fault.is_fatal else 'warning'}: {fault.text}")
    if any(fault.is_fatal for fault in faults):
        raise BadInput(f"{env_info.id} cannot be used as it is. Correct the errors above.")
    max_steps = env_info.max_episode_steps
    limit = counted(max_steps, "step") if max_steps else "any length"
    print(
        f"{env_info.id} can be used: episodes of {limit}, clips of {env_info.fps:g} steps a second"
    )
    if env_info.has_image_observations:
        print(describe_images(env_info.id, settings.frames))


@takes(PlayOptions, only=[name for name in fields_of(PlayOptions) if name != "name"])
def play(name: str, /, *, given: Given = NOTHING) -> int:
    """Play an experiment's agent on the page, or record a video.

    Args:
        name: name of the experiment
        given: options
    """
    print(f"Loading the agent of {name}...", flush=True)
    from rl_teacher.play.commands import play as run

    return run(build(PlayOptions, given | {"name": name}))


@takes(CircusOptions, shows_all=True)
def circus(*, given: Given = NOTHING) -> int:
    """Teach four tricks and build a page that compares them with agents of the true reward.

    Walker balances on one leg, Reacher keeps away from its target, Hopper turns backflips, and
    Cheetah dances on its hind leg. Eight agents are trained, one after another; experiments that
    exist are continued. The page works from its file.

    Args:
        given: options
    """
    from rl_teacher.play.circus import circus as run

    return run(build(CircusOptions, given))


@takes(ServeOptions, shows_all=True)
def serve(*, given: Given = NOTHING) -> int:
    """Serve the page: label and monitor all experiments.

    Args:
        given: options
    """
    options = build(ServeOptions, given)
    print("Loading the experiments and the page...", flush=True)
    from rl_teacher.web import serve as service

    return service.serve(options, options.end_after_runs, options.public_url)


@takes(PageOptions, shows_all=True)
def label(name: str, /, *, given: Given = NOTHING) -> None:
    """Label an experiment's comparisons with L, R, E and Enter; the page shows the clips.

    If no service is running, the command serves the page until it ends.

    Args:
        name: name of the experiment
        given: options
    """
    from rl_teacher.web.terminal import label_at_terminal

    label_at_terminal(name, build(PageOptions, given))


# --- sweep ---


def sweep(
    file: Path, /, *, parallel: int | None = None, cluster: str | None = None, cpus: int = 1
) -> None:
    """Run an experiment for each seed and combination of settings, and compare their returns.

    The file is in TOML. Finished runs are skipped when the command is repeated.

    Args:
        file: file with flags, seeds and grid
        parallel: number of simultaneous runs; by default 1, and with --cluster as many as it has
            CPUs for
        cluster: Ray cluster whose nodes execute the runs: local starts one on this machine, auto
            finds the running one, HOST:PORT is a head node
        cpus: CPUs of a run, with --cluster
    """
    from rich.console import Console

    from rl_teacher.common.runtime import sigterm_interrupts
    from rl_teacher.sweep import HEADINGS, Process, execute, read_sweep, table_rows
    from rl_teacher.sweep import sweep as run

    for flag, number in (("--parallel", parallel), ("--cpus", cpus)):
        if number is not None and number < 1:
            raise BadInput(f"{flag} {number} was given; at least 1 is needed.")
    if cpus != 1 and cluster is None:
        raise BadInput("--cpus was given, which has no effect without --cluster. Omit it.")
    runs = checked_runs(read_sweep(file))
    console = Console()
    report = partial(console.print, soft_wrap=True, markup=False)
    # Otherwise its runs would go on without it, and the repeated command would find them in use.
    with sigterm_interrupts():
        if cluster is None:
            started: list[Process] = []

            def terminate() -> None:
                for process in started:
                    process.terminate()

            results = run(
                runs, parallel or 1, report, partial(execute, on_start=started.append), terminate
            )
        else:
            from rl_teacher.cluster.connection import connected
            from rl_teacher.cluster.jobs import ClusterFunction, num_cluster_cpus

            with connected(cluster):
                at_once = parallel or max(1, num_cluster_cpus() // cpus)
                remote = ClusterFunction(execute, cpus)
                results = run(runs, at_once, report, remote, remote.cancel)
    table = table_of(*HEADINGS)
    for row in table_rows(results):
        table.add_row(*row)
    print_table(table)


def checked_runs(given: "Sweep") -> "dict[Run, TeachConfig]":
    """Parse and check the settings of all runs of a sweep before the first one starts.

    Raises:
        BadInput: a setting is wrong, people would have to answer, or runs would start over whenever
            they continue.
    """
    from rl_teacher.preparation import check as check_teach

    parsed = {}
    for run in given.runs():
        config, options, defaults = parse_teach(run.flags)
        plan = check_teach(config, options, defaults)
        if plan.asks_a_person:
            raise BadInput("A sweep does not wait for people to answer. Omit -p human.")
        if options.force_new:
            raise BadInput(
                "With --force-new, a sweep that is repeated would start its runs over instead of "
                "continuing them. Omit it."
            )
        parsed[run] = replace(config, env_id=plan.env_info.id)
    return parsed
