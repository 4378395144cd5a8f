"""Agents defined by the user: their base class, their arguments and their loading.

    class MyAgent(CustomAgent):
        saved_attributes = ("weights",)

        def act(self, observations, masks=None): ...
        def learn(self, rollout, rewards): ...

Select it with `-a module:MyAgent`.
"""

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from jaxtyping import Float

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.agents.agent import Agent, RewardFunction, check_shapes, check_weights
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.common.state_dict import StateDict, array_to_rng, rng_to_array
from rl_teacher.config.agents import OtherAgentConfig
from rl_teacher.envs.rollout import Rollout

BARE_WORD = re.compile(r"[A-Za-z_][\w.:/-]*")
"""An argument value that needs no quotation marks: `auto`, `lin_3e-4`, `module:name`."""
LOWER_CASE_LITERALS = {"true": "True", "false": "False", "none": "None"}


def parse_arguments(arguments: Iterable[str]) -> dict[str, Any]:
    """Parse the `NAME=VALUE` pairs of --other.arguments.

    A value is a Python literal (`0.1`, `True`, `None`, `(64, 64)`, `{'net_arch': [32]}`) or a word.
    It is never evaluated as code.

    Raises:
        BadConfig: an argument is not `NAME=VALUE`, its value is invalid, or its name is repeated.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = (part.strip() for part in argument.partition("="))
        if not equals or not name.isidentifier():
            raise BadConfig(
                f"--other.arguments {argument!r} was given; NAME=VALUE is needed, such as "
                "learning_rate=1e-4."
            )
        if name in values:
            raise BadConfig(f"--other.arguments sets {name} twice. Remove one of the two.")
        if text in LOWER_CASE_LITERALS:
            raise BadConfig(
                f"--other.arguments {argument!r} was given; write {LOWER_CASE_LITERALS[text]}."
            )
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            if not BARE_WORD.fullmatch(text):
                raise BadConfig(
                    f"--other.arguments {argument!r} was given, but {text!r} is not a Python "
                    "literal. Use a number, True, False, None, 'text', (1, 2), [1, 2] or "
                    "{'a': 1}, in shell quotes."
                ) from error
            values[name] = text
    return values


class CustomAgent(ABC):
    """Base class for agents that only need to define `act` and `learn`.

    Attributes:
        rollout_steps: steps of each environment between two calls of `learn`.
        saved_attributes: names of the attributes (arrays or numbers) that checkpoints hold. The
            state of `self.rng` is always saved.
        observation_space: observation space of one environment.
        action_space: action space of one environment.
        num_envs: number of environments N.
        total_steps: environment steps of the whole run.
        arguments: values given with --other.arguments, by name.
        rng: random generator; use no other, so that runs are reproducible.
    """

    rollout_steps: int = 64
    saved_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        settings: OtherAgentConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.num_envs = settings.num_envs
        self.total_steps = total_steps
        self.arguments = parse_arguments(settings.arguments)
        self.rng = np.random.default_rng([seed, 1])
        self._settings = settings

    @abstractmethod
    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Return the actions of N environments; see `Agent.act`."""

    @abstractmethod
    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Update on one rollout with the given rewards; return metrics by name."""

    def predict(
        self,
        observations: EnvArray,
        masks: Masks = None,
        *,
        deterministic: bool = False,  # noqa: ARG002 - for subclasses
    ) -> EnvArray:
        """Return actions for evaluation; by default those of `act`."""
        return self.act(observations, masks)

    def observe(self, rollout: Rollout) -> None:  # noqa: B027 - few agents need it
        """Learn from a rollout without rewards; by default, nothing."""

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:  # noqa: B027
        """Recompute stored rewards after a fit of the predictor; by default, nothing."""

    def extend(self, total_steps: int) -> None:
        """Change `total_steps`, since the owner has extended the run."""
        self.total_steps = total_steps

    def reinitialise(self) -> None:
        """Forget what was learned; by default, by constructing the agent again with a new seed."""
        seed = int(self.rng.integers(2**31))
        spaces = self.observation_space, self.action_space
        self.__init__(*spaces, self._settings, total_steps=self.total_steps, seed=seed)

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Initialise from the state of another agent; by default, all saved attributes.

        Raises:
            BadConfig: the attributes have other shapes.
        """
        own = self._saved_state()
        saved = {name: array for name, array in state.items() if name in own}
        check_shapes(own, saved, "Use the environment and --other.arguments of the saved agent.")
        self._load_attributes(saved)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, as named arrays.

        Raises:
            BadConfig: a saved attribute is neither an array nor a number.
            Diverged: an array is not finite. Single numbers may be.
        """
        saved = self._saved_state()
        check_weights({name: each for name, each in saved.items() if each.ndim}, "its step size")
        return {**saved, "rng": rng_to_array(self.rng)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._load_attributes(state)
        array_to_rng(self.rng, state["rng"])

    def _saved_state(self) -> StateDict:
        return {name: self._saved_array(name) for name in self.saved_attributes}

    def _saved_array(self, name: str) -> np.ndarray:
        """Return a saved attribute as an array.

        Raises:
            BadConfig: it is neither an array nor a number.
        """
        try:
            value = getattr(self, name)
            array = np.array(value)
            if array.dtype.kind in "OSU":
                raise TypeError(f"it is {value!r:.60}")
        # Arrays of other libraries raise errors of their own.
        except Exception as error:
            raise BadConfig(
                f"saved_attributes of {type(self).__name__} has {name!r}, which cannot be saved as "
                f"an array or a number: {str(error).rstrip('.')}. Convert it, or override state "
                "and load_state."
            ) from error
        return array

    def _load_attributes(self, state: Mapping[str, np.ndarray]) -> None:
        for name in self.saved_attributes:
            array = state[name]
            # A number may have become an array since the agent was constructed.
            is_number = array.ndim == 0 and not isinstance(getattr(self, name), np.ndarray)
            setattr(self, name, array.item() if is_number else array.copy())


def custom_agent_class(name: str) -> Callable[..., Agent]:
    """Load an agent class from `module:Class`.

    Raises:
        BadInput: the class cannot be imported.
        BadConfig: it lacks methods of an agent.
    """
    try:
        module, _, attribute = name.partition(":")
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise BadInput(
            f"The agent {name} cannot be imported: {type(error).__name__}: {error}. It must be "
            "module:Class, and the module must be on Python's path (PYTHONPATH=. for the current "
            "folder)."
        ) from error
    methods = [name for name, member in vars(Agent).items() if name[0] != "_" and callable(member)]
    missing = [name for name in methods if not callable(getattr(found, name, None))]
    if not isinstance(found, type) or missing:
        reason = (
            f"it lacks {', '.join(missing)}" if isinstance(found, type) else "it is not a class"
        )
        raise BadConfig(
            f"{name} is not an agent: {reason}. Derive it from "
            "rl_teacher.agents.custom.CustomAgent, which has everything except act and learn."
        )
    return found


def make_custom_agent(
    name: str,
    observation_space: gym.Space,
    action_space: gym.Space,
    settings: OtherAgentConfig,
    *,
    total_steps: int,
    seed: int,
) -> Agent:
    """Construct an agent of a user-defined class.

    Raises:
        BadInput: the class cannot be imported, or its constructor raised.
        BadConfig: it is not an agent.
    """
    make = custom_agent_class(name)
    try:
        return make(observation_space, action_space, settings, total_steps=total_steps, seed=seed)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"The agent {name} could not be constructed: its constructor raised "
            f"{type(error).__name__}: {error}. The constructor is called with (observation_space, "
            "action_space, settings, *, total_steps, seed). Fix it, or change --other.arguments."
        ) from error
