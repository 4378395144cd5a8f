"""Reward learning while the user's own loop steps the environments."""

import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rl_teacher.common.errors import BadInput
from rl_teacher.datasets import Dataset, load
from rl_teacher.datasets.given_labels import Labelled, labelled_pairs
from rl_teacher.datasets.import_export import SPACES, from_experiment
from rl_teacher.envs.rollout import Rollout
from rl_teacher.plan import LearningPlan
from rl_teacher.rewards.factory import make_learner
from rl_teacher.rewards.learner import RewardLearner
from rl_teacher.rewards.memory import learning_arrays, refuse_excess
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.runs.folder import shortened_name
from rl_teacher.runs.opening import ExperimentSpec, open_experiment
from rl_teacher.runs.status import Phase, RunStatus
from rl_teacher.session import PreferenceSession, SessionSettings, query_store
from rl_teacher.store.media import slug
from rl_teacher.wrappers.environments import WrappedEnvs
from rl_teacher.wrappers.settings import WrapperPlan

REMIND_EVERY_S = 60.0
"""Interval between two warnings that comparisons wait for a person."""

logger = logging.getLogger(__name__)


class WrapperLearning:
    """Decides when a wrapper's session asks, fits and waits.

    Attributes:
        session: the session of the experiment.
        learner: the session's reward source.
    """

    def __init__(self, envs: WrappedEnvs, plan: WrapperPlan, learning: LearningPlan) -> None:
        """Start an experiment or resume the one with this name.

        Raises:
            RlTeacherError: the settings do not fit the environment or the experiment.
        """
        self._plan = plan
        self._labels = learning.labels
        self._segment_steps = learning.segment_steps
        space = envs.input_space.for_encoder(learning.predictor.image_encoder)
        training, held_out = given_labels(learning.given_labels, learning.segment_steps)
        given = labelled_pairs(training, space)
        spec = experiment_spec(envs, plan, learning, [*training, *held_out])
        self.name = spec.name
        arrays = learning_arrays(envs.input_space, envs.num_envs, learning)
        refuse_excess(arrays, spell=str)
        self._has_given = bool(given)
        self._reminded_s = -np.inf
        self._is_training = False
        with contextlib.ExitStack() as stack:
            experiment = stack.enter_context(open_experiment(spec))
            renderer = ClipRenderer(
                envs.env_info,
                envs.replayer,
                experiment.store,
                experiment.media,
                is_verified=envs.is_replay_verified,
            )
            stack.callback(renderer.close)
            store = query_store(experiment, renderer)
            self.learner: RewardLearner = make_learner(
                envs.env_info.id, envs.input_space, envs.num_envs, learning, store, plan.predictor
            )
            stack.callback(self.learner.close)
            settings = SessionSettings(
                num_envs=envs.num_envs,
                num_steps=plan.num_timesteps,
                starts_with_whole_episodes=True,
                records_episodes=False,
                repeats_steps=False,
                checkpoint_steps=plan.checkpoint_interval,
            )
            self.session = PreferenceSession(experiment, self.learner, renderer, settings)
            self.session.status.listener = self.warn_person
            self.learner.trainer.add_given(given)
            self.learner.chooser.leave_out(clips_of(training), are_shared=False)
            self.learner.chooser.leave_out(clips_of(held_out), are_shared=True)
            is_resumed = self.session.resume()
            if is_resumed:
                # A checkpoint does not contain the environments, which start new episodes.
                self.learner.recorder.end_episodes()
                self.session.restart_episodes()
            # Labels of a data set or of an earlier run are fitted without any step.
            self.learner.read_answers()
            # A pretrained predictor counts as fitted, but not to given labels.
            must_fit = (bool(given) and not is_resumed) or not self.has_fitted
            if self._is_ready_to_fit and must_fit:
                self.session.fit(force=True)
                self.session.finish_fit()
            self._begin_training_if_fitted()
            self._stack = stack.pop_all()

    # --- state ---

    @property
    def has_predictor(self) -> bool:
        """True if at least one fit is done."""
        return self.learner.num_fits > 0

    @property
    def never_fits(self) -> bool:
        """True if labels are collected only."""
        return self._plan.collects_only

    @property
    def has_fitted(self) -> bool:
        """True if the predicted reward can be returned: a fit is done, and there are to be fits."""
        return not self.never_fits and self.has_predictor

    # --- learn ---

    def observe(self, rollout: Rollout, *, is_collecting: bool) -> None:
        """Count the steps of a rollout, follow the owner's commands, and report.

        Args:
            rollout: the rollout.
            is_collecting: whether to record segments, ask the comparisons that are due, and fit to
                new labels.
        """
        session = self.session
        # Waits while the run is paused. Whether to stop is left to the loop, see `is_stop_wanted`.
        session.should_continue()
        if not is_collecting:
            session.count_evaluation(rollout)
        else:
            session.count_steps(rollout.num_steps, is_training=self.has_fitted)
            if self._labels.total == 0:
                session.count_episodes(rollout)
            else:
                session.observe(rollout, is_training=self.has_fitted)
                self._ask()
            self._fit_if_due()
        session.report_if_due(Phase.TRAINING if self.has_fitted else Phase.RANDOM)
        if session.is_checkpoint_due:
            self.save()

    def _ask(self) -> None:
        # The first comparisons need segments that do not overlap, two each: otherwise they would
        # show the same few steps over and over.
        first = self._labels.first
        is_early = self.session.step < 2 * first * self._segment_steps
        if self.learner.queue.num_asked < first and is_early:
            return
        self.session.ask()
        if self._plan.waits:
            self._wait_for_answers()

    def _wait_for_answers(self) -> None:
        """Wait until every comparison is answered."""
        self.session.wait_for_answers("the program continues", self.learner.queue.num_asked)

    def wait_for_first_answers(self) -> None:
        """Wait for the answers that the first fit needs, once all of them are asked for."""
        if not self.has_fitted and self.learner.queue.num_asked >= self._labels.first:
            self._wait_for_answers()
            self._fit_if_due()

    @property
    def _is_ready_to_fit(self) -> bool:
        """True if the first labels have arrived."""
        if self._plan.collects_only or not len(self.learner.trainer.labels):
            return False
        if self.has_predictor or self._has_given:
            return True
        return self.learner.read_answers() >= self._labels.first

    def _fit_if_due(self) -> None:
        answered = self.learner.read_answers()
        if not self._is_ready_to_fit:
            if self._labels.is_person and self._is_reminder_due:
                self.session.set_phase(
                    Phase.WAITING, f"{answered}/{self.learner.queue.num_asked} comparisons labeled"
                )
            return
        self.session.fit(force=not self.has_fitted)
        self._begin_training_if_fitted()

    def _begin_training_if_fitted(self) -> None:
        if self.has_fitted and not self._is_training:
            self._is_training = True
            # The constant schedule counts the time from the first predicted reward on.
            self.session.timer.begin_training()

    # --- warnings ---

    @property
    def _is_reminder_due(self) -> bool:
        return time.monotonic() - self._reminded_s >= REMIND_EVERY_S

    def warn_person(self, status: RunStatus) -> None:
        """Log a warning, from time to time, while the run is paused or waits for a person."""
        if not self._is_reminder_due:
            return
        if status.phase is Phase.PAUSED:
            logger.warning("%s: paused on the page. Resume it there to continue.", self.name)
        elif status.phase is Phase.WAITING and self._labels.is_person:
            is_true = self._plan.true_reward_until_fit or self._plan.collects_only
            logger.warning(
                "%s: %s. Run `rl-teacher serve` and open the page to label them. Until then %s.",
                self.name,
                status.message,
                "the true reward is returned" if is_true else "all rewards are 0",
            )
        else:
            return
        self._reminded_s = time.monotonic()

    # --- save ---

    def save(self) -> None:
        """Save a checkpoint, and the predictor for others to load."""
        self.session.save()
        self.session.save_predictor()

    def labels(self) -> Dataset:
        """Return the labels of the experiment, without those that it was given.

        Raises:
            BadInput: there are no labels yet.
        """
        return from_experiment(self.session.experiment.store, self.name)

    def close(self, rest: Rollout | None) -> None:
        """Save, and close threads, files and the experiment.

        Args:
            rest: last steps, too few for another rollout; None if there are none.
        """
        with self._stack:
            if rest is not None:
                self.session.count_evaluation(rest)
            self.save()
            if self.session.has_stepped:
                self.session.report()
            self.session.set_phase(Phase.STOPPED, "stopped and saved")


def experiment_spec(
    envs: WrappedEnvs, plan: WrapperPlan, learning: LearningPlan, given: Sequence[Labelled]
) -> ExperimentSpec:
    """Return the identity of a wrapper's experiment: what must be unchanged to resume it.

    Args:
        envs: the environments.
        plan: plan of the wrapper.
        learning: its reward predictor.
        given: initial labels, which the experiment does not store.
    """
    env_id, labels = envs.env_info.id, learning.labels
    now = datetime.now(UTC).strftime("%Y-%m-%d %H.%M.%S")
    config = {
        "env_id": env_id,
        "num_envs": envs.num_envs,
        SPACES: envs.input_space.to_json(),
        "segment_steps": learning.segment_steps,
        "teacher": "human" if labels.is_person else labels.teacher_name,
        "teacher_strength": labels.teacher_strength,
        "seed": learning.seed,
        "given_labels": {"number": len(given), "digest": digest_of(given)},
        "shows_ends": learning.shows_ends,
        "is_warm": plan.predictor is not None,
        "reward": asdict(learning.predictor),
    }
    return ExperimentSpec(
        name=plan.name or shortened_name(slug(env_id), f" {now} {secrets.token_hex(2)}"),
        env_info=envs.env_info,
        config=config,
        asks_a_person=labels.is_person,
        max_labels=labels.total,
        instructions=plan.instructions,
    )


def given_labels(
    labels: str | Path | Iterable[Labelled] | None, num_steps: int
) -> tuple[list[Labelled], list[Labelled]]:
    """Load initial labels.

    Args:
        labels: path of a data set, or labelled comparisons.
        num_steps: L, the maximum length of a segment.

    Returns:
        The labels to fit to, and the held-out ones.

    Raises:
        BadInput: segments are longer than L.
    """
    if labels is None:
        return [], []
    training: list[Labelled] = []
    held_out: list[Labelled] = []
    for each in load(labels) if isinstance(labels, str | Path) else labels:
        (held_out if getattr(each, "is_held_out", False) else training).append(each)
    longest = max((len(side) for each in training for side in (each.left, each.right)), default=0)
    if longest > num_steps:
        raise BadInput(
            f"The given labels compare segments of up to {longest} steps, but segments have "
            f"{num_steps} here. Give segment_length={longest}."
        )
    return training, held_out


def digest_of(comparisons: Iterable[Labelled]) -> str:
    """Return a digest of labels and their clips, in order."""
    digest = hashlib.sha256()
    for each in comparisons:
        facts = each.left.content_hash, each.right.content_hash, float(each.target)
        digest.update(f"{facts}\n".encode())
    return digest.hexdigest()


def clips_of(comparisons: Iterable[Labelled]) -> set[str]:
    """Return the content hashes of the clips of comparisons."""
    return {side.content_hash for each in comparisons for side in (each.left, each.right)}
