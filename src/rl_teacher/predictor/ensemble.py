"""The reward predictor: an ensemble of networks that maps (observation, action) to a reward.

M: members, F: features of an input row, B: rows.
"""

import json
import math
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Shaped
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

from rl_teacher.common.errors import (
    INVALID_CONTENT,
    BadConfig,
    BadInput,
    BadObservation,
    CorruptCheckpoint,
)
from rl_teacher.common.files import replaced_atomically
from rl_teacher.common.paths import user_path
from rl_teacher.common.runtime import executor
from rl_teacher.common.state_dict import StateDict, arrays_to_tree, nest, part_of, tree_to_arrays
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.config.fields import restored
from rl_teacher.nn.conv import apply_jitted
from rl_teacher.nn.image_layout import trailing_floats
from rl_teacher.nn.mlp import MLP
from rl_teacher.nn.numpy_networks import NumpyMLP
from rl_teacher.predictor.inputs import InputNormaliser, InputSpace
from rl_teacher.predictor.networks import (
    ImageRewardNetwork,
    RewardNetwork,
    layer_widths,
    new_networks,
    unstack_members,
)

FORMAT_VERSION = 1
MAX_RATIO = 10
"""Largest number of parameters that a file may declare, as a multiple of those that it contains: a
file with a wrong size is refused before its networks are allocated."""
IMAGES_PER_CALL = 256
"""Rows of one compiled call: the output of the first convolution then fits into the caches."""


class ImageEnsemble:
    """M image networks as a callable on NumPy rows: [B, F] -> [M, B, 1].

    Members and pieces of a large batch run in parallel threads. One compiled call would use more
    than one core for its matrix products only; this is faster by a tenth.
    """

    def __init__(self, networks: ImageRewardNetwork) -> None:
        self._members = unstack_members(networks)

    def __call__(self, rows: Shaped[np.ndarray, "batch byte"]) -> Float32[np.ndarray, "..."]:
        """Compute every member's reward of each row."""
        num = len(rows)
        # Padded to a power of two, or to whole pieces: every new size compiles a program.
        size = 1 << max(num - 1, 0).bit_length()
        if num > IMAGES_PER_CALL:
            size = -(-num // IMAGES_PER_CALL) * IMAGES_PER_CALL
        padded = np.concatenate([rows, np.zeros((size - num, rows.shape[1]), rows.dtype)])
        pieces = np.split(padded, range(IMAGES_PER_CALL, size, IMAGES_PER_CALL))
        calls = [(member, piece) for member in self._members for piece in pieces]
        threads = executor("image-ensemble")
        rewards = list(threads.map(lambda call: np.asarray(apply_jitted(*call)), calls))
        return np.concatenate(rewards).reshape(len(self._members), size, 1)[:, :num]


WINDOW_STEPS = 20_000
"""Environment steps over which the predicted reward is normalised: about ten rollouts of PPO."""


class WindowedMeanStd:
    """Mean and standard deviation of each member's rewards over the latest steps.

    The labels determine rewards only up to a constant, so predictions are normalised (Christiano
    et al. 2017, 2.2.1). A window in place of all time, because statistics over all time lag ever
    further behind a predictor and an agent that keep changing.

    M: members, S: steps.
    """

    def __init__(self, num_members: int, window_steps: int = WINDOW_STEPS) -> None:
        self._window_steps = window_steps
        self._num_members = num_members
        # Sums in place of rewards: each is [3, M], the count, the sum and the sum of squares.
        self._batches: deque[np.ndarray] = deque()

    def update(self, rewards: Float[np.ndarray, "member step"]) -> None:
        """Add a batch [M, S] of raw rewards and drop batches that left the window."""
        if not rewards.shape[1]:  # no step of the rollout belongs to an episode
            return
        # float64, since E[r^2] - E[r]^2 is the small difference of large numbers.
        rewards = rewards.astype(np.float64)
        count = np.full(self._num_members, float(rewards.shape[1]))
        self._batches.append(np.stack([count, rewards.sum(1), (rewards**2).sum(1)]))
        total = sum(batch[0, 0] for batch in self._batches)
        while len(self._batches) > 1 and total - self._batches[0][0, 0] >= self._window_steps:
            total -= self._batches.popleft()[0, 0]

    def clear(self) -> None:
        """Empty the window."""
        self._batches.clear()

    @property
    def mean_and_std(self) -> tuple[Float[np.ndarray, " member"], Float[np.ndarray, " member"]]:
        """[M] mean and [M] standard deviation; 0 and 1 while the window is empty."""
        if not self._batches:
            return np.zeros(self._num_members), np.ones(self._num_members)
        count, total, squares = np.sum(self._batches, axis=0)
        mean = total / count
        # Var[r] = E[r^2] - E[r]^2
        variance = np.maximum(squares / count - mean**2, 0.0)
        # The lower bound keeps a constant predictor from having its rounding errors amplified.
        return mean, np.maximum(np.sqrt(variance), 1e-6)

    def shift_and_scale(
        self, *, keeps_zero: bool
    ) -> tuple[Float[np.ndarray, " member"], Float[np.ndarray, " member"]]:
        """Return what is subtracted from each member's rewards, and what they are divided by."""
        mean, spread = self.mean_and_std
        if keeps_zero:
            # E[r^2] = E[r]^2 + Var[r]
            mean, spread = np.zeros_like(mean), np.sqrt(mean**2 + spread**2)
        return mean, spread

    def normalise(
        self,
        rewards: Float32[np.ndarray, "member *batch"],
        std: float,
        *,
        keeps_zero: bool = False,
    ) -> Float[np.ndarray, "*batch"]:
        """Normalise each member's rewards and average over members.

        Args:
            rewards: [M, ...] raw rewards.
            std: standard deviation to scale to.
            keeps_zero: scale the root mean square to `std` and do not shift.
        """
        mean, spread = self.shift_and_scale(keeps_zero=keeps_zero)
        shape = (self._num_members, *[1] * (rewards.ndim - 1))
        # r = 1/M sum_m std * (r_m - mean_m) / spread_m (Christiano et al. 2017, 2.2.3): members are
        # normalised before they are averaged, so that none dominates by its scale.
        return (std * (rewards - mean.reshape(shape)) / spread.reshape(shape)).mean(0)

    def state(self) -> StateDict:
        """Return the arrays of a checkpoint."""
        empty = np.empty((0, 3, self._num_members))
        return {"batches": np.stack(self._batches) if self._batches else empty}

    def load_state(self, state: StateDict) -> None:
        """Restore the arrays of a checkpoint."""
        self._batches = deque(state["batches"])


class RewardPredictor:
    """A callable on NumPy arrays that predicts the reward of (observation, action) pairs.

    The prediction is the mean over members, each normalised separately over a recent window.

    Attributes:
        space: input space of the networks.
        config: settings of the networks and of the fit.
        normaliser: normalisation of the input rows, as of the latest fit.
        recent: window of raw rewards that predictions are normalised by.
        keeps_zero: whether predictions are scaled but not shifted. True when the labels determine
            the zero of the reward, because some compare segments that a termination cut short.
        is_informed: whether some label prefers a clip. From ties alone, a network outputs noise,
            which would be scaled to `reward_std`; predictions are 0 instead.
    """

    def __init__(self, space: InputSpace, config: PredictorConfig, seed: int = 0) -> None:
        self.space = space.for_encoder(config.image_encoder)
        self.config = config
        self.normaliser = InputNormaliser.identity(self.space)
        self.recent = WindowedMeanStd(config.ensemble_size)
        self.keeps_zero = False
        self.is_informed = True
        self.set_networks(new_networks(self.space, config, seed), self.normaliser)

    def set_networks(self, networks: RewardNetwork, normaliser: InputNormaliser) -> None:
        """Replace the M stacked networks, for example by those of a fit.

        The window `recent` still holds rewards of the former networks: clear and refill it.
        """
        self.networks = networks
        self.normaliser = normaliser
        is_mlp = isinstance(networks, MLP)
        self._ensemble = NumpyMLP.from_jax(networks) if is_mlp else ImageEnsemble(networks)

    def member_rewards(
        self, rows: Shaped[np.ndarray, "*batch features"]
    ) -> Float32[np.ndarray, "member *batch"]:
        """Compute each member's raw reward of each input row (see `InputSpace.rows`)."""
        # The networks take a single batch axis.
        batch = rows.shape[:-1]
        inputs = self.normaliser(rows.reshape(-1, rows.shape[-1]))
        rewards = self._ensemble(inputs)[..., 0]
        return rewards.reshape(self.config.ensemble_size, *batch)

    def normalised(
        self, member_rewards: Float32[np.ndarray, "member *batch"]
    ) -> Float32[np.ndarray, "*batch"]:
        """Normalise raw rewards of all members and average them."""
        if not self.is_informed:
            return np.zeros_like(member_rewards[0])
        rewards = self.recent.normalise(
            member_rewards, self.config.reward_std, keeps_zero=self.keeps_zero
        )
        return rewards.astype(np.float32)

    def clip_scores(
        self,
        rewards: Float32[np.ndarray, "*clip time"],
        weights: Float[np.ndarray, "*clip time"],
    ) -> Float[np.ndarray, "*clip"]:
        """Compute what the objective fits: the return of each clip, or its mean reward.

        Args:
            rewards: [..., T] predicted reward of each step.
            weights: [..., T] weight of each step; 0 for padding.
        """
        returns = (rewards * weights).sum(-1)
        return returns if self.config.objective == "preferences" else returns / weights.sum(-1)

    def __call__(
        self, observations: Shaped[np.ndarray, "..."], actions: Shaped[np.ndarray, "..."]
    ) -> Float32[np.ndarray, "..."]:
        """Predict rewards.

        Args:
            observations: [..., *observation_shape].
            actions: [..., *action_shape], aligned with the observations.

        Returns:
            [...] with mean 0 and standard deviation `reward_std` over recent steps.

        Raises:
            BadConfig: the arrays do not fit the spaces that this predictor was made for.
            BadInput: the arrays are empty.
            BadObservation: an observation or action is not finite.
        """
        if not observations.size:
            raise BadInput(
                f"The predictor was called with an empty batch: observations {observations.shape}. "
                "Give at least one observation and one action."
            )
        return self.predict_rows(self.space.rows(observations, actions))

    def predict_rows(
        self, rows: Shaped[np.ndarray, "*batch features"]
    ) -> Float32[np.ndarray, "*batch"]:
        """Predict the reward of input rows (see `InputSpace.rows`); otherwise like a call.

        Raises:
            BadObservation: rows, or the rewards of finite rows, are not finite.
        """
        numbers = rows
        if self.space.has_byte_rows:
            # The bytes of an image, and of a choice, are followed by those of float32 numbers.
            num_actions = 0 if self.space.is_discrete else self.space.num_action_inputs
            numbers = trailing_floats(rows, num_actions + self.space.vector_size)
        is_usable = np.isfinite(numbers).all(-1)
        if not is_usable.all():
            first = tuple(np.argwhere(~is_usable)[0].tolist())
            raise BadObservation(
                f"{np.sum(~is_usable)} of {is_usable.size} steps given to the predictor have "
                f"observations or actions that are not finite, first at index {first}. Remove "
                "them, or correct the environment that returned them."
            )
        rewards = self.normalised(self.member_rewards(rows))
        if not np.isfinite(rewards).all():
            raise BadObservation(
                "The predictor has diverged: it predicts rewards that are not finite for finite "
                "observations and actions. Fit it again with a lower reward.learning_rate."
            )
        return rewards

    def state(self) -> StateDict:
        """Return the arrays of a checkpoint."""
        parts = {
            "networks": tree_to_arrays(self.networks),
            "inputs": self.normaliser.state(),
            "recent": self.recent.state(),
        }
        own = {"keeps_zero": self.keeps_zero, "is_informed": self.is_informed}
        return nest(parts) | {name: np.asarray(value) for name, value in own.items()}

    def load_state(self, state: StateDict) -> None:
        """Restore the arrays of a checkpoint."""
        networks = arrays_to_tree(self.networks, part_of(state, "networks"))
        self.set_networks(networks, InputNormaliser.from_state(part_of(state, "inputs")))
        self.keeps_zero = bool(state["keeps_zero"])
        self.is_informed = bool(state["is_informed"])
        self.recent.load_state(part_of(state, "recent"))

    def save(self, folder: Path | str) -> None:
        """Write `predictor.safetensors` and `predictor.json` into a folder.

        They replace those of an earlier predictor once both are complete.
        """
        folder = user_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        description = {
            "format_version": FORMAT_VERSION,
            "space": self.space.to_json(),
            "config": asdict(self.config),
        }
        contents = {
            # The library's own function raises no OSError if the disk is full.
            "predictor.safetensors": pack(self.state()),
            "predictor.json": json.dumps(description, indent=2).encode(),
        }
        with ExitStack() as both:
            for name, content in contents.items():
                both.enter_context(replaced_atomically(folder / name)).write_bytes(content)

    @staticmethod
    def load(folder: Path | str) -> "RewardPredictor":
        """Load a predictor that `save` wrote.

        Raises:
            CorruptCheckpoint: the files are missing, truncated, or of a newer version.
        """
        folder = user_path(folder)
        try:
            description = json.loads((folder / "predictor.json").read_bytes())
            if description["format_version"] > FORMAT_VERSION:
                raise CorruptCheckpoint(
                    f"{folder} holds a predictor of format {description['format_version']}; this "
                    f"version reads up to {FORMAT_VERSION}. Install a newer rl-teacher."
                )
            config = restored(PredictorConfig, description["config"])
            space = InputSpace.from_json(description["space"])
            state = load_file(folder / "predictor.safetensors")
            check_size(space, config, state)
            predictor = RewardPredictor(space, config)
            check_arrays(state, predictor.state())
            predictor.load_state(state)
        except (OSError, SafetensorError, BadConfig, *INVALID_CONTENT) as error:
            raise CorruptCheckpoint(
                f"{folder} holds no readable predictor ({error!s:.300}). It needs predictor.json "
                "and predictor.safetensors as RewardPredictor.save wrote them; save it again."
            ) from error
        return predictor


def check_size(space: InputSpace, config: PredictorConfig, saved: Mapping[str, np.ndarray]) -> None:
    """Check declared sizes against the saved arrays, before networks are allocated.

    Sizes that are wrong by less than `MAX_RATIO` are found by `check_arrays`.

    Raises:
        ValueError: the networks would have more parameters than were saved.
    """
    # First the sides of an image, to which the memory of its random features is proportional: their
    # sum is below the number of parameters of any network.
    sides = space.image.shape if space.image else space.observation_shape
    check_declared(max(sum(sides), space.num_action_inputs), saved)
    widths = layer_widths(space.for_encoder(config.image_encoder), config)
    check_declared(config.ensemble_size * sum(map(math.prod, pairwise(widths))), saved)


def check_declared(num_declared: int, saved: Mapping[str, np.ndarray]) -> None:
    """Check that a network has not many more parameters than were saved.

    Raises:
        ValueError: it has.
    """
    num_saved = sum(array.size for array in saved.values())
    if num_declared > MAX_RATIO * num_saved:
        raise ValueError(f"{num_declared:,} values are declared; the file has {num_saved:,}")


def check_arrays(arrays: Mapping[str, np.ndarray], needed: Mapping[str, np.ndarray]) -> None:
    """Check that arrays have the names, types and shapes of others, and finite numbers.

    Raises:
        KeyError: one is missing.
        ValueError: one is different.
    """
    for name, like in needed.items():
        array = arrays[name]
        # The window of recent rewards has any length.
        first = 1 if name.startswith("recent/") else 0
        if array.shape[first:] != like.shape[first:]:
            raise ValueError(f"{name} has shape {array.shape}; {like.shape} is needed")
        if array.dtype != like.dtype or not np.isfinite(array).all():
            raise ValueError(f"{name} has other values than finite ones of {like.dtype}")
