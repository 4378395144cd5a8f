"""Action scaling and sampling, in NumPy alone.

B: batch, N: environments, A: action dimensions (or number of discrete actions).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped

if TYPE_CHECKING:
    import gymnasium as gym

EnvArray = Shaped[np.ndarray, "env ..."]
"""One row per environment: observations or actions, [N, ...]."""
Masks = Bool[np.ndarray, "env action"] | None
"""Discrete actions that each environment allows; None: all."""

Kind = Literal["gaussian", "squashed_gaussian", "categorical"]
"""Meaning of the network's outputs: the mean; mean and log std, squashed by tanh; or logits."""

LOG_STD_RANGE = (-20.0, 2.0)
"""Range of the log std of a squashed Gaussian, as in Haarnoja et al. 2018."""
MASKED_LOGIT = -1e8
"""Logit of an action that is not allowed: finite, so that its product with probability 0 is 0."""
MAX_BOUND = 1e30
"""Bounds of larger magnitude mean that there are none, such as the largest float32."""


def float32_bounds(
    space: "gym.spaces.Box",
) -> tuple[Float32[np.ndarray, "..."], Float32[np.ndarray, "..."]]:
    """Return the bounds of a Box in float32, rounded inwards; infinite where there is none."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    low = np.where(np.abs(low) <= MAX_BOUND, low, -np.inf)
    high = np.where(np.abs(high) <= MAX_BOUND, high, np.inf)
    # Environments assert that their space contains an action.
    low_32, high_32 = low.astype(np.float32), high.astype(np.float32)
    return (
        np.where(low_32 < low, np.nextafter(low_32, np.float32(np.inf)), low_32),
        np.where(high_32 > high, np.nextafter(high_32, np.float32(-np.inf)), high_32),
    )


@dataclass(frozen=True, eq=False)
class ActionScale:
    """Affine map from policy actions in [-1, 1] to environment actions.

    Attributes:
        middle: centre of the environment's action range; None for discrete actions and those
            without some bound, which are not scaled.
        half_range: half the width of that range; None where `middle` is.
        first: number of the first discrete action.
        low: lower bounds of environment actions; None for discrete and unbounded ones.
        high: their upper bounds.
    """

    middle: Shaped[np.ndarray, "..."] | None = None
    half_range: Shaped[np.ndarray, "..."] | None = None
    first: int = 0
    low: Float32[np.ndarray, "..."] | None = None
    high: Float32[np.ndarray, "..."] | None = None

    @staticmethod
    def of(space: "gym.Space") -> "ActionScale":
        """Return the scale of an environment's action space."""
        import gymnasium as gym  # noqa: PLC0415 - an exported policy needs NumPy alone

        if isinstance(space, gym.spaces.Discrete):
            return ActionScale(first=int(space.start))
        if not isinstance(space, gym.spaces.Box):
            return ActionScale()
        low, high = float32_bounds(space)
        is_bound = np.isfinite([low, high])
        if not is_bound.any():
            return ActionScale()
        if not is_bound.all():
            # Finite, as all numbers of an exported policy.
            limit = np.finfo(np.float32).max
            low, high = np.clip([low, high], -limit, limit)
            return ActionScale(low=low, high=high)
        # In float64, since sums and differences of integers overflow.
        lowest, highest = space.low.astype(np.float64), space.high.astype(np.float64)
        middle, half_range = (lowest + highest) / 2, (highest - lowest) / 2
        dtype = np.result_type(space.low, np.float32)
        return ActionScale(middle.astype(dtype), half_range.astype(dtype), low=low, high=high)

    def to_environment(self, actions: EnvArray) -> np.ndarray:
        """Scale policy actions, clipped to the environment's bounds."""
        if self.middle is not None and self.half_range is not None:
            clipped = np.clip(actions, -1.0, 1.0)
            actions = (self.middle + self.half_range * clipped).astype(np.float32)
        if self.low is not None:
            # After scaling too, whose rounding may exceed a bound.
            return np.clip(actions, self.low, self.high)
        return actions + self.first if self.first else actions

    def from_environment(self, actions: Shaped[np.ndarray, "..."]) -> np.ndarray:
        """Scale environment actions to [-1, 1], as float32."""
        if self.middle is None or self.half_range is None:
            return actions - self.first
        width = np.where(self.half_range > 0, self.half_range, 1.0)
        return np.asarray((actions - self.middle) / width, np.float32)


@dataclass(frozen=True, eq=False)
class ActionHead:
    """Distribution of policy actions, given the outputs of the network.

    Attributes:
        kind: meaning of the outputs.
        shape: shape of one action; () for a discrete one.
        log_std: [A] log standard deviation of a Gaussian; None for the other kinds.
        scale: map from policy actions to environment actions.
    """

    kind: Kind
    shape: tuple[int, ...]
    log_std: Float32[np.ndarray, " A"] | None = None
    scale: ActionScale = ActionScale()

    def mode(
        self, outputs: Float[np.ndarray, "batch outputs"], masks: Masks = None
    ) -> Shaped[np.ndarray, "batch ..."]:
        """Return the most likely policy actions, [B, A] or [B] if discrete."""
        if self.kind == "categorical":
            return np.argmax(_mask_logits(outputs, masks), axis=-1)
        if self.kind == "squashed_gaussian":
            return np.tanh(np.split(outputs, 2, axis=-1)[0])
        return outputs

    def sample(
        self,
        outputs: Float[np.ndarray, "batch outputs"],
        rng: np.random.Generator,
        masks: Masks = None,
    ) -> Shaped[np.ndarray, "batch ..."]:
        """Sample policy actions, [B, A] or [B] if discrete."""
        if self.kind == "categorical":
            # Gumbel trick: the argmax of logits plus Gumbel noise is a sample of the softmax.
            return np.argmax(_mask_logits(outputs, masks) + rng.gumbel(size=outputs.shape), axis=-1)
        if self.log_std is not None:
            noise = rng.standard_normal(outputs.shape, dtype=np.float32)
            return outputs + np.exp(self.log_std) * noise
        mean, log_std = np.split(outputs, 2, axis=-1)
        std = np.exp(np.clip(log_std, *LOG_STD_RANGE))
        return np.tanh(mean + std * rng.standard_normal(mean.shape, dtype=np.float32))

    def to_environment(self, actions: Shaped[np.ndarray, "batch ..."]) -> np.ndarray:
        """Return environment actions, [B, *shape], for policy actions."""
        return self.scale.to_environment(actions.reshape(len(actions), *self.shape))


def _mask_logits(logits: np.ndarray, masks: Masks) -> np.ndarray:
    return logits if masks is None else np.where(masks, logits, MASKED_LOGIT)
