"""Scene states and replay of wrapped environments, from which clips are rendered."""

from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv
from jaxtyping import Float

from rl_teacher.common.errors import BadInput
from rl_teacher.envs.episode_replay import KEEP_STEPS, ReplayHistory, ReplayRecord, SupportsReplay
from rl_teacher.envs.snapshots import ReplayableEnv, mujoco_positions

SceneStates = Callable[[], Float[np.ndarray, "env scene"]]


class Memories:
    """Episode histories of N environments."""

    def __init__(self, memories: Sequence[ReplayableEnv], history: ReplayHistory) -> None:
        self._memories = memories
        self._history = history

    def replay_record(self, episode: int) -> ReplayRecord:
        """See `SupportsReplay`."""
        for memory in self._memories:
            if memory.episode == episode:
                return memory.replay_record
        return self._history[episode]

    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """Return MuJoCo positions [N, nq]; without MuJoCo episode and step numbers [N, 2]."""
        return np.stack([memory.scene_state for memory in self._memories])


def nothing_to_draw(num_envs: int) -> SceneStates:
    """Return empty scene states [N, 0], for runs without clips."""
    return lambda: np.empty((num_envs, 0))


def remembered(env: gym.Env, keep_steps: int = KEEP_STEPS) -> tuple[gym.Env, Memories]:
    """Wrap one environment so that its clips can be rendered.

    Raises:
        BadInput: the clips cannot be rendered.
    """
    check_drawable(env)
    history = ReplayHistory(keep_steps)
    memory = ReplayableEnv(env, history)
    return memory, Memories([memory], history)


def remembered_vector(
    venv: VectorEnv, keep_steps: int = KEEP_STEPS
) -> tuple[SceneStates, SupportsReplay | None]:
    """Return the scene states and the replayer of a vector of environments.

    The environments of a SyncVectorEnv are wrapped in place.

    Raises:
        BadInput: the clips cannot be rendered.
    """
    inner = venv.unwrapped
    own_states = getattr(inner, "scene_states", None)
    if own_states is not None:
        return lambda: np.array(getattr(inner, "scene_states")), _own_replayer(inner)  # noqa: B009
    if not isinstance(inner, SyncVectorEnv):
        raise BadInput(
            f"teacher='human' needs clips of {inner}, whose environments are in other processes. "
            "Use gymnasium.vector.SyncVectorEnv, or rl_teacher.envs.registry.make_vector."
        )
    for env in inner.envs:
        check_drawable(env)
    history = ReplayHistory(keep_steps)
    memories = [ReplayableEnv(env, history) for env in inner.envs]
    inner.envs = list[gym.Env](memories)
    together = Memories(memories, history)
    return together.scene_states, together


def _own_replayer(inner: VectorEnv) -> SupportsReplay | None:
    return inner if isinstance(inner, SupportsReplay) else None


def check_drawable(env: gym.Env) -> None:
    """Refuse an environment whose clips cannot be rendered.

    Raises:
        BadInput: the environment lacks what the message names.
    """
    spec = env.spec
    if spec is None:
        raise BadInput(
            f"teacher='human' needs clips of {env}, but it was not made by gymnasium.make, so "
            "nobody else can make it again to draw them. Register it with gymnasium.register and "
            "make it by its id."
        )
    if mujoco_positions(env) is not None:
        return
    if "rgb_array" not in env.metadata.get("render_modes", []):
        raise BadInput(
            f"teacher='human' needs clips of {spec.id}, which has neither MuJoCo bodies nor the "
            "render mode rgb_array. Give it that mode, or use a synthetic teacher or a function."
        )
    if spec.additional_wrappers:
        names = ", ".join(each.name for each in spec.additional_wrappers)
        raise BadInput(
            f"teacher='human' replays the episodes of {spec.id} to draw them, which wrappers "
            f"inside ({names}) may change. Put the preference wrapper right around what "
            "gymnasium.make returns, and the other wrappers around that."
        )
