"""Recipes: what an episode of a deterministic environment follows from, so it can be lived again.

The generator as it was before the episode's reset, and the actions since, say everything.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Shaped

from rl_teacher.common.state_dict import StateDict, array_to_text, nest, part_of, text_to_array

KEEP_STEPS = 50_000
"""Steps, over all environments, for which the record of an ended episode is kept."""


@dataclass(frozen=True)
class ReplayRecord:
    """One episode.

    Attributes:
        beginning: `seed` or `rng` of its reset, and `elapsed`, where its step counter started.
        actions: [T, ...] as the environment was given them.
    """

    beginning: dict[str, Any]
    actions: Shaped[np.ndarray, "time ..."]

    def __len__(self) -> int:
        return len(self.actions)


@runtime_checkable
class SupportsReplay(Protocol):
    """Knows how an episode is lived again."""

    def replay_record(self, episode: int) -> ReplayRecord:
        """Of an episode, by its number.

        Raises:
            LookupError: it is forgotten.
        """
        ...


@dataclass(frozen=True)
class _Ended:
    record: ReplayRecord
    ended_at: int


class ReplayHistory:
    """Numbers the episodes of some environments, and keeps the records of those that ended lately.

    What ended more than `keep_steps` steps ago, counted over all environments, is forgotten. So
    it holds `keep_steps` actions and one episode of each environment at most.
    """

    def __init__(self, keep_steps: int) -> None:
        self._keep_steps = keep_steps
        self._num_begun = 0
        self._num_lived = 0
        self._ended: dict[int, _Ended] = {}

    def __len__(self) -> int:
        return len(self._ended)

    def begin(self) -> int:
        """The number of an episode that begins; none is given twice."""
        self._num_begun += 1
        return self._num_begun - 1

    def live(self, num_steps: int = 1) -> None:
        """Count steps of environments."""
        self._num_lived += num_steps

    def end(self, episode: int, record: ReplayRecord) -> None:
        """Keep an episode that ended, and forget those that ended too long ago."""
        self._ended[episode] = _Ended(record, self._num_lived)
        while self._ended:
            oldest = next(iter(self._ended))
            if self._num_lived - self._ended[oldest].ended_at < self._keep_steps:
                break
            del self._ended[oldest]

    def __getitem__(self, episode: int) -> ReplayRecord:
        """The record of an episode that ended.

        Raises:
            LookupError: it is forgotten, or never ended.
        """
        if episode not in self._ended:
            raise LookupError(
                f"The record of episode {episode} is not kept: episodes that ended more than "
                f"{self._keep_steps} steps ago are forgotten. Keep more steps (keep_steps)."
            )
        return self._ended[episode].record

    def get_state(self, action_space: gymnasium.Space) -> StateDict:
        """Everything in it, as plain arrays."""
        records = [each.record for each in self._ended.values()]
        return {
            "counts": np.array([self._num_begun, self._num_lived]),
            "episodes": np.array(list(self._ended), np.int64),
            "ended_at": np.array([each.ended_at for each in self._ended.values()], np.int64),
            **nest({"records": pack_replay_records(records, action_space)}),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._num_begun, self._num_lived = state["counts"].tolist()
        records = unpack_replay_records(part_of(state, "records"))
        ended = map(_Ended, records, state["ended_at"].tolist())
        self._ended = dict(zip(state["episodes"].tolist(), ended, strict=True))


def actions_of(
    taken: Sequence[np.ndarray], action_space: gymnasium.Space
) -> Shaped[np.ndarray, "time ..."]:
    """[T, ...] actions, with the type and shape of their space."""
    return np.array(taken, action_space.dtype).reshape(-1, *(action_space.shape or ()))


def pack_replay_records(
    records: Sequence[ReplayRecord], action_space: gymnasium.Space
) -> StateDict:
    """Recipes as three arrays."""
    none_taken = actions_of([], action_space)
    return {
        "warm_start": text_to_array(json.dumps([record.beginning for record in records])),
        "lengths": np.array([len(record) for record in records], np.int64),
        "actions": np.concatenate([none_taken, *(record.actions for record in records)]),
    }


def unpack_replay_records(arrays: Mapping[str, np.ndarray]) -> list[ReplayRecord]:
    """The records that were packed."""
    warm_start = json.loads(array_to_text(arrays["warm_start"]))
    actions = np.split(arrays["actions"], np.cumsum(arrays["lengths"]))[:-1]
    return [ReplayRecord(*each) for each in zip(warm_start, actions, strict=True)]
