"""Actors: agents and reward predictors loaded from an experiment's checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, get_type_hints, runtime_checkable

import gymnasium as gym
import numpy as np

from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import BadInput, CorruptCheckpoint, RlTeacherError
from rl_teacher.common.state_dict import part_of
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.interface import StatefulVectorEnv
from rl_teacher.envs.registry import EnvInfo, env_spaces, get_env_info, make_vector
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import Experiment, State, experiment_names
from rl_teacher.runs.warm_start import PREDICTOR_FILE, hash_arrays, load_predictor
from rl_teacher.store.checkpoints import (
    Checkpoint,
    CheckpointFile,
    list_checkpoints,
    read_checkpoint,
)

LATEST, PREVIOUS = "latest", "previous"
MAX_ATTEMPTS = 5
"""A running experiment may delete a file after it was listed; then list again."""

Settings = TypeVar("Settings")
Act = Callable[[np.ndarray], np.ndarray]


# --- checkpoints ---


@dataclass(frozen=True)
class SelectedCheckpoint:
    """A selected checkpoint.

    Attributes:
        checkpoint: its content.
        place: `latest`, `previous`, or a description of its age.
        note: a remark for the viewer, or None.
    """

    checkpoint: Checkpoint
    place: str
    note: str | None = None


def select_checkpoint(name: str, folder: Path, wanted: str) -> SelectedCheckpoint:
    """Select one of the kept checkpoints.

    Args:
        name: name of the experiment.
        folder: folder of its checkpoints.
        wanted: `latest`, `previous`, or a step.

    Raises:
        BadInput: there is no such checkpoint; the message lists the existing ones.
        CorruptCheckpoint: the checkpoint is damaged.
    """
    for _ in range(MAX_ATTEMPTS):
        kept = list_checkpoints(folder)
        if not kept:
            raise BadInput(
                f"{name} has no checkpoint yet, so there is no agent to load. One is written when "
                "training begins, and every 20 seconds from then on; let it train for a while."
            )
        try:
            return _select_latest(name, kept) if wanted == LATEST else _select(name, kept, wanted)
        except FileNotFoundError:
            continue
    raise CorruptCheckpoint(f"The checkpoints in {folder} change faster than they can be read.")


def _select_latest(name: str, kept: Sequence[CheckpointFile]) -> SelectedCheckpoint:
    """Return the newest undamaged checkpoint."""
    note = None
    for place, file in enumerate(kept):
        try:
            return SelectedCheckpoint(read_checkpoint(file), describe_age(place), note)
        # Deleted since it was listed: `select_checkpoint` lists again.
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            note = f"The checkpoint of step {file.step:,} is damaged ({error}); this one is older."
    raise CorruptCheckpoint(
        f"None of the {len(kept)} checkpoints of {name} is intact. Restore one from a "
        f"backup: {kept[0].path.parent}."
    )


def _select(name: str, kept: Sequence[CheckpointFile], wanted: str) -> SelectedCheckpoint:
    try:
        # Also 1e6, 20_480 or 20,480.
        step = None if wanted == PREVIOUS else float(wanted.replace("_", "").replace(",", ""))
    except ValueError as error:
        raise BadInput(
            f"--checkpoint {wanted} was given; latest, previous or a step is needed. Kept are: "
            f"{list_kept(kept)}."
        ) from error
    for place, file in enumerate(kept):
        if place == 1 if step is None else file.step == step:
            try:
                return SelectedCheckpoint(read_checkpoint(file), describe_age(place))
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                raise CorruptCheckpoint(
                    f"The checkpoint of step {file.step:,} is damaged: {error} ({file.path}). "
                    f"Kept are: {list_kept(kept)}."
                ) from error
    raise BadInput(
        f"{name} has no checkpoint {wanted}. Only the last ones are kept: {list_kept(kept)}."
    )


def describe_age(place: int) -> str:
    """Describe the age of a checkpoint among the kept ones."""
    return (LATEST, PREVIOUS)[place] if place < 2 else f"{place} before the latest"


def list_kept(kept: Sequence[CheckpointFile]) -> str:
    """List checkpoints in one line, newest first."""
    return ", ".join(
        f"step {file.step:,} ({describe_age(place)})" for place, file in enumerate(kept)
    )


# --- actors ---


@runtime_checkable
class PlayableAgent(Protocol):
    """The interface of an agent that acts without training."""

    def predict(self, observations: np.ndarray, *, deterministic: bool) -> np.ndarray:
        """Return the most likely actions, or samples as in training."""
        ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved agent."""
        ...


@dataclass(frozen=True)
class Actor:
    """An agent to play.

    Attributes:
        name: name of the experiment.
        kind: name of the algorithm.
        env_info: the environment.
        agent: the agent of the checkpoint.
        predictor: its reward predictor; None if there is none.
        venv: one environment to act in.
        step: environment steps of training at the checkpoint.
        checkpoint: description of the checkpoint.
        frames: preprocessing of image observations.
        is_training: whether the experiment is running.
        notes: remarks for the viewer.
    """

    name: str
    kind: str
    env_info: EnvInfo
    agent: PlayableAgent
    predictor: RewardPredictor | None
    venv: StatefulVectorEnv
    step: int
    checkpoint: str
    frames: FrameSettings
    is_training: bool
    notes: tuple[str, ...] = ()

    def policy(self, *, explore: bool) -> Act:
        """Return the policy: samples as in training, or the most likely actions."""
        return partial(self.agent.predict, deterministic=not explore)

    @property
    def description(self) -> str:
        """A description in one line."""
        training = "; it is still training" if self.is_training else ""
        return (
            f"{self.name}: {self.kind} in {self.env_info.id}, step {self.step:,} "
            f"({self.checkpoint} checkpoint{training})"
        )


def load_actor(name: str, checkpoint: str, predictor_path: str | None = None) -> Actor:
    """Load the agent of an experiment.

    Args:
        name: name of the experiment.
        checkpoint: `latest`, `previous`, or a step.
        predictor_path: a predictor to use instead of the agent's own.

    Raises:
        BadInput: there is no such experiment, agent or checkpoint, or the predictor is for another
            environment.
        CorruptCheckpoint: the checkpoint or predictor is damaged.
    """
    experiment = Experiment.find(name)
    config = load_config(experiment)
    chosen = select_checkpoint(experiment.name, experiment.folder / "checkpoints", checkpoint)
    env_info = get_env_info(config.env_id)
    venv = make_vector(env_info.id, 1, 1, frames=config.frames)
    try:
        agent = restore_agent(experiment.name, config, chosen, venv)
        predictor = find_actor_predictor(config, chosen, predictor_path)
    except BaseException:
        venv.close()
        raise
    notes = [chosen.note] if chosen.note else []
    if predictor is None:
        notes.append(FROM_TRUE_REWARD if config.predictor == "rl" else NO_PREDICTOR)
    return Actor(
        name=experiment.name,
        kind=config.agent,
        env_info=env_info,
        agent=agent,
        predictor=predictor,
        venv=venv,
        step=chosen.checkpoint.step,
        checkpoint=chosen.place,
        frames=config.frames,
        is_training=experiment.state is State.RUNNING,
        notes=tuple(notes),
    )


FROM_TRUE_REWARD = (
    "The agent was trained on the true reward, so none is predicted; choose a predictor with "
    "--predictor-path."
)
NO_PREDICTOR = (
    "The reward predictor of its training no longer exists; choose another with --predictor-path."
)


def restore_agent(
    name: str, config: TeachConfig, chosen: SelectedCheckpoint, venv: gym.vector.VectorEnv
) -> PlayableAgent:
    """Load the agent of a checkpoint.

    Raises:
        BadInput: the checkpoint has no agent.
        CorruptCheckpoint: the agent has another version.
    """
    state = part_of(chosen.checkpoint.arrays, "agent")
    if not state:
        raise BadInput(no_agent(name))
    # Every agent implements `PlayableAgent`, which is narrower than `Agent`.
    agent = cast("PlayableAgent", make_agent(config, venv))
    try:
        agent.load_state(state)
    except (LookupError, ValueError, TypeError) as error:
        raise CorruptCheckpoint(
            f"The agent of {name} cannot be loaded from its checkpoint of step "
            f"{chosen.checkpoint.step:,} ({error!r}): another version of rl-teacher wrote it, or "
            "its environment has changed since."
        ) from error
    return agent


# --- settings ---


def load_config(experiment: Experiment) -> TeachConfig:
    """Return the settings of an experiment.

    Raises:
        BadInput: the experiment has no agent: it only has labels or a predictor, or is a wrapper's.
        CorruptCheckpoint: the settings cannot be read.
    """
    saved = experiment.config
    if "agent" not in saved or saved.get("collect_only"):
        raise BadInput(no_agent(experiment.name))
    try:
        return restore_settings(TeachConfig, saved)
    except TypeError as error:
        raise CorruptCheckpoint(
            f"The settings of {experiment.name} cannot be read ({error}): another version of "
            "rl-teacher wrote them."
        ) from error


def no_agent(name: str) -> str:
    """Return the error text for an experiment without an agent."""
    return (
        f"{name} has no agent: only experiments that `rl-teacher teach` trained have one. "
        "`rl-teacher runs` lists them all."
    )


def restore_settings(kind: type[Settings], saved: Mapping[str, Any]) -> Settings:
    """Restore settings from JSON values; missing ones have their defaults."""
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for each in fields(cast("Any", kind)):
        if each.name in saved:
            value, hint = saved[each.name], hints[each.name]
            if is_dataclass(hint) and isinstance(value, Mapping):
                value = restore_settings(cast("type[Any]", hint), value)
            given[each.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


# --- predictor ---


def find_actor_predictor(
    config: TeachConfig, chosen: SelectedCheckpoint, predictor_path: str | None
) -> RewardPredictor | None:
    """Load the given predictor, or else the one that the agent was trained with.

    Raises:
        BadInput: the given predictor does not exist or is for other spaces.
        CorruptCheckpoint: the predictor is damaged.
    """
    space = InputSpace.from_spaces(*env_spaces(config.env_id, config.frames))
    if predictor_path is not None:
        remedy = "Name one of that environment."
        return load_predictor(predictor_path, space, f"{config.env_id} has", remedy)
    own = part_of(part_of(chosen.checkpoint.arrays, "rewards"), "predictor")
    if own:
        predictor = RewardPredictor(space, config.reward)
        try:
            predictor.load_state(own)
        except (LookupError, ValueError, TypeError) as error:
            raise CorruptCheckpoint(
                f"The reward predictor of {config.name} cannot be loaded ({error!r}): another "
                "version of rl-teacher wrote it."
            ) from error
        return predictor
    # Saved settings contain a content hash in place of the path, see `WarmStart.with_hashes`.
    return None if config.predictor_path is None else find_predictor(config.predictor_path)


def find_predictor(named: str) -> RewardPredictor | None:
    """Find the predictor with this content hash in any experiment; None if there is none."""
    for name in experiment_names():
        folder = Experiment.find(name).folder / "predictor"
        if not (folder / PREDICTOR_FILE).exists():
            continue
        try:
            predictor = RewardPredictor.load(folder)
        except RlTeacherError:
            continue
        if hash_arrays(predictor.state(), predictor.space) == named:
            return predictor
    return None
