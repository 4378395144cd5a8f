"""The reward predictor: an ensemble of networks, (observation, action) -> reward.

M: members, F: features of an input row, S: steps.
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
from rl_teacher.nn.conv import applied
from rl_teacher.nn.mlp import MLP, NumpyMLP
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.networks import PictureNetwork, RewardNetwork, new_networks, unstacked
from rl_teacher.predictor.reward_scaling import RecentMoments

FORMAT_VERSION = 1
PICTURES_AT_ONCE = 256
"""Rows of a compiled call: what the first convolution says of them fits into the caches."""


class PictureEnsemble:
    """M networks for pictures as a callable on NumPy rows: [B, F] -> [M, B, 1].

    Note: a compiled call uses the cores for its products alone; with members and pieces of a large
    batch side by side they are never idle, which is quicker by a tenth.
    """

    _cores = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="see")

    def __init__(self, networks: PictureNetwork) -> None:
        self._members = unstacked(networks)

    def __call__(self, rows: Shaped[np.ndarray, "batch byte"]) -> Float32[np.ndarray, "..."]:
        """What each member says of each row."""
        padded = _padded(rows)
        pieces = np.split(padded, range(PICTURES_AT_ONCE, len(padded), PICTURES_AT_ONCE))
        calls = [(member, piece) for member in self._members for piece in pieces]
        said = list(self._cores.map(lambda call: np.asarray(applied(*call)), calls))
        by_member = np.concatenate(said).reshape(len(self._members), len(padded), 1)
        return by_member[:, : len(rows)]


def _padded(rows: Shaped[np.ndarray, "batch byte"]) -> Shaped[np.ndarray, "padded byte"]:
    """Rows of one of few lengths, so that few programs are compiled."""
    num = len(rows)
    if num > PICTURES_AT_ONCE:
        wanted = -(-num // PICTURES_AT_ONCE) * PICTURES_AT_ONCE
    else:
        wanted = 1 << max(num - 1, 0).bit_length()
    return np.concatenate([rows, np.zeros((wanted - num, rows.shape[1]), rows.dtype)])


class RewardPredictor:
    """A callable on NumPy arrays: rewards of (observation, action) pairs.

    `predictor(observations, actions)` gives the mean over members, each first brought to mean 0
    and a known spread over recent steps.

    Attributes:
        keeps_zero: whether labels say where the zero of the reward is, because some compare
            segments that an end cut short, after which nothing is earned. The zero then stays, and
            only the scale is brought to a known one.
    """

    def __init__(self, space: InputSpace, config: PredictorConfig, seed: int = 0) -> None:
        self.space = space = space.seen_by(config.image_encoder)
        self.config = config
        self.input_mean, self.input_std = unscaled(space)
        self.recent = RecentMoments(config.ensemble_size, config.window_steps)
        self.keeps_zero = False
        self.networks = new_networks(space, config, seed)

    @property
    def networks(self) -> RewardNetwork:
        """The M networks, stacked."""
        return self._networks

    @networks.setter
    def networks(self, networks: RewardNetwork) -> None:
        self._networks = networks
        is_vector = isinstance(networks, MLP)
        self._say = NumpyMLP(networks) if is_vector else PictureEnsemble(networks)

    def adopt(
        self,
        networks: RewardNetwork,
        input_mean: Float32[np.ndarray, " features"],
        input_std: Float32[np.ndarray, " features"],
    ) -> None:
        """Take over the outcome of a fit; `recent` is to be measured anew with it."""
        self.networks = networks
        self.input_mean, self.input_std = input_mean, input_std

    def member_rewards(
        self, rows: Shaped[np.ndarray, "*batch features"]
    ) -> Float32[np.ndarray, "member *batch"]:
        """Each member's raw reward of each input row (see InputSpace.rows)."""
        batch = rows.shape[:-1]
        flat = rows.reshape(-1, rows.shape[-1])
        if not self.space.is_bytes:
            flat = (flat - self.input_mean) / self.input_std
        rewards = self._say(flat)[..., 0]
        return rewards.reshape(self.config.ensemble_size, *batch)

    def normalised(
        self, member_rewards: Float32[np.ndarray, "member *batch"]
    ) -> Float32[np.ndarray, "*batch"]:
        """The ensemble's reward, from its members' raw ones."""
        std, keeps_zero = self.config.reward_std, self.keeps_zero
        return self.recent.normalise(member_rewards, std, keeps_zero=keeps_zero).astype(np.float32)

    def __call__(
        self, observations: Shaped[np.ndarray, "..."], actions: Shaped[np.ndarray, "..."]
    ) -> Float32[np.ndarray, "..."]:
        """Predicted rewards.

        Args:
            observations: [..., *observation_shape].
            actions: [..., *action_shape], aligned with the observations.

        Returns:
            [...] about mean 0 and std 1 (or `reward_std`) over what the agent did lately.

        Raises:
            BadConfig: the arrays do not fit the spaces that this predictor was made for.
        """
        return self.normalised(self.member_rewards(self.space.rows(observations, actions)))

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        inputs = {"mean": self.input_mean, "std": self.input_std}
        if self.keeps_zero:
            inputs["keeps_zero"] = np.asarray(1)
        parts = {"inputs": inputs, "recent": self.recent.state()}
        return nest({"networks": tree_to_arrays(self.networks), **parts})

    def load_state(self, state: StateDict) -> None:
        """Go on from a saved state."""
        self.input_mean, self.input_std = state["inputs/mean"], state["inputs/std"]
        self.keeps_zero = "inputs/keeps_zero" in state
        self.recent.load_state(part_of(state, "recent"))
        self.networks = arrays_to_tree(self.networks, part_of(state, "networks"))

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
        """Read a predictor that was saved.

        Raises:
            CorruptCheckpoint: the files are missing, cut short, or of a newer version.
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


def unscaled(
    space: InputSpace,
) -> tuple[Float32[np.ndarray, " features"], Float32[np.ndarray, " features"]]:
    """A mean and a spread that leave rows as they are; of no numbers where rows are pictures."""
    size = 0 if space.is_bytes else space.num_features
    return np.zeros(size, np.float32), np.ones(size, np.float32)
