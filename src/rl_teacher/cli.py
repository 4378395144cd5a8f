"""Command line: parse arguments, call the library, print results."""

import os

# OpenBLAS reads this when NumPy is imported; its threads would compete with the physics.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import errno
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from rl_teacher.common.errors import (
    BadInput,
    ExperimentNotFound,
    RlTeacherError,
    UnknownName,
)
from rl_teacher.common.paths import user_path
from rl_teacher.common.runtime import repeated_interrupts
from rl_teacher.common.text import counted
from rl_teacher.config import predecessors

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table

    from rl_teacher.runs.folder import Experiment

ExportFormat = Literal["dataset", "jsonl", "numpy", "onnx", "sb3", "safetensors"]

UNLIMITED_WIDTH = 10_000
"""Width of a table that is not printed on a terminal, in characters."""

PARSING = Parameter(
    allow_repeating=True, consume_multiple=True, negative_bool=(), negative_iterable=()
)
"""Parsing of arguments: the last of repeated flags counts, and `--hidden 64 64` has two values."""

EPILOGUE = """\
examples:
  rl-teacher teach -p rl -e ShortHopper-v1 -n base-rl
  rl-teacher teach -p synth -l 1400 -e ShortHopper-v1 -n syn-1400
  rl-teacher teach -p human -L 175 -e Reacher-v1 -n human-175
  rl-teacher report base-rl syn-1400

`rl-teacher COMMAND --help` lists the options of a command. Repeating a `teach`
command continues its experiment. All files are stored in ~/.rl-teacher, or in
RL_TEACHER_HOME.
"""


WELCOME = """\
rl-teacher trains agents from your preferences between short clips. Try one of these:

  rl-teacher teach   teach a hopper: compare clips in the browser, from the first minute
  rl-teacher demo    watch a program teach it with 300 labels
  rl-teacher teach -p human -e Reacher-v1 -n mine   teach another task; `rl-teacher envs` lists them

`rl-teacher --help` lists all commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    os.umask(os.umask(0o077) | 0o022)  # nothing that is written is writable by others
    if sys.stdout is None:  # closed by the parent process, as by `>&-` in a shell
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends
    try:
        try:
            with repeated_interrupts():
                return run_command(given)
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
    finally:
        if arguments is None:
            # Another Ctrl-C while Python exits would print a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def discard_output() -> None:
    """Discard the standard output that is not written yet: Python flushes once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(arguments: Sequence[str]) -> int:
    """Run a command.

    Raises:
        ExperimentNotFound: there is no experiment of this name; the message suggests similar ones.
        BadInput: there is no such command or option, earlier systems had it, or the experiment is
            only a predictor.
    """
    if not arguments:
        print(WELCOME)
        return 0
    command, *rest = arguments
    if "--help-all" in rest:
        arguments = ["teach-all", "--help"]
    app = make_app()
    if command == "--help":
        app.help_epilogue = EPILOGUE
    if command not in app:
        predecessors.check_command(command, rest)
        raise UnknownName("command", command, [name for name in app if name[0] != "-"])
    try:
        result = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        for argument in rest:
            predecessors.check_option(command, argument.partition("=")[0].replace("_", "-"))
        where = f"`rl-teacher {command} --help` lists the options."
        if isinstance(error, UnknownOptionError):
            raise UnknownName("option", *unknown_option(error), where) from error
        raise BadInput(f"{error} {where}") from error
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
    return result or 0


def unknown_option(error: UnknownOptionError) -> tuple[str, list[str]]:
    """Return an unknown option, and those of its section, or else all that the command has."""
    option = (error.token.keyword or error.token.value).partition("=")[0]
    # Arguments with children are sections, which are no options themselves.
    arguments = [each for each in error.argument_collection if each.parse and not each.children]
    known = [name for argument in arguments for name in argument.names]
    section, dot, _ = option.partition(".")
    return option, [name for name in known if name.startswith(section + dot) and dot] or known


def version() -> str:
    """Return the name and the version."""
    from importlib.metadata import version as installed_version

    return f"rl-teacher {installed_version('rl-teacher')}"


def make_app() -> App:
    """Return the app with all commands; those with settings are imported when they are run."""
    app = App(
        name="rl-teacher",
        help="Train reinforcement learning agents from human preferences.",
        help_format="plaintext",
        version=version,
        default_parameter=PARSING,
        suppress_keyboard_interrupt=False,  # for `main`
    )
    app.command(f"{WITH_SETTINGS}:teach_all", name="teach-all", show=False)
    for place, (name, command) in enumerate(COMMANDS.items()):
        if isinstance(command, tuple):
            path, text = command
            app.command(path, name=name, help=text, sort_key=place)
        elif isinstance(command, dict):
            group = App(name=name, help=HELP_OF_GROUPS[name], sort_key=place)
            for subcommand, function in command.items():
                group.command(function, name=subcommand)
            app.command(group)
        else:
            app.command(command, name=name, sort_key=place)
    return app


def print_summary(experiment: "Experiment", console: "Console") -> None:
    """Print the summary table of a run, with the same counts as in `rl-teacher runs`."""
    from rl_teacher.report.summary import summary

    current = experiment.summary()
    counts: dict[str, Any] = {"step": current.step}
    if current.labels.asked:
        counts |= {f"labels_{name}": num for name, num in current.labels._asdict().items()}
    console.print(summary(experiment.name, current.env_id, [*experiment.metrics(), counts]))


def confirm_deletion(name: str, alternative: str) -> None:
    """Ask for confirmation before an experiment is deleted.

    If it has labels, its name has to be typed.

    Args:
        name: name of the experiment
        alternative: what to do instead, for the error text

    Raises:
        BadInput: the answer is no, or the terminal is not interactive.
    """
    from rl_teacher.runs.folder import Experiment, experiment_names, stored_experiments

    if not sys.stdin.isatty():
        raise BadInput(
            f"Experiment {name!r} is deleted after confirmation, and there is no terminal to ask "
            f"on. `rl-teacher delete {quote(name)} --yes` deletes it without confirmation."
        )
    stored = stored_experiments()
    num_labels = stored[name].answered if name in stored else 0
    num_steps = Experiment.find(name).summary(stored).step if name in experiment_names() else 0
    contents = f"its {counted(num_labels, 'label')} and {counted(num_steps, 'step')}"
    question = f"Delete experiment {name!r}, {contents}?"
    must_type_name = num_labels > 0
    hint = "Type its name to confirm:" if must_type_name else "[y/N]"
    try:
        answer = input(f"{question} {hint} ").strip()
    except EOFError:
        print()
        answer = ""
    is_confirmed = answer == name if must_type_name else answer.lower() in ("y", "yes")
    if not is_confirmed:
        raise BadInput(f"Nothing was deleted. {alternative}")


# --- envs ---


def envs(search: str = "", /) -> None:
    """List the environments.

    Args:
        search: text that the names contain
    """
    from rl_teacher.envs.registry import LISTED, atari_names, list_atari_infos, list_env_infos

    table = table_of("environment", "clip steps/s", "episode steps", "ends early", "")
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
    print_table(table)
    if not search:
        names = atari_names()
        print(
            f"\nAnd {len(names)} Atari games, each as Pong-v4 or, with sticky actions, as "
            f"ALE/Pong-v5 (`rl-teacher envs pong` shows both): {', '.join(names)}."
        )


# --- runs, report ---


def runs() -> None:
    """List the experiments and their states, most recently changed first."""
    from rich.text import Text

    from rl_teacher.runs.folder import Experiment, home

    found = Experiment.all()
    if not found:
        print(f"No experiments in {home()} yet. `rl-teacher teach` starts one.")
        return
    sorts_clips = any(each.clips for each in found)
    rows = [
        {
            "name": Text(each.name),  # brackets are no markup
            "environment": each.env_id,
            "state": each.phase,
            "steps": f"{each.step:,}",
            "labels": f"{each.labels.answered:,}",
            **({"clips": f"{each.clips:,}" if each.clips else "-"} if sorts_clips else {}),
            "last change": _local_time(each.changed_at),
        }
        for each in found
    ]
    table = table_of(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    print_table(table)
    # A column would be too narrow for them.
    for each in found:
        if each.note:
            print(f"{each.name}: {each.note}")


def report(*names: str, plot: Path | None = None) -> None:
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


def finish(name: str, /) -> None:
    """Finish a run now: it uses its last labels, saves and shows the agent.

    Args:
        name: name of the experiment
    """
    from rl_teacher.runs.control import finish_run
    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        finish_run(store, name)
        num_labels = store.experiments.get(name).answered
    print(
        f"{name} finishes with its {counted(num_labels, 'label')}, within seconds if it is running."
    )


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
    table = table_of("name", "environment", "labels", "archived")
    for each in archived:
        since = _local_time(each.archived_at)
        table.add_row(Text(each.name), each.env_id, f"{each.answered:,}", since)
    print_table(table)


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


def delete(name: str, /, *, yes: bool = False) -> None:
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
        confirm_deletion(name, instead)
    with open_store() as store:
        delete_experiment(store, name)
    print(f"{name} deleted.")


# --- labelers ---


def add_labeler(
    name: str,
    /,
    *,
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
    table = table_of("name", "role", "labels", "last label", "")
    for each in labelers:
        table.add_row(
            Text(each.name),  # brackets are no markup
            each.role,
            f"{each.num_labels:,}",
            _local_time(each.last_label_at),
            "" if each.excluded_at is None else "excluded",
        )
    print_table(table)


def revoke_labeler(name: str, /) -> None:
    """Revoke a labeler's access; their labels stay.

    Args:
        name: name of the labeler
    """
    from rl_teacher.runs.folder import open_store

    with open_store() as store:
        num_revoked = store.access.revoke_credentials(name)
    print(f"{counted(num_revoked, 'credential')} of {name} revoked. Their labels stay.")


def invite_labelers(*, uses: int = 1, days: float = 7.0, experiment: str | None = None) -> None:
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
    table = table_of("number", "for", "experiment", "uses", "expires", "status")
    for each in invites:
        table.add_row(
            str(each.id),
            Text(each.name or each.role),
            Text(each.experiment or "all"),
            f"{each.num_uses} of {each.max_uses}",
            _local_time(each.expires_at),
            each.status,
        )
    print_table(table)


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
    *,
    format: ExportFormat = "dataset",  # noqa: A002 - the flag's name
    out: Path | None = None,
    step: str = "latest",
    hold_out: float | None = None,
) -> None:
    """Export an experiment for other programs.

    Args:
        name: name of the experiment
        format: labels: dataset (with their segments) or jsonl; the agent: numpy, onnx (with the
            reward predictor), sb3 (Stable-Baselines3) or safetensors (for rl_teacher.load_agent)
        out: destination. Data set: a .zip file, NAME.zip by default; labels: a file, the standard
            output by default; agent: a folder, NAME-agent by default
        step: agent to export: latest, or the one nearest to a step
        hold_out: fraction of the comparisons to mark as held out: a predictor is never fitted to
            them, only evaluated on them
    """
    if hold_out is not None and format != "dataset":
        raise BadInput(f"--hold-out {hold_out:g} has an effect only with --format dataset.")
    if step != "latest" and format in ("dataset", "jsonl"):
        raise BadInput(f"--step {step} has an effect only with an agent's --format, such as numpy.")
    match format:
        case "dataset":
            export_dataset(name, out or Path(f"{name}.zip"), hold_out)
        case "jsonl":
            export_labels(name, user_path(out) if out else None)
        case _:
            export_agent(name, out or Path(f"{name}-agent"), step, format)


def export_dataset(name: str, out: Path, hold_out: float | None) -> None:
    """Export labels with their segments; mark a fraction of the comparisons as held out."""
    from rl_teacher.datasets.import_export import labels_in_home

    dataset = labels_in_home(name)
    if hold_out is not None:
        dataset = dataset.hold_out(hold_out)
    dataset.save(out)
    num_held_out = len(dataset.held_out)
    held_out = f" ({num_held_out:,} of them held out)" if num_held_out else ""
    print(
        f"{counted(len(dataset.rows), 'label')} of {counted(len(dataset), 'comparison')}"
        f"{held_out}, {counted(len(dataset.segments), 'segment')} of {dataset.env_id} in {out}"
    )


def export_labels(name: str, out: Path | None) -> None:
    """Export labels alone, to a file or to the standard output."""
    from rl_teacher.report.label_export import export as write_labels
    from rl_teacher.runs.folder import store_to_read

    with store_to_read() as store:
        num_labels = write_labels(store, name, out or sys.stdout.buffer)
    if out is not None:
        print(f"{counted(num_labels, 'label')} in {out}")


def export_agent(name: str, out: Path, step: str, form: str) -> None:
    """Export the policy for programs without this package, or for `rl_teacher.load_agent`."""
    from rl_teacher.play import agent_export

    folder = agent_export.export_agent(name, out, step, form)
    print(f"agent: {folder}")
    if form == "safetensors":
        print(f"next: rl_teacher.load_agent({str(folder)!r})(observations) returns actions")
    else:
        print(f"next: python {quote(str(folder / 'play.py'))}")


def import_(
    path: Path,
    /,
    *,
    name: Annotated[str, Parameter(alias="-n")],
) -> None:
    """Import a data set as an experiment; no code in the files is executed.

    Args:
        path: data set, a .zip file
        name: name of the new experiment
    """
    from rl_teacher.datasets.import_export import import_as
    from rl_teacher.datasets.reading import load

    dataset = load(path)
    num_answered = import_as(dataset, name)
    labelled = counted(num_answered, "labelled comparison")
    print(f"{labelled} of {dataset.env_id} in experiment {name}")


# --- backup, restore, doctor ---


def backup(path: Path, /) -> None:
    """Copy everything to a new zip file, even while experiments run.

    Args:
        path: file to create
    """
    from rl_teacher.runs.backup import save_backup

    file = user_path(path)
    summary = save_backup(file)
    print(f"{summary} in {file}")
    print(f"next: RL_TEACHER_HOME=NEW rl-teacher restore {quote(str(file))}")


def restore(path: Path, /) -> None:
    """Restore a backup into RL_TEACHER_HOME, which must be empty or missing; revoke all access.

    Args:
        path: file that `rl-teacher backup` has written
    """
    from rl_teacher.runs.backup import restore_backup
    from rl_teacher.runs.folder import home

    summary = restore_backup(user_path(path))
    print(f"Restored in {home()}: {summary}.")
    print("next: `rl-teacher serve` has a new link; invite with `rl-teacher labelers invite`")


def doctor() -> int:
    """Examine all files and the database for damage; exit with 1 if there is any."""
    from rl_teacher.runs.doctor import examine

    checks = examine()
    table = table_of("check", "examined", "result")
    for each in checks:
        result = counted(len(each.faults), "fault") if each.faults else "sound"
        table.add_row(each.name, f"{each.num_examined:,}", result)
    print_table(table)
    for each in checks:
        for text in each.faults:
            print(f"fault: {each.name}: {text.rstrip('.')}.")
    return 1 if any(each.faults for each in checks) else 0


def table_of(*headings: str) -> "Table":
    """Return an empty table."""
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


def print_table(table: "Table") -> None:
    """Print a table."""
    _console().print(table, markup=False)


def _console() -> "Console":
    """Return the console for a table: in a file or a pipe, each row is one line."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNLIMITED_WIDTH
    return console


ARCHIVE = {"add": archive_one, "list": list_archived, "restore": restore_archived}
LABELERS = {
    "add": add_labeler,
    "list": list_labelers,
    "revoke": revoke_labeler,
    "invite": invite_labelers,
    "invites": list_invites,
    "revoke-invite": revoke_invite,
}
WITH_SETTINGS = "rl_teacher.settings_commands"
COMMANDS: dict[str, Any] = {
    "teach": (
        f"{WITH_SETTINGS}:teach",
        "Train an agent on labels, the true reward or a saved predictor.",
    ),
    "demo": (f"{WITH_SETTINGS}:demo", "Watch a synthetic teacher teach a hopper."),
    "collect": (f"{WITH_SETTINGS}:collect", "Collect labels without training."),
    "fit": (f"{WITH_SETTINGS}:fit", "Fit a reward predictor to saved labels and save it."),
    "serve": (f"{WITH_SETTINGS}:serve", "Serve the page: label and monitor all experiments."),
    "label": (
        f"{WITH_SETTINGS}:label",
        "Label an experiment's comparisons with L, R, E and Enter; the page shows the clips.",
    ),
    "envs": envs,
    "check": (f"{WITH_SETTINGS}:check", "Check an environment for faults."),
    "runs": runs,
    "report": report,
    "reward": reward,
    "finish": finish,
    "rename": rename,
    "archive": ARCHIVE,
    "delete": delete,
    "play": (
        f"{WITH_SETTINGS}:play",
        "Play an experiment's agent on the page, or record a video.",
    ),
    "sweep": (
        f"{WITH_SETTINGS}:sweep",
        "Run an experiment for each seed and combination of settings, and compare their returns.",
    ),
    "circus": (
        f"{WITH_SETTINGS}:circus",
        "Teach four tricks and build a page that compares them with agents of the true reward.",
    ),
    "labelers": LABELERS,
    "export": export,
    "import": import_,
    "backup": backup,
    "restore": restore,
    "doctor": doctor,
}
"""Commands by name: a function, the path of one with settings and its help, or subcommands."""
HELP_OF_GROUPS = {
    "archive": "Archive, list and restore experiments.",
    "labelers": "Add, invite, list and revoke labelers.",
}

if __name__ == "__main__":
    sys.exit(main())
