"""The registry of environments that agents can be trained in."""

import importlib
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.wrappers import FlattenObservation, TransformObservation

from rl_teacher.common.errors import BadInput, MissingExtra, UnknownName
from rl_teacher.common.text import described
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs import moving_dot
from rl_teacher.envs.atari.names import (
    AtariGame,
    game_of,
    games,
    nearest_names,
    resolve_game,
)
from rl_teacher.envs.atari.rules import CLIP_FPS, rules_of
from rl_teacher.envs.episode_replay import KEEP_STEPS
from rl_teacher.envs.factories import frame_rate, from_factory, is_factory, time_limit_of
from rl_teacher.envs.interface import Shard, StatefulVectorEnv
from rl_teacher.envs.mujoco.dm_control_suite import DM_CONTROL
from rl_teacher.envs.mujoco.suite import ALIASES, PLAIN, SUITE, TASKS
from rl_teacher.envs.mujoco.task import Task, check_mujoco, mujoco_version
from rl_teacher.envs.packages import PACKAGES, register_package
from rl_teacher.envs.preprocessing import (
    MAX_CHOICES,
    ImageRows,
    ObservationRenderer,
    find_part_fault,
    find_space_fault,
    has_image,
    is_image_space,
    is_viewable,
    preprocess_images,
)

if TYPE_CHECKING:
    import mujoco

    from rl_teacher.config.experiment import PhysicsBackend

NAMESPACE = "rl_teacher"

LISTED = "`rl-teacher envs` lists all of them; ids of other packages are written module:id."
"""Says where the environments are listed, which are too many for an error message."""


@dataclass(frozen=True)
class EnvInfo:
    """Properties of an environment.

    Attributes:
        id: the full id.
        fps: steps that a clip shows per second.
        max_episode_steps: time limit of episodes; None if there is none.
        can_terminate: whether the environment's rules may end an episode early, which reveals
            something about the true reward to the agent.
        backend: `batch` (MuJoCo's thread-pooled batch), `atari` (ALE's), or `gymnasium` (one
            environment after the other).
        description: one line.
        has_image_observations: whether observations are images.
    """

    id: str
    fps: float
    max_episode_steps: int | None
    can_terminate: bool
    backend: Literal["batch", "atari", "gymnasium"]
    description: str
    has_image_observations: bool = False

    @property
    def stagger_steps(self) -> int:
        """Steps over which the first episodes of a run's environments start; 0 for together.

        Environments of equal episode length start at different ages, so that every rollout shows
        all parts of an episode.
        """
        is_batched = self.backend in ("batch", "atari")
        return 0 if self.can_terminate or not is_batched else self.max_episode_steps or 0


def get_env_info(env_id: str) -> EnvInfo:
    """Return the properties of an environment.

    Raises:
        UnknownName: no such name is registered; the message suggests the nearest names.
        BadInput: the environment cannot be used: a dependency is missing, its observations are
            no images and cannot be flattened to vectors, it is a game for two players, or the
            module that registers it cannot be imported.
    """
    full_id = _full_id(env_id)
    if full_id in TASKS:
        return _task_info(TASKS[full_id])
    game = game_of(full_id)
    return _gymnasium_info(full_id) if game is None else _atari_info(full_id, game)


def list_env_infos() -> list[EnvInfo]:
    """List the MuJoCo tasks, MovingDot and Gymnasium's environments that can be created here.

    `list_atari_infos` lists the many Atari games.
    """
    has_batch = not mujoco_version().startswith("3.")
    infos = [_task_info(task) for task in TASKS.values() if has_batch]
    for full_id in _latest_gymnasium_ids():
        if _is_included(gymnasium.registry[full_id]) and "/" not in full_id:
            with suppress(BadInput):
                infos.append(_gymnasium_info(full_id))
    return infos


def list_atari_infos() -> list[EnvInfo]:
    """List the Atari games, each without and with sticky actions."""
    both = [replace(game, is_sticky=sticks) for game in games() for sticks in (False, True)]
    return [_atari_info(game.id, game) for game in both]


def atari_names() -> list[str]:
    """List the names of Atari games, without suffixes for their kind."""
    return [game.name for game in games()]


def atari_game(env_id: str) -> AtariGame | None:
    """Return the Atari game that a name means; None if it means another environment.

    Raises:
        UnknownName: no such name is registered.
    """
    return game_of(_full_id(env_id))


def make_vector(  # noqa: PLR0913 - options of different kinds of environments
    env_id: str,
    num_envs: int,
    num_threads: int | None = None,
    keep_steps: int = KEEP_STEPS,
    frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
    shard: Shard | None = None,
    physics: "PhysicsBackend" = "cpu",
) -> StatefulVectorEnv:
    """Create N environments that step together, with SAME_STEP autoreset.

    Args:
        env_id: any name that `get_env_info` accepts.
        num_envs: N.
        num_threads: threads for MuJoCo and Atari; all CPUs by default. Results do not depend on it.
        keep_steps: steps for which records of finished episodes are kept, if clips are rendered
            from them, see `ReplayVectorEnv`.
        frames: preprocessing of image observations.
        shard: which of the environments of a run these are, for the numbers of their episodes; by
            default all of them.
        physics: what steps MuJoCo tasks; other environments have physics of their own.
    """
    env_info = get_env_info(env_id)
    full_id, game = env_info.id, game_of(env_info.id)
    venv: StatefulVectorEnv
    if full_id in TASKS:
        from rl_teacher.envs.mujoco import vector  # noqa: PLC0415

        venv = vector.make_vector(full_id, num_envs, num_threads, physics=physics)
    elif game is not None:
        from rl_teacher.envs.atari.vector import AtariVectorEnv  # noqa: PLC0415

        venv = AtariVectorEnv(game, num_envs, num_threads, keep_steps, frames, shard)
    else:
        from rl_teacher.envs.snapshots import ReplayVectorEnv  # noqa: PLC0415

        def make_env() -> gymnasium.Env:
            return preprocess_images(_make_gymnasium(full_id), frames)

        venv = ReplayVectorEnv(make_env, num_envs, keep_steps, shard)
    # As `gymnasium.make_vec` sets it: the wrappers read the id and the time limit.
    venv.spec = EnvSpec(full_id, max_episode_steps=env_info.max_episode_steps)
    return venv


def make_single_env(env_id: str) -> gymnasium.Env:
    """Create one environment, without preprocessing.

    Raises:
        BadInput: the environment cannot be created.
    """
    return _make_gymnasium(_full_id(env_id))


def make_rendered_env(env_id: str, frames: FrameSettings | None = None) -> gymnasium.Env:
    """Create one environment whose `render` returns images.

    Args:
        env_id: any name that `get_env_info` accepts.
        frames: preprocessing of image observations; None leaves them as they are.

    Raises:
        BadInput: the environment cannot be created with rendering.
    """
    # Most environments render with pygame, which must not open a window or print.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    full_id = _full_id(env_id)
    try:
        env = _make_gymnasium(full_id, render_mode="rgb_array")
    except BadInput:
        env = _make_gymnasium(full_id)  # it may not accept render_mode
        if "rgb_array" in env.metadata.get("render_modes", []):
            env.close()
            raise
    if "rgb_array" not in env.metadata.get("render_modes", []):
        if not is_viewable(env.observation_space):
            env.close()
            raise BadInput(
                f"Clips of {full_id} cannot be shown to a person: it has neither MuJoCo bodies nor "
                "the render mode rgb_array. Add that mode. Training with -p synth or -p rl and "
                "without --videos needs none."
            )
        env = ObservationRenderer(env)
    return preprocess_images(env, frames)


def mujoco_model(env_id: str) -> "mujoco.MjModel | None":  # pyright: ignore[reportAttributeAccessIssue]
    """Return the MuJoCo model that `scene_states` are positions of; None without MuJoCo."""
    full_id = _full_id(env_id)
    if full_id in TASKS:
        from rl_teacher.envs.mujoco.physics import load_model  # noqa: PLC0415

        return load_model(TASKS[full_id])
    if game_of(full_id) is not None:
        return None
    from rl_teacher.envs.snapshots import mujoco_of  # noqa: PLC0415

    with closing(_make_gymnasium(full_id)) as env:
        simulation = mujoco_of(env)
        return None if simulation is None else simulation[0]


def env_spaces(
    env_id: str,
    frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Return the observation and action space of one environment.

    Args:
        env_id: any name that `get_env_info` accepts.
        frames: preprocessing of image observations.

    Raises:
        BadInput: the environment cannot be used, see `get_env_info`.
    """
    with closing(make_vector(env_id, 1, frames=frames)) as venv:
        return venv.single_observation_space, venv.single_action_space


def camera_settings(env_id: str) -> Mapping[str, Any]:
    """Return the settings of MuJoCo's free camera for an environment, possibly none."""
    full_id = _full_id(env_id)
    if full_id in TASKS:
        return TASKS[full_id].body.camera
    with closing(_make_gymnasium(full_id)) as env:
        renderer = getattr(env.unwrapped, "mujoco_renderer", None)
        return getattr(renderer, "default_cam_config", None) or {}


def register_tasks() -> None:
    """Register MovingDot, the suite and `rl_teacher/Hopper-v5` and so on with Gymnasium."""
    moving_dot.register()
    for task in (*SUITE.values(), *DM_CONTROL.values()):
        _register(task.id, task)
    for task in PLAIN.values():
        # The plain ids alone are Gymnasium's own environments.
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
        # Gymnasium advises to upgrade our Hopper-v1 to its own Hopper-v5.
        advice = rf".*The environment {re.escape(registered_id)} is out of date"
        warnings.filterwarnings("ignore", message=advice, category=DeprecationWarning)


# --- names ---


def _full_id(env_id: str) -> str:
    wanted = env_id.strip().removeprefix(f"{NAMESPACE}/")
    shimmy_id = f"{wanted.lower().removesuffix('-v0')}-v0"
    if shimmy_id in DM_CONTROL:
        return DM_CONTROL[shimmy_id].id
    register_package(wanted)
    module, _, own_id = wanted.rpartition(":")
    if module:
        own = _import_module(module, wanted)
        if own_id not in gymnasium.registry and is_factory(own, own_id):
            return wanted
        try:
            full_id = _full_id(own_id)
        except UnknownName as error:
            functions = [name for name in vars(own) if is_factory(own, name)]
            known = [*functions, *error.nearest]
            kind = f"environment or function in {module}"
            form = "It must be module:id or module:function."
            raise UnknownName(kind, own_id, known, form) from error
        return full_id if full_id in TASKS else f"{module}:{full_id}"
    spec = gymnasium.registry.get(wanted)
    if wanted in TASKS or (spec is not None and not _is_ale_spec(spec)):
        return wanted
    by_lower = _ids_by_lower_name()
    if wanted.lower() in by_lower:
        return by_lower[wanted.lower()]
    game = resolve_game(wanted)
    if game is not None:
        return game.id
    known = [*TASKS, *_latest_gymnasium_ids(), *nearest_names(wanted)]
    raise UnknownName("environment", env_id, known, LISTED)


def _import_module(module: str, env_id: str) -> ModuleType:
    """Import the module of a user's environment."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise BadInput(
            f"{env_id} cannot be found: importing {module} failed with {described(error)}. It must "
            "be module:id or module:function, and the module must be on Python's path "
            "(PYTHONPATH=. for the current folder)."
        ) from error


def _ids_by_lower_name() -> dict[str, str]:
    """Map lower-case names, with and without version, and other spellings to full ids.

    The first claim wins: tasks, then Gymnasium's ids, then other spellings.
    """
    names: dict[str, str] = {}
    registered = [spec.id for spec in gymnasium.registry.values() if not _is_ale_spec(spec)]
    for full_id in [*TASKS, *sorted(registered)]:
        names.setdefault(full_id.lower(), full_id)
    unversioned = [(full_id.rsplit("-v", 1)[0], full_id) for full_id in _latest_gymnasium_ids()]
    for spelling, full_id in [*_task_spellings(), *unversioned]:
        names.setdefault(spelling.lower(), full_id)
    return names


def _task_spellings() -> Iterator[tuple[str, str]]:
    """Yield `hopper`, `ShortWalker2d-v1`, `Cheetah-v5` and so on, each with its full id."""
    own_ids = [*SUITE, *(task.id for task in DM_CONTROL.values())]
    suite_names = [task_id.removesuffix("-v1") for task_id in own_ids]
    yield from ((name, f"{name}-v1") for name in suite_names)
    for other, name in ALIASES.items():
        for short in ("", "Short"):
            yield f"{short}{other}", f"{short}{name}-v1"
            yield f"{short}{other}-v1", f"{short}{name}-v1"
    yield "Walker-v5", "Walker2d-v5"
    yield "Cheetah-v5", "HalfCheetah-v5"
    yield "DoublePendulum-v5", "InvertedDoublePendulum-v5"


def _latest_gymnasium_ids() -> list[str]:
    """Return the latest version of each registered id that is neither a task nor a game."""
    latest: dict[str, EnvSpec] = {}
    for spec in gymnasium.registry.values():
        name = spec.id.rsplit("-v", 1)[0]
        is_newest = name not in latest or (spec.version or 0) > (latest[name].version or 0)
        is_task = str(spec.entry_point).startswith(f"{NAMESPACE}.envs.mujoco.vector:")
        if is_newest and not is_task and not _is_ale_spec(spec):
            latest[name] = spec
    return [spec.id for spec in latest.values() if spec.id not in TASKS]


def _is_ale_spec(spec: EnvSpec) -> bool:
    """Return whether ALE registered an id; games have full ids of our own."""
    return str(spec.entry_point).startswith("ale_py.")


def _is_included(spec: EnvSpec) -> bool:
    """Return whether an id is Gymnasium's or MovingDot's, not one that a user registered."""
    return str(spec.entry_point).startswith(("gymnasium.envs.", f"{moving_dot.__name__}:"))


# --- properties ---


def _task_info(task: Task) -> EnvInfo:
    check_mujoco(task.id)
    # The plain ids use the frame rate of the suite, so that clips of one body have one length.
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


# Gymnasium does not declare whether rules may end an episode; these environments never do.
_NEVER_TERMINATE = frozenset(
    (
        *("Pendulum", "Pusher", "HumanoidStandup", "HalfCheetah", "Reacher", "Swimmer"),
        *(env_id.removesuffix("-v0") for env_id in moving_dot.KINDS),
    )
)


def _gymnasium_info(full_id: str) -> EnvInfo:
    with closing(_make_gymnasium(full_id)) as env:
        _check_spaces(full_id, env)
        fps = frame_rate(full_id, env.metadata)
        longest = time_limit_of(env)
        has_images = is_image_space(env.observation_space)
    spec = gymnasium.registry.get(full_id.rpartition(":")[2])
    description = f"your {full_id}" if spec is None else f"Gymnasium's {spec.name}"
    never_terminates = spec is not None and _is_included(spec) and spec.name in _NEVER_TERMINATE
    return EnvInfo(
        id=full_id,
        fps=fps,
        max_episode_steps=longest,
        can_terminate=not never_terminates,
        backend="gymnasium",
        description=moving_dot.DESCRIPTION if full_id in moving_dot.KINDS else description,
        has_image_observations=has_images,
    )


def _make_gymnasium(full_id: str, render_mode: str | None = None) -> gymnasium.Env:
    """Create an environment whose observations are vectors or images, where that is possible.

    All but images are flattened to vectors: a Discrete becomes one-hot. A Dict or Tuple with one
    image becomes this image and a vector, see `ImageRows`.
    """
    env = _make_unchanged(full_id, render_mode)
    space = env.observation_space
    if _is_vector_space(space) or is_image_space(space) or find_space_fault(space) is not None:
        return env
    if has_image(space):
        rows = ImageRows(space)
        return TransformObservation(env, rows, rows.space)
    return FlattenObservation(env)


def _is_vector_space(space: gymnasium.Space) -> bool:
    return isinstance(space, Box) and len(space.shape) == 1


def _make_unchanged(full_id: str, render_mode: str | None) -> gymnasium.Env:
    """Create an environment, without Gymnasium's advice to upgrade."""
    from rl_teacher.envs.mujoco.physics import quiet_mujoco  # noqa: PLC0415

    own_id = full_id.rpartition(":")[2]
    if ":" in full_id and own_id not in gymnasium.registry:
        return from_factory(full_id, render_mode)
    try:
        with warnings.catch_warnings(), quiet_mujoco():
            warnings.simplefilter("ignore")
            if render_mode is None:  # the environment may not accept the argument
                return gymnasium.make(full_id)
            return gymnasium.make(full_id, render_mode=render_mode)
    except Exception as error:
        if isinstance(error.__cause__, ImportError) and "Box2D" in str(error):
            raise MissingExtra(f"{full_id} needs Box2D", "box2d", error.__cause__) from error
        _, command = PACKAGES.get(full_id.partition("/")[0], ("", ""))
        needed = f"what it needs (`{command}`)" if command else "what it needs"
        raise BadInput(
            f"{full_id} is registered, but cannot be created here: {described(error)}. "
            f"Install {needed}, or choose another environment (`rl-teacher envs`)."
        ) from error


def _check_spaces(full_id: str, env: gymnasium.Env) -> None:
    observations, actions = env.observation_space, env.action_space
    if (fault := find_space_fault(observations)) is not None:
        raise BadInput(
            f"{full_id} has observations of {observations!s:.200}, which cannot be used: {fault}. "
            "Wrap it in gymnasium.wrappers.TransformObservation so that they are vectors, images, "
            "or spaces composed of Box, Discrete, MultiBinary and MultiDiscrete, and register the "
            "result."
        )
    if find_part_fault(actions) is not None or not isinstance(actions, Box | Discrete):
        raise BadInput(
            f"{full_id} has actions of {actions}; a Box or Discrete space is needed, with at least "
            f"one and at most {MAX_CHOICES:,} numbers or choices. Wrap it in "
            f"gymnasium.wrappers.TransformAction{_action_arguments(actions)}, and register the "
            "result."
        )


def _action_arguments(actions: gymnasium.Space) -> str:
    """Return arguments of `TransformAction` that make one choice of several; empty without any."""
    if not isinstance(actions, MultiDiscrete):
        return ""
    choices = actions.nvec.tolist()
    index = f"numpy.array(numpy.unravel_index(action, {choices}))"
    return f"(env, lambda action: {index}, gymnasium.spaces.Discrete({math.prod(choices)}))"
