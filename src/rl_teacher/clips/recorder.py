"""Recorders of steps: a ring buffer from which segments are sampled, and the latest episode.

K: steps kept per environment, N: environments, L: steps of a segment, C: segments, T: steps of an
episode.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped

from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout

COLUMNS = (*SEGMENT_ARRAYS, "ended", "is_valid", "terminated")
DRAWS_PER_SEGMENT = 8
"""First steps drawn in a round for each wanted segment; those where none can start are rejected."""
MAX_ROUNDS = 40
"""Rounds of draws. In short episodes most draws are rejected: a segment starts at the first step
only."""


@dataclass(frozen=True)
class SegmentSpans:
    """The positions of C segments in a recorder's buffer.

    Attributes:
        first: [C] first step, counted from the oldest kept step.
        env: [C] index of the environment.
        num_steps: [C] length: L, or less if the whole episode is shorter or the recorder shows
            ends.
    """

    first: Int64[np.ndarray, " segment"]
    env: Int64[np.ndarray, " segment"]
    num_steps: Int64[np.ndarray, " segment"]

    def __len__(self) -> int:
        return len(self.first)

    def take(self, chosen: slice | Int64[np.ndarray, " chosen"]) -> "SegmentSpans":
        """Select some of the segments."""
        return SegmentSpans(self.first[chosen], self.env[chosen], self.num_steps[chosen])

    def overlaps(self, other: "SegmentSpans") -> Bool[np.ndarray, " segment"]:
        """Return [C], whether each segment shares steps with the other's at the same position."""
        starts_before_end = self.first < other.first + other.num_steps
        ends_after_start = other.first < self.first + self.num_steps
        return (self.env == other.env) & starts_before_end & ends_after_start


class Recorder:
    """A ring buffer of the latest steps of all environments."""

    def __init__(
        self, env_id: str, *, segment_steps: int, capacity: int, shows_ends: bool = False
    ) -> None:
        """Create an empty recorder.

        Args:
            env_id: id of the environment, for the segments.
            segment_steps: L.
            capacity: K; at least L.
            shows_ends: also sample segments that a termination cuts short. The missing steps earn
                nothing, so the labels show that terminating is bad (or good).
        """
        self._env_id = env_id
        self.segment_steps = segment_steps
        self._capacity = max(capacity, segment_steps)
        self._shows_ends = shows_ends
        self._ring: dict[str, np.ndarray] = {}
        self._written = 0

    @property
    def num_steps(self) -> int:
        """The number of steps kept per environment."""
        return min(self._written, self._capacity)

    def observe(self, rollout: Rollout) -> None:
        """Add a rollout; the oldest steps are overwritten."""
        columns = {name: getattr(rollout, name)[-self._capacity :] for name in COLUMNS}
        if not self._ring:
            self._ring = {
                name: np.zeros((self._capacity, *column.shape[1:]), column.dtype)
                for name, column in columns.items()
            }
        num_new = len(columns["rewards"])
        places = np.arange(self._written, self._written + num_new) % self._capacity
        for name, column in columns.items():
            self._ring[name][places] = column
        self._written += num_new

    def end_episodes(self) -> None:
        """End all episodes at the newest step: the environments start new ones."""
        if self.num_steps:
            self._ring["ended"][self._ring_positions(np.array([self.num_steps - 1]))] = True

    def _ring_positions(self, steps: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
        """Return the ring positions of steps; step 0 is the oldest kept."""
        return (self._written - self.num_steps + steps) % self._capacity

    def cut(self, num: int, rng: np.random.Generator, newest: int | None = None) -> SegmentSpans:
        """Sample segments, each within one episode.

        An episode shorter than L is one whole segment; of a longer one, any L steps are. If ends
        are shown, the last steps of a terminated episode are a segment too, however few.

        Args:
            num: segments wanted.
            rng: generator of the caller.
            newest: steps per environment, counted from the newest, that they are cut from; all by
                default.

        Returns:
            `num` positions; fewer, possibly none, while the buffer holds too few steps.
        """
        parts: list[SegmentSpans] = []
        for _ in range(MAX_ROUNDS if self.num_steps else 0):
            parts.append(self._draw(num * DRAWS_PER_SEGMENT, rng, newest or self._capacity))
            if sum(map(len, parts)) >= num:
                break
        columns = [[getattr(p, name) for p in parts] for name in ("first", "env", "num_steps")]
        empty = np.zeros(0, np.int64)  # so that no parts are no segments
        return SegmentSpans(*(np.concatenate([empty, *column])[:num] for column in columns))

    def _draw(self, num: int, rng: np.random.Generator, newest: int) -> SegmentSpans:
        """Draw first steps and keep those at which a segment can start."""
        first = rng.integers(max(self.num_steps - newest, 0), self.num_steps, num)
        env = rng.integers(0, self._ring["ended"].shape[1], num)
        # [num, L] the steps of each draw; past the newest step, that step again.
        window = np.minimum(first[:, None] + np.arange(self.segment_steps), self.num_steps - 1)
        ended = self._ring["ended"][self._ring_positions(window), env[:, None]]
        ends_within = ended.any(1)
        # `argmax` finds the first True.
        num_steps = np.where(ends_within, ended.argmax(1) + 1, self.segment_steps)
        is_full = (num_steps == self.segment_steps) & (first + self.segment_steps <= self.num_steps)
        before = self._ring_positions(np.maximum(first - 1, 0))
        follows_an_end = self._ring["ended"][before, env] | ~self._ring["is_valid"][before, env]
        # A shorter segment must be a whole episode. That of step 0 may have begun before the
        # buffer.
        usable = is_full | (ends_within & follows_an_end & (first > 0))
        if self._shows_ends:
            last = self._ring_positions(first + num_steps - 1)
            usable |= ends_within & self._ring["terminated"][last, env]
        usable &= self._ring["is_valid"][self._ring_positions(first), env]
        return SegmentSpans(first, env, num_steps).take(np.nonzero(usable)[0])

    def gather(
        self, name: str, cuts: SegmentSpans, stride: int = 1
    ) -> tuple[Shaped[np.ndarray, "segment time ..."], Bool[np.ndarray, "segment time"]]:
        """Return one column of many segments.

        Args:
            name: name of the column.
            cuts: C segments.
            stride: k, to return every k-th step only.

        Returns:
            [C, L/k, ...] the column, and [C, L/k] True for real steps; padded ones repeat the last.
        """
        time = np.arange(0, self.segment_steps, stride)
        is_real = time < cuts.num_steps[:, None]
        steps = cuts.first[:, None] + np.minimum(time, cuts.num_steps[:, None] - 1)
        return self._ring[name][self._ring_positions(steps), cuts.env[:, None]], is_real

    def segments(self, cuts: SegmentSpans) -> list[Segment]:
        """Copy segments out of the buffer."""
        segments = []
        for first, env, num_steps in zip(cuts.first, cuts.env, cuts.num_steps, strict=True):
            places = self._ring_positions(first + np.arange(num_steps))
            columns = {name: self._ring[name][places, env] for name in SEGMENT_ARRAYS}
            segments.append(Segment(self._env_id, **columns))
        return segments

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, without the unfilled part."""
        # Once the buffer has wrapped around, all of it is filled. Places are kept, so that
        # `written` locates the oldest step after loading too.
        filled = {name: column[: self.num_steps] for name, column in self._ring.items()}
        return {"written": np.asarray(self._written), **filled}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a saved state, possibly of a recorder with another capacity."""
        self._written, self._ring = int(state["written"]), {}
        saved = {name: state[name] for name in COLUMNS if name in state}
        if not saved:
            return
        num_saved = len(saved["ended"])
        if num_saved != self.num_steps:
            # Places follow from the capacity: here, the newest steps begin at the first place. A
            # buffer that has wrapped around has its oldest step at `written` modulo its capacity.
            oldest_first = {name: np.roll(each, -self._written, 0) for name, each in saved.items()}
            saved = {name: each[-self._capacity :] for name, each in oldest_first.items()}
            self._written = min(num_saved, self._capacity)
        for name, filled in saved.items():
            self._ring[name] = np.zeros((self._capacity, *filled.shape[1:]), filled.dtype)
            self._ring[name][: len(filled)] = filled


@dataclass(frozen=True)
class Episode:
    """A complete episode.

    Attributes:
        segment: all its steps.
        predicted_rewards: [T] the predicted rewards that the agent was trained on.
    """

    segment: Segment
    predicted_rewards: Float32[np.ndarray, " time"]


class EpisodeWatcher:
    """A watcher of the first environment that keeps its latest complete episode."""

    def __init__(self, env_id: str, *, starts_at_reset: bool) -> None:
        """Start watching.

        Args:
            env_id: id of the environment.
            starts_at_reset: whether the first rollout starts an episode.
        """
        self._env_id = env_id
        self._is_complete = starts_at_reset
        self._parts: list[dict[str, np.ndarray]] = []
        self.latest: Episode | None = None

    def observe(self, rollout: Rollout, predicted_rewards: Float32[np.ndarray, "time env"]) -> None:
        """Add the first environment's steps of a rollout."""
        columns = {name: getattr(rollout, name)[:, 0] for name in SEGMENT_ARRAYS}
        columns["predicted"] = predicted_rewards[:, 0]
        begin = 0
        # One turn per part of the rollout: the ends of episodes, then the episode that continues.
        for end in [*(np.flatnonzero(rollout.ended[:, 0]) + 1), None]:
            valid = np.flatnonzero(rollout.is_valid[begin:end, 0]) + begin
            if self._is_complete and len(valid):
                self._parts.append({name: column[valid] for name, column in columns.items()})
            if end is None:
                return
            if self._parts:
                names = self._parts[0]
                arrays = {name: np.concatenate([p[name] for p in self._parts]) for name in names}
                predicted = arrays.pop("predicted")
                self.latest = Episode(Segment(self._env_id, **arrays), predicted)
            self._parts, self._is_complete, begin = [], True, int(end)
