"""What is wrong with an environment, in words, before anything is learned from it.

Every fault says what was returned, what is needed, and what to do. Nothing is asserted, and no
traceback of a library is shown: this is for whoever wrote the environment.
"""

import logging
import math
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from rl_teacher.common.errors import BadInput
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.score_areas import SCREEN_HEIGHT, SCREEN_WIDTH
from rl_teacher.envs.factories import described
from rl_teacher.envs.preprocessing import (
    describe_preprocessing,
    find_image_fault,
    is_image_space,
    layout_of,
)
from rl_teacher.envs.registry import (
    EnvInfo,
    get_env_info,
    make_rendered_env,
    make_single_env,
    mujoco_model,
)
from rl_teacher.nn.image_layout import ImageLayout

logger = logging.getLogger(__name__)

SHORT_CHECK_STEPS = 20
"""Steps that are tried before training."""
LONG_CHECK_STEPS = 500
"""Steps that `rl-teacher check` tries."""
SEED = 7


@dataclass(frozen=True)
class Fault:
    """Something that is wrong.

    Attributes:
        text: what, and what to do.
        is_fatal: whether it cannot be taught so.
    """

    text: str
    is_fatal: bool


class Wrong(Exception):
    """Ends a check: nothing after this fault can be tried."""


def check_environment(env_info: EnvInfo) -> None:
    """Try an environment for some steps; what is only a pity becomes a warning.

    The suite's own and Atari's are not tried: their tests do that.

    Raises:
        BadInput: with every fault that must be mended.
    """
    if env_info.backend != "gymnasium":
        return
    faults = find_faults(env_info, SHORT_CHECK_STEPS)
    for fault in faults:
        if not fault.is_fatal:
            logger.warning("%s: %s", env_info.id, fault.text)
    fatal = [fault.text for fault in faults if fault.is_fatal]
    if fatal:
        raise BadInput(f"{env_info.id} cannot be taught as it is. {' '.join(fatal)}")


def inspect_environment(env_id: str, *, is_shown: bool) -> tuple[EnvInfo, list[Fault]]:
    """The card of an environment, and what is wrong with it.

    Args:
        env_id: any name that `registry.get_env_info` accepts.
        is_shown: whether a person is going to see its clips.

    Raises:
        BadInput: it cannot even be made, or has spaces that nobody can learn with.
    """
    env_info = get_env_info(env_id)
    faults = find_faults(env_info, LONG_CHECK_STEPS)
    if not any(fault.is_fatal for fault in faults):
        faults += find_rendering_faults(env_info.id, is_shown=is_shown)
    return env_info, faults


def describe_images(env_id: str, frames: FrameSettings) -> str | None:
    """What is seen of an environment that shows pictures, in one line; None of any other."""
    if get_env_info(env_id).backend == "atari":
        screen = ImageLayout((SCREEN_HEIGHT, SCREEN_WIDTH, 3), channel_axis=2)
        return describe_preprocessing(screen, frames)
    with closing(make_single_env(env_id)) as env:
        space = env.observation_space
        if not is_image_space(space):
            return None
        return describe_preprocessing(layout_of(space), frames)


def find_faults(env_info: EnvInfo, num_steps: int) -> list[Fault]:
    """What is wrong with the way an environment begins and steps."""
    found: dict[str, Fault] = {}

    def note(text: str, *, is_fatal: bool = True) -> None:
        found.setdefault(text.partition(":")[0], Fault(text, is_fatal))

    with warnings.catch_warnings(), closing(make_single_env(env_info.id)) as env:
        warnings.simplefilter("ignore")
        try:
            check_reset(env, note)
            check_returns(env, note)
            live(env, num_steps, note)
            if env_info.max_episode_steps is None:
                note(
                    "Its episodes have no time limit: how each went is kept until it ends, so "
                    "memory grows. Wrap it in gymnasium.wrappers.TimeLimit.",
                    is_fatal=False,
                )
            check_determinism(env_info.id, note)
        except Wrong:
            pass
    return list(found.values())


Note = Callable[..., None]


def tried(what: str, call: Callable[[], Any], note: Note) -> Any:
    """What a call returns; what it raises is a fault.

    Raises:
        Wrong: it raised.
    """
    try:
        return call()
    except Wrong:
        raise
    except Exception as error:
        note(f"{what} raised {type(error).__name__}: {error}. Mend that first.")
        raise Wrong from error


# --- the shape of what is returned ---


def check_reset(env: gymnasium.Env, note: Note) -> None:
    """Whether `reset` takes a seed, and returns an observation and a dict."""
    own = env.unwrapped

    def begin() -> Any:
        try:
            return own.reset(seed=SEED, options=None)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            note(
                f"reset() does not take what it must: {error}. Declare it as "
                "`def reset(self, *, seed=None, options=None)`, and call super().reset(seed=seed)."
            )
            raise Wrong from error

    returned = tried("reset(seed=7)", begin, note)
    if not isinstance(returned, tuple) or len(returned) != 2:
        note(
            f"reset() returned {amount(returned)}: an observation and a dict, as two values, are "
            "needed. The old gym returned the observation alone; return `observation, {}`."
        )
        raise Wrong
    if not isinstance(returned[1], dict):
        note(f"reset() returned {described(returned[1])} beside the observation: a dict is needed.")
        raise Wrong


def check_returns(env: gymnasium.Env, note: Note) -> None:
    """Whether `step` returns five values."""
    own = env.unwrapped
    action = sampled(env, np.random.default_rng(SEED))
    returned = tried("step()", lambda: own.step(action), note)
    if not isinstance(returned, tuple) or len(returned) != 5:
        old = ""
        if isinstance(returned, tuple) and len(returned) == 4:
            old = " The old gym returned four: its `done` is now `terminated` and `truncated`."
        note(
            f"step() returned {amount(returned)}: observation, reward, terminated, truncated and a "
            f"dict, as five values, are needed.{old}"
        )
        raise Wrong
    if not isinstance(returned[4], dict):
        note(f"step() returned {described(returned[4])} for its last value: a dict is needed.")
        raise Wrong


def amount(returned: Any) -> str:
    """How many values were returned, or what in their place."""
    return f"{len(returned)} values" if isinstance(returned, tuple) else described(returned)


def sampled(env: gymnasium.Env, rng: np.random.Generator) -> Any:
    """A random action; every run of a check draws the same."""
    space = env.action_space
    space.seed(int(rng.integers(2**31)))
    return space.sample()


# --- living ---


def live(env: gymnasium.Env, num_steps: int, note: Note) -> None:
    """Live some steps at random, and look at everything that is returned."""
    rng = np.random.default_rng(SEED)
    obs, _ = tried("reset(seed=7)", lambda: env.reset(seed=SEED), note)
    check_observation(env, obs, "reset()", note)
    for _ in range(num_steps):
        action = sampled(env, rng)
        obs, reward, terminated, truncated, _ = tried("step()", lambda a=action: env.step(a), note)
        check_observation(env, obs, "step()", note)
        check_reward(reward, note)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                note(
                    f"step() returned {flag!r:.40} ({described(flag)}) for {name}: True or False "
                    f"is needed. Return bool({name})."
                )
                raise Wrong
        if terminated or truncated:
            obs, _ = tried("reset()", env.reset, note)
            check_observation(env, obs, "reset()", note)


def check_observation(env: gymnasium.Env, obs: Any, source: str, note: Note) -> None:
    """Whether an observation is what the space promises."""
    space = env.observation_space
    shape, dtype = space.shape or (), space.dtype
    if not isinstance(obs, np.ndarray):
        note(
            f"{source} returned {described(obs)} as the observation: a NumPy array is needed. "
            f"Return np.array(..., {dtype})."
        )
        raise Wrong
    if isinstance(space, gymnasium.spaces.Box) and is_image_space(space):
        fault = find_image_fault(space, obs)
        if fault is not None:
            note(f"{source} returned {fault}")
            raise Wrong
    if obs.shape != shape:
        note(
            f"{source} returned an observation of shape {obs.shape}: observation_space says "
            f"{shape}. Make them agree."
        )
        raise Wrong
    if not np.issubdtype(obs.dtype, np.number):
        note(f"{source} returned an observation of {obs.dtype}: numbers are needed.")
        raise Wrong
    if not np.isfinite(obs).all():
        place = tuple(np.argwhere(~np.isfinite(obs))[0].tolist())
        note(
            f"{source} returned an observation that is not finite: {obs[place]} at {place}. "
            "Nothing can be learned from it; find where it comes from."
        )
        raise Wrong
    if obs.dtype != dtype:
        note(
            f"{source} returned an observation of {obs.dtype}: observation_space says {dtype}. It "
            "is converted; `.astype` says so yourself.",
            is_fatal=False,
        )
    check_bounds(space, obs, source, note)


def check_bounds(space: gymnasium.Space, obs: np.ndarray, source: str, note: Note) -> None:
    """Whether an observation is within its bounds; nothing here depends on it."""
    if not isinstance(space, gymnasium.spaces.Box):
        return
    outside = (obs < space.low) | (obs > space.high)
    if outside.any():
        place = tuple(np.argwhere(outside)[0].tolist())
        note(
            f"{source} returned an observation outside its space: {obs[place]} at {place}, where "
            f"{space.low[place]} to {space.high[place]} was promised. Learning does not depend on "
            "it, but other programs may: widen observation_space.",
            is_fatal=False,
        )


def check_reward(reward: Any, note: Note) -> None:
    """Whether a reward is one finite number."""
    is_single = isinstance(reward, np.ndarray) and reward.shape == ()
    if not isinstance(reward, numbers.Real | np.number | np.bool_) and not is_single:
        note(
            f"step() returned {described(reward)} as the reward: a number is needed. Return "
            "float(reward), or 0.0 where the environment has none."
        )
        raise Wrong
    if not math.isfinite(float(reward)):
        note(
            f"step() returned a reward that is not finite: {float(reward)}. Return a finite "
            "number, or 0.0 where the environment has none."
        )
        raise Wrong


# --- the same again ---


def check_determinism(env_id: str, note: Note) -> None:
    """Whether the same seed and actions lead to the same observations, as clips need it."""
    first, second = (list(lived(env_id)) for _ in range(2))
    if len(first) == len(second) and all(map(np.array_equal, first, second)):
        return
    is_replayed = mujoco_model(env_id) is None
    what = "a run that is continued goes on otherwise than it would have"
    if is_replayed:
        what = f"clips are videos of episodes lived again, so they cannot be shown, and {what}"
    note(
        f"reset(seed=7) and the same actions did not lead to the same observations twice: {what}. "
        "Draw all randomness from self.np_random, after super().reset(seed=seed).",
        is_fatal=False,
    )


def lived(env_id: str) -> Iterator[np.ndarray]:
    """Observations of a few steps, always with the same seed and actions."""
    rng = np.random.default_rng(SEED)
    with closing(make_single_env(env_id)) as env:
        obs, _ = env.reset(seed=SEED)
        yield obs
        for _ in range(SHORT_CHECK_STEPS):
            obs, _, terminated, truncated, _ = env.step(sampled(env, rng))
            yield obs
            if terminated or truncated:
                return


# --- clips ---


def find_rendering_faults(env_id: str, *, is_shown: bool) -> list[Fault]:
    """What is wrong with showing it to a person; fatal if that is going to be done."""
    if mujoco_model(env_id) is not None:
        return []
    try:
        with closing(make_rendered_env(env_id)) as env:
            env.reset(seed=SEED)
            picture = np.asarray(env.render())
    except BadInput as error:
        return [Fault(str(error), is_shown)]
    except Exception as error:
        text = f"render() raised {type(error).__name__}: {error}. Its clips cannot be shown."
        return [Fault(text, is_shown)]
    if picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3:
        return []
    return [
        Fault(
            f"render() returned {picture.dtype} {picture.shape}: uint8 [height, width, 3] is "
            "needed, with render_mode='rgb_array'. Its clips cannot be shown.",
            is_shown,
        )
    ]
