"""The global random generators that these libraries draw on, kept apart from everybody else's."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rl_teacher.common.state_dict import StateDict


class IsolatedRandomness:
    """NumPy's and torch's global generators, as only one agent uses them.

    The libraries draw from global generators. Here these stand, while the agent computes, where it
    left them; anybody else finds them untouched.
    """

    def __init__(self) -> None:
        self._numpy: Any = np.random.get_state()
        self._torch = torch.get_rng_state()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Put the generators where the agent left them, and afterwards back."""
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
        """The same where the libraries seed all generators, Python's too."""
        others = random.getstate()
        try:
            with self.in_use():
                yield
        finally:
            random.setstate(others)

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        _, keys, place, has_gauss, gauss = self._numpy
        return {
            "keys": np.asarray(keys),
            "place": np.asarray([place, has_gauss]),
            "gauss": np.asarray(gauss),
            "torch": self._torch.numpy().copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        place, has_gauss = (int(each) for each in state["place"])
        self._numpy = ("MT19937", state["keys"], place, has_gauss, float(state["gauss"]))
        self._torch = torch.from_numpy(state["torch"].copy())
