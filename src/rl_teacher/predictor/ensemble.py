"""The reward predictor: an ensemble of networks, (observation, action) -> reward.

M: members, F: features of an input row, S: steps.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Shaped
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rl_teacher.config import PredictorConfig
from rl_teacher.errors import CorruptCheckpoint
from rl_teacher.named_arrays import NamedArrays, arrays_to_tree, nest, part_of, tree_to_arrays
from rl_teacher.networks import MLP, HostMLP
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.normalise import RecentMoments

FORMAT_VERSION = 1


def new_networks(space: InputSpace, config: PredictorConfig, seed: int) -> MLP:
    """The M networks, stacked: every array has a first axis of members."""
    sizes = (space.num_features, *config.hidden, 1)
    rng = np.random.default_rng([seed, 7])
    members = [MLP(sizes, "leaky_relu", 1.0, rng) for _ in range(config.ensemble_size)]
    return stacked(members)


def stacked(members: Sequence[MLP]) -> MLP:
    """M networks as one whose every array has a first axis of members."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *members)


def unstacked(networks: MLP) -> list[MLP]:
    """The M networks, each for itself."""
    num_members = len(networks.biases[0])
    return [jax.tree.map(lambda leaf, m=m: leaf[m], networks) for m in range(num_members)]


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
        self.space = space
        self.config = config
        self.input_mean = np.zeros(space.num_features, np.float32)
        self.input_std = np.ones(space.num_features, np.float32)
        self.recent = RecentMoments(config.ensemble_size, config.window_steps)
        self.keeps_zero = False
        self.networks = new_networks(space, config, seed)

    @property
    def networks(self) -> MLP:
        """The M networks, stacked."""
        return self._networks

    @networks.setter
    def networks(self, networks: MLP) -> None:
        self._networks = networks
        self._host = HostMLP(networks)

    def adopt(
        self,
        networks: MLP,
        input_mean: Float32[np.ndarray, " features"],
        input_std: Float32[np.ndarray, " features"],
    ) -> None:
        """Take over the outcome of a fit; `recent` is to be measured anew with it."""
        self.networks = networks
        self.input_mean, self.input_std = input_mean, input_std

    def member_rewards(
        self, rows: Float32[np.ndarray, "*batch features"]
    ) -> Float32[np.ndarray, "member *batch"]:
        """Each member's raw reward of each input row (see InputSpace.rows)."""
        batch = rows.shape[:-1]
        flat = (rows.reshape(-1, rows.shape[-1]) - self.input_mean) / self.input_std
        rewards = self._host(flat)[..., 0]
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

    def state(self) -> NamedArrays:
        """Everything needed to go on exactly."""
        inputs = {"mean": self.input_mean, "std": self.input_std}
        if self.keeps_zero:
            inputs["keeps_zero"] = np.asarray(1)
        parts = {"inputs": inputs, "recent": self.recent.state()}
        return nest({"networks": tree_to_arrays(self.networks), **parts})

    def load_state(self, state: NamedArrays) -> None:
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
