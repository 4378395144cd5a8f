"""The reward predictor: an ensemble of networks that maps (observation, action) to a reward.

M: members, F: features of an input row, B: rows.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Shaped
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.common.state_dict import StateDict, arrays_to_tree, nest, part_of, tree_to_arrays
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.nn.conv import apply_jitted
from rl_teacher.nn.mlp import MLP
from rl_teacher.nn.numpy_networks import NumpyMLP
from rl_teacher.predictor.inputs import InputNormaliser, InputSpace
from rl_teacher.predictor.networks import (
    ImageRewardNetwork,
    RewardNetwork,
    new_networks,
    unstack_members,
)
from rl_teacher.predictor.reward_scaling import WindowedMeanStd

FORMAT_VERSION = 1
IMAGES_PER_CALL = 256
"""Rows of one compiled call: the output of the first convolution then fits into the caches."""


class ImageEnsemble:
    """M image networks as a callable on NumPy rows: [B, F] -> [M, B, 1].

    Members and pieces of a large batch run in parallel threads. One compiled call would use more
    than one core for its matrix products only; this is faster by a tenth.
    """

    _threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="image-ensemble")

    def __init__(self, networks: ImageRewardNetwork) -> None:
        self._members = unstack_members(networks)

    def __call__(self, rows: Shaped[np.ndarray, "batch byte"]) -> Float32[np.ndarray, "..."]:
        """Compute every member's reward of each row."""
        padded = _pad_batch(rows)
        pieces = np.split(padded, range(IMAGES_PER_CALL, len(padded), IMAGES_PER_CALL))
        calls = [(member, piece) for member in self._members for piece in pieces]
        rewards = list(self._threads.map(lambda call: np.asarray(apply_jitted(*call)), calls))
        by_member = np.concatenate(rewards).reshape(len(self._members), len(padded), 1)
        return by_member[:, : len(rows)]


def _pad_batch(rows: Shaped[np.ndarray, "batch byte"]) -> Shaped[np.ndarray, "padded byte"]:
    """Pad to one of few batch sizes, because every new size compiles a program."""
    num = len(rows)
    if num > IMAGES_PER_CALL:
        size = -(-num // IMAGES_PER_CALL) * IMAGES_PER_CALL
    else:
        size = 1 << max(num - 1, 0).bit_length()
    return np.concatenate([rows, np.zeros((size - num, rows.shape[1]), rows.dtype)])


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
    """

    def __init__(self, space: InputSpace, config: PredictorConfig, seed: int = 0) -> None:
        self.space = space.for_encoder(config.image_encoder)
        self.config = config
        self.normaliser = InputNormaliser.identity(self.space)
        self.recent = WindowedMeanStd(config.ensemble_size, config.window_steps)
        self.keeps_zero = False
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
        batch = rows.shape[:-1]
        inputs = self.normaliser(rows.reshape(-1, rows.shape[-1]))
        rewards = self._ensemble(inputs)[..., 0]
        return rewards.reshape(self.config.ensemble_size, *batch)

    def normalised(
        self, member_rewards: Float32[np.ndarray, "member *batch"]
    ) -> Float32[np.ndarray, "*batch"]:
        """Normalise raw rewards of all members and average them."""
        rewards = self.recent.normalise(
            member_rewards, self.config.reward_std, keeps_zero=self.keeps_zero
        )
        return rewards.astype(np.float32)

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
        """
        return self.normalised(self.member_rewards(self.space.rows(observations, actions)))

    def state(self) -> StateDict:
        """Return the arrays of a checkpoint."""
        parts = {
            "networks": tree_to_arrays(self.networks),
            "inputs": self.normaliser.state(),
            "recent": self.recent.state(),
        }
        return nest(parts) | {"keeps_zero": np.asarray(self.keeps_zero)}

    def load_state(self, state: StateDict) -> None:
        """Restore the arrays of a checkpoint."""
        networks = arrays_to_tree(self.networks, part_of(state, "networks"))
        self.set_networks(networks, InputNormaliser.from_state(part_of(state, "inputs")))
        self.keeps_zero = bool(state["keeps_zero"])
        self.recent.load_state(part_of(state, "recent"))

    def save(self, folder: Path | str) -> None:
        """Write `predictor.safetensors` and `predictor.json` into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state(), folder / "predictor.safetensors")
        description = {
            "format_version": FORMAT_VERSION,
            "space": self.space.to_json(),
            "config": asdict(self.config),
        }
        (folder / "predictor.json").write_text(json.dumps(description, indent=2))

    @staticmethod
    def load(folder: Path | str) -> "RewardPredictor":
        """Load a predictor that `save` wrote.

        Raises:
            CorruptCheckpoint: the files are missing, truncated, or of a newer version.
        """
        folder = Path(folder)
        try:
            description = json.loads((folder / "predictor.json").read_text())
            if description["format_version"] > FORMAT_VERSION:
                raise CorruptCheckpoint(
                    f"{folder} holds a predictor of format {description['format_version']}; this "
                    f"version reads up to {FORMAT_VERSION}. Install a newer rl-teacher."
                )
            values = description["config"]
            config = PredictorConfig(**(values | {"hidden": tuple(values["hidden"])}))
            predictor = RewardPredictor(InputSpace.from_json(description["space"]), config)
            predictor.load_state(load_file(folder / "predictor.safetensors"))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CorruptCheckpoint(
                f"{folder} holds no readable predictor ({error}). It needs predictor.json and "
                "predictor.safetensors as RewardPredictor.save wrote them; save it again."
            ) from error
        return predictor
