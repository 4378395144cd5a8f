"""Actors: agents and reward predictors loaded from an experiment's checkpoint or history."""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np

from rl_teacher.agents.agent import Agent
from rl_teacher.agents.collector import Act
from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import (
    INVALID_CONTENT,
    BadConfig,
    BadInput,
    CorruptCheckpoint,
)
from rl_teacher.common.state_dict import part_of
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.fields import restored
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.interface import StatefulVectorEnv
from rl_teacher.envs.registry import EnvInfo, env_spaces, get_env_info, make_vector
from rl_teacher.predictor.ensemble import RewardPredictor, check_declared, check_size
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.warm_start import (
    config_of_agent,
    load_predictor,
    no_agent,
)
from rl_teacher.store.checkpoints import Checkpoint

LATEST = "latest"
FROM_HISTORY = "from the history"


# --- selection ---


@dataclass(frozen=True)
class SelectedAgent:
    """A selected agent.

    Attributes:
        step: environment steps of training.
        checkpoint: the checkpoint with its reward predictor, and with the agent unless `policy` is
            given.
        place: `latest checkpoint`, or `from the history`.
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
        wanted: `latest`, or a step, for which the nearest agent is selected.

    Raises:
        BadInput: there is no agent, or `wanted` is not valid.
        CorruptCheckpoint: the checkpoint or the policy is damaged.
    """
    checkpoint, history = experiment.checkpoints.load(), experiment.history
    if checkpoint is None:
        raise BadInput(
            f"{experiment.name} has no checkpoint yet, so there is no agent to load. One is "
            "written when training begins, and every 20 seconds from then on; let it train for a "
            "while."
        )
    latest = SelectedAgent(checkpoint.step, checkpoint, "latest checkpoint")
    if wanted == LATEST:
        return latest
    try:
        step = int(float(wanted.replace("_", "").replace(",", "")))  # also 1e6, 20_480 or 20,480
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"--step {wanted} was given; latest or a step is needed, for which the nearest agent "
            "is chosen."
        ) from error
    nearest = min([*history.steps, latest.step], key=lambda each: abs(each - step))
    selected = latest
    if nearest != latest.step:
        # The predictor of the latest checkpoint rates all agents of the history on one scale.
        policy = history.load(nearest)
        selected = replace(latest, step=nearest, place=FROM_HISTORY, policy=policy, note=None)
    if nearest == step:
        return selected
    agents = ", ".join(f"{each:,}" for each in sorted({*history.steps, latest.step}))
    note = f"No agent of step {step:,} is kept; this one is the nearest. Kept steps: {agents}."
    return replace(selected, note=note)


# --- actors ---


@dataclass(frozen=True)
class Actor:
    """An agent to play.

    Attributes:
        name: name of the experiment.
        kind: name of the algorithm.
        env_info: the environment.
        agent: the agent, or its policy from the history.
        rng: of the samples of a policy.
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
    agent: Agent | NumpyPolicy
    rng: np.random.Generator
    predictor: RewardPredictor | None
    venv: StatefulVectorEnv
    step: int
    place: str
    frames: FrameSettings
    is_training: bool
    notes: tuple[str, ...] = ()

    def policy(self, *, explore: bool) -> Act:
        """Return the policy: samples as in training, or the most likely actions."""
        agent, rng = self.agent, self.rng if explore else None
        if not isinstance(agent, NumpyPolicy):
            return partial(agent.predict, deterministic=not explore)
        return lambda observations, masks=None: agent.environment_actions(
            agent.encoder.features(observations), rng, masks
        )

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
        step: `latest`, or a step.
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
        notes.append("The checkpoint has no reward predictor; choose one with --predictor-path.")
    return Actor(
        name=experiment.name,
        kind=config.agent,
        env_info=env_info,
        agent=agent,
        rng=np.random.default_rng(config.seed),
        predictor=predictor,
        venv=venv,
        step=chosen.step,
        place=chosen.place,
        frames=config.frames,
        is_training=experiment.is_running,
        notes=tuple(notes),
    )


def restore_agent(
    name: str, config: TeachConfig, chosen: SelectedAgent, venv: gym.vector.VectorEnv
) -> Agent | NumpyPolicy:
    """Load a selected agent.

    Raises:
        BadInput: the checkpoint has no agent.
        CorruptCheckpoint: the agent has another version.
    """
    if chosen.policy is not None:
        return chosen.policy
    state = part_of(chosen.checkpoint.arrays, "agent")
    if not state:
        raise BadInput(no_agent(name))
    try:
        hidden = getattr(config.agent_settings, "hidden", ())
        check_declared(sum(map(math.prod, pairwise((1, *hidden)))), state)
        agent = make_agent(config, venv)
        agent.load_state(state)
    except INVALID_CONTENT as error:
        raise CorruptCheckpoint(
            f"The agent of {name} cannot be loaded from its checkpoint of step "
            f"{chosen.checkpoint.step:,} ({error!r:.300}): another version of rl-teacher wrote it, "
            "or its environment has changed since."
        ) from error
    return agent


# --- settings ---


def load_config(experiment: Experiment) -> TeachConfig:
    """Return the settings of an experiment.

    Raises:
        BadInput: the experiment has no agent: it only has labels or a predictor, or is a wrapper's.
        CorruptCheckpoint: the settings cannot be read.
    """
    saved = config_of_agent(experiment)
    try:
        return restored(TeachConfig, saved)
    except (BadConfig, *INVALID_CONTENT) as error:
        raise CorruptCheckpoint(
            f"The settings of {experiment.name} cannot be read ({error}): another version of "
            "rl-teacher wrote them."
        ) from error


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
        return load_predictor(predictor_path, space)
    own = part_of(part_of(chosen.checkpoint.arrays, "rewards"), "predictor")
    if own:
        try:
            check_size(space, config.reward, own)
            predictor = RewardPredictor(space, config.reward)
            predictor.load_state(own)
        except INVALID_CONTENT as error:
            raise CorruptCheckpoint(
                f"The reward predictor of {config.name} cannot be loaded ({error!r}): another "
                "version of rl-teacher wrote it."
            ) from error
        return predictor
    return None
