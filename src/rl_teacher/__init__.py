"""Reinforcement learning from human preferences (Christiano et al. 2017)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_teacher.agents.numpy_policy import load_agent
    from rl_teacher.clips.answer import Answer
    from rl_teacher.clips.segment import Segment
    from rl_teacher.config.experiment import PPOConfig, PredictorConfig, RunOptions, TeachConfig
    from rl_teacher.predictor.ensemble import RewardPredictor
    from rl_teacher.runs.folder import Experiment
    from rl_teacher.teach import teach
    from rl_teacher.wrappers import PreferenceVectorWrapper, PreferenceWrapper, to_sb3

__all__ = [
    "Answer",
    "Experiment",
    "PPOConfig",
    "PredictorConfig",
    "PreferenceVectorWrapper",
    "PreferenceWrapper",
    "RewardPredictor",
    "RunOptions",
    "Segment",
    "TeachConfig",
    "load_agent",
    "teach",
    "to_sb3",
]

_MODULES = {
    "Answer": "clips.answer",
    "Experiment": "runs.folder",
    "PPOConfig": "config.experiment",
    "PredictorConfig": "config.experiment",
    "PreferenceVectorWrapper": "wrappers",
    "PreferenceWrapper": "wrappers",
    "RewardPredictor": "predictor.ensemble",
    "RunOptions": "config.experiment",
    "Segment": "clips.segment",
    "TeachConfig": "config.experiment",
    "load_agent": "agents.numpy_policy",
    "teach": "teach",
    "to_sb3": "wrappers",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `rl-teacher --help` loads no heavy library."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rl_teacher' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rl_teacher.{_MODULES[name]}"), name)
    # Importing the submodule `teach` sets an attribute of that name; the function replaces it.
    globals()[name] = value
    return value
