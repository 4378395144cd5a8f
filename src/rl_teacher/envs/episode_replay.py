"""Replay records, from which episodes of deterministic environments are reproduced.

The state of the random generator before the episode's reset, its options and the actions since
determine the whole episode.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Shaped

from rl_teacher.common.state_dict import StateDict, array_to_lines, lines_to_array
from rl_teacher.envs.interface import LINES, Shard

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

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        actions = self.actions
        return {
            "reset_state": self.reset_state,
            "actions": b64encode(actions.tobytes()).decode(),
            "dtype": actions.dtype.str,
            "shape": actions.shape,
        }

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "ReplayRecord":
        """Restore a record from `to_json`."""
        actions = np.frombuffer(b64decode(saved["actions"]), saved["dtype"])
        return ReplayRecord(saved["reset_state"], actions.reshape(saved["shape"]))


@runtime_checkable
class SupportsReplay(Protocol):
    """An environment that keeps replay records."""

    def replay_record(self, episode: int) -> ReplayRecord:
        """Return the record of an episode by its number.

        Raises:
            LookupError: the record is no longer kept.
        """
        ...


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
        # Records of finished episodes by number, and the step after which each finished.
        self._finished: dict[int, tuple[ReplayRecord, int]] = {}

    def start_episode(self) -> int:
        """Return the number of a new episode; numbers are unique."""
        self._num_episodes += 1
        return self._first + self._stride * (self._num_episodes - 1)

    def count_step(self) -> None:
        """Count an environment step."""
        self._num_steps += 1

    def end_episode(self, episode: int, record: ReplayRecord) -> None:
        """Keep a finished episode and drop those that finished too long ago."""
        self._finished[episode] = record, self._num_steps
        # A dict keeps the order of insertion: the episode that finished first comes first.
        while self._finished:
            oldest, (_, finished_at) = next(iter(self._finished.items()))
            if self._num_steps - finished_at < self._keep_steps:
                break
            del self._finished[oldest]

    def get(self, episode: int) -> ReplayRecord | None:
        """Return the record of a finished episode; None if it is not kept."""
        record, _ = self._finished.get(episode, (None, 0))
        return record

    def to_json(self) -> dict[str, Any]:
        """Return the whole history as JSON values."""
        finished = [
            {"episode": episode, "finished_at": finished_at, "record": record.to_json()}
            for episode, (record, finished_at) in self._finished.items()
        ]
        counts = {"num_episodes": self._num_episodes, "num_steps": self._num_steps}
        return {**counts, "finished": finished}

    def load_json(self, saved: Mapping[str, Any]) -> None:
        """Restore a history from `to_json`."""
        self._num_episodes, self._num_steps = saved["num_episodes"], saved["num_steps"]
        self._finished = {
            each["episode"]: (ReplayRecord.from_json(each["record"]), each["finished_at"])
            for each in saved["finished"]
        }


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


def find_record(histories: Iterable[ReplayHistory], episode: int) -> ReplayRecord:
    """Return the record of a finished episode.

    Raises:
        LookupError: the episode finished too long ago.
    """
    for history in histories:
        if (record := history.get(episode)) is not None:
            return record
    raise forgotten(episode)


def record_in(state: Mapping[str, np.ndarray], episode: int) -> ReplayRecord:
    """Return the record of an episode from the saved state of environments that are replayed.

    Raises:
        LookupError: the episode finished more than `keep_steps` steps before.
    """
    running = zip(state["episodes"].tolist(), array_to_lines(state["running"]), strict=True)
    records = dict(running)
    for history in array_to_lines(state["histories"]):
        records |= {each["episode"]: each["record"] for each in history["finished"]}
    if episode in records:
        return ReplayRecord.from_json(records[episode])
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


def pack_replays(running: Iterable[ReplayRecord], histories: Iterable[ReplayHistory]) -> StateDict:
    """Return the records of running episodes and the histories, a line for each environment."""
    return {
        "running": lines_to_array(record.to_json() for record in running),
        "histories": lines_to_array(history.to_json() for history in histories),
    }


def unpack_running(state: Mapping[str, np.ndarray]) -> list[ReplayRecord]:
    """Return the records of the running episodes from `pack_replays`."""
    return [ReplayRecord.from_json(saved) for saved in array_to_lines(state["running"])]


def unpack_histories(histories: Iterable[ReplayHistory], state: Mapping[str, np.ndarray]) -> None:
    """Restore histories from `pack_replays`."""
    for history, saved in zip(histories, array_to_lines(state["histories"]), strict=True):
        history.load_json(saved)


def slice_state(state: Mapping[str, np.ndarray], start: int, stop: int) -> StateDict:
    """Return the state of some consecutive environments among that of all.

    Args:
        state: result of `StatefulVectorEnv.get_state`.
        start: number of the first environment.
        stop: number after the last one.
    """
    return {
        name: lines_to_array(array_to_lines(array)[start:stop])
        if name in LINES
        else array[start:stop]
        for name, array in state.items()
    }
