"""Warm start of a run from a saved predictor or an earlier agent."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_teacher.agents.sb3.zip import agent_state
from rl_teacher.common.errors import BadConfig, BadInput, ExperimentNotFound
from rl_teacher.common.state_dict import StateDict, part_of
from rl_teacher.config.experiment import FitConfig, RunOptions, TeachConfig
from rl_teacher.envs.registry import env_spaces
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import (
    Experiment,
    experiments_folder,
    invalid_name_reason,
    not_found_message,
    stored_experiments,
)
from rl_teacher.store.records import normalise_experiment_name

PREDICTOR_FILE = "predictor.json"
NETWORK_SETTINGS = ("ensemble_size", "hidden", "image_encoder", "ignore_actions", "batch_norm")
"""Settings that a saved predictor keeps."""


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
                reward=with_network_settings(self.predictor, config),
            )
        if self.agent is not None:
            # A warm-started agent is not reset.
            config = replace(config, agent_path=hash_arrays(self.agent), agent_reset=0.0)
        return config


NO_WARM_START = WarmStart()


@dataclass(frozen=True)
class KeptParts:
    """Parts of an archived experiment that the new one of its name starts with."""

    agent: bool
    predictor: bool
    labels: bool

    def settings(self, source: str) -> dict[str, Any]:
        """Return the settings of `TeachConfig` that name an experiment as the source of them."""
        settings: dict[str, Any] = {}
        if self.agent:
            settings["agent_path"] = source
        if self.predictor:
            settings["predictor_path"] = source
        elif self.labels:
            settings["labels"] = source
        # Otherwise a saved predictor stays frozen, and no label is added to earlier ones.
        if self.predictor or self.labels:
            settings["keep_asking"] = True
        return settings

    def __str__(self) -> str:
        kept = [name for name, is_kept in vars(self).items() if is_kept]
        return " and ".join(kept) or "nothing"


def parts_to_keep(config: TeachConfig, options: RunOptions) -> KeptParts | None:
    """Return what a run keeps of the experiment that its --force-new-... options archive.

    Only what the experiment has can be kept, and what the configuration does not take from
    elsewhere.

    Returns:
        None if there is nothing to archive.
    """
    if not options.archives:
        return None
    try:
        experiment = Experiment.find(config.name)
    except ExperimentNotFound:
        return None
    has_agent = experiment.load_checkpoint() is not None
    has_predictor = (experiment.folder / "predictor" / PREDICTOR_FILE).exists()
    learns_anew = config.learns and config.predictor_path is None
    forgets_labels = options.force_new_training_labels or options.force_new_environment_clips
    return KeptParts(
        agent=has_agent and config.agent_path is None and not options.force_new_agent_model,
        predictor=has_predictor and learns_anew and not options.force_new_reward_model,
        labels=experiment.summary(stored_experiments()).labels.answered > 0
        and learns_anew
        and config.labels is None
        and not forgets_labels,
    )


def with_network_settings(predictor: RewardPredictor, config: TeachConfig | FitConfig):  # noqa: ANN201
    """Return the predictor settings with the network settings of a saved predictor."""
    saved = {name: getattr(predictor.config, name) for name in NETWORK_SETTINGS}
    return replace(config.reward, **saved)


def load_warm_start(config: TeachConfig) -> WarmStart:
    """Load the predictor and the agent that a configuration names.

    Raises:
        BadInput: a path does not exist, or its content has another environment or other settings.
        CorruptCheckpoint: a file is damaged.
    """
    predictor = agent = None
    if config.predictor_path is not None:
        needed = InputSpace.from_spaces(*env_spaces(config.env_id, config.frames))
        remedy = "Choose its own environment, or fit another predictor with `rl-teacher fit`."
        user = f"{config.env_id} has"
        predictor = load_predictor(config.predictor_path, needed, user, remedy)
    if config.agent_path is not None:
        agent = load_agent_state(config.agent_path, config)
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


def predictor_of_experiment(name: str) -> Path | None:
    """Return the folder of an experiment's predictor; None if no experiment of this name has one.

    Args:
        name: name of an experiment, or any other text, such as a path.
    """
    if invalid_name_reason(name) is not None:
        return None
    folder = experiments_folder() / normalise_experiment_name(name) / "predictor"
    return folder if (folder / PREDICTOR_FILE).exists() else None


def load_predictor(
    name_or_folder: str, needed: InputSpace, user: str, remedy: str
) -> RewardPredictor:
    """Load a saved predictor.

    Args:
        name_or_folder: an experiment's name, its folder, or the predictor's folder.
        needed: input space that it must have.
        user: what has this space, with a verb, for the error text.
        remedy: what to do about another space.

    Raises:
        BadInput: there is no predictor, or it has another input space.
        CorruptCheckpoint: a file is damaged.
    """
    folder = Path(name_or_folder).expanduser()
    # An experiment takes precedence over a folder of the same name.
    own = predictor_of_experiment(name_or_folder)
    for place in [folder, folder / "predictor"] if own is None else [own]:
        if (place / PREDICTOR_FILE).exists():
            predictor = RewardPredictor.load(place)
            if predictor.space != needed:
                raise BadConfig(
                    f"The predictor {name_or_folder} was made for {predictor.space.description}; "
                    f"{user} {needed.description}. {remedy}"
                )
            return predictor
    raise BadInput(
        f"There is no reward predictor in {name_or_folder!r}. It must be the name of an experiment "
        "that has fitted one, or a folder with predictor.json and predictor.safetensors in it."
    )


# --- agents ---


def load_agent_state(path: str, config: TeachConfig) -> StateDict:
    """Load the state of an agent from an experiment or a file of Stable-Baselines3.

    Raises:
        BadInput: there is no such agent, or its kind or its layer sizes differ.
        CorruptCheckpoint: a file is damaged.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        return load_agent(path, config.agent)
    hidden = getattr(config.agent_settings, "hidden", ())
    return agent_state(file, config.agent, hidden, env_spaces(config.env_id, config.frames))


def load_agent(name_or_folder: str, kind: str) -> StateDict:
    """Load the state of an experiment's agent from the latest checkpoint.

    Args:
        name_or_folder: the experiment's name, or its folder.
        kind: the required kind of agent.

    Raises:
        BadInput: there is no such experiment, or it has no agent or one of another kind.
        CorruptCheckpoint: all checkpoints are damaged.
    """
    experiment = find_experiment(name_or_folder)
    was = str(experiment.config.get("agent"))
    if was != kind:
        raise BadConfig(
            f"The agent of {name_or_folder} is {was}, and --agent is {kind}. Give --agent {was}."
        )
    checkpoint = experiment.load_checkpoint()
    agent = {} if checkpoint is None else part_of(checkpoint.arrays, "agent")
    if not agent:
        raise BadInput(
            f"{name_or_folder} has no agent yet: it never wrote a checkpoint. Let it train for a "
            "while, or begin without --agent-path."
        )
    return agent


def find_experiment(name_or_folder: str) -> Experiment:
    """Return an experiment by its name or folder, read-only.

    Raises:
        BadInput: there is no such experiment.
    """
    folder = Path(name_or_folder).expanduser()
    try:
        return Experiment.find(name_or_folder)
    except BadInput:
        if (folder / "config.json").exists():
            return Experiment(folder.name, folder)
        if invalid_name_reason(name_or_folder) is None:
            raise ExperimentNotFound(not_found_message(name_or_folder)) from None
        raise BadInput(
            f"There is no experiment in {name_or_folder!r}: it has no config.json. Give the name "
            "of an experiment, its folder, or a .zip file of Stable-Baselines3."
        ) from None
