"""Memory of a run: the sum of its large arrays, which is checked before they are allocated."""

import math
import os
from collections.abc import Callable, Mapping

import numpy as np

from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import OtherAgentConfig, SACConfig
from rl_teacher.config.fields import as_flag
from rl_teacher.envs.registry import env_spaces
from rl_teacher.plan import LearningPlan, RunPlan
from rl_teacher.predictor.fit import CHUNK_STEPS, MAX_EVALUATED, subsampling_stride
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import MAX_IMAGES_PER_SEGMENT
from rl_teacher.rewards.learner import recorded_steps

PEAK = 1.4
"""Peak memory of a run per byte of these arrays, measured with 20,000 numbers per observation: 1.4
with labels, 7 where rollouts are nearly all of it. The smaller one refuses no run that fits."""


def check_memory(plan: RunPlan, num_given: int = 0) -> None:
    """Refuse a run whose arrays exceed the memory of this machine.

    Args:
        plan: plan of the run.
        num_given: number of labels that the run starts with.

    Raises:
        BadConfig: states the needed memory, and which setting to lower.
    """
    space = InputSpace.from_spaces(*env_spaces(plan.env_info.id, plan.frames))
    agent = plan.agent.settings
    section = "other" if isinstance(agent, OtherAgentConfig) else plan.agent.name
    num_steps = getattr(agent, "rollout_steps", 1) * agent.num_envs
    arrays = {f"{section}.num_envs": num_steps * step_bytes(space)}
    if isinstance(agent, SACConfig):
        arrays["sac.buffer_steps"] = agent.buffer_steps * 2 * step_bytes(space)
    learning = plan.learning
    if learning is not None:
        arrays |= learning_arrays(space, agent.num_envs, learning, num_given)
    refuse_excess(arrays)


def learning_arrays(
    space: InputSpace, num_envs: int, learning: LearningPlan, num_given: int = 0
) -> dict[str, int]:
    """Return the bytes of recorded steps, labels and a fit, by the settings to lower.

    Args:
        space: spaces of observations and actions.
        num_envs: environments of a rollout.
        learning: predictor to fit and labels to ask for.
        num_given: number of labels that the run starts with.
    """
    config, labels, length = learning.predictor, learning.labels, learning.segment_steps
    space = space.for_encoder(config.image_encoder)
    recorded = recorded_steps(labels.first, length, num_envs, space)
    num_stored = min(length, MAX_IMAGES_PER_SEGMENT) if space.has_byte_rows else length
    row_bytes = space.num_features * np.dtype(space.row_dtype).itemsize
    total = num_given + (labels.total or labels.first)
    num_labels = min(total, config.label_buffer or total)
    stride = subsampling_stride(length, has_byte_rows=space.has_byte_rows)
    num_parallel = min(config.ensemble_size, os.cpu_count() or 1)
    fitted = 2 * (CHUNK_STEPS * config.batch_size + MAX_EVALUATED) * (length // stride)
    return {
        # Gathered and normalised.
        "reward.batch_size": 2 * num_parallel * fitted * row_bytes,
        "pretrain_labels": recorded * step_bytes(space),
        "n_labels": 2 * num_labels * num_stored * row_bytes,
    }


def step_bytes(space: InputSpace) -> int:
    """Return the bytes of an observation and an action in a rollout."""
    is_byte = space.image is not None or space.observation_scale != 1.0
    return math.prod(space.observation_shape) * (1 if is_byte else 4) + 4 * space.num_action_inputs


def refuse_excess(arrays: Mapping[str, int], spell: Callable[[str], str] = as_flag) -> None:
    """Refuse arrays that exceed the memory of this machine.

    Args:
        arrays: bytes by the setting that determines them.
        spell: how the message writes a setting.

    Raises:
        BadConfig: they exceed it.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = PEAK * sum(arrays.values())
    if needed > memory:
        largest = max(arrays, key=arrays.__getitem__)
        raise BadConfig(
            f"This run needs about {needed / 2**30:,.1f} GiB of memory, and this machine has "
            f"{memory / 2**30:,.1f} GiB. Lower {spell(largest)}, which accounts for "
            f"{PEAK * arrays[largest] / 2**30:,.1f} GiB, or use smaller observations."
        )
