"""The plan of a run: what follows from its settings and its environment, resolved once.

Everything below receives the plan, or plain values of it, and nothing below reads the settings.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_teacher.common.errors import SegmentTooLong
from rl_teacher.config.agents import AgentConfig
from rl_teacher.config.experiment import (
    PhysicsBackend,
    PredictorConfig,
    QueryMethod,
    RunOptions,
    TeachConfig,
    pretraining_labels,
)
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import EnvInfo

SECONDS_BETWEEN = 3.0
"""Time between two comparisons of the constant schedule, if a person labels."""
STEPS_BETWEEN = 2_000
"""Environment steps between two comparisons of the constant schedule, if nobody waits for them."""


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """Labels that are asked for: of whom, how many, when, and about which clips.

    Attributes:
        is_person: whether people answer, through the store.
        teacher: synthetic teacher: its name, or a function of two segments.
        teacher_name: name of the synthetic teacher in the store and in messages.
        teacher_strength: parameter of the synthetic teacher; None for its default.
        total: labels in all; None without a limit, 0 if none are asked for.
        first: labels before training.
        schedule: label schedule: its name, or a function.
        num_steps: environment steps over which the schedule distributes the labels.
        fraction: fraction of these steps within which a falling schedule asks all labels.
        hyperbolic_steps: T0 of the hyperbolic schedule.
        seconds_between: time between two labels of the constant schedule; 0 counts steps.
        steps_between: environment steps between two labels of the constant schedule.
        is_paced: whether training waits for labels that are due.
        selector: query selection: its name, or a function.
        candidates: candidate pairs per query.
        queries: whether unrelated pairs are compared, or clips are sorted, and how.
        n_clips: clips to sort; None to add clips as labels are asked for.
        reuses_clips: whether clips of other experiments are compared as well.
    """

    is_person: bool
    teacher: str | Callable[..., Any]
    teacher_name: str
    teacher_strength: float | None
    total: int | None
    first: int
    schedule: str | Callable[..., Any]
    num_steps: int
    fraction: float
    hyperbolic_steps: int
    seconds_between: float
    steps_between: int
    is_paced: bool
    selector: str | Callable[..., Any]
    candidates: int
    queries: QueryMethod
    n_clips: int | None
    reuses_clips: bool


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """A reward predictor that is fitted to labels.

    Attributes:
        predictor: hyperparameters of the predictor.
        seed: seed of networks, held-out labels, query selection and synthetic teachers.
        segment_steps: L, length of a segment.
        shows_ends: whether terminations are seen, at which segments then end.
        first_fit_steps: maximum number of gradient steps of the first fit.
        fits_in_background: whether it is fitted in a thread, while training continues.
        labels: labels that are asked for.
    """

    predictor: PredictorConfig
    seed: int
    segment_steps: int
    shows_ends: bool
    first_fit_steps: int
    fits_in_background: bool
    labels: LabelPlan


@dataclass(frozen=True, kw_only=True)
class AgentPlan:
    """The agent that is trained.

    Attributes:
        name: name of the algorithm, see `agents.registry`.
        settings: its hyperparameters.
        total_steps: environment steps of training.
        seed: seed of its networks and actions.
        labels_before_reset: labels after which it is reset once; infinity for never.
        is_warm: whether it starts as an earlier agent.
    """

    name: str
    settings: AgentConfig
    total_steps: int
    seed: int
    labels_before_reset: float
    is_warm: bool


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run of `rl-teacher teach` or `collect` does.

    Attributes:
        name: name of the experiment.
        env_info: properties of the environment.
        frames: preprocessing of image observations.
        physics: physics of MuJoCo tasks.
        seed: seed of the environments.
        hides_ends: whether terminations are hidden from agent and teacher.
        agent: the agent.
        clip_reward: largest absolute value of a true reward that the agent learns from; 0: any.
        segment_steps: L, length of a segment.
        learning: the reward predictor that is fitted; None for the true reward or a frozen one.
        num_steps: environment steps of training; 0 if labels are only collected.
        collects_only: whether the run ends when all labels are there.
        has_null_action_clip: whether the first clip to sort shows null actions.
        cluster: Ray cluster whose nodes step the environments; None for this machine.
        workers: threads that step the environments; None: one per core.
        has_videos: whether videos of episodes are written.
        has_tensorboard: whether TensorBoard logs are written.
        tensorboard_dir: folder of these logs; None for that of the home.
        serves_page: whether the page is served during the run.
        stays_open: whether the page stays open after the last step.
        checkpoint_seconds: time between two checkpoints.
        warnings: what the user should know before the run begins.
    """

    name: str
    env_info: EnvInfo
    frames: FrameSettings
    physics: PhysicsBackend
    seed: int
    hides_ends: bool
    agent: AgentPlan
    clip_reward: float
    segment_steps: int
    learning: LearningPlan | None
    num_steps: int
    collects_only: bool
    has_null_action_clip: bool
    cluster: str | None
    workers: int | None
    has_videos: bool
    has_tensorboard: bool
    tensorboard_dir: str | None
    serves_page: bool
    stays_open: bool
    checkpoint_seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def labels(self) -> LabelPlan | None:
        """The labels that are asked for; None for none."""
        learning = self.learning
        return None if learning is None or learning.labels.total == 0 else learning.labels

    @property
    def asks_a_person(self) -> bool:
        """Whether people are asked for labels."""
        return self.labels is not None and self.labels.is_person

    @property
    def sorts_clips(self) -> bool:
        """Whether comparisons sort clips, so that the next ones depend on the answers."""
        return self.labels is not None and self.labels.queries != "pairs"

    @property
    def first_labels(self) -> int:
        """Labels that are asked for before training."""
        return 0 if self.labels is None else self.labels.first


def resolve(config: TeachConfig, options: RunOptions, env_info: EnvInfo) -> RunPlan:
    """Resolve the settings of a run in its environment.

    Raises:
        SegmentTooLong: clips are longer than episodes.
    """
    warnings = []
    length, shows_ends = config.clip_length, config.shows_ends(env_info)
    segment_steps = max(round(length * env_info.fps), 1)
    if config.learns:
        given = None if length == TeachConfig.clip_length else f"--clip-length {length:g}"
        segment_steps = limited_segment_steps(segment_steps, env_info, given, warnings)
    if config.predictor != "rl" and shows_ends:
        warnings.append(
            f"Episodes of {env_info.id} may end early, which tells the agent about the true "
            "reward. --hide-episode-ends hides it."
        )
    return RunPlan(
        name=config.name,
        env_info=env_info,
        frames=config.frames,
        physics=config.physics,
        seed=config.seed,
        hides_ends=config.hide_episode_ends,
        agent=AgentPlan(
            name=config.agent,
            settings=config.agent_settings,
            total_steps=config.num_timesteps,
            seed=config.seed,
            # An agent that learns of terminations gains more from a habit that it would lose.
            labels_before_reset=math.inf if shows_ends else config.labels_before_reset,
            is_warm=config.agent_path is not None,
        ),
        clip_reward=config.clip_reward,
        segment_steps=segment_steps,
        learning=_learning(config, options, shows_ends, segment_steps) if config.learns else None,
        num_steps=config.training_steps,
        collects_only=config.collect_only,
        has_null_action_clip=config.null_action_clip,
        cluster=options.cluster,
        workers=options.workers,
        has_videos=options.videos,
        has_tensorboard=not options.no_tensorboard,
        tensorboard_dir=options.tensorboard_dir,
        serves_page=options.serve or config.asks_a_person,
        stays_open=config.asks_a_person and not options.exit_when_finished,
        checkpoint_seconds=options.checkpoint_seconds,
        warnings=tuple(warnings),
    )


def _learning(
    config: TeachConfig, options: RunOptions, shows_ends: bool, segment_steps: int
) -> LearningPlan:
    is_person = config.asks_a_person
    return LearningPlan(
        predictor=config.reward,
        seed=config.seed,
        segment_steps=segment_steps,
        shows_ends=shows_ends,
        first_fit_steps=config.pretrain_iters,
        fits_in_background=config.fit == "async",
        labels=LabelPlan(
            is_person=is_person,
            teacher=config.teacher,
            teacher_name=config.teacher,
            teacher_strength=config.teacher_strength,
            total=config.n_labels if config.asks else 0,
            first=pretraining_labels(config),
            schedule=config.schedule_name,
            num_steps=config.num_timesteps,
            fraction=config.label_fraction,
            hyperbolic_steps=config.hyperbolic_steps,
            seconds_between=SECONDS_BETWEEN if is_person else 0.0,
            steps_between=STEPS_BETWEEN,
            is_paced=is_person and options.pace == "labels",
            selector=config.selector,
            candidates=config.candidates,
            queries=config.queries,
            n_clips=config.n_clips,
            reuses_clips=config.reuse_clips,
        ),
    )


def limited_segment_steps(
    steps: int, env_info: EnvInfo, given: str | None, warnings: list[str]
) -> int:
    """Limit the steps of a segment to those of an episode.

    Args:
        steps: L, length of a segment.
        env_info: the environment.
        given: the setting that the user gave; None for a default, which is shortened.
        warnings: receives a text if the default was shortened.

    Raises:
        SegmentTooLong: the user gave more steps than an episode has.
    """
    longest = env_info.max_episode_steps
    if longest is None or steps <= longest:
        return steps
    if given is not None:
        raise SegmentTooLong(
            f"{given} was given, which is {steps} steps, but an episode of {env_info.id} has "
            f"{longest} ({longest / env_info.fps:.6g} s). Give no more, or choose an environment "
            "with longer episodes."
        )
    warnings.append(f"Clips have {longest} steps, not {steps}: episodes of {env_info.id} end then.")
    return longest
