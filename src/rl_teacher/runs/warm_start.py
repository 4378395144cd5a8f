"""Warm start of a run from a saved predictor or an earlier agent."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.common.state_dict import StateDict, part_of
from rl_teacher.config.experiment import PredictorConfig, TeachConfig
from rl_teacher.envs.registry import env_spaces
from rl_teacher.plan import NETWORK_SETTINGS
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import (
    Experiment,
    find_source,
)

PREDICTOR_FILE = "predictor.json"


@dataclass(frozen=True)
class WarmStart:
    """Initial predictor and agent of a run.

    Attributes:
        predictor: a pretrained predictor; None to fit one from the start.
        agent: state of an earlier agent; None for a newly initialised agent.
    """

    predictor: RewardPredictor | None = None
    agent: StateDict | None = None

    def with_hashes(self, config: TeachConfig) -> TeachConfig:
        """Replace the paths in a configuration by content hashes.

        A run can then be resumed after the files have moved, but not with other content.
        """
        if self.predictor is not None:
            config = replace(
                config,
                predictor_path=hash_arrays(self.predictor.state(), self.predictor.space),
                reward=with_network_settings(self.predictor, config.reward),
            )
        if self.agent is not None:
            config = replace(config, agent_path=hash_arrays(self.agent))
        return config


def with_network_settings(predictor: RewardPredictor, settings: PredictorConfig) -> PredictorConfig:
    """Return predictor settings with the network settings of a saved predictor."""
    saved = {name: getattr(predictor.config, name) for name in NETWORK_SETTINGS}
    return replace(settings, **saved)


def load_warm_start(config: TeachConfig) -> WarmStart:
    """Load the predictor and the agent that a configuration names.

    Raises:
        BadInput: a path does not exist, or its content has another environment or other settings.
        CorruptCheckpoint: a file is damaged.
    """
    predictor = agent = None
    if config.predictor_path is not None:
        needed = InputSpace.from_spaces(*env_spaces(config.env_id, config.frames))
        predictor = load_predictor(config.predictor_path, needed)
    if config.agent_path is not None:
        agent = load_agent_state(config.agent_path, config.agent)
    return WarmStart(predictor, agent)


def hash_arrays(arrays: Mapping[str, np.ndarray], space: InputSpace | None = None) -> str:
    """Return the SHA-256 hash of the names and contents of arrays."""
    digest = hashlib.sha256(json.dumps(space and space.to_json()).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return f"sha256:{digest.hexdigest()}"


# --- predictors ---


def predictor_folder(name_or_folder: str) -> Path:
    """Return the folder of a saved predictor.

    Args:
        name_or_folder: an experiment's name, its folder, or the predictor's folder.

    Raises:
        BadInput: there is no predictor.
    """
    folder = find_source(
        name_or_folder,
        lambda path: any((each / PREDICTOR_FILE).exists() for each in (path, path / "predictor")),
        f"the name of an experiment with a fitted predictor, or a folder with {PREDICTOR_FILE},",
    )
    return folder if (folder / PREDICTOR_FILE).exists() else folder / "predictor"


def load_predictor(name_or_folder: str, needed: InputSpace) -> RewardPredictor:
    """Load a saved predictor.

    Args:
        name_or_folder: an experiment's name, its folder, or the predictor's folder.
        needed: input space that it must have.

    Raises:
        BadInput: there is no predictor, or it has another input space.
        CorruptCheckpoint: a file is damaged.
    """
    predictor = RewardPredictor.load(predictor_folder(name_or_folder))
    if predictor.space != needed:
        raise BadConfig(
            f"The predictor {name_or_folder} was made for {predictor.space.description}, and one "
            f"for {needed.description} is needed. Name a predictor of the same environment, or fit "
            "another one with `rl-teacher fit`."
        )
    return predictor


# --- agents ---


def load_agent_state(name_or_path: str, kind: str) -> StateDict:
    """Load the state of an experiment's agent from the latest checkpoint.

    Args:
        name_or_path: name of the experiment, or its folder.
        kind: the required kind of agent.

    Raises:
        BadInput: it has no agent, or one of another kind.
        CorruptCheckpoint: all checkpoints are damaged.
    """
    folder = find_source(
        name_or_path,
        lambda path: (path / "config.json").exists(),
        "the name of an experiment, or its folder",
    )
    experiment = Experiment(folder.name, folder)
    was = config_of_agent(experiment)["agent"]
    if was != kind:
        raise BadConfig(
            f"The agent of {experiment.name} is {was}, and --agent is {kind}. Give --agent {was}."
        )
    checkpoint = experiment.checkpoints.load()
    agent = {} if checkpoint is None else part_of(checkpoint.arrays, "agent")
    if not agent:
        raise BadInput(
            f"{experiment.name} has no agent yet: it never wrote a checkpoint. Let it train for a "
            "while, or begin without --agent-path."
        )
    return agent


def config_of_agent(experiment: Experiment) -> dict[str, Any]:
    """Return the configuration of an experiment that trains an agent.

    Raises:
        BadInput: it only has labels or a predictor, or is a wrapper's.
        CorruptCheckpoint: the configuration cannot be read.
    """
    config = experiment.config
    if "agent" not in config or config.get("collect_only"):
        raise BadInput(no_agent(experiment.name))
    return config


def no_agent(name: str) -> str:
    """Return the error text for an experiment without an agent."""
    return (
        f"{name} has no agent: only experiments that `rl-teacher teach` trained have one. "
        "`rl-teacher runs` lists them all."
    )
