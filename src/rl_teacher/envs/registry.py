"""Every environment that can be taught, by name."""

import importlib
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete

from rl_teacher.common.errors import BadInput, UnknownName
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs import moving_dot
from rl_teacher.envs.atari.names import AtariGame, game_called, game_of, games, nearest_names
from rl_teacher.envs.atari.rules import CLIP_FPS, rules_of
from rl_teacher.envs.episode_replay import KEEP_STEPS
from rl_teacher.envs.factories import from_factory, is_factory, time_limit_of
from rl_teacher.envs.interface import StatefulVectorEnv
from rl_teacher.envs.mujoco.suite import ALIASES, PLAIN, SUITE, TASKS
from rl_teacher.envs.mujoco.task import Task
from rl_teacher.envs.preprocessing import (
    ObservationRenderer,
    is_image_space,
    is_viewable,
    preprocess_images,
)

if TYPE_CHECKING:
    import mujoco

NAMESPACE = "rl_teacher"

REGISTERED_BY = {
    "dm_control": ("shimmy", "shimmy[dm-control]"),
    "Meta-World": ("metaworld", "metaworld"),
}
"""What ids with a prefix are registered by: the module to import, and what pip calls it."""


@dataclass(frozen=True)
class EnvInfo:
    """What a person should know of an environment before teaching it.

    Attributes:
        id: its full name.
        fps: how many of its steps a clip shows per second.
        max_episode_steps: where episodes are cut, or None.
        can_terminate: whether its own rules may end an episode early, which tells the agent about
            the true reward.
        backend: `batch`, MuJoCo's thread-pooled batch, `atari`, ALE's, or `gymnasium`, one after
            the other.
        description: one line.
        has_image_observations: whether its observations are images.
    """

    id: str
    fps: float
    max_episode_steps: int | None
    can_terminate: bool
    backend: Literal["batch", "atari", "gymnasium"]
    description: str
    has_image_observations: bool = False


def get_env_info(env_id: str) -> EnvInfo:
    """The card of an environment.

    Raises:
        UnknownName: nothing of this name is registered; the text offers the nearest names.
        BadInput: it cannot be taught: a dependency is missing, its observations are neither vectors
            nor pictures, or the module that should register it cannot be imported.
    """
    full_id = _full_id(env_id)
    if full_id in TASKS:
        return _task_info(TASKS[full_id])
    game = game_of(full_id)
    return _gymnasium_info(full_id) if game is None else _atari_info(full_id, game)


def list_env_infos() -> list[EnvInfo]:
    """The cards of all environments that can be taught here: suite, plain, Gymnasium's own.

    Atari's are many, and by themselves: see `list_atari_infos`.
    """
    ours = [_task_info(task) for task in TASKS.values()]
    return ours + list(_gymnasium_infos())


def list_atari_infos() -> list[EnvInfo]:
    """The cards of Atari's games, each without and with sticky actions."""
    both = [replace(game, is_sticky=sticks) for game in games() for sticks in (False, True)]
    return [_atari_info(game.id, game) for game in both]


def atari_names() -> list[str]:
    """The names of Atari's games, without what says in which kind they are played."""
    return [game.name for game in games()]


def atari_game(env_id: str) -> AtariGame | None:
    """The game of Atari's that a name means, in the kind it means; None if it is none.

    Raises:
        UnknownName: nothing of this name is registered.
    """
    return game_of(_full_id(env_id))


def make_vector(
    env_id: str,
    num_envs: int,
    num_threads: int | None = None,
    keep_steps: int = KEEP_STEPS,
    frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
) -> StatefulVectorEnv:
    """N environments that step together, with SAME_STEP autoreset.

    Args:
        env_id: any name that `get_env_info` accepts.
        num_envs: N.
        num_threads: for MuJoCo's batch and Atari; all CPUs by default. Results do not depend on it.
        keep_steps: how long the records of ended episodes are kept where clips are drawn from
            these (see `ReplayVectorEnv`).
        frames: what is shown of an environment that shows pictures.
    """
    full_id = _full_id(env_id)
    if full_id in TASKS:
        from rl_teacher.envs.mujoco.vector import MujocoVectorEnv  # noqa: PLC0415

        return MujocoVectorEnv(TASKS[full_id], num_envs, num_threads)
    game = game_of(full_id)
    if game is not None:
        from rl_teacher.envs.atari.vector import AtariVectorEnv  # noqa: PLC0415

        return AtariVectorEnv(game, num_envs, num_threads, keep_steps, frames)
    from rl_teacher.envs.snapshots import ReplayVectorEnv  # noqa: PLC0415

    _gymnasium_info(full_id)
    make_env = partial(_make_seen, full_id, frames)
    return ReplayVectorEnv(make_env, num_envs, keep_steps)


def make_single_env(env_id: str) -> gymnasium.Env:
    """One environment by itself, as Gymnasium or its factory makes it.

    Raises:
        BadInput: it cannot be made here.
    """
    return _make_gymnasium(_full_id(env_id))


def make_rendered_env(env_id: str, frames: FrameSettings | None = None) -> gymnasium.Env:
    """One of Gymnasium's environments, whose `render` returns a picture.

    Args:
        env_id: any name that `get_env_info` accepts.
        frames: what becomes of its observations, where these are pictures; None: they stay.

    Raises:
        BadInput: it cannot be made so, or draws no pictures.
    """
    return preprocess_images(_make_drawing(_full_id(env_id)), frames)


def _make_drawing(env_id: str) -> gymnasium.Env:
    try:
        env = _make_gymnasium(env_id, render_mode="rgb_array")
    except BadInput:
        env = _make_gymnasium(env_id)  # it may not know of the argument
        if "rgb_array" in env.metadata.get("render_modes", []):
            env.close()
            raise
    if "rgb_array" not in env.metadata.get("render_modes", []):
        if is_viewable(env.observation_space):
            return ObservationRenderer(env)
        env.close()
        raise BadInput(
            f"Clips of {env_id} cannot be shown to a person: it has neither MuJoCo bodies nor the "
            "render mode rgb_array. Give it that mode, or let -p synth answer."
        )
    return env


def mujoco_model(env_id: str) -> "mujoco.MjModel | None":  # pyright: ignore[reportAttributeAccessIssue]
    """The MuJoCo model whose positions `scene_states` are, or None where there is none."""
    full_id = _full_id(env_id)
    if full_id in TASKS:
        from rl_teacher.envs.mujoco.physics import load_model  # noqa: PLC0415

        return load_model(TASKS[full_id])
    if game_of(full_id) is not None:
        return None
    from rl_teacher.envs.snapshots import mujoco_positions  # noqa: PLC0415

    with closing(_make_gymnasium(full_id)) as env:
        return None if mujoco_positions(env) is None else env.unwrapped.model  # pyright: ignore[reportAttributeAccessIssue]


def env_spaces(
    env_id: str,
    frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Observation and action space of one of an environment's copies.

    Args:
        env_id: any name that `get_env_info` accepts.
        frames: what is shown of an environment that shows pictures.

    Raises:
        BadInput: it cannot be taught, see `get_env_info`.
    """
    with closing(make_vector(env_id, 1, frames=frames)) as venv:
        return venv.single_observation_space, venv.single_action_space


def camera_settings(env_id: str) -> Mapping[str, Any]:
    """Settings of MuJoCo's free camera that suit an environment; empty where it has none."""
    full_id = _full_id(env_id)
    if full_id in TASKS:
        return TASKS[full_id].body.camera
    with closing(_make_gymnasium(full_id)) as env:
        renderer = getattr(env.unwrapped, "mujoco_renderer", None)
        return getattr(renderer, "default_cam_config", None) or {}


def register_tasks() -> None:
    """Tell Gymnasium of MovingDot, the suite, and the plain ids as `rl_teacher/Hopper-v5`."""
    moving_dot.register()
    for task in SUITE.values():
        _register(task.id, task)
    for task in PLAIN.values():
        _register(f"{NAMESPACE}/{task.id}", task)


def _register(registered_id: str, task: Task) -> None:
    if registered_id in gymnasium.registry:
        return
    gymnasium.register(
        registered_id,
        entry_point="rl_teacher.envs.mujoco.vector:make_single",
        vector_entry_point="rl_teacher.envs.mujoco.vector:make_vector",
        max_episode_steps=task.max_episode_steps,
        kwargs={"env_id": task.id},
    )
    if registered_id.replace("-v1", "-v5") in gymnasium.registry:
        _hush_advice_to_upgrade(registered_id)


def _hush_advice_to_upgrade(registered_id: str) -> None:
    """Gymnasium would tell whoever makes Hopper-v1 to "upgrade" to its own Hopper-v5."""
    advice = rf".*The environment {re.escape(registered_id)} is out of date"
    warnings.filterwarnings("ignore", message=advice, category=DeprecationWarning)


# --- names ---


def _full_id(env_id: str) -> str:
    wanted = env_id.strip().removeprefix(f"{NAMESPACE}/")
    module, _, own_id = wanted.rpartition(":")
    if module:
        own = _imported(module, wanted)
        if own_id not in gymnasium.registry and is_factory(own, own_id):
            return wanted
        full_id = _full_id(own_id)
        return full_id if full_id in TASKS else f"{module}:{full_id}"
    spec = gymnasium.registry.get(wanted)
    if wanted in TASKS or (spec is not None and not _is_ales(spec)):
        return wanted
    _import_registering(wanted)
    by_lower = _ids_by_lower_name()
    if wanted.lower() in by_lower:
        return by_lower[wanted.lower()]
    game = game_called(wanted)
    if game is not None:
        return game.id
    known = [*TASKS, *_latest_gymnasium_ids(), *nearest_names(wanted)]
    raise UnknownName("environment", env_id, known)


def _imported(module: str, env_id: str) -> ModuleType:
    """The module that registers, or makes, an environment of one's own."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise BadInput(
            f"{env_id} cannot be found: importing {module} failed with {type(error).__name__}: "
            f"{error}. It must be module:id or module:function, and the module must be on Python's "
            "path (PYTHONPATH=. for the current folder)."
        ) from error


def _import_registering(env_id: str) -> None:
    """Import the package that registers ids like this one with Gymnasium.

    Raises:
        BadInput: it is not installed.
    """
    prefix = env_id.partition("/")[0]
    if prefix not in REGISTERED_BY:
        return
    module, requirement = REGISTERED_BY[prefix]
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise BadInput(
            f"{env_id} needs a package that is not installed here ({error}). Install it with "
            f"`pip install '{requirement}'`."
        ) from error


def _ids_by_lower_name() -> dict[str, str]:
    """Lower-case names, with and without a version, and other spellings -> full ids.

    Where two claim a name, the first has it: tasks, then Gymnasium's, then other spellings.
    """
    names: dict[str, str] = {}
    registered = [spec.id for spec in gymnasium.registry.values() if not _is_ales(spec)]
    for full_id in [*TASKS, *sorted(registered)]:
        names.setdefault(full_id.lower(), full_id)
    for spelling, full_id in [*_task_spellings(), *_unversioned_gymnasium()]:
        names.setdefault(spelling.lower(), full_id)
    return names


def _task_spellings() -> Iterator[tuple[str, str]]:
    """`hopper`, `ShortWalker2d-v1`, `Cheetah-v5` and so on, each with its full id."""
    suite_names = [task_id.removesuffix("-v1") for task_id in SUITE]
    yield from ((name, f"{name}-v1") for name in suite_names)
    for other, name in ALIASES.items():
        for short in ("", "Short"):
            yield f"{short}{other}", f"{short}{name}-v1"
            yield f"{short}{other}-v1", f"{short}{name}-v1"
    yield "Walker-v5", "Walker2d-v5"
    yield "Cheetah-v5", "HalfCheetah-v5"
    yield "DoublePendulum-v5", "InvertedDoublePendulum-v5"


def _unversioned_gymnasium() -> Iterator[tuple[str, str]]:
    return ((full_id.rsplit("-v", 1)[0], full_id) for full_id in _latest_gymnasium_ids())


def _latest_gymnasium_ids() -> list[str]:
    """The newest version of everything registered that is neither ours nor a game of Atari's."""
    latest: dict[str, EnvSpec] = {}
    for spec in gymnasium.registry.values():
        name = spec.id.rsplit("-v", 1)[0]
        is_newest = name not in latest or (spec.version or 0) > (latest[name].version or 0)
        if is_newest and not _is_ours(spec) and not _is_ales(spec):
            latest[name] = spec
    return [spec.id for spec in latest.values() if spec.id not in TASKS]


def _is_ours(spec: EnvSpec) -> bool:
    """Whether it is known by the name of its task."""
    return str(spec.entry_point).startswith(f"{NAMESPACE}.envs.mujoco.vector:")


def _is_ales(spec: EnvSpec) -> bool:
    """Whether it is one of the ids that ALE registers: games have full ids of our own."""
    return str(spec.entry_point).startswith("ale_py.")


# --- cards ---


def _task_info(task: Task) -> EnvInfo:
    # The plain ids have their body's fps of the suite: clips of one body have one length.
    return EnvInfo(
        id=task.id,
        fps=task.body.fps,
        max_episode_steps=task.max_episode_steps,
        can_terminate=task.can_terminate,
        backend="batch",
        description=task.description,
    )


def _atari_info(full_id: str, game: AtariGame) -> EnvInfo:
    rules = rules_of(game.name)
    return EnvInfo(
        id=full_id,
        fps=CLIP_FPS,
        max_episode_steps=rules.max_episode_steps,
        can_terminate=rules.can_terminate,
        backend="atari",
        description="Atari, with sticky actions" if game.is_sticky else "Atari",
        has_image_observations=True,
    )


# Gymnasium does not say whether rules may end an episode; of these it is known that they do not.
_NEVER_TERMINATE = frozenset(
    (
        *("Pendulum", "Pusher", "HumanoidStandup", "HalfCheetah", "Reacher", "Swimmer"),
        *(env_id.removesuffix("-v0") for env_id in moving_dot.KINDS),
    )
)


def _gymnasium_info(full_id: str) -> EnvInfo:
    with closing(_make_gymnasium(full_id)) as env:
        _check_spaces(full_id, env)
        fps = float(env.metadata.get("render_fps") or 30.0)
        longest = time_limit_of(env)
        has_image_observations = is_image_space(env.observation_space)
    spec = gymnasium.registry.get(full_id.rpartition(":")[2])
    return EnvInfo(
        id=full_id,
        fps=fps,
        max_episode_steps=longest,
        can_terminate=spec is None or spec.name not in _NEVER_TERMINATE,
        backend="gymnasium",
        description=_described(full_id, spec),
        has_image_observations=has_image_observations,
    )


def _described(full_id: str, spec: EnvSpec | None) -> str:
    if spec is None:
        return f"your {full_id}"
    return moving_dot.DESCRIPTION if full_id in moving_dot.KINDS else f"Gymnasium's {spec.name}"


def _gymnasium_infos() -> Iterator[EnvInfo]:
    """MovingDot, and Gymnasium's own environments; those that can be made here."""
    for full_id in _latest_gymnasium_ids():
        entry_point = str(gymnasium.registry[full_id].entry_point)
        is_known = entry_point.startswith(("gymnasium.envs.", f"{moving_dot.__name__}:"))
        if is_known and "/" not in full_id:
            try:
                yield _gymnasium_info(full_id)
            except BadInput:
                continue


def _make_gymnasium(full_id: str, render_mode: str | None = None) -> gymnasium.Env:
    """One of Gymnasium's environments, without its advice to upgrade, or one game."""
    game = game_of(full_id)
    if game is not None:
        from rl_teacher.envs.atari.single import AtariSingleEnv  # noqa: PLC0415

        return AtariSingleEnv(game, render_mode=render_mode)
    from rl_teacher.envs.mujoco.physics import quiet_mujoco  # noqa: PLC0415

    own_id = full_id.rpartition(":")[2]
    if ":" in full_id and own_id not in gymnasium.registry:
        return from_factory(full_id, render_mode)
    try:
        with warnings.catch_warnings(), quiet_mujoco():
            warnings.simplefilter("ignore")
            if render_mode is None:  # the environment need not know of the argument
                return gymnasium.make(full_id)
            return gymnasium.make(full_id, render_mode=render_mode)
    except Exception as error:
        raise BadInput(
            f"{full_id} is registered, but cannot be made here: {error} "
            "Install what it asks for, or choose another (`rl-teacher envs` lists them)."
        ) from error


def _make_seen(full_id: str, frames: FrameSettings) -> gymnasium.Env:
    """One of Gymnasium's environments, as agents see it."""
    return preprocess_images(_make_gymnasium(full_id), frames)


def _check_spaces(full_id: str, env: gymnasium.Env) -> None:
    observations, actions = env.observation_space, env.action_space
    is_vector = isinstance(observations, Box) and len(observations.shape) == 1
    if not is_vector and not is_image_space(observations):
        raise BadInput(
            f"{full_id} has observations of {observations!s:.200}; a Box that is a vector is "
            "needed, or one of pictures: [H, W], [H, W, C] or [C, H, W], of uint8 or of floats "
            "from 0 to 1. Wrap it (gymnasium.wrappers.FlattenObservation makes vectors) and "
            "register the result."
        )
    if not isinstance(actions, Box | Discrete):
        raise BadInput(f"{full_id} has actions of {actions}; a Box or Discrete space is needed.")
