"""Learning inside somebody else's loop: the reward learner, its experiment, and what is due when.

Begin with `Learning.take_in`: it is `Teaching._train_once` without the agent.
"""

import contextlib
import logging
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from rl_teacher.agents.episode_stats import EpisodeReturns
from rl_teacher.common.state_dict import nest, part_of
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.datasets import Spaces
from rl_teacher.datasets.import_export import from_experiment
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.queries.queue import RecentEpisodes, Shelf
from rl_teacher.queries.schedules import Progress
from rl_teacher.runs.clip_renderer import ClipRenderer, ClipStore
from rl_teacher.runs.control import RunControl
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.status import Phase, RunStatus, StatusReporter
from rl_teacher.session import Metrics, RewardLearner
from rl_teacher.store.database import default_url
from rl_teacher.store.media import MediaFiles, SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.wrappers.labels import given_labels
from rl_teacher.wrappers.parts import generated_name, identity, learner_for, reward_config
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.world import World

REPORT_EVERY_S = 5.0
WAITING_POLL_S = 0.2
REMIND_EVERY_S = 60.0
"""A person who is waited for is told so."""

logger = logging.getLogger(__name__)


class Learning:
    """One experiment whose environments somebody else steps."""

    def __init__(self, world: World, settings: WrapperSettings) -> None:
        """Begin an experiment, or go on with the one of this name.

        Raises:
            RlTeacherError: with a text for the person.
        """
        self._world = world
        self._settings = settings
        self.name = settings.name or generated_name(world.env_info.id)
        space = world.input_space.for_encoder(reward_config(settings).image_encoder)
        given = given_labels(settings.labels, space, world.segment_steps)
        self._num_given = len(given)
        self._step = self._trained_steps = 0
        self._began_s = self._reported_s = time.monotonic()
        self._trained_since_s: float | None = None
        self._saved_step = self._fitted_step = 0
        self._reminded_s = -np.inf
        self._waits = settings.wait_for_labels
        self._figures: Metrics = {}
        self._true = EpisodeReturns(world.num_envs, begins_whole=True)
        with contextlib.ExitStack() as stack:
            self._experiment = stack.enter_context(
                Experiment.open(
                    self.name,
                    identity(world, settings),
                    defaults={"reward": asdict(PredictorConfig())},
                )
            )
            self._store = stack.enter_context(
                Store.open(default_url(home()), is_synced=settings.is_human)
            )
            self._enter(stack)
            self._learner.learn_from(given)
            self._resume()
            self._fit_what_was_given()
            self._stack = stack.pop_all()

    def _enter(self, stack: contextlib.ExitStack) -> None:
        """Make this experiment's entry in the store, and everything that works for it."""
        world, settings, store = self._world, self._settings, self._store
        config = identity(world, settings)
        self._experiment_id = store.experiments.ensure(self.name, world.env_info.id, config)
        instructions = settings.instructions or store.experiments.get(self.name).instructions
        store.experiments.describe(self._experiment_id, instructions, settings.n_labels)
        clip_store = ClipStore(store, MediaFiles(home() / "media"))
        self._clip_renderer = ClipRenderer(world.env_info, world.replayer, clip_store)
        stack.callback(self._clip_renderer.close)
        self._status_reporter = StatusReporter(
            store, self._experiment_id, self._clip_renderer, None
        )
        self._run_control = RunControl(store, self._experiment_id)
        self._segments = SegmentFiles(home() / "segments")
        shelf = Shelf(store, self._experiment_id, self._segments)
        if settings.is_human:
            shows_others = self._clip_renderer.kind == "poses"
            shelf = replace(shelf, show=self._clip_renderer.show, shows_others=shows_others)
        self._learner: RewardLearner = learner_for(world, settings, shelf, self._num_given)
        stack.callback(self._learner.close)

    def _resume(self) -> None:
        """Go on where an earlier wrapper of this name was; else with the predictor given, if any.

        What was asked after the last checkpoint is taken over as well: no answer is lost.
        """
        checkpoint = self._experiment.load_checkpoint()
        if checkpoint is not None:
            self._learner.load_state(part_of(checkpoint.arrays, "rewards"))
            self._true.load_state(part_of(checkpoint.arrays, "true"))
            self._step = self._saved_step = checkpoint.step
            self._trained_steps = int(checkpoint.meta["trained_steps"])
            self._learner.plan(self._progress, None, self._settings.n_labels)
        self._learner.adopt_earlier_questions()
        self._status_reporter.forget_after(self._step)
        self._experiment.truncate_metrics(self._step)

    def _fit_what_was_given(self) -> None:
        """Labels that are there already, from a data set or an earlier run, need no steps."""
        self._learner.take_answers()
        if self._settings.collect_only:
            return
        while self._is_ready_to_fit and not self.has_fitted and self._learner.fit(again=True):
            pass

    # --- what it has learned ---

    @property
    def predictor(self) -> RewardPredictor:
        """The predictor as it is now."""
        return self._learner.predictor

    @property
    def has_predictor(self) -> bool:
        """Whether any fit is done."""
        return self._learner.num_fits > 0

    @property
    def has_fitted(self) -> bool:
        """Whether the predicted reward may take the true one's place."""
        return self._learner.num_fits >= self._settings.initial_fits

    @property
    def num_labels(self) -> int:
        """Comparisons that are learned from."""
        return self._learner.num_labels

    # --- once round the loop ---

    def take_in(self, rollout: Rollout) -> None:
        """Remember a rollout; ask what is due, and fit when labels have come."""
        self._pause_if_wanted()
        self._true.observe(rollout, rollout.rewards)
        self._step += rollout.num_steps
        if self.has_fitted:
            self._trained_steps += rollout.num_steps
        if not self._settings.train_only:
            self._figures = self._learner.observe(rollout).figures
            self._ask()
        self._fit_if_due()
        self._report_if_due()
        if self._step - self._saved_step >= self._settings.checkpoint_interval:
            self.save()

    @property
    def is_stop_wanted(self) -> bool:
        """Whether the owner pressed stop on the page."""
        return self._run_control.latest().state == "stop"

    def _pause_if_wanted(self) -> None:
        """Let `step` wait for as long as the owner wants to pause; answers are taken in."""
        if not self._run_control.is_paused:
            return
        self.save()
        logger.warning(
            "%s: paused on the page; training waits until it is resumed there.", self.name
        )
        self._stand("paused", "paused on the page, and goes on from there")
        began_s = time.monotonic()
        while self._run_control.is_paused:
            self._learner.take_answers()
            time.sleep(WAITING_POLL_S)
        if self._trained_since_s is not None:
            self._trained_since_s += time.monotonic() - began_s
        self._stand("training" if self.has_fitted else "random", "training")

    def predict_only(self, rollout: Rollout) -> None:
        """Count a rollout that nothing shall be cut from."""
        self._true.observe(rollout, rollout.rewards)
        self._step += rollout.num_steps

    @property
    def _progress(self) -> Progress:
        since_s = self._trained_since_s
        return Progress(self._trained_steps, 0.0 if since_s is None else time.monotonic() - since_s)

    @property
    def _has_lived_enough(self) -> bool:
        """Whether the first comparisons need not show the same few steps over and over."""
        first = max(self._settings.first_labels - self._num_given, 0)
        return self.has_predictor or self._step >= 2 * first * self._world.segment_steps

    def _ask(self) -> None:
        if not self._has_lived_enough:
            return
        wanted = self._run_control.latest()
        self._learner.plan(self._progress, wanted.seconds_between, wanted.target_labels)
        recent = RecentEpisodes(self._true.mean_return(10), self._true.mean_steps(10))
        self._learner.ask(self._progress, recent)
        if self._waits:
            self._await_answers()

    def _await_answers(self) -> None:
        """Until everything asked is answered, or the time for it is over."""
        began_s, limit_s = time.monotonic(), self._settings.answer_timeout_s
        while (answered := self._learner.take_answers()) < self._learner.num_asked:
            if limit_s is not None and time.monotonic() - began_s > limit_s:
                self._waits = False
                logger.warning(
                    "%s: %d of %d comparisons are answered after %g s of waiting; training goes on "
                    "with the labels there are, and waits no more.",
                    self.name,
                    answered,
                    self._learner.num_asked,
                    limit_s,
                )
                return
            self._remind(answered)
            time.sleep(WAITING_POLL_S)

    def await_first_answers(self) -> None:
        """Wait for the answers that the first fit needs, once all of them are asked for."""
        wanted = self._settings.first_labels - self._num_given
        if not self.has_fitted and self._learner.num_asked >= wanted:
            self._await_answers()
            self._fit_if_due()

    @property
    def _is_ready_to_fit(self) -> bool:
        """Whether the first labels are there."""
        if self._settings.collect_only or not self._learner.num_labels:
            return False
        if self.has_predictor or self._settings.train_only:
            return True
        return self._num_given + self._learner.take_answers() >= self._settings.first_labels

    def _fit_if_due(self) -> None:
        answered = self._learner.take_answers()
        if not self._is_ready_to_fit:
            self._remind(answered)
            return
        if self.has_fitted and self._step - self._fitted_step < self._settings.refresh_interval:
            return
        if self._learner.fit(again=not self.has_fitted) is not None:
            self._fitted_step = self._step
        if self.has_fitted and self._trained_since_s is None:
            self._trained_since_s = time.monotonic()

    def _remind(self, answered: int) -> None:
        """Tell a person, now and then, that there is something to answer."""
        now = time.monotonic()
        if not self._settings.is_human or now - self._reminded_s < REMIND_EVERY_S:
            return
        self._reminded_s = now
        self._stand("waiting", f"{answered}/{self._learner.num_asked} comparisons labeled")
        logger.warning(
            "%s: %d of %d comparisons are labeled. Run `rl-teacher serve` and open the page to "
            "label them; until then the true reward is returned.",
            self.name,
            answered,
            self._learner.num_asked,
        )

    # --- reporting, saving ---

    def _stand(self, phase: Phase, says: str) -> None:
        num_steps = max(self._settings.num_timesteps or 0, self._step)
        self._status_reporter.stand(RunStatus(phase, says, self._step, num_steps))

    def _report_if_due(self) -> None:
        now = time.monotonic()
        if now - self._reported_s < REPORT_EVERY_S:
            return
        self._reported_s = now
        row = {
            "step": self._step,
            "wall_s": now - self._began_s,
            "true_return": self._true.mean_return(),
            "episodes": self._true.num_finished,
            **self._learner.figures(),
            **self._figures,
        }
        self._experiment.append_metrics(row)
        self._status_reporter.metrics(row)
        self._stand("training" if self.has_fitted else "random", "training")

    def save(self) -> None:
        """A checkpoint, and the predictor as others can load it."""
        state = nest({"rewards": self._learner.state(), "true": self._true.state()})
        meta = {"trained_steps": self._trained_steps}
        self._experiment.save_checkpoint(self._step, state, meta)
        self._saved_step = self._step
        if self.has_predictor:
            self.predictor.save(self._experiment.folder / "predictor")

    def save_labels(self, path: str | Path) -> None:
        """Write every label, with its segments, as a label data set.

        Raises:
            BadInput: there is none yet.
        """
        spaces = Spaces(self._world.view.space, self._world.action_space)
        from_experiment(self._store, self._segments, self.name, spaces).save(path)

    def close(self) -> None:
        """Save, and let go of threads, files and the name."""
        with self._stack:
            self.save()
            self._stand("stopped", "stopped, and saved")
