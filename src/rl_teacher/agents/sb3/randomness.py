"""Isolation of the global random generators that these libraries use."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rl_teacher.common.state_dict import StateDict


class IsolatedRandomness:
    """The state of the global generators of NumPy and torch, as seen by one agent.

    The libraries sample from global generators. While the agent computes, these have the state in
    which the agent left them; afterwards, they have their previous state.
    """

    def __init__(self) -> None:
        self._numpy: Any = np.random.get_state()
        self._torch = torch.get_rng_state()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Swap the state of the global generators for that of the agent."""
        others_numpy, others_torch = np.random.get_state(), torch.get_rng_state()
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        try:
            yield
        finally:
            self._numpy, self._torch = np.random.get_state(), torch.get_rng_state()
            np.random.set_state(others_numpy)
            torch.set_rng_state(others_torch)

    @contextmanager
    def seeded_within(self) -> Iterator[None]:
        """Swap as `in_use`, and restore Python's generator, for calls that seed all generators."""
        others = random.getstate()
        try:
            with self.in_use():
                yield
        finally:
            random.setstate(others)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        _, keys, place, has_gauss, gauss = self._numpy
        return {
            "keys": np.asarray(keys),
            "place": np.asarray([place, has_gauss]),
            "gauss": np.asarray(gauss),
            "torch": self._torch.numpy().copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        place, has_gauss = (int(each) for each in state["place"])
        self._numpy = ("MT19937", state["keys"], place, has_gauss, float(state["gauss"]))
        self._torch = torch.from_numpy(state["torch"].copy())
