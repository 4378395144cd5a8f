"""Checks of environments before training.

Each fault states what was returned, what is needed and what to do, for the author of the
environment. Gymnasium's own checker is not used: it asserts and shows tracebacks.
"""

import logging
import numbers
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from rl_teacher.common.errors import BadInput, BadObservation, RlTeacherError
from rl_teacher.common.text import described
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.episode_replay import KEEP_STEPS, ReplayHistory
from rl_teacher.envs.factories import type_name
from rl_teacher.envs.interface import ACTION_MASK, sample_allowed
from rl_teacher.envs.preprocessing import (
    describe_preprocessing,
    find_image_fault,
    is_image_space,
    layout_of,
)
from rl_teacher.envs.registry import (
    EnvInfo,
    atari_game,
    get_env_info,
    make_rendered_env,
    make_single_env,
    mujoco_model,
)
from rl_teacher.envs.rendering import find_frame_fault
from rl_teacher.envs.rollout import LARGEST, find_excess
from rl_teacher.envs.snapshots import ReplayableEnv
from rl_teacher.nn.image_layout import ImageLayout

logger = logging.getLogger(__name__)

SHORT_CHECK_STEPS = 20
"""Steps of the check before training."""
LONG_CHECK_STEPS = 500
"""Steps of the check by `rl-teacher check`."""
SEED = 7
USERS = Path(gymnasium.__file__).parent, Path(__file__).parents[1]
"""Folders of the packages that use what environments return."""


@dataclass(frozen=True)
class Fault:
    """A fault of an environment.

    Attributes:
        text: the fault and how to correct it.
        is_fatal: whether the environment cannot be used.
    """

    text: str
    is_fatal: bool


class CheckFailed(Exception):
    """A fatal fault, after which the check cannot continue."""


def check_environment(env_info: EnvInfo, *, is_shown: bool) -> None:
    """Check an environment for a few steps and log minor faults as warnings.

    Args:
        env_info: the environment.
        is_shown: whether a person will see its clips.

    Raises:
        BadInput: the environment has fatal faults; the message lists all of them.
    """
    faults = find_faults(env_info, SHORT_CHECK_STEPS, is_shown=is_shown)
    for fault in faults:
        if not fault.is_fatal:
            logger.warning("%s: %s", env_info.id, fault.text)
    fatal = [fault.text for fault in faults if fault.is_fatal]
    if fatal:
        raise BadInput(f"{env_info.id} cannot be used as it is. {' '.join(fatal)}")


def inspect_environment(env_id: str, *, is_shown: bool) -> tuple[EnvInfo, list[Fault]]:
    """Return the properties of an environment and all its faults.

    Args:
        env_id: any name that `registry.get_env_info` accepts.
        is_shown: whether a person will see its clips.

    Raises:
        BadInput: the environment cannot be created, or has unsupported spaces.
    """
    env_info = get_env_info(env_id)
    faults = find_faults(env_info, LONG_CHECK_STEPS, is_shown=is_shown)
    if env_info.backend == "gymnasium" and not any(fault.is_fatal for fault in faults):
        faults += find_rendering_faults(env_info.id, is_shown=is_shown)
    return env_info, faults


def describe_images(env_id: str, frames: FrameSettings) -> str | None:
    """Describe image observations and their preprocessing; None for other observations."""
    game = atari_game(env_id)
    if game is not None:
        from rl_teacher.envs.atari.emulators import screen_size  # noqa: PLC0415 - imports ALE

        screen = ImageLayout((*screen_size(game.rom), 3), channel_axis=2)
        return describe_preprocessing(screen, frames)
    with closing(make_single_env(env_id)) as env:
        space = env.observation_space
        if not is_image_space(space):
            return None
        return describe_preprocessing(layout_of(space), frames)


def find_faults(env_info: EnvInfo, num_steps: int, *, is_shown: bool) -> list[Fault]:
    """Return the faults in how an environment resets and steps.

    The MuJoCo tasks and Atari games are covered by tests instead.
    """
    if env_info.backend != "gymnasium":
        return []
    minor: dict[str, Fault] = {}

    def warn(text: str) -> None:
        # One fault of each kind: the values after the colon differ from step to step.
        minor.setdefault(text.partition(":")[0], Fault(text, is_fatal=False))

    fatal = []
    with warnings.catch_warnings(), closing(make_single_env(env_info.id)) as env:
        warnings.simplefilter("ignore")
        try:
            check_returns(env, check_reset(env))
            step_randomly(env, num_steps, warn)
            if env_info.max_episode_steps is None:
                warn(
                    "It declares no time limit: the actions of an episode are kept until it ends, "
                    "so memory grows if none does. Wrap it in gymnasium.wrappers.TimeLimit."
                )
            check_independence(env, env_info.id)
            check_generator(env)
            check_determinism(env_info.id, num_steps, warn, is_shown=is_shown)
        except CheckFailed as error:
            fatal = [Fault(str(error), is_fatal=True)]
    return [*minor.values(), *fatal]


Warn = Callable[[str], None]
"""Records a minor fault."""


def attempt(what: str, call: Callable[[], Any]) -> Any:
    """Return the result of a call.

    Raises:
        CheckFailed: the call raised.
    """
    try:
        return call()
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(f"{what} raised {described(error)}. Correct that first.") from error


# --- the form of results ---


def check_reset(env: gymnasium.Env | VectorEnv) -> dict[str, Any]:
    """Check that `reset` takes a seed and returns an observation and a dict; return the latter."""
    own = own_part(env)

    def begin() -> Any:
        try:
            return own.reset(seed=SEED, options=None)
        except TypeError as error:
            # Python names an argument when the signature does not fit; others are raised within.
            if "argument" not in str(error):
                raise
            raise CheckFailed(
                f"reset() does not take the required arguments: {error}. Declare it as "
                "`def reset(self, *, seed=None, options=None)`, and call super().reset(seed=seed)."
            ) from error

    returned = attempt("reset(seed=7)", begin)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise CheckFailed(
            f"reset() returned {describe_returned(returned)}: an observation and a dict, as two "
            "values, are needed. The old gym returned the observation alone; "
            "return `observation, {}`."
        )
    if not isinstance(returned[1], dict):
        kind = type_name(returned[1])
        raise CheckFailed(f"reset() returned {kind} after the observation: a dict is needed.")
    return returned[1]


def check_returns(env: gymnasium.Env | VectorEnv, reset_info: dict[str, Any]) -> None:
    """Check that `step` returns five values."""
    own = own_part(env)
    # Wrappers may have other actions.
    check_mask(own, reset_info, "reset()")
    action = sample_action(own, np.random.default_rng(SEED), reset_info.get(ACTION_MASK))
    returned = attempt("step()", lambda: own.step(action))
    num_values = len(returned) if isinstance(returned, tuple) else None
    if num_values != 5:
        old = ""
        if num_values == 4:
            old = " The old gym returned four: its `done` is now `terminated` and `truncated`."
        raise CheckFailed(
            f"step() returned {describe_returned(returned)}: observation, reward, terminated, "
            f"truncated and a dict, as five values, are needed.{old}"
        )
    if not isinstance(returned[4], dict):
        kind = type_name(returned[4])
        raise CheckFailed(f"step() returned {kind} for its last value: a dict is needed.")
    if isinstance(own, gymnasium.Env):
        check_reward(returned[1])


@contextmanager
def explained_faults(env: gymnasium.Env | VectorEnv) -> Iterator[None]:
    """Explain a call of a wrapped environment that fails because of the form of its results.

    Raises:
        BadObservation: an exception was raised by what uses the results, and they have a fault.
    """
    try:
        yield
    except Exception as error:
        raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        is_own = not any(folder in raised_in.parents for folder in USERS)
        # What the environment raises is shown as it is, without another call of it.
        if is_own or isinstance(error, RlTeacherError):
            raise
        own = env.unwrapped
        try:
            for each in [own.envs[0], own] if isinstance(own, SyncVectorEnv) else [own]:
                check_returns(each, check_reset(each))
        except CheckFailed as fault:
            raise BadObservation(f"{own} cannot be used as it is. {fault}") from error
        raise


def own_part(env: gymnasium.Env | VectorEnv) -> gymnasium.Env | VectorEnv:
    """Return the environment without Gymnasium's wrappers, whose assertions would hide a fault."""
    while isinstance(env, gymnasium.Wrapper) and type(env).__module__.startswith("gymnasium."):
        env = env.env
    return env


def describe_returned(returned: Any) -> str:
    """Describe the number of values of a tuple, or the type of anything else."""
    return f"{len(returned)} values" if isinstance(returned, tuple) else type_name(returned)


def sample_action(env: gymnasium.Env | VectorEnv, rng: np.random.Generator, mask: Any) -> Any:
    """Sample an action that the environment allows; every check samples the same ones."""
    space = env.action_space
    space.seed(int(rng.integers(2**31)))
    return sample_allowed(space, mask)


# --- random steps ---


def step_randomly(env: gymnasium.Env, num_steps: int, warn: Warn) -> None:
    """Take random steps and check every result."""
    rng = np.random.default_rng(SEED)
    obs, info = attempt("reset(seed=7)", lambda: env.reset(seed=SEED))
    check_observation(env, obs, "reset()", warn)
    mask = info.get(ACTION_MASK)
    for _ in range(num_steps):
        action = sample_action(env, rng, mask)
        obs, reward, terminated, truncated, info = attempt("step()", lambda a=action: env.step(a))
        check_observation(env, obs, "step()", warn)
        check_mask(env, info, "step()")
        check_reward(reward)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                raise CheckFailed(
                    f"step() returned {flag!r:.40} ({type_name(flag)}) for {name}: True or False "
                    f"is needed. Return bool({name})."
                )
        if terminated or truncated:
            obs, info = attempt("reset()", env.reset)
            check_observation(env, obs, "reset()", warn)
            check_mask(env, info, "reset()")
        # An info without a mask leaves the previous one valid, as in training.
        mask = info.get(ACTION_MASK, mask)


def check_observation(env: gymnasium.Env, obs: Any, source: str, warn: Warn) -> None:
    """Check that an observation is as its space declares."""
    space = env.observation_space
    check_array(space, obs, source)
    if (index := find_excess(obs)) is not None:
        raise CheckFailed(
            f"{source} returned an observation that is beyond {LARGEST:g} or not finite: "
            f"{obs[index]} at {index}. Find where it comes from."
        )
    if obs.dtype != space.dtype:
        text = (
            f"{source} returned an observation of {obs.dtype}: observation_space declares "
            f"{space.dtype}. Use `.astype` to return the declared type."
        )
        # Within a kind it is converted.
        if not np.can_cast(obs.dtype, space.dtype or obs.dtype, "same_kind"):
            raise CheckFailed(text)
        warn(text)


def check_array(space: gymnasium.Space, obs: Any, source: str) -> None:
    """Check that an observation is an array of numbers with the shape of its space."""
    shape, dtype = space.shape or (), space.dtype
    if not isinstance(obs, np.ndarray):
        raise CheckFailed(
            f"{source} returned {type_name(obs)} as the observation: a NumPy array is needed. "
            f"Return np.array(..., {dtype})."
        )
    if isinstance(space, gymnasium.spaces.Box) and is_image_space(space):
        fault = find_image_fault(space, obs)
        if fault is not None:
            raise CheckFailed(f"{source} returned {fault}")
    if obs.shape != shape:
        raise CheckFailed(
            f"{source} returned an observation of shape {obs.shape}: observation_space "
            f"declares {shape}. Make them agree."
        )
    if obs.dtype.kind not in "fiub":
        raise CheckFailed(f"{source} returned an observation of {obs.dtype}: numbers are needed.")


def check_reward(reward: Any) -> None:
    """Check that a reward is one finite number."""
    is_single = isinstance(reward, np.ndarray) and reward.shape == ()
    if not isinstance(reward, numbers.Real | np.number | np.bool_) and not is_single:
        raise CheckFailed(
            f"step() returned {type_name(reward)} as the reward: a number is needed. Return "
            "float(reward), or 0.0 if the environment has none."
        )
    if find_excess(np.array([float(reward)])) is not None:
        raise CheckFailed(
            f"step() returned a reward that is beyond {LARGEST:g} or not finite: {float(reward)}. "
            "Return a finite number, or 0.0 if the environment has none."
        )


def check_mask(env: gymnasium.Env | VectorEnv, info: dict[str, Any], source: str) -> None:
    """Check that an action mask has one value for each discrete action."""
    space = env.action_space
    if ACTION_MASK not in info or not isinstance(space, gymnasium.spaces.Discrete):
        return
    shape = np.shape(info[ACTION_MASK])
    if shape != (space.n,):
        raise CheckFailed(
            f"{source} returned an action_mask of shape {shape}: one value for each of the "
            f"{space.n} actions is needed, 1 where it is allowed and 0 where it is not."
        )


# --- other instances ---


def check_independence(env: gymnasium.Env, env_id: str) -> None:
    """Check that every environment is an object of its own."""
    with closing(make_single_env(env_id)) as other:
        if other.unwrapped is env.unwrapped:
            raise CheckFailed(
                "The function that creates the environment returned the same object twice: "
                "training steps several environments at a time. Create a new one in each call."
            )


def check_generator(env: gymnasium.Env) -> None:
    """Check that a reset without a seed can be repeated from the state of `np_random`."""
    rng = attempt("np_random", lambda: env.unwrapped.np_random)
    if not isinstance(rng, np.random.Generator | np.random.RandomState):
        raise CheckFailed(
            f"np_random is {type_name(rng)}: a numpy.random.Generator is needed, whose state can "
            "be saved. Leave it to super().reset(seed=seed), which creates one."
        )


def check_determinism(env_id: str, num_steps: int, warn: Warn, *, is_shown: bool) -> None:
    """Check that episodes can be repeated: the first, of a seed, and a later one without.

    Args:
        env_id: the environment.
        num_steps: maximum length of the first episode.
        warn: called with the fault, if it is minor.
        is_shown: whether a person will see its clips.
    """
    which = find_unrepeatable(env_id, num_steps)
    if which is None:
        return
    consequence = "a resumed run differs from an uninterrupted one"
    is_replayed = mujoco_model(env_id) is None
    if is_replayed:
        consequence = (
            f"clips are videos of replayed episodes and cannot be shown, and {consequence}"
        )
    text = (
        f"{which} and equal actions gave different observations: {consequence}. Draw all "
        "randomness from self.np_random, after super().reset(seed=seed), and let nothing else "
        "remain of earlier episodes."
    )
    if is_replayed and is_shown:
        raise CheckFailed(text)
    warn(text)


def find_unrepeatable(env_id: str, num_steps: int) -> str | None:
    """Return the reset of an episode that another environment does not repeat; None if none."""
    rng = np.random.default_rng(SEED)
    history = ReplayHistory(KEEP_STEPS)
    with closing(ReplayableEnv(make_single_env(env_id), history)) as env:
        for reset, seed, most in (
            ("reset(seed=7)", SEED, num_steps),
            ("A later reset() without a seed", None, SHORT_CHECK_STEPS),
        ):
            obs, info = env.reset(seed=seed)
            observations, mask, is_over = [obs], info.get(ACTION_MASK), False
            while len(observations) <= most and not is_over:
                action = sample_action(env, rng, mask)
                obs, _, terminated, truncated, info = env.step(action)
                mask, is_over = info.get(ACTION_MASK, mask), terminated or truncated
                observations.append(np.array(obs))
            record = env.replay_record
            with closing(ReplayableEnv(make_single_env(env_id), history)) as other:
                again = [other.restart(record.reset_state)]
                again += [other.step(action)[0] for action in record.actions]
                if not all(map(np.array_equal, observations, again)):
                    return reset
    return None


# --- clips ---


def find_rendering_faults(env_id: str, *, is_shown: bool) -> list[Fault]:
    """Return the faults in rendering; fatal if a person will see the clips."""
    if mujoco_model(env_id) is not None:
        return []
    try:
        with closing(make_rendered_env(env_id)) as env:
            env.reset(seed=SEED)
            text = find_frame_fault(env.render())
    except BadInput as error:
        return [Fault(str(error), is_shown)]
    except Exception as error:
        text = f"render() raised {described(error)}. Its clips cannot be shown."
        return [Fault(text, is_shown)]
    return [] if text is None else [Fault(text, is_shown)]
