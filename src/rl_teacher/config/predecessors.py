"""Commands and options of earlier systems, and their equivalents.

The systems are rl-teacher, rl-teacher-atari and learning-from-human-preferences. The error message
for such a command or option names its equivalent; docs/coming-from.md describes the differences.
"""

import shlex
from collections.abc import Sequence

from rl_teacher.common.errors import BadInput

COMMANDS = {
    "train_policy_with_original_rewards": "rl-teacher teach -p rl",
    "train_policy_with_preferences": "rl-teacher teach -p human, or -p synth",
    "gather_initial_prefs": "rl-teacher collect",
    "pretrain_reward_predictor": "rl-teacher fit",
}
"""Modes of learning-from-human-preferences."""

OPTIONS = {
    # rl-teacher-atari
    "-V": "nothing: videos are only written with --videos",
    "--no-videos": "nothing: videos are only written with --videos",
    "-b": "--ga3c.entropy-coef",
    "--starting-beta": "--ga3c.entropy-coef",
    "--reward-model": "-p",
    "--force-new-agent-model": "another -n, with --labels OLD",
    "--force-new-environment-clips": "another -n, or --force-new",
    "--force-new-reward-model": "another -n, with --labels OLD and --agent-path OLD",
    "--force-new-training-labels": "another -n, with --agent-path OLD and --predictor-path OLD",
    # learning-from-human-preferences
    "--batchnorm": "--reward.batch-norm with --reward.image-encoder paper",
    "--dropout": "--reward.dropout",
    "--ent-coef": "--a2c.entropy-coef with -a a2c",
    "--load-policy-ckpt-dir": "--agent-path",
    "--load-prefs-dir": "--labels",
    "--load-reward-predictor-ckpt-dir": "--predictor-path",
    "--log-dir": "-n",
    "--lr": "--a2c.learning-rate with -a a2c",
    "--lr-zero-million-timesteps": "--a2c.final-learning-rate 0 with -a a2c",
    "--max-prefs": "--reward.label-buffer",
    "--max-segs": "no other: the steps of the latest rollouts are kept",
    "--million-timesteps": "-t, in steps: -t 10e6",
    "--n-envs": "--a2c.num-envs with -a a2c",
    "--n-initial-epochs": "-i, in gradient steps",
    "--n-initial-prefs": "-L",
    "--policy-ckpt-interval": "--checkpoint-seconds",
    "--render-episodes": "--serve, and press w on the page",
    "--reward-predictor-ckpt-interval": "--checkpoint-seconds",
    "--reward-predictor-learning-rate": "--reward.learning-rate",
    "--run-name": "-n",
    "--synthetic-prefs": "-p synth",
}
"""Options that no command has any more; underscores are hyphens."""

OPTIONS_OF_COMMANDS = {
    "collect": {"--n-initial-prefs": "-l"},
    "fit": {"--load-prefs-dir": "no option: the labels are the first argument"},
}
"""Equivalents that differ from those of `teach`."""

AGENTS = {"parallel_trpo": "trpo", "pposgd_mpi": "ppo", "ppo_atari": "ppo"}
"""Agents of rl-teacher and of rl-teacher-atari."""


def check_command(command: str, arguments: Sequence[str]) -> None:
    """Answer a command line of an earlier system with the command to use.

    Raises:
        BadInput: the first argument is an option, or a mode of learning-from-human-preferences.
    """
    if command.startswith("-") and arguments:
        raise BadInput(f"The command is missing. Use: {teach_command([command, *arguments])}")
    if command in COMMANDS:
        raise BadInput(f"The mode {command} is a command here: {COMMANDS[command]}.")


def check_option(command: str, option: str) -> None:
    """Answer an option of an earlier system with the one to use.

    Args:
        command: the command that was given it.
        option: an option with hyphens, without its value.

    Raises:
        BadInput: the option was renamed.
    """
    if option in OPTIONS:
        new = OPTIONS_OF_COMMANDS.get(command, {}).get(option, OPTIONS[option])
        raise BadInput(f"There is no option {option} here. Use {new}.")


def check_agent_name(name: str) -> None:
    """Answer the name of an agent of an earlier system with the agent to use.

    Raises:
        BadInput: the agent has another name.
    """
    if name in AGENTS:
        raise BadInput(f"The agent {name} is called {AGENTS[name]} here. Use -a {AGENTS[name]}.")


def teach_command(arguments: Sequence[str]) -> str:
    """Write `rl-teacher teach` with these arguments as for a shell."""
    return shlex.join(["rl-teacher", "teach", *arguments])
