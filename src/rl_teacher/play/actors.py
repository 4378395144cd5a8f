"""Actors: agents and reward predictors loaded from an experiment's checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast, get_type_hints, runtime_checkable

import gymnasium as gym
import numpy as np

from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import BadConfig, BadInput, CorruptCheckpoint, RlTeacherError
from rl_teacher.common.state_dict import StateDict, part_of
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.interface import StatefulVectorEnv
from rl_teacher.envs.registry import EnvInfo, env_spaces, get_env_info, make_vector, mujoco_model
from rl_teacher.play.checkpoints import Chosen, choose
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import Experiment, State, existing_names
from rl_teacher.runs.warm_start import PREDICTOR_FILE, content_name, load_predictor

Settings = TypeVar("Settings")
Act = Callable[[np.ndarray], np.ndarray]


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
        model: the MuJoCo model; None without MuJoCo.
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
    model: Any
    step: int
    checkpoint: str
    frames: FrameSettings
    is_training: bool
    notes: tuple[str, ...] = ()

    def acting(self, *, explore: bool) -> Act:
        """Return the policy: samples as in training, or the most likely actions."""
        return partial(self.agent.predict, deterministic=not explore)

    @property
    def in_words(self) -> str:
        """A description in one line."""
        training = "; it is still training" if self.is_training else ""
        return (
            f"{self.name}: {self.kind} in {self.env_info.id}, step {self.step:,} "
            f"({self.checkpoint} checkpoint{training})"
        )


def actor_of(name: str, checkpoint: str, predictor_path: str | None = None) -> Actor:
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
    config = config_of(experiment)
    chosen = choose(experiment.name, experiment.folder / "checkpoints", checkpoint)
    env_info = get_env_info(config.env_id)
    venv = make_vector(env_info.id, 1, 1, frames=config.frames)
    try:
        agent = agent_of(experiment.name, config, chosen, venv)
        predictor = predictor_for(config, chosen, predictor_path)
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
        model=mujoco_model(env_info.id),
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


def agent_of(
    name: str, config: TeachConfig, chosen: Chosen, venv: gym.vector.VectorEnv
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


def config_of(experiment: Experiment) -> TeachConfig:
    """Return the settings of an experiment.

    Raises:
        BadInput: the experiment has no agent: it only has labels or a predictor, or is a wrapper's.
        CorruptCheckpoint: the settings cannot be read.
    """
    saved = experiment.config
    if "agent" not in saved or saved.get("collect_only"):
        raise BadInput(no_agent(experiment.name))
    try:
        return as_settings(TeachConfig, saved)
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


def as_settings(kind: type[Settings], saved: Mapping[str, Any]) -> Settings:
    """Restore settings from JSON values; missing ones have their defaults."""
    hints = get_type_hints(kind)
    given = {
        each.name: saved[each.name] for each in fields(cast("Any", kind)) if each.name in saved
    }
    return kind(**{name: _convert(hints[name], value) for name, value in given.items()})


def _convert(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(value, Mapping):
        return as_settings(cast("type[Any]", hint), value)
    return tuple(value) if isinstance(value, list) else value


# --- predictor ---


def predictor_for(
    config: TeachConfig, chosen: Chosen, predictor_path: str | None
) -> RewardPredictor | None:
    """Load the given predictor, or else the one that the agent was trained with.

    Raises:
        BadInput: the given predictor does not exist or is for other spaces.
        CorruptCheckpoint: the predictor is damaged.
    """
    space = InputSpace.from_spaces(*env_spaces(config.env_id, config.frames))
    if predictor_path is not None:
        predictor = load_predictor(predictor_path)
        if predictor.space != space:
            raise BadConfig(
                f"The predictor {predictor_path} was made for {predictor.space.description}; "
                f"{config.env_id} has {space.description}. Name one of that environment."
            )
        return predictor
    own = part_of(part_of(chosen.checkpoint.arrays, "rewards"), "predictor")
    if own:
        return _load_predictor(space, config, own)
    return None if config.predictor_path is None else find_predictor(config.predictor_path)


def _load_predictor(space: InputSpace, config: TeachConfig, state: StateDict) -> RewardPredictor:
    predictor = RewardPredictor(space, config.reward)
    try:
        predictor.load_state(state)
    except (LookupError, ValueError, TypeError) as error:
        raise CorruptCheckpoint(
            f"The reward predictor of {config.name} cannot be loaded ({error!r}): another version "
            "of rl-teacher wrote it."
        ) from error
    return predictor


def find_predictor(named: str) -> RewardPredictor | None:
    """Find the predictor with this content hash in any experiment; None if there is none."""
    for name in existing_names():
        folder = Experiment.find(name).folder / "predictor"
        if not (folder / PREDICTOR_FILE).exists():
            continue
        try:
            predictor = RewardPredictor.load(folder)
        except RlTeacherError:
            continue
        if content_name(predictor.state(), predictor.space) == named:
            return predictor
    return None
