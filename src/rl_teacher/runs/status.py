"""The status_reporter: what a run tells whoever looks at its page.

How it stands, its figures, and its agent's latest episode, all through the store.
"""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.drawing import frame_steps
from rl_teacher.clips.episode import Episode, EpisodeWatcher
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import Diagnostics
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.store.store import Store

Phase = Literal[
    "starting", "random", "waiting", "fitting", "training", "paused", "finished", "stopped"
]

STATUS_EVERY_S = 1.0
EPISODE_EVERY_S = {"poses": 10.0, "video": 40.0}
"""A video is replayed and drawn, which takes a core for a second or so; poses take nothing."""
EPISODES_KEPT = 4
"""Of the clips that were hung, so many stay: somebody may just be loading the one before."""
DIAGNOSTICS_EVERY_S = 10.0


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        phase: in one word, for programs.
        says: in words, for people.
        step: environment steps of training done.
        num_steps: and to do in all.
        steps_per_second: None while it does not train.
    """

    phase: Phase
    says: str
    step: int
    num_steps: int
    steps_per_second: float | None = None


class StatusReporter:
    """Keeps one experiment's entry in the store up to date."""

    def __init__(
        self,
        store: Store,
        experiment_id: int,
        clip_renderer: ClipRenderer,
        watcher: EpisodeWatcher | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin an entry.

        Args:
            store: where it is kept.
            experiment_id: whose it is.
            clip_renderer: makes the clip of an episode.
            watcher: remembers the latest one; None where nobody is going to look.
            now: seconds, from any start.
        """
        self._store = store
        self._experiment_id = experiment_id
        self._clip_renderer = clip_renderer
        self._watcher = watcher
        self._now = now
        self._phase: Phase | None = None
        self._waiting_since: str | None = None
        self._told_s = self._shown_s = self._found_s = -np.inf
        self._hung: list[str] = []

    def stand(self, standing: RunStatus) -> None:
        """Say how the run stands: at once when its phase changes, else once a second."""
        if standing.phase == self._phase and self._now() - self._told_s < STATUS_EVERY_S:
            return
        if standing.phase != self._phase:
            is_waiting = standing.phase == "waiting"
            self._waiting_since = datetime.now(UTC).isoformat() if is_waiting else None
        self._phase, self._told_s = standing.phase, self._now()
        status = vars(standing) | {"waiting_since": self._waiting_since}
        self._store.experiments.set_status(self._experiment_id, status)

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Keep a row of figures for the curves."""
        self._store.metrics.append(self._experiment_id, int(row["step"]), row)

    def forget_after(self, step: int) -> None:
        """Forget the figures of steps that a resumed run is going to take again."""
        self._store.metrics.drop_after(self._experiment_id, step)

    def find(self, diagnostics_on: Callable[[Set[str]], Diagnostics | None], step: int) -> None:
        """Tell which clips the predictor likes, and how far it can be believed, now and then.

        Args:
            diagnostics_on: of clips that can be shown, by content hash.
            step: environment steps of training done.
        """
        if self._now() - self._found_s < DIAGNOSTICS_EVERY_S:
            return
        self._found_s = self._now()
        asked = self._store.comparisons.asked(self._experiment_id)
        shown = {each for c in asked if c.is_rendered for each in (c.left_hash, c.right_hash)}
        diagnostics = diagnostics_on(shown)
        if diagnostics is not None:
            self._store.experiments.set_diagnostics(self._experiment_id, diagnostics.to_json(step))

    def watch(
        self, rollout: Rollout, predicted_rewards: Float32[np.ndarray, "time env"], step: int
    ) -> None:
        """Watch the agent, and show its latest episode now and then."""
        if self._watcher is None:
            return
        self._watcher.observe(rollout, predicted_rewards)
        episode, every_s = self._watcher.latest, EPISODE_EVERY_S[self._clip_renderer.kind]
        if episode is None or self._now() - self._shown_s < every_s:
            return
        self._watcher.latest, self._shown_s = None, self._now()
        self._show(episode, step)

    def _show(self, episode: Episode, step: int) -> None:
        segment = episode.segment
        steps, _ = frame_steps(len(segment), self._clip_renderer.env_info.fps)
        shown = {
            "clip": segment.content_hash,
            "predicted_rewards": np.round(episode.predicted_rewards[steps], 3).tolist(),
            "true_return": segment.true_return,
            "step": step,
        }

        def hang() -> None:
            self._store.experiments.set_latest_episode(self._experiment_id, shown)
            self._take_down_before(segment.content_hash)

        self._clip_renderer.render_if_possible(segment, hang)

    def _take_down_before(self, newest: str) -> None:
        """Have older episodes' clips deleted; one that came up again counts as new."""
        self._hung = [*(each for each in self._hung if each != newest), newest]
        while len(self._hung) > EPISODES_KEPT:
            self._clip_renderer.forget(self._hung.pop(0))
