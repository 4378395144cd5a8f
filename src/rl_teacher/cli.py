"""Command line: parse arguments, call the library, print results."""

import os

# OpenBLAS reads this when NumPy is imported; its threads would compete with the physics.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rl_teacher.common.errors import BadInput, ExperimentNotFound, RlTeacherError, UnknownName
from rl_teacher.common.paths import user_path
from rl_teacher.common.runtime import repeated_interrupts
from rl_teacher.common.text import counted
from rl_teacher.config import predecessors
from rl_teacher.config.arguments import parse, parse_and_call, run_subcommand

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table

    from rl_teacher.config.experiment import FitConfig, RunOptions, TeachConfig
    from rl_teacher.runs.folder import Experiment
    from rl_teacher.runs.warm_start import KeptParts
    from rl_teacher.sweep import Sweep

ExportFormat = Literal["dataset", "jsonl", "parquet", "agent"]

FULL_WIDTH = 80
"""Width of a terminal from which on `rl-teacher runs` has room for all columns, in characters."""
UNLIMITED_WIDTH = 10_000
"""Width of a table that is not printed on a terminal, in characters."""

HELP = """\
usage: rl-teacher COMMAND ...

Train reinforcement learning agents from human preferences.

commands:
  teach            train an agent on labels, the true reward or a saved predictor
  collect          collect labels without training
  fit LABELS       fit a reward predictor to saved labels
  serve            serve the page: label and monitor all experiments
  label NAME       label an experiment's comparisons from the keyboard
  envs             list the environments
  check ENV        check an environment for faults
  runs             list the experiments and their states
  report NAME ...  print metrics and plot learning curves
  reward NAME ...  switch an agent between predicted and true rewards
  rename NAME NEW  rename an experiment
  archive          archive, list and restore experiments
  delete NAME      delete an experiment with its labels
  play NAME        play an experiment's agent in the browser, or record a video
  sweep FILE       train agents with several seeds and settings, and compare them
  circus           teach four tricks and build a page that shows them
  labelers         add, invite, list and revoke labelers
  export NAME      export labels with their segments, labels alone, or the agent
  import PATH      import a data set as an experiment
  backup PATH      copy everything to a folder, even while experiments run
  restore PATH     restore a backup into an empty home
  doctor           check all files and the database for damage

examples:
  rl-teacher teach -p rl -e ShortHopper-v1 -n base-rl
  rl-teacher teach -p synth -l 1400 -e ShortHopper-v1 -n syn-1400
  rl-teacher teach -p human -L 175 -e Reacher-v1 -n human-175
  rl-teacher report base-rl syn-1400

`rl-teacher COMMAND --help` lists the options of a command. Repeating a `teach` command
continues its experiment. All files are stored in ~/.rl-teacher (or RL_TEACHER_HOME).
`rl-teacher --version` prints the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if sys.stdout is None:  # closed by the parent process, as by `>&-` in a shell
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends
    try:
        try:
            with repeated_interrupts():
                return run_command(command, rest)
        finally:
            sys.stdout.flush()
    except RlTeacherError as error:
        print("\n".join([f"error: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return error.exit_code
    except MemoryError as error:
        # Runs whose largest arrays do not fit are refused before; see rewards/memory.py.
        print(
            f"error: Memory ran out: {str(error) or 'an array cannot be allocated'}. Lower the "
            "setting of this size, such as a batch size or the number of environments, or free "
            "memory.",
            file=sys.stderr,
        )
        return RlTeacherError.exit_code
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        discard_output()
        return 1
    except OSError as error:
        # Of the standard output; `folder_errors` converts those of other files.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        print(
            f"error: The output cannot be written: {error.strerror}. Free some space, or send it "
            "elsewhere.",
            file=sys.stderr,
        )
        discard_output()
        return RlTeacherError.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def discard_output() -> None:
    """Discard the standard output that is not written yet: Python flushes once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(command: str, arguments: Sequence[str]) -> int:
    """Run the command of this name, or print the overview of the commands.

    Raises:
        UnknownName: there is no such command.
        ExperimentNotFound: there is no experiment of this name; the message suggests similar ones.
        BadInput: earlier systems had it, or the experiment is only a predictor.
    """
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if command not in COMMANDS:
        predecessors.check_command(command, arguments)
        raise UnknownName("command", command, COMMANDS)
    try:
        return COMMANDS[command](arguments)
    except ExperimentNotFound as error:
        from rl_teacher.runs.folder import Experiment, experiment_names, not_found_message

        if error.unknown is None:
            raise
        if error.unknown in experiment_names():
            if not Experiment.find(error.unknown).is_offline_fit:
                raise
            raise BadInput(
                f"Experiment {error.unknown!r} of `rl-teacher fit` has neither comparisons nor an "
                "agent. Name another one; `rl-teacher runs` lists them."
            ) from error
        message = not_found_message(error.unknown)
        raise ExperimentNotFound(message) from error


def version(_: Sequence[str]) -> int:
    """Print the version."""
    from importlib.metadata import version as installed_version

    print(f"rl-teacher {installed_version('rl-teacher')}")
    return 0


# --- teach, collect ---


def teach(arguments: Sequence[str]) -> int:
    """Run `rl-teacher teach`."""
    return run_experiment(*parse_teach(arguments))


def parse_teach(
    arguments: Sequence[str],
) -> "tuple[TeachConfig, RunOptions, TeachConfig]":
    """Parse the arguments of `rl-teacher teach`.

    Returns:
        Settings of the experiment, options of the run, and the settings' defaults.
    """
    import tyro

    from rl_teacher.config.experiment import RunOptions, TeachConfig
    from rl_teacher.config.presets import PresetChoice

    defaults = TeachConfig("", name="", **_preset_settings(arguments))
    for name in ("env_id", "name"):  # Required, without a default in the help.
        object.__setattr__(defaults, name, tyro.MISSING)

    def teach_agent(
        *,
        config: Annotated[TeachConfig, tyro.conf.arg(name="")] = defaults,
        options: Annotated[RunOptions, tyro.conf.arg(name="")],
        choice: Annotated[PresetChoice, tyro.conf.arg(name="")],  # noqa: ARG001 - read before
    ) -> tuple[TeachConfig, RunOptions, TeachConfig]:
        """Train an agent on labels, the true reward or a saved predictor."""
        return config, options, defaults

    # tyro has only `--no-FLAG` for a flag that the preset has switched on.
    are_on = set(_flags_on(defaults))
    arguments = [each for each in arguments if each.replace("_", "-") not in are_on]
    return parse("teach", teach_agent, arguments)


def _flags_on(settings: Any, prefix: str = "") -> Iterator[str]:
    """Yield the flags of a dataclass, and of its sections, that are on."""
    from dataclasses import is_dataclass

    from rl_teacher.config.fields import as_flag

    for name, value in vars(settings).items():
        if is_dataclass(value):
            yield from _flags_on(value, f"{prefix}{name}.")
        elif value is True:
            yield as_flag(prefix + name)


def _preset_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the preset that the arguments select.

    The preset depends on three of the arguments, which are parsed first.
    """
    from argparse import ArgumentError, ArgumentParser

    from rl_teacher.config.presets import PRESETS, preset
    from rl_teacher.envs.registry import get_env_info

    scanner = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    scanner.add_argument("-e", "--env-id", "--env_id")
    scanner.add_argument("-p", "--predictor")
    scanner.add_argument("--preset")
    try:
        found, _ = scanner.parse_known_args(list(arguments))
        name = found.preset
        if name is None and found.env_id is not None:
            name = "images" if get_env_info(found.env_id).has_image_observations else "vectors"
    except (ArgumentError, BadInput):  # the full parser reports the error
        return {}
    if name not in PRESETS:
        return {}
    has_teacher = found.predictor in ("synth", "human")
    return preset(name, has_labels=found.predictor != "rl", has_teacher=has_teacher)


def collect(arguments: Sequence[str]) -> int:
    """Run `rl-teacher collect`."""
    import tyro

    from rl_teacher.config.experiment import CollectConfig, RunOptions

    def collect_labels(
        config: Annotated[CollectConfig, tyro.conf.arg(name="")],
        options: Annotated[RunOptions, tyro.conf.arg(name="")],
    ) -> int:
        """Collect labels without training."""
        unset = CollectConfig(config.env_id, name=config.name, n_labels=config.n_labels)
        return run_experiment(config.as_teaching(), options, unset.as_teaching())

    return parse_and_call("collect", collect_labels, arguments)


def run_experiment(config: "TeachConfig", options: "RunOptions", defaults: "TeachConfig") -> int:
    """Run an experiment, with warnings on the terminal, and print its results.

    Args:
        config: settings of the experiment.
        options: options of the run.
        defaults: settings before the command line was read.

    Raises:
        BadConfig: a setting is out of bounds, or has no effect on this run.
    """
    import logging

    from rich.console import Console
    from rich.logging import RichHandler

    console = Console()
    handler = RichHandler(console=console, show_path=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    config = checked_config(config, options, defaults)
    if options.force_new and options.archives:
        raise BadInput(
            "--force-new deletes the whole experiment, and the --force-new-... options archive it. "
            "Give one or the other."
        )
    if options.force_new and not options.yes:
        confirm_force_new(config.name)
    return run_teach(config, options, console)


def checked_config(
    config: "TeachConfig", options: "RunOptions", defaults: "TeachConfig"
) -> "TeachConfig":
    """Return a configuration with its number of labels, if all settings are valid.

    Raises:
        BadConfig: a setting is out of bounds, or has no effect on this run.
    """
    from rl_teacher.config.experiment import RunOptions, validate
    from rl_teacher.config.fields import RunSetup, check_effects
    from rl_teacher.envs.registry import get_env_info

    config = config.with_label_budget()
    validate(config)
    check_effects(RunSetup(config, options, get_env_info(config.env_id)), defaults, RunOptions())
    return config


def run_teach(config: "TeachConfig", options: "RunOptions", console: "Console") -> int:
    """Run a validated experiment and print its results."""
    from rl_teacher.runs.folder import Experiment
    from rl_teacher.teach import teach as run

    confirm = partial(confirm_archiving, config.name, is_confirmed=options.yes)
    outcome = run(config, options, confirm)
    experiment = Experiment.find(config.name)
    if config.collect_only:
        num_labels = experiment.summary().labels.answered
        print(f"{counted(num_labels, 'label')} in experiment {config.name}")
    else:
        print_summary(experiment, console)
        console.out(f"plot: {outcome.plot_path}", highlight=False)
    if not outcome.is_finished:
        print("The run was stopped and saved. Repeat the command to continue it.")
    elif config.collect_only:
        name = quote(config.name)
        print(f"next: rl-teacher fit {name} -n NEW, or rl-teacher export {name}")
    return 0


def print_summary(experiment: "Experiment", console: "Console") -> None:
    """Print the summary table of a run, with the same counts as in `rl-teacher runs`."""
    from rl_teacher.report.summary import summary

    current = experiment.summary()
    counts: dict[str, Any] = {"step": current.step}
    if current.labels.asked:
        counts |= {f"labels_{name}": num for name, num in vars(current.labels).items()}
    console.print(summary(experiment.name, current.env_id, [*experiment.metrics(), counts]))


def confirm_force_new(name: str) -> None:
    """Ask for confirmation before an experiment is deleted.

    Raises:
        BadInput: the answer is no, or the terminal is not interactive.
    """
    from rl_teacher.runs.folder import experiment_names, stored_experiments, validate_name

    name = validate_name(name)
    # A home that shares the database may have an experiment that has no folder in this one.
    if name in experiment_names() or name in stored_experiments():
        confirm(name, "delete", "Choose another name with -n, or omit --force-new.")


def confirm_archiving(name: str, kept: "KeptParts", *, is_confirmed: bool) -> None:
    """Say what is archived, what a new experiment keeps of it, and ask for confirmation.

    Args:
        name: name of the experiment.
        kept: parts that the new experiment keeps.
        is_confirmed: do not ask.

    Raises:
        BadInput: the answer is no, or the terminal is not interactive.
    """
    from rl_teacher.config.fields import as_flag
    from rl_teacher.runs.folder import stored_experiments
    from rl_teacher.runs.management import archive_name

    target = archive_name(name, stored_experiments())
    print(f"The experiment will be archived as {target}. The new one keeps of it: {kept}.")
    settings = kept.settings(quote(target))
    if settings:
        flags = " ".join(as_flag(setting, value) for setting, value in settings.items())
        print(f"To continue the new one later, replace the --force-new-... options by: {flags}")
    if not is_confirmed:
        confirm(name, "archive", "Choose another name with -n.")


def confirm(name: str, verb: str, alternative: str) -> None:
    """Ask for confirmation before an experiment is changed.

    To delete labels that cannot be given again, such as those of people, its name has to be typed.

    Args:
        name: name of the experiment
        verb: delete or archive
        alternative: what to do instead, for the error text

    Raises:
        BadInput: the answer is no, or the terminal is not interactive.
    """
    from rl_teacher.runs.folder import (
        Experiment,
        experiment_names,
        has_irreproducible_labels,
        stored_experiments,
    )

    if not sys.stdin.isatty():
        raise BadInput(
            f"Experiment {name!r} is {verb}d after confirmation, and there is no terminal to ask "
            f"on. Add --yes to {verb} it without confirmation."
        )
    stored = stored_experiments()
    num_labels = stored[name].answered if name in stored else 0
    num_steps = Experiment.find(name).summary(stored).step if name in experiment_names() else 0
    contents = f"its {counted(num_labels, 'label')} and {counted(num_steps, 'step')}"
    question = f"{verb.capitalize()} experiment {name!r}, {contents}?"
    must_type_name = verb == "delete" and num_labels > 0 and has_irreproducible_labels(name)
    hint = "Type its name to confirm:" if must_type_name else "[y/N]"
    try:
        answer = input(f"{question} {hint} ").strip()
    except EOFError:
        print()
        answer = ""
    is_confirmed = answer == name if must_type_name else answer.lower() in ("y", "yes")
    if not is_confirmed:
        raise BadInput(f"Nothing was {verb}d. {alternative}")


# --- fit ---


def fit(arguments: Sequence[str]) -> int:
    """Run `rl-teacher fit`."""
    import tyro

    from rl_teacher.config.experiment import FitConfig

    def fit_predictor(config: Annotated[FitConfig, tyro.conf.arg(name="")]) -> None:
        """Fit a reward predictor to saved labels and save it."""
        run_fit(config)

    return parse_and_call("fit", fit_predictor, arguments)


def run_fit(config: "FitConfig") -> None:
    """Fit a reward predictor and print its accuracy and its folder."""
    from rl_teacher.fit_offline import fit_labels
    from rl_teacher.report.figures import is_missing, percent

    outcome = fit_labels(config)
    accuracy = outcome.report.held_out_accuracy
    num_comparisons = counted(outcome.num_comparisons, "comparison")
    print(f"fitted to {num_comparisons}, {counted(outcome.report.num_steps, 'step')}")
    num_held_out = counted(outcome.num_held_out, "held-out comparison")
    on_held_out = f" on {num_held_out}" if outcome.num_held_out else ""
    # Nothing may be held out, or all of it is equal.
    unknown = "unknown: there is no held-out pair of which one clip is better"
    shown = unknown if is_missing(accuracy) else percent(accuracy) + on_held_out
    print(f"held-out accuracy: {shown}")
    print(f"predictor: {outcome.folder}")


# --- serve, label ---


def serve(arguments: Sequence[str]) -> int:
    """Run `rl-teacher serve`."""
    import tyro

    from rl_teacher.web import serve as service

    def serve_page(options: Annotated[service.ServeOptions, tyro.conf.arg(name="")]) -> int:
        """Serve the page: label and monitor all experiments."""
        return service.serve(options)

    return parse_and_call("serve", serve_page, arguments)


def label(
    name: str,
    /,
    host: str = "127.0.0.1",
    port: int = 8765,
    no_browser: bool = False,
    media: str | None = None,
) -> None:
    """Label an experiment's comparisons with L, R, E and Enter; the page shows the clips.

    If no service is running, the command serves the page until it ends.

    Args:
        name: name of the experiment
        host: address of the page; 0.0.0.0 listens on every network of this machine
        port: port of the page; the next free one if it is taken; 0: any
        no_browser: print the links without opening a browser
        media: storage of clips: a folder, or a URL such as s3://bucket/folder; by default
            RL_TEACHER_MEDIA_URL, or the media folder of RL_TEACHER_HOME
    """
    from rl_teacher.config.experiment import RunOptions
    from rl_teacher.web.terminal import label_at_terminal

    options = RunOptions(host=host, port=port, no_browser=no_browser, media=media)
    label_at_terminal(name, options)


# --- envs, check ---


def envs(search: str = "", /) -> None:
    """List the environments.

    Args:
        search: text that the names contain
    """
    from rl_teacher.envs.registry import LISTED, atari_names, list_atari_infos, list_env_infos

    table = _table("environment", "clip steps/s", "episode steps", "ends early", "")
    known = [*list_env_infos(), *(list_atari_infos() if search else ())]
    found = [each for each in known if search.lower() in each.id.lower()]
    if not found:
        raise UnknownName("environment", search, [each.id for each in known], LISTED)
    for each in found:
        table.add_row(
            each.id,
            f"{each.fps:g}",
            str(each.max_episode_steps or "-"),
            "yes" if each.can_terminate else "no",
            each.description,
        )
    _print_table(table)
    if not search:
        names = atari_names()
        print(
            f"\nAnd {len(names)} Atari games, each as Pong-v4 or, with sticky actions, as "
            f"ALE/Pong-v5 (`rl-teacher envs pong` shows both): {', '.join(names)}."
        )


def check(arguments: Sequence[str]) -> int:
    """Run `rl-teacher check`."""
    import tyro

    def check_environment(
        env_id: tyro.conf.Positional[str],
        /,
        predictor: Annotated[
            Literal["rl", "synth", "human"], tyro.conf.arg(aliases=["-p"])
        ] = "synth",
        stacked_frames: Annotated[int, tyro.conf.arg(aliases=["-f"])] = 4,
        frame_size: int = 84,
        colour: bool = False,
    ) -> None:
        """Check an environment for faults.

        Args:
            env_id: registered id, module:id, or module:function
            predictor: source of rewards; with human, clips are checked too
            stacked_frames: frames stacked into one image observation; 0 or 1: a single frame
            frame_size: height and width in pixels that larger images are resized to; 0: no resizing
            colour: colour instead of greyscale images for agent and predictor
        """
        from rl_teacher.config.preprocessing import MAX_SIZE, MAX_STACKED, FrameSettings
        from rl_teacher.envs.check import describe_images, inspect_environment

        bounded = (
            ("--stacked-frames", stacked_frames, MAX_STACKED),
            ("--frame-size", frame_size, MAX_SIZE),
        )
        for flag, number, highest in bounded:
            if not 0 <= number <= highest:
                raise BadInput(f"{flag} {number} was given; from 0 to {highest} is possible.")
        frames = FrameSettings(stacked_frames, frame_size, grey=not colour)
        env_info, faults = inspect_environment(env_id, is_shown=predictor == "human")
        if frames != FrameSettings() and not env_info.has_image_observations:
            raise BadInput(
                f"The observations of {env_info.id} are no images, so that --stacked-frames, "
                "--frame-size and --colour have no effect. Leave them out."
            )
        for fault in faults:
            print(f"{'error' if fault.is_fatal else 'warning'}: {fault.text}")
        if any(fault.is_fatal for fault in faults):
            raise BadInput(f"{env_info.id} cannot be used as it is. Correct the errors above.")
        max_steps = env_info.max_episode_steps
        limit = counted(max_steps, "step") if max_steps else "any length"
        print(
            f"{env_info.id} can be used: episodes of {limit}, "
            f"clips of {env_info.fps:g} steps a second"
        )
        if env_info.has_image_observations:
            print(describe_images(env_info.id, frames))

    return parse_and_call("check", check_environment, arguments)


# --- runs, report, play ---


def runs() -> None:
    """List the experiments and their states, most recently changed first."""
    from rich.text import Text

    from rl_teacher.runs.folder import Experiment, home

    found = Experiment.all()
    if not found:
        print(f"No experiments in {home()} yet. `rl-teacher teach` starts one.")
        return
    hidden = set()
    if not any(each.clips for each in found):
        hidden.add("clips")
    if _console().width < FULL_WIDTH:
        hidden |= {"environment", "last change"}
    rows = [
        {
            "name": Text(each.name),  # brackets are no markup
            "environment": each.env_id,
            "state": each.phase,
            "steps": f"{each.step:,}",
            "labels": f"{each.labels.answered:,}",
            "clips": f"{each.clips:,}" if each.clips else "-",
            "last change": _local_time(each.changed_at),
        }
        for each in found
    ]
    headings = [each for each in rows[0] if each not in hidden]
    table = _table(*headings)
    for row in rows:
        table.add_row(*(row[heading] for heading in headings))
    _print_table(table)
    # A column would be too narrow for them.
    for each in found:
        if each.note:
            print(f"{each.name}: {each.note}")


def report(names: tuple[str, ...], /, plot: Path | None = None) -> None:
    """Print metrics and plot the learning curves of one or more experiments.

    Args:
        names: names of the experiments
        plot: PNG file of the plot; by default plot.png in the first experiment's folder
    """
    from rich.console import Console

    from rl_teacher.common.files import write_errors
    from rl_teacher.report.plot import plot as draw
    from rl_teacher.runs.folder import Experiment

    if not names:
        raise BadInput("No name was given. `rl-teacher runs` lists the experiments.")
    if plot is not None and plot.suffix.lower() not in ("", ".png"):
        raise BadInput(
            f"--plot {plot} was given; the plot is a PNG file. Let its name end in .png."
        )
    found = [Experiment.find(name) for name in names]
    console = Console()
    for each in found:
        print_summary(each, console)
    path = user_path(plot) if plot else found[0].plot_path
    with write_errors(f"The plot cannot be written to {path}", "Name another file with --plot."):
        draw([(each.name, each.metrics()) for each in found], path)
    console.out(f"plot: {path}", highlight=False)


def reward(name: str, kind: Literal["predicted", "true"], /) -> None:
    """Switch the agent of an experiment between predicted and true rewards, even while it trains.

    Args:
        name: name of the experiment
        kind: rewards that the agent learns from
    """
    from rl_teacher.runs.control import switch_reward
    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        switch_reward(store, name, kind)
    print(f"The agent of {name} learns from {kind} rewards from now on.")


def rename(name: str, new_name: str, /) -> None:
    """Rename an experiment that is not running.

    Args:
        name: name of the experiment
        new_name: its new name
    """
    from rl_teacher.runs.folder import open_store
    from rl_teacher.runs.management import rename_experiment

    with open_store() as store:
        rename_experiment(store, name, new_name)
    print(f"{name} is now called {new_name}.")


def archive(arguments: Sequence[str]) -> int:
    """Run `rl-teacher archive`."""
    subcommands = {"add": archive_one, "list": list_archived, "restore": restore_archived}
    return run_subcommand(
        "archive", "Archive, list and restore experiments.", subcommands, arguments
    )


def archive_one(name: str, /) -> None:
    """Hide an experiment from labelers; it must not be running, and continuing it restores it.

    Args:
        name: name of the experiment
    """
    set_archived(name, is_archived=True)
    print(f"{name} archived. `rl-teacher archive restore {quote(name)}` shows it again.")


def list_archived() -> None:
    """List the archived experiments."""
    from rich.text import Text

    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        archived = [each for each in store.experiments.all() if each.archived_at is not None]
    if not archived:
        print("No experiment is archived.")
        return
    table = _table("name", "environment", "labels", "archived")
    for each in archived:
        since = _local_time(each.archived_at)
        table.add_row(Text(each.name), each.env_id, f"{each.answered:,}", since)
    _print_table(table)


def restore_archived(name: str, /) -> None:
    """Show an archived experiment to labelers again.

    Args:
        name: name of the experiment, as in `rl-teacher archive list`
    """
    if not set_archived(name, is_archived=False):
        raise BadInput(
            f"Experiment {name!r} is not archived. `rl-teacher archive list` lists the ones that "
            "are."
        )
    print(f"{name} restored. `rl-teacher rename` gives it another name.")


def set_archived(name: str, *, is_archived: bool) -> bool:
    """Archive or restore an experiment; return False if it was so already."""
    from rl_teacher.runs.folder import open_store
    from rl_teacher.runs.management import archive_experiment

    with open_store() as store:
        return archive_experiment(store, name, is_archived=is_archived)


def delete(name: str, /, yes: bool = False) -> None:
    """Delete an experiment that is not running, with its labels and checkpoints.

    Args:
        name: name of the experiment
        yes: delete without confirmation
    """
    from rl_teacher.runs.folder import Experiment, open_store
    from rl_teacher.runs.management import delete_experiment

    name = Experiment.find(name).name
    if not yes:
        instead = f"`rl-teacher archive add {quote(name)}` hides it from labelers instead."
        confirm(name, "delete", instead)
    with open_store() as store:
        delete_experiment(store, name)
    print(f"{name} deleted.")


def play(arguments: Sequence[str]) -> int:
    """Run `rl-teacher play`."""
    import tyro

    from rl_teacher.play.options import PlayOptions

    def play_agent(options: Annotated[PlayOptions, tyro.conf.arg(name="")]) -> int:
        """Play an experiment's agent on the page, or record a video."""
        from rl_teacher.play.commands import play as run

        return run(options)

    return parse_and_call("play", play_agent, arguments)


# --- sweep ---


def sweep(
    file: Path, /, parallel: int | None = None, cluster: str | None = None, cpus: int = 1
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
    from rl_teacher.sweep import HEADINGS, LocalRuns, execute_on_node, read_sweep, table_rows
    from rl_teacher.sweep import sweep as run

    for flag, number in (("--parallel", parallel), ("--cpus", cpus)):
        if number is not None and number < 1:
            raise BadInput(f"{flag} {number} was given; at least 1 is needed.")
    if cpus != 1 and cluster is None:
        raise BadInput("--cpus was given, which has no effect without --cluster. Omit it.")
    given = read_sweep(file)
    check_runs(given)
    console = Console()
    report = partial(console.print, soft_wrap=True, markup=False)
    # Otherwise its runs would go on without it, and the repeated command would find them in use.
    with sigterm_interrupts():
        if cluster is None:
            local = LocalRuns()
            results = run(given, parallel or 1, report, local, local.end)
        else:
            from rl_teacher.cluster.connection import connected
            from rl_teacher.cluster.jobs import ClusterFunction, num_cluster_cpus

            with connected(cluster):
                at_once = parallel or max(1, num_cluster_cpus() // cpus)
                remote = ClusterFunction(execute_on_node, cpus)
                results = run(given, at_once, report, remote, remote.cancel)
    table = _table(*HEADINGS)
    for row in table_rows(results):
        table.add_row(*row)
    _print_table(table)


def check_runs(given: "Sweep") -> None:
    """Check the settings of all runs of a sweep before the first one starts.

    Raises:
        BadInput: a setting is wrong, people would have to answer, runs would start over whenever
            they continue, or two runs are the same.
    """
    from dataclasses import replace

    from rl_teacher.preparation import check as check_teach
    from rl_teacher.sweep import check_different

    parsed = []
    for each in given.runs():
        config, options, defaults = parse_teach(each.flags)
        config = checked_config(config, options, defaults)
        if config.asks_a_person:
            raise BadInput("A sweep does not wait for people to answer. Omit -p human.")
        if options.force_new or options.archives:
            raise BadInput(
                "With --force-new, a sweep that is repeated would start its runs over instead of "
                "continuing them. Omit it."
            )
        env_id = check_teach(config, options).env_info.id
        parsed.append((each, replace(config, env_id=env_id), options))
    check_different(parsed)


# --- circus ---


def circus(
    out: Path = Path("circus"),
    steps: int = 1_000_000,
    labels: int = 700,
    seed: int = 1,
    video: bool = False,
) -> int:
    """Teach four tricks and build a page that compares them with agents trained on the true reward.

    Walker balances on one leg, Reacher keeps away from its target, Hopper turns backflips, and
    Cheetah dances on its hind leg. Eight agents are trained, one after another; experiments that
    exist are continued. The page works from its file.

    Args:
        out: folder for circus.html, circus.json and the videos
        steps: environment steps of training of each agent
        labels: labels of each taught agent
        seed: seed of all agents, and of the first of the episodes that are measured
        video: also write videos of each trick, as .gif and .mp4
    """
    from rl_teacher.play.circus import CircusOptions
    from rl_teacher.play.circus import circus as run

    return run(CircusOptions(user_path(out), steps, labels, seed, has_videos=video))


# --- labelers ---


def labelers(arguments: Sequence[str]) -> int:
    """Run `rl-teacher labelers`."""
    subcommands = {
        "add": add_labeler,
        "list": list_labelers,
        "revoke": revoke_labeler,
        "invite": invite_labelers,
        "invites": list_invites,
        "revoke-invite": revoke_invite,
    }
    return run_subcommand(
        "labelers", "Add, invite, list and revoke labelers.", subcommands, arguments
    )


def add_labeler(
    name: str,
    /,
    role: str = "labeler",
    days: float | None = None,
    experiment: str | None = None,
) -> None:
    """Add a labeler and print their link or token once.

    Args:
        name: name of the labeler
        role: labeler, or owner with all permissions
        days: days until access expires; by default it does not expire
        experiment: the only experiment that they can label; by default all
    """
    from rl_teacher.web import labelers_cli

    added = labelers_cli.add(name, role, days, experiment)
    print(f"{added.name} can label now. The credential is shown only once:")
    if added.link is not None:
        print(f"link: {added.link}")
    else:
        print(f"token: {added.credential}")
        print("No service is running. Once one is, they open its address with ?token=TOKEN.")


def list_labelers() -> None:
    """List the labelers."""
    from rich.text import Text

    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        labelers = store.labelers.all()
    table = _table("name", "role", "labels", "last label", "")
    for each in labelers:
        table.add_row(
            Text(each.name),  # brackets are no markup
            each.role,
            f"{each.num_labels:,}",
            _local_time(each.last_label_at),
            "" if each.excluded_at is None else "excluded",
        )
    _print_table(table)


def revoke_labeler(name: str, /) -> None:
    """Revoke a labeler's access; their labels stay.

    Args:
        name: name of the labeler
    """
    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        num_revoked = store.access.revoke_credentials(name)
    print(f"{counted(num_revoked, 'credential')} of {name} revoked. Their labels stay.")


def invite_labelers(uses: int = 1, days: float = 7.0, experiment: str | None = None) -> None:
    """Create an invite and print its link, which admits labelers under names that they choose.

    Args:
        uses: maximum number of people that the link admits
        days: days until the link expires
        experiment: the only experiment that they can label; by default all
    """
    from rl_teacher.web import labelers_cli

    link = labelers_cli.invite(uses, days, experiment)
    print("The link is shown only once; `rl-teacher labelers invites` lists all invites.")
    print(f"link: {link}")
    if link.startswith("/"):
        print("No service is running. Once one is, put its address before the link.")


def list_invites() -> None:
    """List the invites."""
    from rich.text import Text

    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        invites = store.access.invites()
    table = _table("number", "for", "experiment", "uses", "expires", "status")
    for each in invites:
        table.add_row(
            str(each.id),
            Text(each.name or each.role),
            Text(each.experiment or "all"),
            f"{each.num_uses} of {each.max_uses}",
            _local_time(each.expires_at),
            each.status,
        )
    _print_table(table)


def revoke_invite(number: int, /) -> None:
    """Revoke an invite; labelers who have used it keep access.

    Args:
        number: number of the invite, as listed by `rl-teacher labelers invites`
    """
    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        store.access.revoke_invite(number)
    print(f"Invite {number} is revoked. Labelers who have used it keep access.")


# --- export, import ---


def export(
    name: str,
    /,
    format: ExportFormat = "dataset",  # noqa: A002 - the flag's name
    out: Path | None = None,
    step: str = "latest",
    hold_out: float | None = None,
) -> None:
    """Export an experiment for other programs.

    Args:
        name: name of the experiment
        format: dataset (labels with their segments), jsonl or parquet (labels alone), or agent
            (the policy for NumPy)
        out: destination. Data set: a new folder or a .zip file, NAME.zip by default; labels: a
            file, the standard output by default; agent: a folder, required
        step: agent to export: latest, or the one nearest to a step
        hold_out: fraction of the comparisons to mark as held out: a predictor is never fitted to
            them, only evaluated on them
    """
    if hold_out is not None and format != "dataset":
        raise BadInput(f"--hold-out {hold_out:g} has an effect only with --format dataset.")
    if step != "latest" and format != "agent":
        raise BadInput(f"--step {step} has an effect only with --format agent.")
    match format:
        case "dataset":
            export_dataset(name, out or Path(f"{name}.zip"), hold_out)
        case "agent":
            export_agent(name, out, step)
        case _:
            export_labels(name, format, user_path(out) if out else None)


def export_dataset(name: str, out: Path, hold_out: float | None) -> None:
    """Export labels with their segments; mark a fraction of the comparisons as held out."""
    from rl_teacher.datasets.import_export import labels_in_home

    dataset = labels_in_home(name)
    if hold_out is not None:
        dataset = dataset.hold_out(hold_out)
    dataset.save(out, "jsonl")
    num_held_out = len(dataset.held_out)
    held_out = f" ({num_held_out:,} of them held out)" if num_held_out else ""
    print(
        f"{counted(len(dataset.rows), 'label')} of {counted(len(dataset), 'comparison')}"
        f"{held_out}, {counted(len(dataset.segments), 'segment')} of {dataset.env_id} in {out}"
    )


def export_labels(name: str, format_name: str, out: Path | None) -> None:
    """Export labels alone, to a file or to the standard output.

    Raises:
        BadInput: Parquet would be printed on a terminal.
    """
    if out is None and format_name == "parquet" and sys.stdout.isatty():
        raise BadInput("--format parquet is binary and not printed. Name a file with --out.")
    from rl_teacher.report.label_export import export as write_labels
    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        num_labels = write_labels(store, name, format_name, out or sys.stdout.buffer)
    if out is not None:
        print(f"{counted(num_labels, 'label')} in {out}")


def export_agent(name: str, out: Path | None, step: str) -> None:
    """Export the policy for NumPy.

    Raises:
        BadInput: no folder was given.
    """
    from rl_teacher.play import commands

    if out is None:
        raise BadInput("--format agent writes a folder, and none was given. Name it with --out.")
    folder = commands.export_agent(name, out, step)
    print(f"agent: {folder}")
    print(f"next: rl_teacher.load_agent({str(folder)!r})(observations) returns actions")


def import_(arguments: Sequence[str]) -> int:
    """Run `rl-teacher import`."""
    import tyro

    def import_data_set(
        path: tyro.conf.Positional[Path],
        /,
        name: Annotated[str, tyro.conf.arg(aliases=["-n"])],
        env_id: Annotated[str | None, tyro.conf.arg(aliases=["-e"])] = None,
    ) -> None:
        """Import a data set as an experiment; no code in the files is executed.

        Args:
            path: data set, as a folder or .zip file; or preferences of imitation, as .npz
            name: name of the new experiment
            env_id: environment, for files that do not name it, such as imitation's
        """
        from rl_teacher.datasets.import_export import import_as, read_any

        dataset = read_any(user_path(path), env_id)
        num_answered = import_as(dataset, name)
        labelled = counted(num_answered, "labelled comparison")
        print(f"{labelled} of {dataset.env_id} in experiment {name}")

    return parse_and_call("import", import_data_set, arguments)


# --- backup, restore, doctor ---


def backup(path: Path, /, media: str | None = None) -> None:
    """Copy everything to a new zip file, even while experiments run.

    Args:
        path: file to create
        media: storage of clips: a folder, or a URL such as s3://bucket/folder; by default
            RL_TEACHER_MEDIA_URL, or the media folder of RL_TEACHER_HOME
    """
    from rl_teacher.runs.backup import save_backup

    file = user_path(path)
    summary = save_backup(file, media)
    print(f"{summary} in {file}")
    print(f"next: RL_TEACHER_HOME=NEW rl-teacher restore {quote(str(file))}")


def restore(path: Path, /) -> None:
    """Restore a backup into RL_TEACHER_HOME, which must be empty or not exist.

    Args:
        path: file that `rl-teacher backup` has written
    """
    from rl_teacher.runs.backup import restore_backup
    from rl_teacher.runs.folder import home

    summary = restore_backup(user_path(path))
    print(f"{summary} restored in {home()}")


def doctor(media: str | None = None, repair: bool = False) -> int:
    """Examine all files and the database for damage; exit with 1 if there is any.

    Args:
        media: storage of clips: a folder, or a URL such as s3://bucket/folder; by default
            RL_TEACHER_MEDIA_URL, or the media folder of RL_TEACHER_HOME
        repair: repair what can be repaired without losing data: recount, and have missing clips
            rendered again
    """
    from rl_teacher.runs.doctor import examine

    checks = examine(media, is_repairing=repair)
    table = _table("check", "examined", "result")
    for each in checks:
        results = {"repaired": each.repairs, "faults": each.faults}
        found = [f"{len(texts):,} {name}" for name, texts in results.items() if texts]
        table.add_row(each.name, f"{each.num_examined:,}", ", ".join(found) or "sound")
    _print_table(table)
    for each in checks:
        for text in each.repairs:
            print(f"repaired: {each.name}: {text}.")
        for text in each.faults:
            print(f"fault: {each.name}: {text.rstrip('.')}.")
    return 1 if any(each.faults for each in checks) else 0


def _table(*headings: str) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE)
    for heading in headings:
        # Long names continue on the next line: those of the runs of a sweep differ at their ends.
        is_whole = heading in ("environment", "state", "steps", "labels", "clips")
        table.add_column(heading, no_wrap=is_whole, overflow="ellipsis" if is_whole else "fold")
    return table


def _local_time(moment: "datetime | None") -> str:
    """Format a time in the time zone of this machine, to the minute; a missing one is a dash."""
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _print_table(table: "Table") -> None:
    """Print a table."""
    _console().print(table, markup=False)


def _console() -> "Console":
    """Return the console for a table: in a file or a pipe, each row is one line."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNLIMITED_WIDTH
    return console


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "teach": teach,
    "collect": collect,
    "fit": fit,
    "serve": serve,
    "label": partial(parse_and_call, "label", label),
    "envs": partial(parse_and_call, "envs", envs),
    "check": check,
    "runs": partial(parse_and_call, "runs", runs),
    "report": partial(parse_and_call, "report", report),
    "reward": partial(parse_and_call, "reward", reward),
    "rename": partial(parse_and_call, "rename", rename),
    "archive": archive,
    "delete": partial(parse_and_call, "delete", delete),
    "play": play,
    "sweep": partial(parse_and_call, "sweep", sweep),
    "circus": partial(parse_and_call, "circus", circus),
    "labelers": labelers,
    "export": partial(parse_and_call, "export", export),
    "import": import_,
    "backup": partial(parse_and_call, "backup", backup),
    "restore": partial(parse_and_call, "restore", restore),
    "doctor": partial(parse_and_call, "doctor", doctor),
    "--version": version,
}

if __name__ == "__main__":
    sys.exit(main())
