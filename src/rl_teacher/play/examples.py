"""The command `rl-teacher examples`: small trained agents and label sets for trying other commands.

Nothing of them is shipped: checkpoints and labels of another version or machine may not fit.
"""

from pathlib import Path
from shlex import quote

from rich.console import Console

from rl_teacher.common.errors import ConfigMismatch
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.datasets.import_export import labels_in_home
from rl_teacher.runs.folder import home
from rl_teacher.teach import teach

EXAMPLES = (
    TeachConfig(
        "ShortHopper-v1", "synth", name="example-hopper", n_labels=150, num_timesteps=200_000
    ),
    TeachConfig(
        "ShortReacher-v1", "synth", name="example-reacher", n_labels=150, num_timesteps=200_000
    ),
    TeachConfig(
        "CartPole-v1", "synth", name="example-cartpole", n_labels=100, num_timesteps=50_000
    ),
)
"""One backend each that clips are drawn by: Hopper and Reacher by poses, CartPole as a video."""


def examples() -> int:
    """Train or continue all examples, save their labels, and return the exit code.

    Raises:
        RlTeacherError: something cannot be trained or written.
    """
    console = Console()
    for number, config in enumerate(EXAMPLES, 1):
        console.print(f"example {number} of {len(EXAMPLES)}: {config.name}", highlight=False)
        if not train_experiment(config, console):
            return 0
        path = labels_path(config)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            labels_in_home(config.name).save(path, "jsonl")
    console.print("Commands to try:")
    for command in commands_to_try():
        console.out(f"  {command}", highlight=False)
    return 0


def train_experiment(config: TeachConfig, console: Console) -> bool:
    """Train or continue an experiment that a command names itself; return False if it was stopped.

    Raises:
        RlTeacherError: it cannot be trained.
    """
    try:
        is_finished = teach(config, RunOptions(no_tensorboard=True)).is_finished
    except ConfigMismatch as error:
        # The remedy names options that only `rl-teacher teach` has.
        remedy = (
            "Give the earlier values to continue it, or delete it with "
            f"`rl-teacher delete {config.name}`."
        )
        raise ConfigMismatch(error.fault, remedy) from error
    if not is_finished:
        console.print("The run was stopped and saved. Repeat the command to continue it.")
    return is_finished


def labels_path(config: TeachConfig) -> Path:
    """Return the file of an example's label set."""
    return home() / "examples" / f"{config.name}.zip"


def commands_to_try() -> list[str]:
    """Return commands that use the examples."""
    hopper, reacher, cartpole = EXAMPLES
    return [
        f"rl-teacher play {hopper.name}",
        f"rl-teacher report {hopper.name} {reacher.name} {cartpole.name}",
        f"rl-teacher fit {hopper.name} -n fitted",
        f"rl-teacher import {quote(str(labels_path(reacher)))} -n imported",
        f"rl-teacher fit {quote(str(labels_path(cartpole)))} -n fitted-cartpole",
        "rl-teacher serve",
    ]
