"""The latest complete episode of one environment, for display.

T: steps of the episode.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.segment import Segment
from rl_teacher.envs.rollout import Rollout

COLUMNS = ("observations", "actions", "rewards", "scene_states")


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

    def __init__(self, env_id: str, *, begins_whole: bool) -> None:
        """Start watching.

        Args:
            env_id: id of the environment.
            begins_whole: whether the first rollout starts at the start of an episode.
        """
        self._env_id = env_id
        self._is_complete = begins_whole
        self._parts: list[dict[str, np.ndarray]] = []
        self.latest: Episode | None = None

    def observe(self, rollout: Rollout, predicted_rewards: Float32[np.ndarray, "time env"]) -> None:
        """Add the first environment's steps of a rollout."""
        columns = {name: getattr(rollout, name)[:, 0] for name in COLUMNS}
        columns["predicted"] = predicted_rewards[:, 0]
        begin = 0
        for end in np.flatnonzero(rollout.ended[:, 0]) + 1:
            self._keep(columns, slice(begin, end), rollout.is_valid[:, 0])
            self._finish()
            begin = int(end)
        self._keep(columns, slice(begin, None), rollout.is_valid[:, 0])

    def _keep(self, columns: dict[str, np.ndarray], steps: slice, is_valid: np.ndarray) -> None:
        valid = is_valid[steps]
        if self._is_complete and valid.any():
            self._parts.append({name: a[steps][valid] for name, a in columns.items()})

    def _finish(self) -> None:
        if self._parts:
            names = self._parts[0]
            arrays = {name: np.concatenate([p[name] for p in self._parts]) for name in names}
            predicted = arrays.pop("predicted")
            self.latest = Episode(Segment(self._env_id, **arrays), predicted)
        self._parts, self._is_complete = [], True
