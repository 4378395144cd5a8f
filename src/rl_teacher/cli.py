"""Command line: parse arguments, call the library, print results."""

import os

# OpenBLAS reads this when NumPy is imported; its threads would compete with the physics.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rl_teacher.common.errors import BadInput, RlTeacherError

if TYPE_CHECKING:
    from rich.table import Table

    from rl_teacher.config.experiment import FitConfig, RunOptions, TeachConfig
    from rl_teacher.datasets.dataset import Dataset
    from rl_teacher.store.records import LabelerView
    from rl_teacher.web.labelers_cli import NewCredential

ExportFormat = Literal["dataset", "jsonl", "parquet", "agent"]

HELP = """\
usage: rl-teacher COMMAND ...

Teach agents by comparing pairs of short clips.

commands:
  teach            train an agent on labels, the true reward or a saved predictor
  collect          collect labels without training
  fit LABELS       fit a reward predictor to saved labels
  serve            serve the page: label and monitor all experiments
  label NAME       label an experiment's comparisons at the terminal
  envs             list the environments
  check ENV        check an environment and report its faults
  runs             list the experiments and their states
  report NAME ...  print metrics and plot learning curves
  play NAME        play an experiment's agent, on the page or as a video
  labelers         add, list and revoke labelers
  export NAME      export a data set, labels alone, or the agent (--format)
  import PATH      import a data set as an experiment

examples:
  rl-teacher teach -p rl -e ShortHopper-v1 -n base-rl
  rl-teacher teach -p synth -l 1400 -e ShortHopper-v1 -n syn-1400
  rl-teacher teach -p human -L 175 -e Reacher-v1 -n human-175
  rl-teacher report base-rl syn-1400

`rl-teacher COMMAND --help` explains a command. Repeating a `teach` command continues the
experiment. All files are stored in ~/.rl-teacher (or RL_TEACHER_HOME).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if command == "--version":
        return version()
    try:
        return _command(command)(rest)
    except RlTeacherError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _command(name: str) -> Callable[[Sequence[str]], int]:
    from rl_teacher.common.errors import UnknownName

    commands = {
        "teach": teach,
        "collect": collect,
        "fit": fit,
        "serve": serve,
        "label": label,
        "envs": envs,
        "check": check,
        "runs": runs,
        "report": report,
        "play": play,
        "labelers": labelers,
        "export": export,
        "import": import_,
    }
    if name not in commands:
        raise UnknownName("command", name, commands)
    return commands[name]


def version() -> int:
    """Print the version."""
    from importlib.metadata import version as installed_version

    print(f"rl-teacher {installed_version('rl-teacher')}")
    return 0


# --- teach ---


def teach(arguments: Sequence[str]) -> int:
    """Run `rl-teacher teach`."""
    import tyro

    from rl_teacher.config.experiment import RunOptions, TeachConfig
    from rl_teacher.config.presets import PresetChoice

    @dataclass(frozen=True)
    class Arguments:
        config: Annotated[TeachConfig, tyro.conf.arg(name="")]
        options: Annotated[RunOptions, tyro.conf.arg(name="")]
        choice: Annotated[PresetChoice, tyro.conf.arg(name="")]

    defaults = TeachConfig("", name="", **_preset_settings(arguments))
    for name in ("env_id", "name"):  # Required, without a default in the help.
        object.__setattr__(defaults, name, tyro.MISSING)
    given = tyro.cli(
        Arguments,
        prog="rl-teacher teach",
        description="Teach an agent from labels, or train it with the true reward.",
        default=Arguments(defaults, RunOptions(), PresetChoice()),
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return run_experiment(given.config, given.options, defaults)


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
    return preset(name, has_labels=found.predictor != "rl") if name in PRESETS else {}


def run_experiment(config: "TeachConfig", options: "RunOptions", defaults: "TeachConfig") -> int:
    """Run an experiment, with warnings on the terminal.

    Args:
        config: the experiment.
        options: how the run is carried out.
        defaults: the settings before the command line was read.

    Raises:
        BadConfig: a setting is out of bounds, or has no effect on this run.
    """
    import logging

    from rich.console import Console
    from rich.logging import RichHandler

    from rl_teacher.config.experiment import RunOptions, validate
    from rl_teacher.config.fields import RunSetup, check_effects
    from rl_teacher.envs.registry import get_env_info

    console = Console()
    handler = RichHandler(console=console, show_path=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    validate(config)
    has_images = get_env_info(config.env_id).has_image_observations
    run = RunSetup(config, options, has_image_observations=has_images)
    check_effects(run, defaults, RunOptions())
    if options.force_new and not options.yes:
        confirm_force_new(config.name)
    return run_teach(config, options, console)


def run_teach(config, options, console) -> int:  # noqa: ANN001
    """Run an experiment and print its summary."""
    from rl_teacher.report.summary import summary
    from rl_teacher.runs.folder import Experiment
    from rl_teacher.teach import teach as run

    outcome = run(config, options)
    if config.collect_only:
        print_collected(config, outcome.is_finished)
        return 0
    rows = Experiment.find(config.name).metrics()
    console.print(summary(config.name, rows, config.saved()))
    console.print(f"plot: {outcome.plot_path}", soft_wrap=True, highlight=False)
    if not outcome.is_finished:
        console.print("Stopped, and saved. The same command again continues from here.")
    return 0


def print_collected(config: "TeachConfig", is_finished: bool) -> None:
    """Print the number of collected labels and the next commands."""
    from rl_teacher.runs.folder import Experiment

    print(f"{Experiment.find(config.name).summary().labels:,} labels in experiment {config.name}")
    if is_finished:
        print(f"next: rl-teacher fit {config.name} -n NEW, or rl-teacher export {config.name}")
    else:
        print("Stopped, and saved. The same command again continues from here.")


def confirm_force_new(name: str) -> None:
    """Ask for confirmation before an experiment is deleted.

    Raises:
        BadInput: the answer is no, or the terminal is not interactive.
    """
    from rl_teacher.common.errors import ExperimentNotFound
    from rl_teacher.runs.folder import Experiment

    try:
        there = Experiment.find(name).summary()
    except ExperimentNotFound:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            f"--force-new would delete experiment {name!r}, which needs a confirmation. "
            "Add --yes to delete it without one."
        )
    question = f"Delete experiment {name!r}, its {there.labels} labels and {there.step:,} steps?"
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise BadInput(
            "Nothing was deleted. Choose another name with -n, or leave --force-new out."
        )


# --- collect, fit ---


def collect(arguments: Sequence[str]) -> int:
    """Run `rl-teacher collect`."""
    import tyro

    from rl_teacher.config.experiment import CollectConfig, RunOptions

    @dataclass(frozen=True)
    class Arguments:
        config: Annotated[CollectConfig, tyro.conf.arg(name="")]
        options: Annotated[RunOptions, tyro.conf.arg(name="")]

    given = tyro.cli(
        Arguments,
        prog="rl-teacher collect",
        description="Collect labels without training.",
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    config = given.config
    unset = CollectConfig(config.env_id, name=config.name, n_labels=config.n_labels)
    return run_experiment(config.as_teaching(), given.options, unset.as_teaching())


def fit(arguments: Sequence[str]) -> int:
    """Run `rl-teacher fit`."""
    import tyro

    from rl_teacher.config.experiment import FitConfig

    @dataclass(frozen=True)
    class Arguments:
        config: Annotated[FitConfig, tyro.conf.arg(name="")]

    given = tyro.cli(
        Arguments,
        prog="rl-teacher fit",
        description="Fit a reward predictor to saved labels and save it.",
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return run_fit(given.config)


def run_fit(config: "FitConfig") -> int:
    """Fit a reward predictor and print its accuracy and its folder."""
    from rl_teacher.fit_offline import fit_labels
    from rl_teacher.report.figures import percent

    outcome = fit_labels(config)
    accuracy = outcome.report.held_out_accuracy
    right = "unknown: no label was held out" if accuracy != accuracy else percent(accuracy)  # noqa: PLR0124
    print(f"fitted to {outcome.num_comparisons:,} comparisons, {outcome.report.num_steps:,} steps")
    print(f"held-out accuracy: {right}")
    print(f"predictor: {outcome.folder}")
    return 0


# --- serve, label ---


def serve(arguments: Sequence[str]) -> int:
    """Run `rl-teacher serve`."""
    import tyro

    from rl_teacher.web.serve import ServeOptions
    from rl_teacher.web.serve import serve as run

    options = tyro.cli(
        ServeOptions,
        prog="rl-teacher serve",
        description="Serve the page: label and monitor all experiments.",
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return run(options)


def label(arguments: Sequence[str]) -> int:
    """Run `rl-teacher label`."""
    import tyro

    def label_experiment(name: tyro.conf.Positional[str]) -> None:
        """Label an experiment's comparisons with L, R, E and Enter; the page shows the clips.

        Args:
            name: name of the experiment.
        """
        from rl_teacher.web.terminal import label_at_terminal

        label_at_terminal(name)

    tyro.cli(label_experiment, prog="rl-teacher label", args=list(arguments))
    return 0


# --- envs, runs, report ---


def check(arguments: Sequence[str]) -> int:
    """Run `rl-teacher check`."""
    import tyro

    def check_environment(
        env_id: tyro.conf.Positional[str],
        /,
        predictor: Annotated[str, tyro.conf.arg(aliases=["-p"])] = "synth",
        stacked_frames: Annotated[int, tyro.conf.arg(aliases=["-f"])] = 4,
        frame_size: int = 84,
        colour: bool = False,
    ) -> None:
        """Check an environment and report its faults.

        Args:
            env_id: registered id, module:id, or module:function.
            predictor: source of rewards; with human, clips are checked too.
            stacked_frames: number of frames stacked into one image observation.
            frame_size: height and width in pixels for larger images; 0 keeps their size.
            colour: whether agent and predictor receive colour images.
        """
        from rl_teacher.config.preprocessing import FrameSettings
        from rl_teacher.envs.check import describe_images, inspect_environment

        env_info, faults = inspect_environment(env_id, is_shown=predictor == "human")
        for fault in faults:
            print(f"{'error' if fault.is_fatal else 'warning'}: {fault.text}")
        if any(fault.is_fatal for fault in faults):
            raise BadInput(f"{env_info.id} cannot be taught as it is.")
        limit = f"{env_info.max_episode_steps} steps" if env_info.max_episode_steps else "no limit"
        print(
            f"{env_info.id} can be taught: episodes of {limit}, "
            f"clips of {env_info.fps:g} steps a second"
        )
        if env_info.has_image_observations:
            print(
                describe_images(
                    env_info.id, FrameSettings(stacked_frames, frame_size, grey=not colour)
                )
            )

    tyro.cli(check_environment, prog="rl-teacher check", args=list(arguments))
    return 0


def envs(arguments: Sequence[str]) -> int:
    """Run `rl-teacher envs`."""
    import tyro

    def list_environments(search: tyro.conf.Positional[str] = "") -> None:
        """List the environments.

        Args:
            search: text that names must contain.
        """
        from rich.console import Console

        from rl_teacher.envs.registry import atari_names, list_atari_infos, list_env_infos

        table = _table("environment", "clip steps/s", "episode steps", "ends early", "")
        for each in [*list_env_infos(), *(list_atari_infos() if search else ())]:
            if search.lower() in each.id.lower():
                table.add_row(
                    each.id,
                    f"{each.fps:g}",
                    str(each.max_episode_steps or "-"),
                    "yes" if each.can_terminate else "no",
                    each.description,
                )
        Console().print(table)
        if not search:
            names = atari_names()
            print(
                f"\nAnd {len(names)} Atari games, each as Pong-v4 or, with sticky actions, as "
                f"ALE/Pong-v5 (`rl-teacher envs pong` shows both): {', '.join(names)}."
            )

    tyro.cli(list_environments, prog="rl-teacher envs", args=list(arguments))
    return 0


def runs(arguments: Sequence[str]) -> int:
    """Run `rl-teacher runs`."""
    import tyro

    def list_experiments() -> None:
        """List the experiments and their states, most recently changed first."""
        from rich.console import Console

        from rl_teacher.runs.folder import Experiment, home

        found = Experiment.all()
        if not found:
            print(f"No experiments in {home()} yet. `rl-teacher teach` starts one.")
            return
        table = _table("name", "environment", "state", "steps", "labels", "last change")
        for each in found:
            changed = each.changed_at.astimezone().strftime("%Y-%m-%d %H:%M")
            table.add_row(
                each.name, each.env_id, each.state, f"{each.step:,}", str(each.labels), changed
            )
        Console().print(table)

    tyro.cli(list_experiments, prog="rl-teacher runs", args=list(arguments))
    return 0


def report(arguments: Sequence[str]) -> int:
    """Run `rl-teacher report`."""
    import tyro

    def report_experiments(
        names: tyro.conf.Positional[tuple[str, ...]], /, plot: Path | None = None
    ) -> None:
        """Print metrics and plot the learning curves of one or more experiments.

        Args:
            names: names of the experiments.
            plot: file of the plot; by default in the first experiment's folder.
        """
        from rich.console import Console

        from rl_teacher.report.plot import plot as draw
        from rl_teacher.report.summary import summary
        from rl_teacher.runs.folder import Experiment

        if not names:
            raise BadInput("No name was given. `rl-teacher runs` lists the experiments.")
        found = [Experiment.find(name) for name in names]
        console = Console()
        for each in found:
            console.print(summary(each.name, each.metrics(), each.config))
        path = draw([(each.name, each.metrics()) for each in found], plot or found[0].plot_path)
        console.print(f"plot: {path}", soft_wrap=True, highlight=False)

    tyro.cli(report_experiments, prog="rl-teacher report", args=list(arguments))
    return 0


# --- play ---


def play(arguments: Sequence[str]) -> int:
    """Run `rl-teacher play`."""
    import tyro

    from rl_teacher.play.options import PlayOptions

    options = tyro.cli(
        PlayOptions,
        prog="rl-teacher play",
        description="Play an experiment's agent on the page, or record a video.",
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    from rl_teacher.play.commands import play as run

    return run(options)


# --- labelers ---


def labelers(arguments: Sequence[str]) -> int:
    """Run `rl-teacher labelers`."""
    import tyro

    def add(
        name: tyro.conf.Positional[str],
        /,
        role: str = "labeler",
        days: float | None = None,
        experiment: str | None = None,
    ) -> None:
        """Add a labeler and print their link or token once.

        Args:
            name: name of the labeler.
            role: labeler, or owner with all permissions.
            days: days until access expires; without it, never.
            experiment: the only experiment that they can label; without it, all.
        """
        from rl_teacher.web import labelers_cli

        print_added(labelers_cli.add(name, role, days, experiment))

    def list_all() -> None:
        """List the labelers."""
        from rl_teacher.web import labelers_cli

        print_labelers(labelers_cli.list_labelers())

    def revoke(name: tyro.conf.Positional[str], /) -> None:
        """Revoke a labeler's access; their labels stay.

        Args:
            name: name of the labeler.
        """
        from rl_teacher.web import labelers_cli

        num_revoked = labelers_cli.revoke(name)
        noun = "credential" if num_revoked == 1 else "credentials"
        print(f"{num_revoked} {noun} of {name} revoked. Their labels stay.")

    tyro.extras.subcommand_cli_from_dict(
        {"add": add, "list": list_all, "revoke": revoke},
        prog="rl-teacher labelers",
        description="Manage labelers.",
        args=list(arguments),
    )
    return 0


def print_added(added: "NewCredential") -> None:
    """Print a new credential, which is stored only as a hash."""
    print(f"{added.name} may label now. This is shown only once:")
    if added.link is not None:
        print(f"link: {added.link}")
        return
    print(f"token: {added.credential}")
    print("No service runs here. Once one does, they open its address with ?token=TOKEN behind it.")


def print_labelers(found: "Sequence[LabelerView]") -> None:
    """Print a table of labelers; names are printed without markup."""
    from rich.console import Console
    from rich.text import Text

    table = _table("name", "role", "labels", "last label", "")
    for each in found:
        last = each.last_label_at
        table.add_row(
            Text(each.name),
            each.role,
            f"{each.num_labels:,}",
            "-" if last is None else last.astimezone().strftime("%Y-%m-%d %H:%M"),
            "" if each.excluded_at is None else "excluded",
        )
    Console().print(table)


# --- export, import ---


def export(arguments: Sequence[str]) -> int:
    """Export a data set, labels or an agent."""
    import tyro

    def export_experiment(
        name: tyro.conf.Positional[str],
        /,
        format: ExportFormat = "dataset",  # noqa: A002 - the flag's name
        out: Path | None = None,
        checkpoint: str = "latest",
    ) -> None:
        """Export an experiment for other programs.

        Args:
            name: name of the experiment.
            format: dataset (labels with their segments), jsonl or parquet (labels alone), or agent
                (the policy for NumPy).
            out: destination. A dataset: a new folder or a .zip file, by default NAME.zip; labels: a
                file, by default the standard output; an agent: a folder, required.
            checkpoint: checkpoint of an agent: latest, previous, or its step.
        """
        if checkpoint != "latest" and format != "agent":
            raise BadInput(f"--checkpoint {checkpoint} has an effect only with --format agent.")
        match format:
            case "dataset":
                _export_dataset(name, out or Path(f"{name}.zip"))
            case "agent":
                _export_agent(name, out, checkpoint)
            case _:
                _export_labels(name, format, out)

    tyro.cli(export_experiment, prog="rl-teacher export", args=list(arguments))
    return 0


def _export_dataset(name: str, out: Path) -> None:
    from rl_teacher.datasets.import_export import labels_in_home

    dataset = labels_in_home(name)
    dataset.save(out, "jsonl")
    print(f"{_counted(dataset)} in {out}")


def _export_labels(name: str, format_name: str, out: Path | None) -> None:
    from rl_teacher.report.label_export import export as write_labels
    from rl_teacher.runs.folder import home
    from rl_teacher.store.database import default_url
    from rl_teacher.store.store import Store

    with Store.open(default_url(home())) as store:
        exported = write_labels(store, name, format_name, out or sys.stdout.buffer)
    if out is not None:
        print(f"{exported.num_labels} labels in {out}")


def _export_agent(name: str, out: Path | None, checkpoint: str) -> None:
    from rl_teacher.play.commands import export_agent

    if out is None:
        raise BadInput("--format agent writes a folder, and none was given. Name it with --out.")
    folder = export_agent(name, out, checkpoint)
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
            path: data set, as a folder or .zip; or preferences of imitation, as .npz.
            name: name of the new experiment.
            env_id: environment, for files that do not name it, such as imitation's.
        """
        from rl_teacher.datasets.import_export import import_as, read_any

        dataset = read_any(path, env_id)
        num_answered = import_as(dataset, name)
        print(f"{num_answered} labeled comparisons of {dataset.env_id} in experiment {name}")

    tyro.cli(import_data_set, prog="rl-teacher import", args=list(arguments))
    return 0


def _counted(dataset: "Dataset") -> str:
    return (
        f"{len(dataset.rows):,} labels of {len(dataset):,} comparisons, "
        f"{len(dataset.segments):,} segments of {dataset.env_id}"
    )


def _table(*headings: str) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE)
    for heading in headings:
        table.add_column(heading, no_wrap=heading in ("environment", "name"))
    return table


if __name__ == "__main__":
    sys.exit(main())
