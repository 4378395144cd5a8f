"""Actors: agents and reward predictors loaded from an experiment's checkpoint or history."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import gymnasium as gym
import numpy as np

from rl_teacher.agents.actions import Masks
from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import (
    INVALID_CONTENT,
    BadConfig,
    BadInput,
    CorruptCheckpoint,
    RlTeacherError,
)
from rl_teacher.common.state_dict import part_of
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.fields import as_keyword, check_bounds, settings_in
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.interface import StatefulVectorEnv
from rl_teacher.envs.registry import EnvInfo, env_spaces, get_env_info, make_vector
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import Experiment, experiment_names
from rl_teacher.runs.history import PolicyHistory
from rl_teacher.runs.warm_start import (
    PREDICTOR_FILE,
    config_of_agent,
    hash_arrays,
    load_predictor,
    no_agent,
)
from rl_teacher.store.checkpoints import Checkpoint, CheckpointFile, read_checkpoint

LATEST, PREVIOUS = "latest", "previous"
FROM_HISTORY = "from the history"
MAX_ATTEMPTS = 5
"""A running experiment may delete a file after it was listed; then list again."""

Settings = TypeVar("Settings")
Act = Callable[[np.ndarray], np.ndarray]


# --- selection ---


@dataclass(frozen=True)
class SelectedAgent:
    """A selected agent.

    Attributes:
        step: environment steps of training.
        checkpoint: the checkpoint with its reward predictor, and with the agent unless `policy` is
            given.
        place: `latest checkpoint`, `previous checkpoint`, or `from the history`.
        policy: a policy of the history; None for the agent of the checkpoint.
        note: a remark for the viewer, or None.
    """

    step: int
    checkpoint: Checkpoint
    place: str
    policy: NumpyPolicy | None = None
    note: str | None = None


def select_agent(experiment: Experiment, wanted: str) -> SelectedAgent:
    """Select the agent of a checkpoint or of the history.

    Args:
        experiment: the experiment.
        wanted: `latest`, `previous`, or a step, for which the nearest agent is selected.

    Raises:
        BadInput: there is no agent, or `wanted` is not valid; the message lists the agents.
        CorruptCheckpoint: the checkpoint or the policy is damaged.
    """
    name = experiment.name
    for _ in range(MAX_ATTEMPTS):
        kept = experiment.checkpoint_files()
        if not kept:
            raise BadInput(
                f"{name} has no checkpoint yet, so there is no agent to load. One is written when "
                "training begins, and every 20 seconds from then on; let it train for a while."
            )
        try:
            if wanted == LATEST:
                return _select_latest(name, kept)
            return _select(name, kept, experiment.history, wanted)
        except FileNotFoundError:
            continue
    raise CorruptCheckpoint(
        f"The checkpoints in {experiment.folder} change faster than they can be read."
    )


def _select_latest(name: str, kept: Sequence[CheckpointFile]) -> SelectedAgent:
    """Return the agent of the newest undamaged checkpoint."""
    note = None
    for place, file in enumerate(kept):
        try:
            return SelectedAgent(file.step, read_checkpoint(file), describe_age(place), note=note)
        # Deleted since it was listed: `select_agent` lists again.
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            note = f"The checkpoint of step {file.step:,} is damaged ({error}); this one is older."
    raise CorruptCheckpoint(
        f"None of the {len(kept)} checkpoints of {name} is intact. Restore one from a "
        f"backup: {kept[0].path.parent}."
    )


def _select(
    name: str, kept: Sequence[CheckpointFile], history: PolicyHistory, wanted: str
) -> SelectedAgent:
    if wanted == PREVIOUS:
        if len(kept) < 2:
            raise BadInput(
                f"{name} has no previous checkpoint. Its agents are: {list_agents(kept, history)}."
            )
        return _from_checkpoint(kept, 1)
    try:
        # Also 1e6, 20_480 or 20,480.
        step = float(wanted.replace("_", "").replace(",", ""))
    except ValueError:
        step = math.nan
    if not 0 <= step < math.inf:
        raise BadInput(
            f"--step {wanted} was given; latest, previous or a step is needed, for which the "
            f"nearest agent is chosen. The agents of {name} are: {list_agents(kept, history)}."
        )
    # Of equally near agents, that of a checkpoint is complete, and the newest is the latest one.
    steps = [*(file.step for file in kept), *reversed(history.steps)]
    place = min(range(len(steps)), key=lambda each: abs(steps[each] - step))
    if place < len(kept):
        selected = _from_checkpoint(kept, place)
    else:
        # The predictor of the latest checkpoint rates all agents of the history on one scale.
        latest = _select_latest(name, kept)
        policy = history.load(steps[place])
        selected = replace(latest, step=steps[place], place=FROM_HISTORY, policy=policy)
    if selected.step == step:
        return selected
    note = (
        f"No agent of step {step:,.0f} is kept; this one is the nearest. The agents are: "
        f"{list_agents(kept, history)}."
    )
    return replace(selected, note=note)


def _from_checkpoint(kept: Sequence[CheckpointFile], place: int) -> SelectedAgent:
    file = kept[place]
    try:
        return SelectedAgent(file.step, read_checkpoint(file), describe_age(place))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise CorruptCheckpoint(
            f"The checkpoint of step {file.step:,} is damaged: {error} ({file.path}). Choose "
            "another agent with --step."
        ) from error


def describe_age(place: int) -> str:
    """Describe the age of a checkpoint among the kept ones."""
    name = (LATEST, PREVIOUS)[place] if place < 2 else f"{place} before the latest"
    return f"{name} checkpoint"


def list_agents(kept: Sequence[CheckpointFile], history: PolicyHistory) -> str:
    """List the agents that can be played in one line, oldest first."""
    earlier = [f"{step:,}" for step in history.steps]
    newer = [f"{file.step:,} ({describe_age(place)})" for place, file in enumerate(kept)]
    return f"step {', '.join([*earlier, *reversed(newer)])}"


# --- actors ---


@runtime_checkable
class PlayableAgent(Protocol):
    """The interface of an agent that acts without training."""

    def predict(self, observations: np.ndarray, *, deterministic: bool) -> np.ndarray:
        """Return the most likely actions, or samples as in training."""
        ...


class PolicyAgent:
    """A saved policy that acts as the agent it was taken from."""

    def __init__(self, policy: NumpyPolicy, seed: int) -> None:
        self._policy = policy
        self._rng = np.random.default_rng(seed)

    def predict(
        self, observations: np.ndarray, masks: Masks = None, *, deterministic: bool
    ) -> np.ndarray:
        """Return the most likely actions, or samples as in training."""
        features = self._policy.encoder.features(observations)
        rng = None if deterministic else self._rng
        return self._policy.environment_actions(features, rng, masks)

    def numpy_policy(self) -> NumpyPolicy:
        """Return the policy."""
        return self._policy


@dataclass(frozen=True)
class Actor:
    """An agent to play.

    Attributes:
        name: name of the experiment.
        kind: name of the algorithm.
        env_info: the environment.
        agent: the agent.
        predictor: its reward predictor; None if there is none.
        venv: one environment to act in.
        step: environment steps of training.
        place: where the agent was kept: a checkpoint or the history.
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
    place: str
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
            f"({self.place}{training})"
        )


def load_actor(name: str, step: str, predictor_path: str | None = None) -> Actor:
    """Load the agent of an experiment.

    Args:
        name: name of the experiment.
        step: `latest`, `previous`, or a step.
        predictor_path: a predictor to use instead of the agent's own.

    Raises:
        BadInput: there is no such experiment or agent, or the predictor is for another
            environment.
        CorruptCheckpoint: the checkpoint or predictor is damaged.
    """
    experiment = Experiment.find(name)
    config = load_config(experiment)
    chosen = select_agent(experiment, step)
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
        step=chosen.step,
        place=chosen.place,
        frames=config.frames,
        is_training=experiment.is_running,
        notes=tuple(notes),
    )


FROM_TRUE_REWARD = (
    "The agent was trained on the true reward, so none is predicted; choose a predictor with "
    "--predictor-path."
)
NO_PREDICTOR = (
    "No experiment has the frozen reward predictor of its training any more. If it is in a folder, "
    "name that with --predictor-path."
)


def restore_agent(
    name: str, config: TeachConfig, chosen: SelectedAgent, venv: gym.vector.VectorEnv
) -> PlayableAgent:
    """Load a selected agent.

    Raises:
        BadInput: the checkpoint has no agent.
        CorruptCheckpoint: the agent has another version.
    """
    if chosen.policy is not None:
        return PolicyAgent(chosen.policy, config.seed)
    state = part_of(chosen.checkpoint.arrays, "agent")
    if not state:
        raise BadInput(no_agent(name))
    try:
        agent = make_agent(config, venv)
        agent.load_state(state)
    except INVALID_CONTENT as error:
        raise CorruptCheckpoint(
            f"The agent of {name} cannot be loaded from its checkpoint of step "
            f"{chosen.checkpoint.step:,} ({error!r:.300}): another version of rl-teacher wrote it, "
            "or its environment has changed since."
        ) from error
    # Every agent implements `PlayableAgent`, which is narrower than `Agent`.
    return cast("PlayableAgent", agent)


# --- settings ---


def load_config(experiment: Experiment) -> TeachConfig:
    """Return the settings of an experiment.

    Raises:
        BadInput: the experiment has no agent: it only has labels or a predictor, or is a wrapper's.
        CorruptCheckpoint: the settings cannot be read.
    """
    saved = config_of_agent(experiment)
    try:
        return restore_settings(TeachConfig, saved)
    except (BadConfig, TypeError) as error:
        raise CorruptCheckpoint(
            f"The settings of {experiment.name} cannot be read ({error}): another version of "
            "rl-teacher wrote them."
        ) from error


def restore_settings(kind: type[Settings], saved: Mapping[str, Any]) -> Settings:
    """Restore settings from JSON values; missing ones have their defaults.

    Raises:
        BadConfig: a value has another type, or is out of bounds.
        TypeError: a value is missing that has no default.
    """
    given: dict[str, Any] = {}
    for name, hint, _ in settings_in(kind):
        if name in saved:
            value = saved[name]
            if is_dataclass(hint) and isinstance(value, Mapping):
                value = restore_settings(cast("type[Any]", hint), value)
            given[name] = tuple(value) if isinstance(value, list) else value
    settings = kind(**given)
    check_bounds(settings, spell=as_keyword)
    return settings


# --- predictor ---


def find_actor_predictor(
    config: TeachConfig, chosen: SelectedAgent, predictor_path: str | None
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
        try:
            predictor = RewardPredictor(space, config.reward)
            predictor.load_state(own)
        except INVALID_CONTENT as error:
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
        folder = Experiment.find(name).predictor_folder
        if not (folder / PREDICTOR_FILE).exists():
            continue
        try:
            predictor = RewardPredictor.load(folder)
        except RlTeacherError:
            continue
        if hash_arrays(predictor.state(), predictor.space) == named:
            return predictor
    return None
