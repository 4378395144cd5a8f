"""The session: everything of a run that does not depend on who steps the environments.

`teach` and the Gymnasium wrappers drive the same `PreferenceSession`. They provide rollouts and
decide what to do with the rewards; the session owns the experiment's folder and store entry, asks
and fits, waits for answers, follows the owner's commands, logs, saves and resumes.
"""

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rl_teacher.agents.episode_stats import EpisodeReturns
from rl_teacher.clips.recorder import Episode, EpisodeWatcher
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import (
    INVALID_CONTENT,
    CorruptCheckpoint,
)
from rl_teacher.common.files import folder_errors
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.common.text import counted
from rl_teacher.common.timer import RunTimer
from rl_teacher.config.experiment import UNLIMITED_STEPS
from rl_teacher.envs.rollout import Rollout
from rl_teacher.quality.warnings import BY_REWARD, label_warnings
from rl_teacher.queries.queue import QueryStore
from rl_teacher.queries.schedules import Progress
from rl_teacher.rewards.learner import RewardLearner
from rl_teacher.rewards.source import Metrics, RewardedRollout, RewardSource
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.runs.control import RunControl
from rl_teacher.runs.folder import segment_files
from rl_teacher.runs.opening import OpenExperiment
from rl_teacher.runs.reporting import MetricsLogger, RunReporter, StatusReporter
from rl_teacher.runs.status import Phase, RunStatus
from rl_teacher.store.checkpoints import Checkpoint

logger = logging.getLogger(__name__)

REPORT_EVERY_S, MAX_REPORTING_SHARE = 1.0, 0.03
PACE_REPORTS, MIN_PACE_S = 30, 0.5
"""Reports over which the speed is measured, at most, and seconds of training, at least."""
WAITING_POLL_S = 0.2
MAX_SAVING_SHARE = 0.1
"""Share of the time that may be spent on checkpoints; a replay buffer may be large."""
CLIP_CHECK_S = 10.0
"""Time between two checks that the clips of waiting comparisons can be shown."""
CLEARLY_BEATS = 0.75
"""`beats_untrained` above which the page shows the milestone."""
RECENT_EPISODES = 10
"""Episodes over which returns and lengths are averaged for teachers that adapt to the agent."""


class Checkpointable(Protocol):
    """A part of a run that is saved in its checkpoints."""

    def state(self) -> StateDict:
        """Return everything needed to resume exactly."""
        ...

    def load_state(self, state: StateDict, /) -> None:
        """Restore a saved state."""
        ...


def query_store(experiment: OpenExperiment, renderer: ClipRenderer) -> QueryStore:
    """Return where queries are stored; clips are rendered if a person looks at them."""
    display = renderer if experiment.spec.asks_a_person else None
    return QueryStore(experiment.store, experiment.id, segment_files(), display)


@dataclass(frozen=True)
class SessionSettings:
    """Settings in which the drivers of a session differ.

    Attributes:
        num_envs: N, environments of a rollout.
        num_steps: environment steps of the whole run, unless the owner changes them.
        starts_with_whole_episodes: False if the first episodes are shorter than later ones, so
            that their returns are left out.
        records_episodes: whether the page shows the agent's latest episode.
        repeats_steps: whether a resumed run repeats the steps after its checkpoint, so that
            synthetic comparisons asked there are asked again.
        checkpoint_seconds: time between two checkpoints; infinity for no limit.
        checkpoint_steps: environment steps between two checkpoints; infinity for no limit.
        has_videos: whether videos of episodes are written.
    """

    num_envs: int
    num_steps: int
    starts_with_whole_episodes: bool
    records_episodes: bool
    repeats_steps: bool
    checkpoint_seconds: float = math.inf
    checkpoint_steps: float = math.inf
    has_videos: bool = False


class PreferenceSession:
    """One run of an experiment.

    Attributes:
        experiment: the opened experiment.
        rewards: source of the rewards.
        learner: the same source if it learns from labels; otherwise None, and nothing is asked.
        renderer: renders the clips of segments and episodes.
        metrics: logger; drivers add their sinks.
        status: shows the status of the run on the page, and to the driver.
        control: commands of the owner.
        stop: set to end the run; Ctrl-C and the owner's stop request it.
        on_new_rewards: called when other rewards are predicted for the same steps: after every fit,
            and when the owner has switched back from the true reward.
        losses: latest metrics of the driver's agent, which are logged.
        step: environment steps taken.
        num_steps: environment steps of the whole run, as the owner wants them.
        schedule_step: the same without evaluation, which the label schedule does not count.
    """

    def __init__(
        self,
        experiment: OpenExperiment,
        rewards: RewardSource,
        renderer: ClipRenderer,
        settings: SessionSettings,
    ) -> None:
        self.experiment = experiment
        self.rewards = rewards
        self.learner = rewards if isinstance(rewards, RewardLearner) else None
        self.metrics = MetricsLogger(experiment.store, experiment.id, experiment.folder)
        self.control = RunControl(experiment.store, experiment.id)
        self.stop = threading.Event()
        self.on_new_rewards: Callable[[], None] | None = None
        self.step = self.schedule_step = 0
        self.num_steps = settings.num_steps
        self._gave_true_rewards = False
        # Given by the last label, where the number of steps follows from the labels.
        self._last_step: int | None = None
        # A milestone is reached once, also if a resumed run repeats the steps before it.
        status = experiment.store.experiments.get(experiment.folder.name).status or {}
        self._beats_untrained = bool(status.get("beats_untrained"))
        self._settings = settings
        self.timer = RunTimer()
        # Seconds and steps of training at the latest reports.
        self._reports: deque[tuple[float, int]] = deque(maxlen=PACE_REPORTS)
        self.status = StatusReporter(experiment.store, experiment.id, self.timer)
        experiment.wait.is_stopped = self.stop.is_set
        experiment.wait.report = self.status.waiting_for_database
        self.renderer = renderer
        watcher = None
        if settings.records_episodes:
            # Training, and a resumed run, begin in the middle of an episode.
            watcher = EpisodeWatcher(experiment.spec.env_info.id, starts_at_reset=False)
        self._reporter = RunReporter(
            experiment.store,
            experiment.id,
            renderer,
            watcher,
            has_predictor=rewards.predictor is not None,
        )
        if settings.has_videos:
            self._reporter.videos = experiment.folder.videos
        self._true_returns = EpisodeReturns(
            settings.num_envs, starts_at_reset=settings.starts_with_whole_episodes
        )
        # Predicted rewards exist from the start of training on, in the middle of episodes.
        self._predicted_returns = EpisodeReturns(settings.num_envs, starts_at_reset=False)
        self._parts: dict[str, Checkpointable] = {
            **({} if self.learner is None else {"rewards": self.learner}),
            "true": self._true_returns,
            "predicted": self._predicted_returns,
        }
        self._resumed_step = self._training_steps_this_run = 0
        self.losses: Metrics = {}
        self._last_metrics: Metrics = {}
        self._reported_s, self._report_took_s = -math.inf, 0.0
        self._warned: set[str] = set()
        self._saved_s, self._saving_took_s, self._saved_step = time.monotonic(), 0.0, 0
        self._checked_s = -math.inf

    # --- resume ---

    def resume(self, parts: Mapping[str, Checkpointable] | None = None) -> bool:
        """Restore the latest checkpoint; return whether there was one.

        Args:
            parts: parts of the driver that its checkpoints contain, by name.

        Raises:
            CorruptCheckpoint: no checkpoint can be read, or it has other parts.
        """
        self._parts |= parts or {}
        folder = self.experiment.folder
        checkpoint = folder.checkpoints.load()
        if checkpoint is not None:
            place = f"The checkpoint of step {checkpoint.step:,} of {folder.name}"
            for name, part in self._parts.items():
                with checkpoint_errors(place, name):
                    part.load_state(part_of(checkpoint.arrays, name))
            self.step = self._saved_step = self._resumed_step = checkpoint.step
            with checkpoint_errors(place, "progress"):
                self.schedule_step = int(checkpoint.meta["schedule_step"])
                self._gave_true_rewards = bool(checkpoint.meta["gave_true_rewards"])
                last_step = checkpoint.meta["last_step"]
                self._last_step = None if last_step is None else int(last_step)
                self.timer.resume(checkpoint.meta["timer"])
            self.set_phase(Phase.STARTING, f"resuming at step {checkpoint.step:,}")
            # The owner may have cleared settings that the checkpoint contains, and a wrapper may
            # have another number of labels. After progress is restored, from which on they apply.
            self.follow_plan()
        repeats_queries = self._settings.repeats_steps and not self.experiment.spec.asks_a_person
        if self.learner is not None and not repeats_queries:
            self.learner.queue.recover()
        # A killed run may have left clips unrendered.
        self._withdraw_hidden()
        # Rows after the checkpoint will be logged again.
        self.metrics.drop_after(self.step)
        self._reporter.drop_episodes_after(self.step)
        folder.videos.drop_after(self.step)
        self._reporter.write_missing_videos()
        self._saved_s = time.monotonic()
        return checkpoint is not None

    def restart_episodes(self) -> None:
        """Discard the returns of running episodes: the environments start new ones."""
        self._true_returns.restart(starts_at_reset=self._settings.starts_with_whole_episodes)
        self._predicted_returns.restart(starts_at_reset=False)

    # --- act and learn ---

    def observe(self, rollout: Rollout, *, is_training: bool = True) -> RewardedRollout:
        """Record a rollout and compute its rewards, or return the true ones if the owner says so.

        Args:
            rollout: steps of all environments.
            is_training: False before training, when there are no predicted returns to report.
        """
        rewarded = self.rewards.observe(rollout)
        self.count_episodes(rollout)
        uses_true_reward = self.control.uses_true_reward
        if is_training:
            is_back_to_predicted = self._gave_true_rewards and not uses_true_reward
            self._gave_true_rewards = uses_true_reward
            if is_back_to_predicted and self.on_new_rewards is not None:
                self.on_new_rewards()
            if self.learner is None:
                self._predicted_returns.observe(rollout, rewarded.rewards)
            self._reporter.watch(rollout, rewarded.rewards, self.step, self.known_steps)
            self._last_metrics = rewarded.metrics
        if uses_true_reward:
            return replace(rewarded, rewards=rollout.rewards)
        return rewarded

    def count_episodes(self, rollout: Rollout) -> None:
        """Record the true returns of a rollout's episodes."""
        self._true_returns.observe(rollout, rollout.rewards)

    def count_steps(self, num_steps: int, *, is_training: bool = True) -> None:
        """Count environment steps of training, or of the exploration before it."""
        self.step += num_steps
        self.schedule_step += num_steps
        if is_training:
            self._training_steps_this_run += num_steps

    def count_evaluation(self, rollout: Rollout) -> None:
        """Count a rollout from which nothing is learned."""
        self.count_episodes(rollout)
        self.step += rollout.num_steps

    @property
    def progress(self) -> Progress:
        """Progress of training."""
        seconds = self.timer.training_s
        return Progress(self.schedule_step, seconds, is_training=seconds > 0)

    def ask(self, limit: int | None = None, *, are_last: bool = False) -> int:
        """Ask the comparisons that are due; return how many were asked.

        Args:
            limit: comparisons of the run, those asked so far included; None: no limit.
            are_last: ask a synthetic teacher even if they are too few for another fit.
        """
        if self.learner is None:
            return 0
        self._withdraw_hidden()
        recent = self._true_returns.recent(RECENT_EPISODES)
        return self.learner.ask(self.progress, recent, limit, are_last=are_last)

    def _withdraw_hidden(self) -> None:
        """Withdraw waiting comparisons whose clips cannot be shown, from time to time."""
        if self.learner is not None and time.monotonic() - self._checked_s >= CLIP_CHECK_S:
            self.learner.queue.withdraw_hidden()
            self._checked_s = time.monotonic()

    def fit(self, *, force: bool = False) -> bool:
        """Fit the predictor if enough answers have arrived; return whether a fit was completed.

        Args:
            force: fit even if there are no new labels.
        """
        return self._complete(lambda learner: learner.fit(force=force))

    def finish_fit(self) -> bool:
        """Wait for a fit in the background; return whether there was one."""
        return self._complete(RewardLearner.finish_fit)

    def use_last_labels(self) -> None:
        """Fit to all labels that are due at the end, even if they are too few for another fit.

        A synthetic teacher is asked for those that waited for the next fit.
        """
        if not self.experiment.spec.asks_a_person:
            while self.ask(are_last=True):
                pass
        self._complete(RewardLearner.fit_remaining)

    def _complete(self, fit: Callable[[RewardLearner], bool]) -> bool:
        """Fit, and let the driver and labelers see what labels have changed in the predictor."""
        if self.learner is None:
            return False
        with self.timer.part("fit"):
            is_fitted = fit(self.learner)
        if is_fitted and self.on_new_rewards is not None:
            self.on_new_rewards()
        if is_fitted and self.experiment.spec.asks_a_person:
            self._reporter.write_diagnostics(self.learner.diagnostics, self.step)
        return is_fitted

    # --- owner and labelers ---

    def should_continue(self) -> bool:
        """Apply the owner's commands; return False if the run should stop.

        Blocks while the run is paused.

        Raises:
            ExperimentInUse: another trainer has taken the experiment over.
        """
        self.follow_plan()
        if self.control.is_paused:
            self._pause()
        return not self.is_stop_requested()

    def is_stop_requested(self) -> bool:
        """Return whether the run should stop, without waiting while it is paused."""
        if self.control.is_stopped:
            self.stop.set()
        return self.stop.is_set()

    def follow_plan(self) -> None:
        """Apply the owner's settings: the rate and the number of labels, and the steps.

        Raises:
            ExperimentInUse: another trainer has taken the experiment over.
        """
        self.experiment.lock.check()
        wanted = self.control.latest()
        self.num_steps = wanted.target_steps or self._last_step or self._settings.num_steps
        if self.learner is None:
            return
        planner, progress = self.learner.planner, self.progress
        planner.follow(progress, wanted.seconds_between, wanted.target_labels, self.known_steps)
        if self._last_step is None and progress.is_training:
            self._last_step = planner.last_step(self.step)

    def _pause(self) -> None:
        """Save, and only read answers until the owner resumes or the run is stopped."""
        # A paused run may be ended at any time, and resumes from here.
        if self.progress.is_training and self.has_stepped:
            self.save()
        with self.timer.paused():
            while self.control.is_paused and not self.stop.is_set():
                if self.learner is not None:
                    self.learner.read_answers()
                self.set_phase(Phase.PAUSED, "paused on the page; resume or stop it there")
                time.sleep(WAITING_POLL_S)

    def wait_for_answers(self, then: str, num: int | None = None) -> None:
        """Wait until this many comparisons are answered, or none waits for an answer.

        Comparisons that depend on the answers are asked meanwhile.

        Args:
            then: what happens after that, for people.
            num: comparisons; None for those before training.
        """

        def num_missing(learner: RewardLearner) -> int:
            wanted = learner.planner.budget.pretraining if num is None else num
            missing = wanted - learner.read_answers()
            self.ask()
            return missing if learner.queue.num_waiting else 0

        self._wait(num_missing, then)

    def wait_for_due_labels(self) -> None:
        """Wait until all labels are given that are due at this step of training."""

        def num_missing(learner: RewardLearner) -> int:
            learner.read_answers()
            self.ask()
            return learner.planner.num_missing(self.progress)

        self._wait(num_missing, "training continues")

    def _wait(self, num_missing: Callable[[RewardLearner], int], then: str) -> None:
        """Wait until no label is missing."""
        if self.learner is None:
            return
        with self.timer.paused():
            while (missing := num_missing(self.learner)) > 0 and self.should_continue():
                labels = counted(missing, "more label")
                self.set_phase(Phase.WAITING, f"{labels} until {then}", missing)
                # No answers are read during a fit in the background.
                self.finish_fit()
                time.sleep(WAITING_POLL_S)

    def wait_for_extension(self) -> bool:
        """Wait, at the end, until the owner extends the run; return False if it is stopped."""
        text = "finished; extend it on the page, or end with Ctrl-C"
        with self.timer.paused():
            while not self.stop.is_set() and not self.control.is_stopped:
                self.follow_plan()
                if self.step < self.num_steps:
                    return True
                self.set_phase(Phase.FINISHED, text, is_extendable=True)
                time.sleep(WAITING_POLL_S)
        return False

    # --- report ---

    def set_phase(
        self, phase: Phase, text: str, num_missing: int = 0, *, is_extendable: bool = False
    ) -> None:
        """Report the phase.

        Args:
            phase: of the run.
            text: description for people.
            num_missing: labels that the run waits for.
            is_extendable: whether the run has finished and waits to be extended.
        """
        rate = self.steps_per_second if phase is Phase.TRAINING else None
        problems = self._problems()
        since = self.renderer.waiting_since
        if since is not None:
            waiting = f"clips wait for their upload since {since.astimezone():%H:%M:%S}"
            text = f"{text}; {waiting}"
            problems["upload"] = f"{waiting.capitalize()}: their storage does not answer."
        self.status.set(
            RunStatus(
                phase,
                text,
                self.step,
                num_steps=max(self.known_steps, self.step) if self.known_steps else 0,
                steps_per_second=rate,
                num_missing=num_missing,
                problems=problems,
                is_extendable=is_extendable,
                num_fits=0 if self.learner is None else self.learner.num_fits,
                beats_untrained=self._beats_untrained,
            )
        )

    @property
    def known_steps(self) -> int:
        """Environment steps of the whole run; 0 if they are not known, as in many wrappers."""
        return 0 if self.num_steps >= UNLIMITED_STEPS else self.num_steps

    @property
    def steps_per_second(self) -> float | None:
        """Environment steps per second of recent training, without waiting; None if unknown.

        It counts from the first report on, which follows a step that compiles.
        """
        reports = [*self._reports] or [(0.0, 0)]
        seconds, steps = np.subtract(reports[-1], reports[0])
        return float(steps / seconds) if seconds >= MIN_PACE_S else None

    def _problems(self) -> dict[str, str]:
        """Return warnings for the person who labels; log each when it first applies."""
        spec = self.experiment.spec
        if not spec.asks_a_person or self.learner is None:
            return {}
        warnings = label_warnings(self.learner.metrics())
        for kind, text in warnings.items():
            if kind not in self._warned and not (kind in BY_REWARD and spec.instructions):
                self._warned.add(kind)
                logger.warning("%s: %s", spec.name, text)
        return warnings

    def report_if_due(self, phase: Phase = Phase.TRAINING) -> None:
        """Log metrics, diagnostics and the phase, at most every `REPORT_EVERY_S` seconds.

        With images, reports are slow, and less frequent: see `MAX_REPORTING_SHARE`.
        """
        interval = max(REPORT_EVERY_S, self._report_took_s / MAX_REPORTING_SHARE)
        if time.monotonic() - self._reported_s >= interval:
            self.report()
            if self.learner is not None:
                self._reporter.update_diagnostics(self.learner.diagnostics, self.step)
            self.set_phase(phase, "training")

    def report(self) -> None:
        """Log a row of metrics."""
        began_s = time.monotonic()
        if self._training_steps_this_run:
            done = self.timer.training_this_run_s, self._training_steps_this_run
            self._reports.append(done)
        row: dict[str, Any] = {
            "step": self.step,
            "wall_s": self.timer.wall_s,
            "training_s": self.timer.training_s,
            "steps_per_second": self.steps_per_second,
            **{f"{part}_s": seconds for part, seconds in self.timer.parts_s.items()},
            "true_return": self._true_returns.mean_return(),
            "episodes": self._true_returns.num_finished,
            **({} if self.learner is None else self.learner.metrics()),
            **self.losses,
            **self._last_metrics,
        }
        if self.control.latest().reward is not None:
            row["uses_true_reward"] = int(self.control.uses_true_reward)
        if self.learner is not None:
            # Here and not after each rollout: it takes 10 ms, or 150 ms with images.
            row["beats_untrained"] = self.learner.beats_untrained()
            self._beats_untrained |= row["beats_untrained"] > CLEARLY_BEATS
        elif self.rewards.predictor is not None:
            # Only a predictor that never changes has returns that can be compared over time.
            row["predicted_return"] = self._predicted_returns.mean_return()
        self.metrics.log(row)
        self._reported_s = time.monotonic()
        self._report_took_s = self._reported_s - began_s

    # --- save ---

    @property
    def has_stepped(self) -> bool:
        """True if a step was taken since the run was started or resumed."""
        return self.step > self._resumed_step

    @property
    def is_checkpoint_due(self) -> bool:
        """True if enough time or steps have passed since the latest checkpoint."""
        every_s = self._settings.checkpoint_seconds
        if every_s:
            # An interval of 0 saves after every rollout, whatever it costs.
            every_s = max(every_s, self._saving_took_s / MAX_SAVING_SHARE)
        is_late = time.monotonic() - self._saved_s >= every_s
        return is_late or self.step - self._saved_step >= self._settings.checkpoint_steps

    def save(self) -> None:
        """Save a checkpoint."""
        began_s = time.monotonic()
        # The state of the rewards contains its result; that of the driver must agree with it.
        self.finish_fit()
        arrays = nest({name: part.state() for name, part in self._parts.items()})
        meta = {
            "timer": self.timer.to_json(),
            "schedule_step": self.schedule_step,
            "gave_true_rewards": self._gave_true_rewards,
            "last_step": self._last_step,
        }
        self.experiment.folder.checkpoints.save(Checkpoint(self.step, arrays, meta))
        self._saved_s, self._saved_step = time.monotonic(), self.step
        self._saving_took_s = self._saved_s - began_s

    def save_predictor(self) -> None:
        """Save a learned predictor where `RewardPredictor.load` finds it."""
        if self.learner is not None and self.learner.num_fits:
            experiment = self.experiment.folder
            with folder_errors(experiment.folder):
                self.learner.predictor.save(experiment.predictor_folder)

    @property
    def shows_episodes(self) -> bool:
        """True if the page shows the agent's episodes."""
        return self._settings.records_episodes

    def show_episode(self, segment: Segment, venv: object) -> None:
        """Show and keep an episode of the agent, with the rewards that the predictor gives it.

        Args:
            segment: all steps of the episode.
            venv: the environment in which they were taken.
        """
        predictor = self.rewards.predictor
        predicted = segment.rewards
        if predictor is not None:
            predicted = predictor(segment.observations, segment.actions)
        self._reporter.show(Episode(segment, predicted), self.step, is_kept=True, venv=venv)

    def finish_videos(self) -> None:
        """Wait until the videos of all kept episodes are written."""
        # One thread makes all clips and videos in order.
        self.renderer.submit(int).result()

    def close(self) -> None:
        """Stop background threads; `open_experiment` closes the experiment."""
        self.experiment.wait.end()
        self.renderer.close()
        if self.learner is not None:
            self.learner.close()


@contextlib.contextmanager
def checkpoint_errors(checkpoint: str, part: str) -> Iterator[None]:
    """Convert errors of a part of a checkpoint that does not fit.

    Raises:
        CorruptCheckpoint: it does not.
    """
    try:
        yield
    except INVALID_CONTENT as error:
        raise CorruptCheckpoint(
            f"{checkpoint} does not fit this version of rl-teacher ({part}: {error!s:.300}). "
            "Resume it with the version that wrote it, or start another experiment with another "
            "name; its labels are kept."
        ) from error
