"""Reporting of a run: its status, metrics, diagnostics and latest episode."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.recorder import Episode, EpisodeWatcher
from rl_teacher.clips.renderer import ClipFile
from rl_teacher.clips.segment import frame_steps
from rl_teacher.common.timer import RunTimer
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.diagnostics import Diagnostics
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.history import EpisodeVideos, is_due
from rl_teacher.runs.status import Phase, RunStatus
from rl_teacher.store.store import Store

logger = logging.getLogger(__name__)

STATUS_EVERY_S = 1.0
EPISODE_EVERY_S = {"poses": 10.0, "video": 40.0}
"""Interval between two episodes on the page. A video is replayed and rendered, which takes a core
for about a second; poses cost nothing."""
MAX_EPISODE_SHARE = 0.05
"""Share of the time in which episodes are rendered, at most: comparisons wait meanwhile."""
EPISODES_KEPT = 4
"""Latest episodes whose clips are kept: a browser may still be loading an earlier one."""
DIAGNOSTICS_EVERY_S = 10.0

MetricsSink = Callable[[Mapping[str, Any]], None]


class MetricsLogger:
    """Metrics of one run. The store is authoritative; all other sinks receive copies."""

    def __init__(self, store: Store, experiment_id: int, experiment: Experiment) -> None:
        """Initialise with the store and the experiment's metrics file.

        Args:
            store: store of the experiment.
            experiment_id: the experiment's id in the store.
            experiment: experiment that receives a copy in `metrics.jsonl`.
        """
        self._store = store
        self._experiment_id = experiment_id
        self._experiment = experiment
        self._sinks: list[MetricsSink] = [experiment.metrics_file.append]

    def add_sink(self, sink: MetricsSink) -> None:
        """Send all further rows to another sink, such as TensorBoard or the terminal."""
        self._sinks.append(sink)

    def log(self, row: Mapping[str, Any]) -> None:
        """Log a row of metrics; `step` is the environment step it belongs to."""
        self._store.metrics.append(self._experiment_id, int(row["step"]), row)
        for sink in self._sinks:
            sink(row)

    def drop_after(self, step: int) -> None:
        """Delete the metrics of later steps, which a resumed run takes again."""
        self._store.metrics.drop_after(self._experiment_id, step)
        self._experiment.metrics_file.drop_after(step)


class StatusReporter:
    """Knows the status of a run; shows it on the page, and to the driver of the run.

    Attributes:
        listener: called with every status, at most a few times a second.
        waiting_since: time since which training waits for labels; None while it does not.
    """

    def __init__(
        self,
        store: Store,
        experiment_id: int,
        timer: RunTimer,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialise.

        Args:
            store: store of the experiment.
            experiment_id: the experiment's id in the store.
            timer: of the run; waiting for the database is no training time.
            now: clock in seconds, from any start.
        """
        self.listener: Callable[[RunStatus], None] | None = None
        self.waiting_since: datetime | None = None
        self._store = store
        self._experiment_id = experiment_id
        self._timer = timer
        self._now = now
        self._thread = threading.current_thread()
        self._latest: RunStatus | None = None
        self._phase: tuple[Phase, bool] | None = None
        self._stored_s = -np.inf

    def set(self, status: RunStatus) -> None:
        """Show a status; store it at once if the phase changed, otherwise at most once a second."""
        # Before it is stored, which may have to wait.
        self._latest = status
        phase = status.phase, status.is_extendable
        is_new = phase != self._phase
        if is_new:
            self.waiting_since = datetime.now(UTC) if status.phase is Phase.WAITING else None
        if is_new or self._now() - self._stored_s >= STATUS_EVERY_S:
            self._phase, self._stored_s = phase, self._now()
            since = self.waiting_since and self.waiting_since.isoformat()
            self._store.experiments.set_status(
                self._experiment_id, vars(status) | {"waiting_since": since}
            )
        if self.listener is not None:
            self.listener(status)

    @contextlib.contextmanager
    def waiting_for_database(self, since: datetime) -> Iterator[None]:
        """Show, in the thread of the run, that it waits for the database within the context.

        The database cannot store this status, so only the driver sees it.
        """
        before = self._latest
        if threading.current_thread() is not self._thread or before is None:
            yield
            return
        text = f"waiting for the database since {since.astimezone():%H:%M:%S}"
        labels_since, self.waiting_since = self.waiting_since, None
        if self.listener is not None:
            self.listener(RunStatus(Phase.WAITING, text, before.step, before.num_steps))
        with self._timer.paused():
            yield
        self.waiting_since = labels_since
        if self.listener is not None:
            self.listener(before)


class RunReporter:
    """Writes the diagnostics and the episodes of a run to the store.

    Attributes:
        videos: where videos of the episodes that are kept go; None to write none.
    """

    def __init__(
        self,
        store: Store,
        experiment_id: int,
        clip_renderer: ClipRenderer,
        watcher: EpisodeWatcher | None,
        now: Callable[[], float] = time.monotonic,
        *,
        has_predictor: bool = True,
    ) -> None:
        """Initialise.

        Args:
            store: store of the experiment.
            experiment_id: the experiment's id in the store.
            clip_renderer: renders the latest episode.
            watcher: records the latest episode; None to show no episodes.
            now: clock in seconds, from any start.
            has_predictor: False if the rewards are those of the environment.
        """
        self._store = store
        self._experiment_id = experiment_id
        self._clip_renderer = clip_renderer
        self._watcher = watcher
        self._now = now
        self._has_predictor = has_predictor
        self.videos: EpisodeVideos | None = None
        self._episode_s = self._diagnostics_s = -np.inf
        self._episode_clips: list[str] = []
        self._kept_step = store.episodes.last_step(experiment_id)

    def update_diagnostics(
        self, diagnose: Callable[[Set[str]], Diagnostics | None], step: int
    ) -> None:
        """Write diagnostics of the predictor, at most every `DIAGNOSTICS_EVERY_S` seconds.

        Args:
            diagnose: evaluates the predictor on clips, given by content hash.
            step: environment steps of training done.
        """
        if self._now() - self._diagnostics_s >= DIAGNOSTICS_EVERY_S:
            self.write_diagnostics(diagnose, step)

    def write_diagnostics(
        self, diagnose: Callable[[Set[str]], Diagnostics | None], step: int
    ) -> None:
        """Write diagnostics of the predictor; see `update_diagnostics`."""
        self._diagnostics_s = self._now()
        asked = self._store.comparisons.asked(self._experiment_id)
        shown = {each for c in asked if c.is_rendered for each in (c.left_hash, c.right_hash)}
        diagnostics = diagnose(shown)
        if diagnostics is not None:
            self._store.experiments.set_diagnostics(self._experiment_id, diagnostics.to_json(step))

    def watch(
        self,
        rollout: Rollout,
        predicted_rewards: Float32[np.ndarray, "time env"],
        step: int,
        num_steps: int,
    ) -> None:
        """Record a rollout; show the latest whole episode and keep it, each from time to time.

        Args:
            rollout: steps of all environments.
            predicted_rewards: [T, N].
            step: environment steps of training done.
            num_steps: planned steps of the run.
        """
        if self._watcher is None:
            return
        self._watcher.observe(rollout, predicted_rewards)
        episode, renderer = self._watcher.latest, self._clip_renderer
        every_s = max(EPISODE_EVERY_S[renderer.kind], renderer.episode_s / MAX_EPISODE_SHARE)
        is_kept = is_due(step, self._kept_step, num_steps)
        is_shown = is_kept or self._now() - self._episode_s >= every_s
        if episode is None or not is_shown:
            return
        self._watcher.latest, self._episode_s = None, self._now()
        self.show(episode, step, is_kept=is_kept)

    def drop_episodes_after(self, step: int) -> None:
        """Delete the episodes of later steps, which a resumed run records again."""
        for clip in self._store.episodes.drop_after(self._experiment_id, step):
            self._clip_renderer.forget(clip)
        self._kept_step = self._store.episodes.last_step(self._experiment_id)

    def write_missing_videos(self) -> None:
        """Write the videos of kept episodes that an earlier run has not written."""
        if self.videos is None:
            return
        written = self.videos.steps
        for episode in self._store.episodes.all(self._experiment_id):
            clip = self._clip_renderer.stored(episode["clip"])
            if episode["step"] not in written and clip is not None:
                self._clip_renderer.submit(partial(self._write_video, episode["step"], clip))

    def _write_video(self, step: int, clip: ClipFile) -> None:
        """Write the video of an episode; log the first failure and stop trying."""
        if self.videos is None:
            return
        try:
            self.videos.add(step, self._clip_renderer.to_mp4(clip))
        # Training continues, whatever is wrong with a video.
        except Exception as error:
            self.videos = None
            logger.warning(
                "No video of step %s is written, and none of later steps: %s", f"{step:,}", error
            )

    def show(self, episode: Episode, step: int, *, is_kept: bool, venv: object = None) -> None:
        """Render and publish an episode in the background.

        Args:
            episode: the episode.
            step: environment steps of training done.
            is_kept: whether it is kept as one of an earlier agent, too.
            venv: the environment of the episode; None for those of the run.
        """
        segment = episode.segment
        steps, _ = frame_steps(len(segment), self._clip_renderer.env_info.fps)
        predicted = episode.predicted_rewards if self._has_predictor else None
        shown = {
            "clip": segment.content_hash,
            "predicted_rewards": None if predicted is None else predicted[steps].round(3).tolist(),
            "predicted_return": None if predicted is None else float(predicted.sum()),
            "true_return": segment.true_return,
            "step": step,
        }

        # Runs in the thread of the renderer, which alone uses `_episode_clips`.
        def publish(clip: ClipFile) -> None:
            self._store.experiments.set_latest_episode(self._experiment_id, shown)
            if is_kept:
                self._store.episodes.add(self._experiment_id, shown)
                self._write_video(step, clip)
            # An episode that is shown again counts as new.
            others = [each for each in self._episode_clips if each != segment.content_hash]
            self._episode_clips = [*others, segment.content_hash]
            while len(self._episode_clips) > EPISODES_KEPT:
                self._clip_renderer.forget(self._episode_clips.pop(0))

        is_rendered = self._clip_renderer.render_if_possible(segment, publish, venv)
        # Otherwise the next episode is kept in its place.
        if is_kept and is_rendered:
            self._kept_step = step
