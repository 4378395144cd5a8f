"""Base class of the adapters for agents of other libraries."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Shaped
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise, VectorizedActionNoise
from stable_baselines3.common.vec_env import VecEnv

from rl_teacher.agents.actions import EnvArray, Masks, float32_bounds
from rl_teacher.agents.agent import LEARNING_RATE_ARGUMENT, agent_diverged, check_weights
from rl_teacher.agents.sb3.libraries import NORMALISE, algorithm_class, arguments_for
from rl_teacher.agents.sb3.weights import is_sbx, load_weights, warm_start_weights, weights_of
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import (
    StateDict,
    array_to_rng,
    array_to_text,
    nest,
    part_of,
    rng_to_array,
    text_to_array,
)
from rl_teacher.config.agents import OtherAgentConfig
from rl_teacher.nn.encoders import image_layout_of

COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_n_calls",
    "_current_progress_remaining",
    "exploration_rate",
    "reset_idx",
    "adaptive_lr.current_adaptive_lr",
)
"""Attributes of an algorithm that change during training; each algorithm has some of them."""


def limit_torch_threads() -> None:
    """Limit torch to one thread, unless OMP_NUM_THREADS is set.

    A second thread does not speed up small networks, and large ones by half at most. If other
    processes use the cores, however, threads that wait for each other are many times slower.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


class IsolatedRandomness:
    """The state of the global generators of NumPy, torch and CUDA, as seen by one agent.

    The libraries sample from global generators. While the agent computes, these have the state in
    which the agent left them; afterwards, they have their previous state.
    """

    def __init__(self) -> None:
        self._states = self._get()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Swap the state of the global generators for that of the agent."""
        others = self._get()
        self._set(self._states)
        try:
            yield
        finally:
            self._states = self._get()
            self._set(others)

    def _get(self) -> tuple[Any, torch.Tensor, list[torch.Tensor]]:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return np.random.get_state(legacy=False), torch.get_rng_state(), cuda

    def _set(self, states: tuple[Any, torch.Tensor, list[torch.Tensor]]) -> None:
        of_numpy, of_torch, cuda = states
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        torch.cuda.set_rng_state_all(cuda)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        of_numpy, of_torch, cuda = self._states
        return {
            "numpy": text_to_array(json.dumps(of_numpy, default=np.ndarray.tolist)),
            "torch": of_torch.numpy().copy(),
            **{f"cuda/{number}": each.numpy() for number, each in enumerate(cuda)},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        cuda = [torch.from_numpy(each.copy()) for each in part_of(state, "cuda").values()]
        # Another machine may have other GPUs.
        if len(cuda) != len(self._states[-1]):
            cuda = self._states[-1]
        of_numpy = json.loads(array_to_text(state["numpy"]))
        self._states = of_numpy, torch.from_numpy(state["torch"].copy()), cuda


class SpacesOnly(VecEnv):
    """A vector environment that has spaces but cannot be stepped, for constructors."""

    def __init__(self, num_envs: int, observations: gym.Space, actions: gym.Space) -> None:
        self.render_mode = None
        super().__init__(num_envs, observations, actions)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("these environments are stepped by the loop of rl-teacher")

    reset = step_async = step_wait = set_attr = env_method = _refuse

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        """Return an attribute; only `render_mode` exists."""
        return [getattr(self, attr_name)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """Return that there are no wrappers."""
        return [False] * self.num_envs

    def close(self) -> None:
        """Do nothing."""


class LibraryAgent:
    """An algorithm of another library, without its own training loop.

    Attributes:
        algorithm: the algorithm object of the library.
        rollout_steps: steps of each environment between two calls of `learn`.
    """

    algorithm: Any
    rollout_steps: int

    def __init__(
        self,
        name: str,
        observation_space: gym.Space,
        action_space: gym.Space,
        settings: OtherAgentConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        """Create an agent.

        Args:
            name: name of the algorithm, such as `sb3:PPO`.
            observation_space: observation space of one environment.
            action_space: action space of one environment.
            settings: number of environments, and arguments of the algorithm's constructor.
            total_steps: environment steps after which schedules reach their final value.
            seed: seed of the weights and the exploration.

        Raises:
            BadConfig: the algorithm does not support the spaces, or refuses an argument.
        """
        layout = image_layout_of(observation_space)
        if layout is None:
            limit_torch_threads()
        self.name = name
        self._num_envs = settings.num_envs
        self._class = algorithm_class(name)
        self._arguments = arguments_for(self._class, name, settings, has_images=layout is not None)
        self._observation_space, self._action_space = observation_space, action_space
        is_box = isinstance(action_space, gym.spaces.Box)
        self._action_bounds = float32_bounds(action_space) if is_box else None
        self._first_action = 0
        if isinstance(action_space, gym.spaces.Discrete):
            # These libraries count actions from 0, even if the space does not.
            self._first_action = int(action_space.start)
            action_space = gym.spaces.Discrete(int(action_space.n))
        if isinstance(observation_space, gym.spaces.Box) and observation_space.dtype.kind == "f":
            # Normalised observations may exceed the bounds of the environment's.
            shape = observation_space.shape
            observation_space = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
        space = observation_space
        if layout is not None:
            # A plain space, since checkpoints of the library contain its class.
            observation_space = gym.spaces.Box(0, 255, layout.shape, np.uint8)
        elif (
            isinstance(space, gym.spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
        ):
            # An image that is too small for convolutions. These libraries would guess its channel
            # axis, and transpose it in some calls only; one channel and one row leave no choice.
            low, high = (bound.reshape(1, 1, -1) for bound in (space.low, space.high))
            observation_space = gym.spaces.Box(low, high, dtype=np.uint8)
        self._algorithm_spaces = observation_space, action_space
        self._total_steps = max(total_steps, 1)
        self._rng = np.random.default_rng([seed, 1])
        self._randomness = IsolatedRandomness()
        self.algorithm = self._construct(seed)

    def _construct(self, seed: int) -> Any:
        """Construct the algorithm."""
        env = SpacesOnly(self._num_envs, *self._algorithm_spaces)
        arguments = {name: value for name, value in self._arguments.items() if name != NORMALISE}
        std, shape = arguments.get("action_noise"), self._action_space.shape or ()
        try:
            with self._randomness.in_use():
                if isinstance(std, float | int):
                    # Independent noise for each environment, on actions in [-1, 1].
                    each = NormalActionNoise(np.zeros(shape), np.full(shape, std))
                    arguments["action_noise"] = VectorizedActionNoise(each, self._num_envs)
                algorithm = self._class(env=env, seed=seed, **arguments)
        except Exception as error:
            raise BadConfig(
                f"{self.name} cannot be constructed for observations {self._algorithm_spaces[0]} "
                f"and actions {self._action_space}. It raised {type(error).__name__}: {error}. "
                "Change --other.arguments, or choose another agent or environment."
            ) from error
        algorithm.set_logger(Logger(folder=None, output_formats=[]))
        algorithm._total_timesteps = self._total_steps
        return algorithm

    def normalise(self, observations: Shaped[np.ndarray, "..."]) -> np.ndarray:
        """Return [B, ...] observations in the form that the algorithm learns from."""
        return observations.reshape(len(observations), *(self._algorithm_spaces[0].shape or ()))

    def predict(
        self, observations: EnvArray, masks: Masks = None, *, deterministic: bool = False
    ) -> EnvArray:
        """Return actions for evaluation: the mode, or samples that `learn` does not use."""
        with self.running():
            actions, _ = self.algorithm.policy.predict(
                self.normalise(observations),
                deterministic=deterministic,
                **self.mask_arguments(masks),
            )
        return self.to_environment(actions)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Convert actions within bounds to the format of the environment."""
        if self._action_bounds is not None:
            shaped = actions.reshape(-1, *self._action_bounds[0].shape).astype(np.float32)
            # The rounding to float32, and that of the libraries' own scaling, may exceed a bound.
            return np.clip(shaped, *self._action_bounds)
        return actions.astype(np.int64) + self._first_action

    def mask_arguments(self, masks: Masks) -> dict[str, np.ndarray]:
        """Return the masks as keyword arguments.

        Raises:
            BadConfig: there are masks, but the algorithm does not support them.
        """
        if masks is None:
            return {}
        if self.name == "sb3:MaskablePPO":
            return {"action_masks": masks}
        raise BadConfig(
            f"The environment masks actions, which {self.name} does not support. "
            "Use --agent sb3:MaskablePPO, or ppo."
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run code of the library with the random generators of this agent.

        Raises:
            Diverged: torch refuses the parameters of a distribution.
        """
        try:
            with self._randomness.in_use():
                yield
        except ValueError as error:
            if not str(error).startswith("Expected parameter"):
                raise
            reason = "the parameters of its action distribution are invalid"
            raise agent_diverged(reason, LEARNING_RATE_ARGUMENT) from error

    def resample_exploration(self, t: int) -> None:
        """Resample the matrices of state-dependent exploration (gSDE) if the library would do it.

        Args:
            t: number of the next step in the rollout.
        """
        if not self.algorithm.use_sde:
            return
        every = self.algorithm.sde_sample_freq
        # Before the first step, the libraries resample for the rollout and for the step.
        num_samples = (t == 0) + (every > 0 and t % every == 0)
        with self.running():
            for _ in range(num_samples):
                self.algorithm.policy.reset_noise(self._num_envs)

    def check_parameters(self) -> None:
        """Check the parameters of the policy after an update.

        Raises:
            Diverged: they are not finite.
        """
        if not is_sbx(self.algorithm):
            parameters = self.algorithm.policy.named_parameters()
            weights = {name: each.detach().cpu().numpy() for name, each in parameters}
            check_weights(weights, LEARNING_RATE_ARGUMENT)

    def _advance(self, num_steps: int) -> None:
        """Count environment steps, on which schedules depend."""
        self.algorithm.num_timesteps += num_steps
        self.algorithm._update_current_progress_remaining(
            self.algorithm.num_timesteps, self._total_steps
        )

    def extend(self, total_steps: int) -> None:
        """Change the number of environment steps after which schedules reach their final value."""
        self.algorithm._total_timesteps = self._total_steps = total_steps

    def _metrics(self) -> dict[str, float]:
        """Return the metrics that the algorithm logged since the last call."""
        recorded = dict(self.algorithm.logger.name_to_value)
        self.algorithm.logger.dump()
        return {
            name.rpartition("/")[2]: float(value)
            for name, value in recorded.items()
            if isinstance(value, Real)
        }

    def reinitialise(self) -> None:
        """Create new networks and optimisers; keep step counts and schedules."""
        counters = self._counters()
        self.algorithm = self._construct(int(self._rng.integers(2**31)))
        self._set_counters(counters)

    # --- saving ---

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the networks of another agent, but not its optimisers.

        Raises:
            BadConfig: its networks have other names or sizes.
        """
        warm_start_weights(self.algorithm, part_of(state, "weights"))

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts.

        Raises:
            Diverged: the weights are not finite.
        """
        weights = weights_of(self.algorithm)
        check_weights(weights, LEARNING_RATE_ARGUMENT)
        parts = {
            "weights": weights,
            "counters": self._counters(),
            "randomness": self._randomness.state(),
            "self": {
                "rng": rng_to_array(self._rng),
                "actions": rng_to_array(self.algorithm.action_space.np_random),
            },
        }
        return nest(parts)

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        load_weights(self.algorithm, part_of(state, "weights"))
        self._set_counters(part_of(state, "counters"))
        self._randomness.load_state(part_of(state, "randomness"))
        array_to_rng(self._rng, state["self/rng"])
        array_to_rng(self.algorithm.action_space.np_random, state["self/actions"])

    def _counters(self) -> StateDict:
        return {
            name: np.asarray(getattr(holder, last))
            for name in COUNTERS
            for holder, last in [_resolve_attribute(self.algorithm, name)]
            if hasattr(holder, last)
        }

    def _set_counters(self, counters: Mapping[str, np.ndarray]) -> None:
        for name, value in counters.items():
            holder, last = _resolve_attribute(self.algorithm, name)
            setattr(holder, last, value.item())

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, device=self.algorithm.device)


def _resolve_attribute(algorithm: Any, name: str) -> tuple[Any, str]:
    holder, _, last = name.rpartition(".")
    return (getattr(algorithm, holder, None) if holder else algorithm), last
