"""Replay records, from which episodes of deterministic environments are reproduced.

The state of the random generator before the episode's reset, its options and the actions since
determine the whole episode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Shaped

from rl_teacher.common.state_dict import (
    StateDict,
    array_to_lines,
    concatenated,
    lines_to_array,
    nest,
    part_of,
)
from rl_teacher.envs.interface import Shard

KEEP_STEPS = 50_000
"""Steps, over all environments, for which the record of a finished episode is kept."""


@dataclass(frozen=True)
class ReplayRecord:
    """The record of one episode.

    Attributes:
        reset_state: `seed` or `rng` of the reset, `elapsed`, the initial step count, and `options`
            of the reset if there were any.
        actions: [T, ...] the actions given to the environment.
    """

    reset_state: dict[str, Any]
    actions: Shaped[np.ndarray, "time ..."]

    def __len__(self) -> int:
        return len(self.actions)


@runtime_checkable
class SupportsReplay(Protocol):
    """An environment that keeps replay records."""

    def replay_record(self, episode: int) -> ReplayRecord:
        """Return the record of an episode by its number.

        Raises:
            LookupError: the record is no longer kept.
        """
        ...


@dataclass(frozen=True)
class _Finished:
    record: ReplayRecord
    finished_at: int


class ReplayHistory:
    """The records of recently finished episodes of one or several environments, which it numbers.

    An episode that finished more than `keep_steps` steps ago, counted over its environments, is
    dropped, so the history holds at most `keep_steps` actions and one episode per environment.
    """

    def __init__(self, keep_steps: int, first: int = 0, stride: int = 1) -> None:
        """Create an empty history.

        Args:
            keep_steps: see above.
            first: number of the first episode.
            stride: difference of the numbers of consecutive episodes; other histories have those
                between.
        """
        self._keep_steps = keep_steps
        self._first, self._stride = first, stride
        self._num_episodes = 0
        self._num_steps = 0
        self._finished: dict[int, _Finished] = {}

    def start_episode(self) -> int:
        """Return the number of a new episode; numbers are unique."""
        self._num_episodes += 1
        return self._first + self._stride * (self._num_episodes - 1)

    def count_step(self) -> None:
        """Count an environment step."""
        self._num_steps += 1

    def end_episode(self, episode: int, record: ReplayRecord) -> None:
        """Keep a finished episode and drop those that finished too long ago."""
        self._finished[episode] = _Finished(record, self._num_steps)
        # A dict keeps the order of insertion: the episode that finished first comes first.
        while self._finished:
            oldest = next(iter(self._finished))
            if self._num_steps - self._finished[oldest].finished_at < self._keep_steps:
                break
            del self._finished[oldest]

    def __contains__(self, episode: int) -> bool:
        return episode in self._finished

    def __getitem__(self, episode: int) -> ReplayRecord:
        """Return the record of a finished episode.

        Raises:
            LookupError: the record is no longer kept, or the episode has not finished.
        """
        if episode not in self._finished:
            raise forgotten(episode)
        return self._finished[episode].record

    def get_state(self, action_space: gymnasium.Space) -> StateDict:
        """Return the whole history as arrays."""
        finished = list(self._finished.values())
        records = [each.record for each in finished]
        return {
            "counts": np.array([self._num_episodes, self._num_steps]),
            "episodes": np.array(list(self._finished), np.int64),
            "finished_at": np.array([each.finished_at for each in finished], np.int64),
            **nest({"records": pack_replay_records(records, action_space)}),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved history."""
        self._num_episodes, self._num_steps = state["counts"].tolist()
        records = unpack_replay_records(part_of(state, "records"))
        ended = map(_Finished, records, state["finished_at"].tolist())
        self._finished = dict(zip(state["episodes"].tolist(), ended, strict=True))


def histories_of(shard: Shard, keep_steps: int) -> list[ReplayHistory]:
    """Return a history for each environment of a shard.

    Each has numbers of its own, so that episodes have the same numbers whichever processes step the
    environments.

    Args:
        shard: the environments.
        keep_steps: see `ReplayHistory`, counted over all environments of the run.
    """
    kept = -(-keep_steps // shard.num_envs)
    return [ReplayHistory(kept, env, shard.num_envs) for env in range(shard.start, shard.stop)]


def record_in(state: Mapping[str, np.ndarray], episode: int) -> ReplayRecord:
    """Return the record of an episode from the saved state of environments that are replayed.

    Raises:
        LookupError: the episode finished more than `keep_steps` steps before.
    """
    history = part_of(state, "history")
    for numbers, records in (
        (state["episodes"], state),
        (history["episodes"], part_of(history, "records")),
    ):
        for place in np.flatnonzero(numbers == episode)[:1].tolist():
            return unpack_replay_records(slice_records(records, place, place + 1))[0]
    raise forgotten(episode)


def forgotten(episode: int) -> LookupError:
    """Return the error for an episode whose record is not kept."""
    return LookupError(
        f"The record of episode {episode} is not kept: episodes that finished long ago are "
        "dropped. Increase keep_steps."
    )


def actions_of(
    taken: Sequence[np.ndarray], action_space: gymnasium.Space
) -> Shaped[np.ndarray, "time ..."]:
    """Return actions as [T, ...] with the dtype and shape of their space."""
    # An explicit shape, because an empty list of actions has none.
    return np.array(taken, action_space.dtype).reshape(-1, *(action_space.shape or ()))


def pack_replay_records(
    records: Sequence[ReplayRecord], action_space: gymnasium.Space
) -> StateDict:
    """Pack records into three arrays."""
    none_taken = actions_of([], action_space)
    return {
        "reset_states": lines_to_array(record.reset_state for record in records),
        "lengths": np.array([len(record) for record in records], np.int64),
        "actions": np.concatenate([none_taken, *(record.actions for record in records)]),
    }


def unpack_replay_records(arrays: Mapping[str, np.ndarray]) -> list[ReplayRecord]:
    """Restore records from `pack_replay_records`."""
    reset_states = array_to_lines(arrays["reset_states"])
    actions = np.split(arrays["actions"], np.cumsum(arrays["lengths"]))[:-1]
    return [ReplayRecord(*each) for each in zip(reset_states, actions, strict=True)]


# --- records and histories of several environments ---


def slice_records(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> StateDict:
    """Return consecutive records among packed ones, packed as well."""
    ends = np.concatenate([[0], np.cumsum(arrays["lengths"])])
    return {
        "reset_states": lines_to_array(array_to_lines(arrays["reset_states"])[start:stop]),
        "lengths": arrays["lengths"][start:stop],
        "actions": arrays["actions"][ends[start] : ends[stop]],
    }


def pack_histories(histories: Sequence[ReplayHistory], action_space: gymnasium.Space) -> StateDict:
    """Pack one history per environment into a few arrays."""
    packed = [each.get_state(action_space) for each in histories]
    records = concatenated([part_of(each, "records") for each in packed])
    return {
        "counts": np.stack([each["counts"] for each in packed]),
        "num_finished": np.array([len(each["episodes"]) for each in packed]),
        "episodes": np.concatenate([each["episodes"] for each in packed]),
        "finished_at": np.concatenate([each["finished_at"] for each in packed]),
        **nest({"records": records}),
    }


def slice_histories(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> StateDict:
    """Return the histories of consecutive environments among packed ones, packed as well."""
    ends = np.concatenate([[0], np.cumsum(arrays["num_finished"])])
    first, last = int(ends[start]), int(ends[stop])
    return {
        "counts": arrays["counts"][start:stop],
        "num_finished": arrays["num_finished"][start:stop],
        "episodes": arrays["episodes"][first:last],
        "finished_at": arrays["finished_at"][first:last],
        **nest({"records": slice_records(part_of(arrays, "records"), first, last)}),
    }


def unpack_histories(histories: Sequence[ReplayHistory], arrays: Mapping[str, np.ndarray]) -> None:
    """Restore histories from `pack_histories`."""
    for env, history in enumerate(histories):
        own = slice_histories(arrays, env, env + 1)
        history.set_state(own | {"counts": own["counts"][0]})


def slice_state(state: Mapping[str, np.ndarray], start: int, stop: int) -> StateDict:
    """Return the state of some consecutive environments among that of all.

    Args:
        state: result of `StatefulVectorEnv.get_state`.
        start: number of the first environment.
        stop: number after the last one.
    """
    sliced: StateDict = {}
    if "lengths" in state:
        history = slice_histories(part_of(state, "history"), start, stop)
        sliced = slice_records(state, start, stop) | nest({"history": history})
    if "rng" in state:
        sliced["rng"] = lines_to_array(array_to_lines(state["rng"])[start:stop])
    rows = {name: array[start:stop] for name, array in state.items() if name not in sliced}
    return sliced | rows
