"""Training from human preferences (Christiano et al. 2017, figure 1).

    environment --steps--> agent --rollout--> recorder --segments--> selector --pairs--> teacher
         ^                   ^                                                              |
         '----- actions -----'<---- predicted reward ---- reward predictor <-- labels ------'

`TrainingLoop.train_step` is one turn of this loop. The session's `RewardLearner` records rollouts,
predicts their rewards, asks for comparisons of segments, and fits the predictor to the labels.
"""

import contextlib
import logging
import math
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rl_teacher.agents.agent import Agent
from rl_teacher.agents.collector import Act, Collector, RolloutInterrupted, RolloutSettings
from rl_teacher.agents.registry import check_losses
from rl_teacher.agents.reset import AgentReset
from rl_teacher.clips.recorder import EpisodeWatcher
from rl_teacher.common.errors import BadConfig, TeacherFailed
from rl_teacher.common.files import folder_errors, jsonable
from rl_teacher.common.runtime import handled_signals, stop_requests
from rl_teacher.common.text import counted
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.config.predecessors import teach_command
from rl_teacher.datasets.given_labels import GivenLabels, labelled_pairs
from rl_teacher.envs.rollout import Rollout
from rl_teacher.plan import RunPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.preparation import experiment_spec, initial_agent, prepare, show_page
from rl_teacher.report.progress import Progress as Display
from rl_teacher.report.tensorboard import TensorBoard
from rl_teacher.rewards.factory import make_reward_source
from rl_teacher.rewards.learner import recorded_steps
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.runs.folder import tensorboard_folder
from rl_teacher.runs.history import is_due
from rl_teacher.runs.opening import OpenExperiment, open_experiment
from rl_teacher.runs.status import Phase, RunStatus
from rl_teacher.session import PreferenceSession, SessionSettings, query_store
from rl_teacher.web.service_process import PageService

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from rl_teacher.cluster.collector import ClusterCollector

RELABEL_EVERY = 5_000
"""Steps after which a replay buffer is relabelled even without a fit."""
MAX_EXPLORATION_ROLLOUTS = 100
"""Rollouts, at most, until enough different segments are recorded for the first comparisons."""
MAX_SHOWN_STEPS, MAX_SHOWN_S, SHOWN_ROLLOUT_STEPS = 5_000, 10.0, 50
"""Steps and seconds of an episode of the agent that is shown, at most, and steps of a rollout."""
MAX_STOP_WAIT_S = 1.0
"""Seconds that a stop request waits for the end of a rollout."""


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    Attributes:
        is_finished: False if the run was stopped, and saved.
        step: environment steps of training done.
    """

    is_finished: bool
    step: int


class TrainingLoop:
    """The loop of one run: environments and agent, around a `PreferenceSession`."""

    def train_step(self) -> None:
        """Take one turn of the loop (Christiano et al. 2017, 2.2)."""
        session, agent = self.session, self._agent
        # 1. The policy acts, and is updated by reinforcement learning from predicted rewards.
        with session.timer.part("rollout"):
            rollout = self._collect(agent.act, agent.rollout_steps)
        session.count_steps(rollout.num_steps)
        rewards = session.observe(rollout).rewards
        with session.timer.part("update"):
            losses = agent.learn(rollout, rewards)
        # Before the next checkpoint, which would replace the last good one.
        check_losses(self._plan.agent.name, self._plan.agent.settings, losses)
        # 2. Pairs of segments are selected and sent to the teacher.
        session.ask()
        # 3. The predictor is fitted to the labels; the session then relabels the replay buffer.
        if not session.fit():
            self._relabel_if_due(rollout.num_steps)
        self._reset_agent_if_due()
        # Custom agents may return numbers of another library.
        session.losses = {f"agent/{name}": jsonable(value) for name, value in losses.items()}
        session.report_if_due()

    def __init__(
        self,
        plan: RunPlan,
        experiment: OpenExperiment,
        display: Display,
        agent: Agent,
        pretrained: RewardPredictor | None = None,
    ) -> None:
        """Make environments and session.

        Args:
            plan: plan of the run.
            experiment: the open experiment.
            display: live progress.
            agent: its agent, see `initial_agent`.
            pretrained: saved predictor to start from.
        """
        self._plan = plan
        self._display = display
        self._collector = self._make_collector()
        self._venv = self._collector.venv
        self._agent = agent
        self._agent_reset = AgentReset(plan.agent.labels_before_reset)
        self._kept_step: int | None = None
        self.session = self._make_session(experiment, pretrained)
        self._num_given = 0
        self._tensorboard: TensorBoard | None = None

    def run(self) -> Outcome:
        """Train until all steps are done or a stop is requested.

        A person may extend a finished run on the page, which then trains again.
        """
        session, plan = self.session, self._plan
        is_resumed = self._resume()
        with stop_requests(session.stop):
            if plan.sorts_from_null_actions and not is_resumed:
                self._add_null_action_clip()
            if plan.collects_only:
                self._collect_labels()
                assert session.learner is not None  # noqa: S101 - a run that collects labels
                wanted = session.learner.planner.budget.pretraining
                is_finished = session.learner.read_answers() >= wanted
                session.report()
                return self._end(is_finished=is_finished)
            # The first checkpoint is written after the first fit, so a resumed run has done this.
            if (plan.first_labels or self._num_given) and not is_resumed:
                self._pretrain()
            if session.shows_episodes and not is_resumed and session.should_continue():
                self._show_agent()
            session.timer.begin_training()
            while True:
                self._train()
                outcome = self._end(is_finished=session.step >= session.num_steps)
                if not (outcome.is_finished and plan.stays_open):
                    return outcome
                if not session.wait_for_extension():
                    session.set_phase(Phase.FINISHED, "finished")
                    return outcome

    def _train(self) -> None:
        """Train until all steps are done or a stop is requested; save."""
        session, labels = self.session, self._plan.labels
        try:
            while session.step < session.num_steps and session.should_continue():
                self._follow_steps()
                self._keep_policy()
                self.train_step()
                # After the last step, the last labels are used first: a run that is killed before
                # repeats its last steps.
                if session.is_checkpoint_due and session.step < session.num_steps:
                    session.save()
                if labels is not None and labels.is_paced:
                    session.wait_for_due_labels()
        except RolloutInterrupted:
            # Only states between two rollouts continue exactly: that of the last checkpoint.
            return
        if session.has_stepped:
            self._display.status("saving")
            if labels is not None and session.step >= session.num_steps:
                session.set_phase(Phase.FINISHING, "using the last labels, and saving")
                session.use_last_labels()
            session.report()
            session.save()
            if session.step >= session.num_steps and session.shows_episodes:
                self._show_agent()
                session.finish_videos()

    def _show_agent(self) -> None:
        """Show a whole episode of the agent as it is; those of training span several updates.

        One that takes longer than `MAX_SHOWN_STEPS` or `MAX_SHOWN_S` is left out.
        """
        settings = replace(self._rollouts, stagger=0, physics="cpu")
        watcher = EpisodeWatcher(self._plan.env_info.id, starts_at_reset=True)
        act = partial(self._agent.predict, deterministic=True)
        with contextlib.closing(settings.make_collector(1, 1)) as collector:
            deadline_s = time.monotonic() + MAX_SHOWN_S
            for _ in range(0, MAX_SHOWN_STEPS, SHOWN_ROLLOUT_STEPS):
                if time.monotonic() > deadline_s:
                    return
                rollout = collector.collect(act, SHOWN_ROLLOUT_STEPS)
                watcher.observe(rollout, rollout.rewards)
                if watcher.latest is not None:
                    self.session.show_episode(watcher.latest.segment, collector.venv)
                    return

    def _collect(self, act: Act, num_steps: int) -> Rollout:
        """Collect a rollout; a stop request waits for its end, but not long.

        Raises:
            RolloutInterrupted: it had not ended `MAX_STOP_WAIT_S` after the request.
        """
        deadline_s = math.inf

        def is_overdue() -> bool:
            nonlocal deadline_s
            if not self.session.is_stop_requested():
                return False
            self._display.status("stopping")
            now_s = time.monotonic()
            deadline_s = min(deadline_s, now_s + MAX_STOP_WAIT_S)
            return now_s >= deadline_s

        return self._collector.collect(act, num_steps, is_overdue)

    def _follow_steps(self) -> None:
        """Adopt the number of steps of the whole run, which the owner may have changed."""
        num_steps = self.session.num_steps
        self._display.extend(num_steps)
        # Its learning rate may have been annealed to 0.
        extend = getattr(self._agent, "extend", None)
        if extend is not None:
            extend(num_steps)

    def _relabel_if_due(self, num_steps: int) -> None:
        """Relabel the replay buffer from time to time without a fit, given a rollout's steps.

        Predicted rewards also change, slowly, with the window that normalises them, even where no
        other fit follows because all labels are given.
        """
        step = self.session.step
        if (
            self._plan.learning is not None
            and step // RELABEL_EVERY > (step - num_steps) // RELABEL_EVERY
        ):
            self._relabel_buffer()

    def _reset_agent_if_due(self) -> None:
        session = self.session
        if session.learner is not None and not session.control.uses_true_reward:
            num_labels = session.learner.queue.num_answered
            self._agent_reset.apply_if_due(self._agent, session.step, session.num_steps, num_labels)

    def _keep_policy(self) -> None:
        """Save the policy from time to time, so that earlier agents can be played.

        Agents of other libraries have their own formats and are not saved.
        """
        history, step = self.session.experiment.folder.history, self.session.step
        is_kept = is_due(step, self._kept_step, self.session.known_steps)
        export = getattr(self._agent, "numpy_policy", None)
        if is_kept and export is not None:
            history.add(step, export())
            self._kept_step = step

    def _relabel_buffer(self) -> None:
        """Give the steps in the agent's replay buffer their current predicted rewards."""
        session, predictor = self.session, self.session.rewards.predictor
        # Relabelling would replace true rewards for good. Steps before training have none yet.
        has_true_rewards = session.control.uses_true_reward and session.progress.is_training
        if predictor is not None and not has_true_rewards:
            self._agent.relabel_buffer(predictor)

    # --- the first labels ---

    def _pretrain(self) -> None:
        """Collect the first labels and fit the first predictor.

        A stop before that leaves only labels, which the next run finds.
        """
        session = self.session
        assert session.learner is not None  # noqa: S101 - there are labels to learn from
        if self._plan.first_labels:
            self._collect_labels()
        if session.stop.is_set():
            return
        num = session.learner.planner.budget.pretraining
        labels = counted(num + self._num_given, "label")
        session.set_phase(Phase.FITTING, f"fitting the reward predictor to {labels}")
        try:
            # A stop need not wait for its end: nothing else would be saved.
            with handled_signals(signal.default_int_handler, signal.SIGINT, signal.SIGTERM):
                # With a pretrained predictor, it may run in the background.
                is_fitted = session.fit(force=True) or session.finish_fit()
        except KeyboardInterrupt:
            session.stop.set()
            return
        if not session.learner.num_fits:
            raise TeacherFailed(
                f"All answers so far are `cannot tell` ({counted(num, 'comparison')}), so there is "
                "nothing to learn from. Change some on the page (`rl-teacher serve`) and run the "
                "same command again; or start another experiment with longer clips (-c) or "
                "another --teacher."
            )
        if not is_fitted:  # too few usable labels to fine-tune a pretrained predictor
            self._relabel_buffer()
        session.save()

    def _collect_labels(self) -> None:
        """Ask the first comparisons, and wait for all answers."""
        with contextlib.suppress(RolloutInterrupted):
            self._ask_first_comparisons()
        then = "the run ends" if self._plan.collects_only else "training starts"
        self.session.wait_for_answers(then)

    def _ask_first_comparisons(self) -> None:
        """Act for long enough to cut the first segments, and ask; stop early if requested.

        Raises:
            RolloutInterrupted: a stop was requested.
            TeacherFailed: too few different segments are found.
        """
        session, plan, agent = self.session, self._plan, self._agent
        assert session.learner is not None  # noqa: S101 - there are labels to collect
        queue, length = session.learner.queue, plan.segment_steps
        num_steps = plan.exploration_steps
        act, doing = self._exploration()
        segments = counted(num_steps // length, "segment")
        per_rollout = self._collector.num_envs * agent.rollout_steps
        # At least these steps, then more rollouts for as long as too few distinct pairs are found.
        most = num_steps + MAX_EXPLORATION_ROLLOUTS * per_rollout
        for steps in range(0, most, per_rollout):
            if not session.should_continue():
                return
            # The owner may want fewer by now.
            num = session.learner.planner.budget.pretraining
            recorded = min(steps, num_steps) // length
            text = f"{doing}, for the first comparisons: {recorded:,} of {segments}"
            session.set_phase(Phase.RANDOM, text)
            if steps >= num_steps:
                while queue.num_asked < num and session.ask():
                    pass
                # The next clips to sort follow from answers that are missing.
                if queue.num_asked >= num or (plan.sorts_clips and queue.num_waiting):
                    return
            elif plan.asks_a_person and steps >= plan.episode_steps:
                # A person compares the first clips while the agent explores.
                session.ask(limit=num * steps // num_steps)
            rollout = self._collect(act, agent.rollout_steps)
            session.count_steps(rollout.num_steps, is_training=False)
            session.observe(rollout, is_training=False)
            agent.observe(rollout)
        raise TeacherFailed(
            f"No two different clips of {plan.env_info.id} were found in "
            f"{MAX_EXPLORATION_ROLLOUTS} rollouts before training, so there is nothing to compare. "
            "Use an environment whose observations change, longer clips (-c), or another agent to "
            "begin with (--agent-path)."
        )

    def _exploration(self) -> tuple[Act, str]:
        """Return the policy that acts before the first labels, and what it does, for people."""
        # The first comparisons are about the agent, if it is warm-started.
        if self._plan.agent.is_warm:
            return self._agent.predict, "acting as the agent it starts from"
        explore = getattr(self._agent, "explore", None)
        if explore is not None:
            return explore, "exploring"
        return self._collector.random_actions, "acting at random"

    def _add_null_action_clip(self) -> None:
        """Begin the ranking with a clip of null actions, from which no other clip is cut.

        A run that was killed before its first checkpoint repeats the steps and finds the same clip.
        """
        session = self.session
        assert session.learner is not None  # noqa: S101 - only a learner sorts clips
        session.set_phase(Phase.RANDOM, "taking null actions, for the first clip")
        is_added = False
        with contextlib.suppress(RolloutInterrupted):
            while not is_added and session.should_continue():
                # In twice the length, there is a whole segment or a complete episode.
                num_steps = 2 * self._plan.segment_steps
                rollout = self._collect(self._collector.null_actions, num_steps)
                session.count_steps(rollout.num_steps, is_training=False)
                session.count_episodes(rollout)
                is_added = session.learner.add_clip_to_sort(rollout)

    # --- start and end ---

    def _make_collector(self) -> "Collector | ClusterCollector":
        """Make environments, which keep the steps that the first comparisons are chosen from."""
        plan = self._plan
        num_envs = plan.agent.settings.num_envs
        kept = recorded_steps(plan.first_labels, plan.segment_steps, num_envs)
        settings = self._rollouts = RolloutSettings(
            plan.env_info,
            plan.seed,
            plan.env_info.stagger_steps,
            plan.hides_ends,
            kept,
            plan.frames,
            plan.physics,
        )
        if plan.cluster is not None:
            from rl_teacher.cluster.collector import ClusterCollector  # noqa: PLC0415 - optional

            return ClusterCollector(settings, num_envs, plan.workers, self._wait_for_node)
        return settings.make_collector(num_envs, plan.workers)

    def _wait_for_node(self, text: str) -> None:
        # The environments are reset before there is a session.
        if "session" in vars(self):
            self.session.set_phase(Phase.WAITING, text)
        else:
            self._display.status(text)

    def _make_session(
        self, experiment: OpenExperiment, pretrained: RewardPredictor | None
    ) -> PreferenceSession:
        """Create the session with its rewards, and show its status and metrics."""
        plan, env_info = self._plan, self._plan.env_info
        renderer = ClipRenderer(
            env_info, self._venv, experiment.store, experiment.media, plan.frames
        )
        queries = query_store(experiment, renderer)
        rewards = make_reward_source(plan, self._venv, queries, pretrained)
        settings = SessionSettings(
            num_envs=self._venv.num_envs,
            num_steps=plan.num_steps,
            starts_with_whole_episodes=not env_info.stagger_steps,
            # Poses cost nothing, but a video is rendered in a process of its own.
            records_episodes=renderer.kind == "poses" or plan.page is not None or plan.has_videos,
            # A run that collects more labels chooses other comparisons.
            repeats_steps=not plan.collects_only,
            checkpoint_seconds=plan.checkpoint_seconds,
            has_videos=plan.has_videos,
        )
        session = PreferenceSession(experiment, rewards, renderer, settings)
        session.status.listener = self._show_status
        session.on_new_rewards = self._relabel_buffer
        session.metrics.add_sink(self._display.update)
        return session

    def add_given_labels(self, given: GivenLabels) -> None:
        """Add labels that the run starts with, before it runs."""
        learner = self.session.learner
        assert learner is not None  # noqa: S101 - other sources of rewards are given no labels
        space = learner.predictor.space
        training, held_out = given.dataset.training, given.dataset.held_out
        pairs, clips = labelled_pairs(training, space), training.segments.keys()
        learner.trainer.add_given(pairs, are_fitted=given.are_fitted)
        # A run with the seed of the one that asked for the labels records the same clips.
        learner.chooser.leave_out(clips, are_shared=False)
        if len(held_out):
            learner.trainer.hold_out(labelled_pairs(held_out, space))
            learner.chooser.leave_out(held_out.segments.keys(), are_shared=True)
        self._num_given = 0 if given.are_fitted else len(pairs)

    def _resume(self) -> bool:
        parts = {
            "agent": self._agent,
            "collector": self._collector,
            "agent_reset": self._agent_reset,
        }
        is_resumed = self.session.resume(parts)
        history = self.session.experiment.folder.history
        history.drop_after(self.session.step)
        self._kept_step = max(history.steps, default=None)
        if not self._plan.collects_only:
            self._follow_steps()
        if self._plan.has_tensorboard:
            resumed_at = self.session.step if is_resumed else None
            self._tensorboard = TensorBoard(
                tensorboard_folder(self._plan.name), resumed_at, self.session.experiment.spec.config
            )
            self.session.metrics.add_sink(self._tensorboard.write)
        return is_resumed

    def _show_status(self, status: RunStatus) -> None:
        """Show the status in the terminal; while waiting, the numbers of labels too."""
        learner, since = self.session.learner, self.session.status.waiting_since
        if status.phase in (Phase.WAITING, Phase.PAUSED) and learner is not None:
            self._display.update(learner.metrics())
        waiting = f"; waiting since {since.astimezone():%H:%M:%S}" if since else ""
        self._display.status(status.message + waiting)

    def _end(self, *, is_finished: bool) -> Outcome:
        """Save the predictor, plot the curves, and report the end."""
        from rl_teacher.report.plot import plot  # noqa: PLC0415 - imports matplotlib

        session, folder = self.session, self.session.experiment.folder
        if not self._plan.collects_only:
            session.save_predictor()
        with folder_errors(folder.folder):
            plot([(folder.name, folder.metrics())], folder.plot_path)
        if is_finished:
            session.set_phase(Phase.FINISHED, "finished")
        else:
            session.set_phase(Phase.STOPPED, "stopped and saved")
        return Outcome(is_finished, session.step)

    def finish_videos(self) -> None:
        """Wait until all videos are written; everything else has been saved by then."""
        if self._plan.has_videos:
            self._display.status("writing videos")
            self.session.finish_videos()

    def close(self) -> None:
        """Close environments, threads and files."""
        self.session.close()
        self._collector.close()
        if self._tensorboard is not None:
            self._tensorboard.close()


def teach(
    config: TeachConfig,
    options: RunOptions | None = None,
    defaults: TeachConfig | None = None,
) -> Outcome:
    """Run an experiment from the start, or resume it from its last checkpoint.

    Args:
        config: settings that define the experiment.
        options: settings that may change when it is resumed.
        defaults: settings before the user changed them, as of a preset.

    Raises:
        RlTeacherError: the input cannot be used; the text states why and what to do.
    """
    options = options or RunOptions()
    run = prepare(config, options, defaults)
    plan, given = run.plan, run.given_labels
    for text in plan.warnings:
        logger.warning(text)
    with contextlib.ExitStack() as stack:
        if plan.cluster is not None:
            from rl_teacher.cluster.connection import connected  # noqa: PLC0415 - optional

            stack.enter_context(connected(plan.cluster))
        agent = initial_agent(run.config, run.warm_start)
        # Everything that could fail is done: an earlier experiment of this name may be deleted now.
        spec = experiment_spec(run.config, plan, force_new=options.force_new)
        experiment = stack.enter_context(open_experiment(spec))
        if given is not None:
            given.keep(experiment.folder)
        if run.length is not None:
            experiment.store.experiments.set_control(experiment.id, run.length)
        metrics = experiment.folder.metrics_file.last()
        display = Display(plan.name, plan.env_info.id, plan.num_steps, metrics)
        stack.enter_context(display)
        display.status("setting up")
        page = None if plan.page is None else PageService(plan.page)
        if page is not None:
            stack.callback(page.close)
        # The service starts while the environments are made.
        loop = TrainingLoop(plan, experiment, display, agent, run.warm_start.predictor)
        stack.callback(loop.close)
        if plan.overlap is not None:
            loop.session.control.set_overlap(plan.overlap)
        if given is not None:
            loop.add_given_labels(given)
        shown = None
        if page is not None:
            # The agent explores until the service listens.
            threads = stack.enter_context(ThreadPoolExecutor(1))
            shown = threads.submit(show_page, page, plan, display)
            shown.add_done_callback(lambda done: done.exception() and loop.session.stop.set())
        outcome = loop.run()
        if shown is not None:
            shown.result()
        loop.finish_videos()
        return outcome


if __name__ == "__main__":
    # As in the original rl-teacher: `python rl_teacher/teach.py` or `python -m rl_teacher.teach`.
    sys.stderr.write(f"error: Use this command: {teach_command(sys.argv[1:])}\n")
    sys.exit(BadConfig.exit_code)
