"""The loop (Christiano et al. 2017, figure 1).

    environment --steps--> agent --rollout--> recorder --segments--> selector --pairs--> teacher
         ^                   ^                                                              |
         '----- actions -----'<---- predicted reward ---- reward predictor <-- labels ------'

Begin with `Teaching.run`. Recorder, selector, teacher and predictor are the reward learner's.
"""

import contextlib
import logging
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
from jaxtyping import Float32

from rl_teacher.agents.agent import Agent, SupportsExploration
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.episode_stats import EpisodeReturns
from rl_teacher.agents.registry import check_agent, make_agent, num_envs_for
from rl_teacher.agents.reset import AgentReset
from rl_teacher.clips.episode import EpisodeWatcher
from rl_teacher.common import runtime
from rl_teacher.common.errors import CorruptCheckpoint, SegmentTooLong, TeacherFailed
from rl_teacher.common.signals import StopRequest, stop_requests
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.common.timer import RunTimer
from rl_teacher.config.experiment import (
    LabelerWeights,
    RunOptions,
    TeachConfig,
    pretraining_labels,
    validate,
)
from rl_teacher.config.fields import check_bounds
from rl_teacher.envs.check import check_environment
from rl_teacher.envs.registry import EnvInfo, get_env_info, make_vector
from rl_teacher.envs.rollout import Rollout
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.queue import QueryQueue, RecentEpisodes, Respondent, Shelf, library_of
from rl_teacher.queries.schedules import Budget, Progress, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.report.progress import Progress as Display
from rl_teacher.report.tensorboard import TensorBoard, default_log_dir
from rl_teacher.runs.clip_renderer import ClipRenderer, ClipStore, check_renderable
from rl_teacher.runs.control import RunControl
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.status import Phase, RunStatus, StatusReporter
from rl_teacher.runs.warm_start import NO_WARM_START, WarmStart, load_warm_start
from rl_teacher.session import (
    Asking,
    Fitting,
    FrozenReward,
    Metrics,
    RewardLearner,
    RewardSource,
    Subject,
    TrueReward,
    remembered_steps,
)
from rl_teacher.store.database import default_url
from rl_teacher.store.media import MediaFiles, SegmentFiles
from rl_teacher.store.store import Store
from rl_teacher.teachers.human import through_the_store
from rl_teacher.teachers.registry import teacher_named
from rl_teacher.teachers.tasks import TaskTeacher
from rl_teacher.web.browser import open_in_browser
from rl_teacher.web.service_process import PageService

REPORT_EVERY_S = 1.0
WAITING_POLL_S = 0.2
RECONSIDERED_EVERY = 5_000
"""Steps, at most, until what an agent remembers has the scale that rewards have by then."""
SAVING_SHARE = 0.1
"""Of the time, at most, that is spent on checkpoints; an agent's memory may be large."""
MOST_WAITING = 20
"""Comparisons that wait for a person during training, at most: a minute's work."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        is_finished: False when it was asked to stop, and saved.
        step: environment steps of training done.
        plot_path: the picture of its curves.
    """

    is_finished: bool
    step: int
    plot_path: Path


def check(config: TeachConfig) -> EnvInfo:
    """Refuse what cannot work before anything is made; the environment's card.

    Raises:
        BadInput: says what was given, what is needed, what to do.
    """
    validate(config)
    check_agent(config)
    env_info = get_env_info(config.env_id)
    check_environment(env_info)
    segment_steps(config, env_info)
    if config.asks_a_person:
        check_renderable(env_info.id)
    if config.predictor == "synth":
        teacher = teacher_named(config.teacher, config.teacher_strength)
        if isinstance(teacher, TaskTeacher):
            teacher.check_environment(env_info.id)
    if config.predictor != "rl" and env_info.can_terminate and not config.hide_episode_ends:
        logger.warning(
            "Episodes of %s may end early, which tells the agent about the true reward. "
            "--hide-episode-ends hides it; the suite's environments never end early.",
            env_info.id,
        )
    return env_info


def segment_steps(config: TeachConfig, env_info: EnvInfo) -> int:
    """Steps of a segment: the clip's seconds at the environment's pace.

    Raises:
        SegmentTooLong: an episode is shorter.
    """
    steps = max(round(config.clip_length * env_info.fps), 1)
    longest = env_info.max_episode_steps
    if config.asks and longest is not None and steps > longest:
        raise SegmentTooLong(
            f"--clip-length {config.clip_length} s of {env_info.id} are {steps} steps, but an "
            f"episode has {longest}. Use --clip-length {longest / env_info.fps:.2g} or less, or an "
            "environment with longer episodes."
        )
    return steps


def teach(config: TeachConfig, options: RunOptions | None = None) -> Outcome:
    """Run an experiment, from its beginning or from its last checkpoint.

    Raises:
        RlTeacherError: with a text for the person.
    """
    options = options or RunOptions()
    runtime.prepare(home() / "cache" / "xla")
    check_bounds(options)
    env_info = check(config)
    config = replace(config, env_id=env_info.id)
    warm_start = load_warm_start(config)
    config = warm_start.named(config)
    with contextlib.ExitStack() as stack:
        experiment = stack.enter_context(
            Experiment.open(config.name, config.saved(), options.force_new, config.defaults())
        )
        # Note: a power cut may cost a synthetic answer; it is asked again, and is the same.
        store = stack.enter_context(Store.open(default_url(home()), is_synced=config.asks_a_person))
        if options.force_new:
            store.experiments.delete(config.name)
        clip_store = ClipStore(store, MediaFiles(options.media or home() / "media"))
        display = stack.enter_context(Display(config.name, env_info.id, config.num_timesteps))
        display.status("setting up")
        page = PageService(options) if options.serve or config.asks_a_person else None
        if page is not None:
            stack.callback(page.close)
        teaching = Teaching(config, options, env_info, experiment, clip_store, display, warm_start)
        stack.callback(teaching.close)
        if page is not None:
            show_page(page.link(config.name, config.asks_a_person), display, options)
        return teaching.run()


def show_page(link: str, display: Display, options: RunOptions) -> None:
    """Print the page's link, and open it where there is a screen."""
    display.page(link)
    if not options.no_browser:
        open_in_browser(link)


class Teaching:
    """One run of one experiment."""

    def __init__(  # noqa: PLR0913 - the parts of a run, one after the other
        self,
        config: TeachConfig,
        options: RunOptions,
        env_info: EnvInfo,
        experiment: Experiment,
        clip_store: ClipStore,
        display: Display,
        warm_start: WarmStart = NO_WARM_START,
    ) -> None:
        self._config = config
        self._options = options
        self._segment_steps = segment_steps(config, env_info)
        self._experiment = experiment
        self._display = display
        num_envs = num_envs_for(config)
        stagger = 0 if env_info.can_terminate else env_info.max_episode_steps or 0
        is_ours = env_info.backend in ("batch", "atari")
        self._venv = make_vector(
            env_info.id,
            num_envs,
            options.workers,
            keep_steps=remembered_steps(pretraining_labels(config), self._segment_steps, num_envs),
            frames=config.frames,
        )
        self._collector = Collector(
            self._venv,
            seed=config.seed,
            stagger=stagger if is_ours else 0,
            hide_terminations=config.hide_episode_ends,
        )
        self._agent: Agent = make_agent(config, self._venv)
        self._act_first = self._collector.random_actions
        if warm_start.agent is not None:
            self._agent.warm_start_from(warm_start.agent)
            self._act_first = self._agent.predict
        elif config.asks and isinstance(self._agent, SupportsExploration):
            self._act_first = self._agent.explore
        begins_whole = not (stagger and is_ours)
        self._true = EpisodeReturns(num_envs, begins_whole=begins_whole)
        self._predicted = EpisodeReturns(num_envs, begins_whole=False)
        experiment_id = enter_experiment(
            clip_store.store, experiment.name, env_info, config, options
        )
        self._clip_renderer = ClipRenderer(env_info, self._venv, clip_store, config.frames)
        # Note: poses cost nothing, but a video is drawn in a process of its own.
        is_watched = self._clip_renderer.kind == "poses" or options.serve or config.asks_a_person
        watcher = EpisodeWatcher(env_info.id, begins_whole=begins_whole) if is_watched else None
        self._status_reporter = StatusReporter(
            clip_store.store, experiment_id, self._clip_renderer, watcher
        )
        shelf = Shelf(clip_store.store, experiment_id, SegmentFiles(home() / "segments"))
        if config.asks_a_person:
            shows_others = self._clip_renderer.kind == "poses"
            shelf = replace(shelf, show=self._clip_renderer.show, shows_others=shows_others)
        self._rewards = make_reward_source(
            config,
            self._venv,
            self._segment_steps,
            shelf,
            warm_start.predictor,
            options.labeler_weights,
        )
        self._run_control = RunControl(clip_store.store, experiment_id)
        self._run_control.set_study(options)
        self._step = 0
        self._is_pretrained = not config.asks or pretraining_labels(config) == 0
        self._agent_reset = AgentReset(labels_before_reset(config))
        self._clock = RunTimer()
        self._saved_s = self._reported_s = -math.inf
        self._save_took_s = 0.0
        self._steps_this_run = 0
        self._has_collected = False
        self._figures: Metrics = {}
        self._tensorboard: TensorBoard | None = None

    def run(self) -> Outcome:
        """Go on from the last checkpoint until everything is learned, or a stop is asked for."""
        self._resume()
        with stop_requests() as stop:
            if self._config.collect_only:
                return self._collect(stop)
            if not self._is_pretrained:
                self._pretrain(stop)
            self._clock.begin_training()
            while self._step < self._config.num_timesteps and self._may_go_on(stop):
                self._train_once()
                if self._options.wait_for_labels:
                    self._await_answers(self._rewards.num_asked, stop)
                self._report_if_due()
                self._save_if_due()
        return self._end()

    def _may_go_on(self, stop: StopRequest) -> bool:
        """Do what the owner wants by now: pause, ask at another rate; False: stop."""
        wanted = self._run_control.latest()
        self._rewards.plan(self._progress(), wanted.seconds_between, wanted.target_labels)
        if wanted.state == "pause":
            self._pause(stop)
        if self._run_control.latest().state == "stop":
            stop.request()
        return not stop

    def _pause(self, stop: StopRequest) -> None:
        """Save, and do nothing but take in answers until the owner wants to go on, or a stop."""
        if self._steps_this_run:
            self._save()
        with self._clock.paused():
            while self._run_control.is_paused and not stop:
                self._rewards.take_answers()
                self._display.update(self._rewards.figures())
                self._say("paused", "paused on the page, and goes on from there; Ctrl-C ends it")
                time.sleep(WAITING_POLL_S)

    def _train_once(self) -> None:
        """Once round the loop: act, be rewarded, learn, ask, fit."""
        rollout = self._collector.collect(self._agent.act, self._agent.rollout_steps)
        observed = self._rewards.observe(rollout)
        losses = self._agent.learn(rollout, observed.rewards)
        self._step += rollout.num_steps
        self._steps_this_run += rollout.num_steps
        self._watch(rollout, observed.rewards)
        self._rewards.ask(self._progress(), self._recent())
        if not self._fit():
            self._reconsider_if_due(rollout.num_steps)
        self._agent_reset.apply_if_due(
            self._agent, self._step, self._rewards.num_answered, self._rewards.predictor
        )
        self._figures = {f"agent/{name}": value for name, value in losses.items()}
        self._figures |= observed.figures

    def _fit(self) -> bool:
        """Fit if there are labels for it; the agent then looks at what it remembers anew."""
        if self._rewards.fit() is None:
            return False
        if self._rewards.predictor is not None:
            self._agent.relabel_buffer(self._rewards.predictor)
        return True

    def _reconsider_if_due(self, num_steps: int) -> None:
        """Between fits too, since predicted rewards are normalised over a window that moves."""
        is_due = self._step // RECONSIDERED_EVERY > (self._step - num_steps) // RECONSIDERED_EVERY
        if is_due and self._config.asks and self._rewards.predictor is not None:
            self._agent.relabel_buffer(self._rewards.predictor)

    def _watch(self, rollout: Rollout, rewards: Float32[np.ndarray, "time env"]) -> None:
        """Follow the agent's episodes."""
        self._true.observe(rollout, rollout.rewards)
        self._predicted.observe(rollout, rewards)
        self._agent_reset.observe(rollout)
        self._status_reporter.watch(rollout, rewards, self._step)

    def _pretrain(self, stop: StopRequest) -> None:
        """Let the random policy act, ask about that, and fit the first predictor.

        A stop before the first fit leaves nothing behind but labels: the next run begins anew, and
        finds them.
        """
        wanted = pretraining_labels(self._config)
        self._ask_first(wanted, stop)
        if stop:
            return
        self._say("fitting", f"fitting the reward predictor to {wanted} labels")
        if not self._fit():
            raise TeacherFailed(nothing_to_learn_from(self._config, wanted))
        self._is_pretrained = True
        self._save()

    def _collect(self, stop: StopRequest) -> Outcome:
        """Ask for labels, and wait for all of them; the end, since nothing is learned.

        A stop leaves nothing behind but labels: the next run asks the same, and finds them.
        """
        wanted = pretraining_labels(self._config)
        self._ask_first(wanted, stop)
        self._has_collected = self._rewards.take_answers() >= wanted
        self._report()
        return self._end()

    def _ask_first(self, wanted: int, stop: StopRequest) -> None:
        """Live for a while before training, ask about that, and wait for the answers."""
        self._say_first()
        needed = 2 * wanted * self._segment_steps
        for _ in range(math.ceil(needed / self._collector.num_envs / self._agent.rollout_steps)):
            if not self._may_go_on(stop):
                return
            self._live_first()
        while self._rewards.num_asked < wanted and self._may_go_on(stop):
            if not self._rewards.ask(Progress(0, 0.0), self._recent()):
                self._live_first()
        self._await_answers(wanted, stop)

    def _say_first(self) -> None:
        is_random = self._config.agent_path is None
        who = "at random" if is_random else "as the agent that it begins with"
        self._say("random", f"acting {who}, for the first comparisons")

    def _await_answers(self, needed: int, stop: StopRequest) -> None:
        """Wait until so many comparisons have an answer, and say so meanwhile."""
        while (answered := self._rewards.take_answers()) < needed and self._may_go_on(stop):
            self._display.update(self._rewards.figures())
            self._say("waiting", f"{answered}/{needed} comparisons labeled: waiting for yours")
            time.sleep(WAITING_POLL_S)

    def _live_first(self) -> None:
        rollout = self._collector.collect(self._act_first, self._agent.rollout_steps)
        self._rewards.observe(rollout)
        self._agent.observe(rollout)
        self._true.observe(rollout, rollout.rewards)
        self._say_first()

    def _progress(self) -> Progress:
        return Progress(self._step, self._clock.training_s)

    def _recent(self) -> RecentEpisodes:
        return RecentEpisodes(self._true.mean_return(10), self._true.mean_steps(10))

    # --- reporting ---

    def _say(self, phase: Phase, text: str) -> None:
        """What is being done, to the terminal and to the page."""
        self._display.status(text)
        rate = self._steps_per_second if phase == "training" else None
        total = self._config.num_timesteps
        self._status_reporter.stand(RunStatus(phase, text, self._step, total, rate))

    @property
    def _steps_per_second(self) -> float:
        return self._steps_this_run / max(self._clock.training_this_run_s, 1e-9)

    def _report_if_due(self) -> None:
        if time.monotonic() - self._reported_s >= REPORT_EVERY_S:
            self._report()
            self._status_reporter.find(self._rewards.diagnostics, self._step)
            self._say("training", "training")

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        row = {
            "step": self._step,
            "wall_s": self._clock.wall_s,
            "steps_per_second": self._steps_per_second,
            "true_return": self._true.mean_return(),
            "episodes": self._true.num_finished,
            **self._rewards.figures(),
            **self._figures,
        }
        if self._config.predictor != "rl":
            row["predicted_return"] = self._predicted.mean_return()
        self._experiment.append_metrics(row)
        if self._tensorboard is not None:
            self._tensorboard.write(row)
        self._status_reporter.metrics(row)
        self._display.update(row)

    # --- saving ---

    def _save_if_due(self) -> None:
        pause_s = self._options.checkpoint_seconds
        if pause_s:
            pause_s = max(pause_s, self._save_took_s / SAVING_SHARE)
        if time.monotonic() - self._saved_s >= pause_s:
            self._save()

    def _parts(self) -> dict:
        return {
            "agent": self._agent,
            "collector": self._collector,
            "rewards": self._rewards,
            "true": self._true,
            "predicted": self._predicted,
            "agent_reset": self._agent_reset,
        }

    def _save(self) -> None:
        began_s = time.monotonic()
        arrays = nest({name: part.state() for name, part in self._parts().items()})
        meta = {
            "clock": self._clock.to_json(),
            "is_pretrained": self._is_pretrained,
        }
        self._experiment.save_checkpoint(self._step, arrays, meta)
        self._saved_s = time.monotonic()
        self._save_took_s = self._saved_s - began_s

    def _resume(self) -> None:
        checkpoint = self._experiment.load_checkpoint()
        if checkpoint is not None:
            self._say("starting", f"going on from step {checkpoint.step:,}")
            self._load(checkpoint.step, checkpoint.arrays, checkpoint.meta)
        if self._config.asks_a_person and isinstance(self._rewards, RewardLearner):
            self._rewards.adopt_earlier_questions()
        self._experiment.truncate_metrics(self._step)
        self._status_reporter.forget_after(self._step)
        if not self._options.no_tensorboard:
            resumed_at = self._step if checkpoint is not None else None
            self._tensorboard = TensorBoard(default_log_dir(self._config.name), resumed_at)
        self._saved_s = time.monotonic()

    def _load(self, step: int, arrays: StateDict, meta: dict) -> None:
        for name, part in self._parts().items():
            try:
                part.load_state(part_of(arrays, name))
            except (KeyError, ValueError) as error:
                raise CorruptCheckpoint(
                    f"The checkpoint of step {step:,} of {self._config.name} does not fit this "
                    f"version of rl-teacher ({name}: {error}). Go on with the version that it is "
                    "of, or begin another experiment with another -n; its labels are kept."
                ) from error
        self._step = step
        self._clock.resume(meta["clock"])
        self._is_pretrained = bool(meta["is_pretrained"])

    def _end(self) -> Outcome:
        is_finished = self._has_collected or self._step >= self._config.num_timesteps
        if self._steps_this_run:
            self._display.status("saving")
            self._report()
            self._save()
        if isinstance(self._rewards, RewardLearner) and not self._config.collect_only:
            self._rewards.predictor.save(self._experiment.folder / "predictor")
        from rl_teacher.report.plot import plot  # noqa: PLC0415 - heavy

        path = plot([(self._config.name, self._experiment.metrics())], self._experiment.plot_path)
        if is_finished:
            self._experiment.finish()
        self._say(*(("finished", "finished") if is_finished else ("stopped", "stopped, and saved")))
        return Outcome(is_finished, self._step, path)

    def close(self) -> None:
        """Let go of environments, threads and files."""
        self._clip_renderer.close()
        self._rewards.close()
        self._venv.close()
        if self._tensorboard is not None:
            self._tensorboard.close()


def nothing_to_learn_from(config: TeachConfig, wanted: int) -> str:
    """What to do when all the first answers were "cannot tell"."""
    if config.predictor == "human":
        return (
            f"All of the first {wanted} comparisons were answered with `cannot tell`, so there is "
            "nothing to learn from. Answer some of them anew on the page (`rl-teacher serve`) and "
            "run the same command again; or begin another experiment with longer clips (-c)."
        )
    return (
        f"The teacher {config.teacher} could not tell in any of the first {wanted} comparisons, so "
        "there is nothing to learn from. Use another --teacher, another --teacher-strength, or "
        "longer clips (-c)."
    )


def enter_experiment(
    store: Store, name: str, env_info: EnvInfo, config: TeachConfig, options: RunOptions
) -> int:
    """The experiment's id in the store, where its entry is made or brought up to date."""
    experiment_id = store.experiments.ensure(name, env_info.id, config.saved())
    instructions = options.instructions or store.experiments.get(name).instructions
    target = store.experiments.control(experiment_id).target_labels or config.n_labels
    store.experiments.describe(experiment_id, instructions, target)
    return experiment_id


def labels_before_reset(config: TeachConfig) -> float:
    """After how many the agent begins anew; infinity where it never does."""
    if not config.asks or not config.agent_reset or config.n_labels is None:
        return math.inf
    return math.inf if config.agent_path is not None else config.agent_reset * config.n_labels


def shows_ends(config: TeachConfig) -> bool:
    """Whether whoever teaches sees what the agent is told: where rules end an episode early.

    In CartPole there is nothing else to tell two segments apart by.
    """
    return get_env_info(config.env_id).can_terminate and not config.hide_episode_ends


def make_reward_source(
    config: TeachConfig,
    venv: gym.vector.VectorEnv,
    length: int,
    shelf: Shelf,
    pretrained: RewardPredictor | None = None,
    labeler_weights: LabelerWeights = "equal",
) -> RewardSource:
    """Whoever gives the rewards.

    The environment for -p rl; a saved predictor, frozen, where nobody is asked; otherwise a reward
    learner with its teacher.

    Args:
        config: of the experiment.
        venv: whose observations and actions the predictor sees.
        length: steps of a segment.
        shelf: where questions and answers are kept.
        pretrained: a predictor that was fitted before, if there is one.
        labeler_weights: what labelers who disagree count.
    """
    if pretrained is not None and not config.asks:
        return FrozenReward(pretrained)
    if config.predictor == "rl":
        return TrueReward(config.clip_reward)
    is_person = config.asks_a_person
    budget = Budget(
        total=config.n_labels,
        pretraining=pretraining_labels(config),
        num_steps=config.num_timesteps,
        seconds_between=3.0 if is_person else 0.0,
        hyperbolic_steps=config.hyperbolic_steps,
    )
    default_schedule = "constant" if config.n_labels is None else "annealed"
    space = InputSpace.from_spaces(venv.single_observation_space, venv.single_action_space)
    if is_person:
        respondent = Respondent(through_the_store, "", config.seed)
    else:
        teacher = teacher_named(config.teacher, config.teacher_strength)
        respondent = Respondent(teacher, f"synthetic:{config.teacher}", config.seed)
    return RewardLearner(
        Subject(config.env_id, space, venv.num_envs, length, shows_ends=shows_ends(config)),
        Asking(
            selector=selector(config.selector),
            schedule=schedule(config.schedule or default_schedule),
            budget=budget,
            candidates_per_pair=config.candidates,
            most_waiting=MOST_WAITING if is_person else None,
            library=library_of(shelf, config.env_id, length) if is_person else (),
        ),
        Fitting(
            config.reward,
            config.pretrain_iters,
            in_background=config.fit == "async",
            seed=config.seed,
            labeler_weights=labeler_weights,
            pretrained=pretrained,
        ),
        QueryQueue(shelf, respondent),
    )
