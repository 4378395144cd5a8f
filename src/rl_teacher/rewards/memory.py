"""Memory of a run, estimated from its settings before anything is allocated.

N: environments, T: steps of a rollout, L: steps of a segment, F: features of an input row.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Space, flatdim

from rl_teacher.clips.recorder import DRAWS_PER_SEGMENT
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import OtherAgentConfig, SACConfig
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.config.fields import as_flag
from rl_teacher.envs.registry import env_spaces
from rl_teacher.plan import RunPlan
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import image_stride, num_weighted_steps
from rl_teacher.rewards.learner import RewardTask, recorded_steps

FLOAT_BYTES = 4
ADAM_COPIES = 3
"""Arrays of the size of the weights during training: the weights, and the two averages of Adam."""

MemoryUse = Mapping[tuple[str, ...], int]
"""Bytes by the settings that determine them."""


def check_memory(plan: RunPlan, num_given: int = 0) -> None:
    """Refuse a run whose arrays do not fit into the available memory.

    Args:
        plan: plan of the run.
        num_given: number of labels that the run starts with.

    Raises:
        BadConfig: states the needed and the available memory, and which settings to lower.
    """
    refuse_excess(memory_needed(plan, num_given))


def refuse_excess(needed: MemoryUse, spell: Callable[[str], str] = as_flag) -> None:
    """Refuse arrays that do not fit into the available memory.

    Args:
        needed: the arrays.
        spell: how the message writes a setting.

    Raises:
        BadConfig: they do not fit.
    """
    total, available = sum(needed.values()), available_memory()
    if available is None or total <= available:
        return
    settings = max(needed, key=needed.__getitem__)
    raise BadConfig(
        f"This run needs about {in_gib(total)} of memory, and {in_gib(available)} are available. "
        f"Lower {' or '.join(map(spell, settings))}, which accounts for "
        f"{in_gib(needed[settings])}."
    )


def in_gib(num_bytes: float) -> str:
    """Format a number of bytes."""
    return f"{num_bytes / 2**30:,.1f} GiB"


def memory_needed(plan: RunPlan, num_given: int = 0) -> MemoryUse:
    """Estimate the largest arrays of a run.

    The estimate is a lower bound: a run that fits is never refused.
    """
    observation_space, action_space = env_spaces(plan.env_info.id, plan.frames)
    agent = plan.agent.settings
    section = "other" if isinstance(agent, OtherAgentConfig) else plan.agent.name
    step_bytes = bytes_of(observation_space) + bytes_of(action_space)
    num_steps = getattr(agent, "rollout_steps", 1) * agent.num_envs
    needed: dict[tuple[str, ...], int] = {
        (f"{section}.num_envs", f"{section}.rollout_steps"): num_steps * step_bytes
    }
    if isinstance(agent, SACConfig):
        replayed = FLOAT_BYTES * (2 * flatdim(observation_space) + flatdim(action_space))
        needed["sac.buffer_steps",] = agent.buffer_steps * replayed
    if not isinstance(agent, OtherAgentConfig):
        num_inputs = flatdim(observation_space)
        if len(observation_space.shape or ()) > 1:
            num_inputs = 0  # the size of an image encoder's output hardly depends on the image
        # At least two networks: policy and value function, or actor and critic.
        needed[f"{section}.hidden",] = 2 * network_bytes(num_inputs, agent.hidden)
    learning = plan.learning
    if learning is not None:
        space = InputSpace.from_spaces(observation_space, action_space)
        task = RewardTask(plan.env_info.id, space, agent.num_envs, learning.segment_steps)
        first = learning.labels.first
        labels = LabelNumbers(first, num_given + (learning.labels.total or first))
        needed |= learning_memory(task, learning.predictor, labels, step_bytes)
    return needed


class LabelNumbers(NamedTuple):
    """Numbers of labels: before the first fit, and in all; None without a limit."""

    first: int
    total: int | None


def learning_memory(
    task: RewardTask, config: PredictorConfig, labels: LabelNumbers, step_bytes: int
) -> MemoryUse:
    """Estimate recorder, labels and predictor networks.

    Args:
        task: the environments.
        config: settings of the predictor.
        labels: numbers of labels.
        step_bytes: bytes of an observation and an action.
    """
    space, length = task.space.for_encoder(config.image_encoder), task.segment_steps
    recorded = recorded_steps(labels.first, length, task.num_envs, space)
    # int64 steps of the draws from which the segments of the first comparisons are selected
    drawn = 8 * DRAWS_PER_SEGMENT * 2 * labels.first * length
    num_labels = labels.total or labels.first
    if config.label_buffer:
        num_labels = min(num_labels, config.label_buffer)
    stored = num_weighted_steps(length, config.segment_discount)
    if space.has_byte_rows:
        stored = -(-stored // image_stride(stored))
    row_bytes = space.num_features * (1 if space.has_byte_rows else FLOAT_BYTES)
    return {
        ("pretrain_labels", "clip_length"): recorded * step_bytes + drawn,
        ("n_labels", "clip_length"): num_labels * 2 * stored * row_bytes,
        **predictor_memory(config, space),
    }


def predictor_memory(config: PredictorConfig, space: InputSpace) -> MemoryUse:
    """Estimate the predictor's networks."""
    num_inputs = 0 if space.has_byte_rows else space.num_features
    members = config.ensemble_size * network_bytes(num_inputs, config.hidden)
    return {("reward.hidden", "reward.ensemble_size"): members}


def network_bytes(num_inputs: int, hidden: Sequence[int]) -> int:
    """Return the bytes of a network's weight matrices during training with Adam."""
    return (
        ADAM_COPIES
        * FLOAT_BYTES
        * sum(rows * columns for rows, columns in pairwise((num_inputs, *hidden)))
    )


def bytes_of(space: Space) -> int:
    """Return the bytes of one observation or action in a rollout, where floats have 32 bits."""
    dtype = np.dtype(space.dtype or np.float32)
    itemsize = FLOAT_BYTES if np.issubdtype(dtype, np.floating) else dtype.itemsize
    return itemsize * math.prod(space.shape or (1,))


def available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping; None if the system has no /proc."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
        available = 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError):
        return None
    cgroup = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # `max` stands for no limit
        # Within a container, /proc/meminfo describes the host.
        limit = int((cgroup / "memory.max").read_text())
        usage = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        # Only anonymous memory counts: the kernel frees the page cache when it is needed.
        available = min(available, limit - int(usage["anon"]))
    return available
