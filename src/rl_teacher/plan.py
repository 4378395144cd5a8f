"""The plan of a run: what follows from its settings and its environment, resolved once.

Everything below receives the plan, or plain values of it, and nothing below reads the settings.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Literal

from rl_teacher.common.errors import BadConfig, SegmentTooLong
from rl_teacher.common.text import counted
from rl_teacher.config.agents import AgentConfig
from rl_teacher.config.experiment import (
    AGENT_RESET_OF_SAC,
    FIRST_STEPS,
    MIN_STEPS_PER_LABEL,
    SCHEDULE_FRACTION_OF_SAC,
    STEPS_PER_LABEL,
    PageOptions,
    PhysicsBackend,
    PredictorConfig,
    QueryMethod,
    RunOptions,
    TeachConfig,
)
from rl_teacher.config.fields import as_flag
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import EnvInfo

SECONDS_BETWEEN = 3.0
"""Time between two comparisons of the constant schedule, if a person labels."""
NETWORK_SETTINGS = ("ensemble_size", "hidden", "image_encoder", "ignore_actions", "batch_norm")
"""Settings that a saved predictor keeps."""
OF_COMMAND = ("env_id", "force_new")
"""Beginnings of the settings that a command reads before it has a plan."""

Spelling = Callable[[str, Any], str]


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """Labels that are asked for: of whom, how many, when, and about which clips.

    Attributes:
        is_person: whether people answer, through the store.
        teacher: synthetic teacher: its name, or a function of two segments.
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
        follows_labeler: whether comparisons are asked as fast as a person answers, and the number
            of steps follows from the labels.
        selector: query selection: its name, or a function.
        queries: whether unrelated pairs are compared, or clips are sorted, and how.
        n_clips: clips to sort; None to add clips as labels are asked for.
        null_action_clip: whether the first clip to sort shows null actions.
        reuses_clips: whether clips of other experiments are compared as well.
    """

    is_person: bool = False
    teacher: str | Callable[..., Any] = "oracle"
    teacher_strength: float | None = None
    total: int | None = 0
    first: int = 0
    schedule: str | Callable[..., Any] = "constant"
    num_steps: int = 1
    fraction: float = 1.0
    hyperbolic_steps: int = 2_000_000
    seconds_between: float = 0.0
    steps_between: int = 2_000
    is_paced: bool = False
    follows_labeler: bool = False
    selector: str | Callable[..., Any] = "disagreement"
    queries: QueryMethod = "pairs"
    n_clips: int | None = None
    null_action_clip: bool = False
    reuses_clips: bool = False

    @property
    def teacher_name(self) -> str:
        """Name of the synthetic teacher in the store and in messages."""
        if isinstance(self.teacher, str):
            return self.teacher
        module = getattr(self.teacher, "__module__", None) or "?"
        name = getattr(self.teacher, "__qualname__", None) or type(self.teacher).__qualname__
        return f"{module}:{name}"


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
        given_labels: labels that exist before; None for none.
        held_out: labels that it is evaluated on, and never fitted to.
    """

    predictor: PredictorConfig
    seed: int
    segment_steps: int
    shows_ends: bool
    first_fit_steps: int
    fits_in_background: bool
    labels: LabelPlan
    given_labels: Any = None
    held_out: str | None = None


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
    """Plan of a run of `rl-teacher teach` or `collect`.

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
        rewards: what the agent learns from: true rewards, those of a saved predictor as it is, or
            those of a predictor that is fitted to labels.
        learning: the reward predictor that is fitted; None if none is.
        num_steps: environment steps of training; 0 if labels are only collected.
        collects_only: whether the run ends when all labels are there.
        cluster: Ray cluster whose nodes step the environments; None for this machine.
        workers: threads that step the environments; None: one per core.
        has_videos: whether videos of episodes are written.
        has_tensorboard: whether TensorBoard logs are written.
        page: the page that is served; None for none.
        stays_open: whether the page stays open after the last step.
        instructions: instructions for labelers; empty keeps the stored ones.
        overlap: fraction of comparisons that several labelers answer; None keeps the stored one.
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
    rewards: Literal["true", "frozen", "learned"]
    learning: LearningPlan | None
    num_steps: int
    collects_only: bool
    cluster: str | None
    workers: int | None
    has_videos: bool
    has_tensorboard: bool
    page: PageOptions | None
    stays_open: bool
    instructions: str
    overlap: float | None
    checkpoint_seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def labels(self) -> LabelPlan | None:
        """The labels that are asked for; None for none."""
        learning = self.learning
        return None if learning is None or learning.labels.total == 0 else learning.labels

    @property
    def asks_a_person(self) -> bool:
        """True if people are asked for labels."""
        return self.labels is not None and self.labels.is_person

    @property
    def sorts_clips(self) -> bool:
        """True if comparisons sort clips, so that the next ones depend on the answers."""
        return self.labels is not None and self.labels.queries != "pairs"

    @property
    def sorts_from_null_actions(self) -> bool:
        """True if the first clip to sort shows null actions."""
        return self.labels is not None and self.labels.null_action_clip

    @property
    def first_labels(self) -> int:
        """Labels that are asked for before training."""
        return 0 if self.labels is None else self.labels.first

    @property
    def episode_steps(self) -> int:
        """Steps of one episode in all environments, at most `FIRST_STEPS`."""
        episode = self.env_info.max_episode_steps or FIRST_STEPS
        # Steps with images are slower, and a person waits for the first clips.
        limit = FIRST_STEPS // (4 if self.env_info.has_image_observations else 1)
        return min(episode * self.agent.settings.num_envs, limit)

    @property
    def exploration_steps(self) -> int:
        """Steps before training from which the first comparisons are chosen, or more of them."""
        num_steps = 2 * self.first_labels * self.segment_steps
        # A person is asked about whole episodes, so that the clips differ.
        is_person = self.first_labels > 0 and self.asks_a_person
        return max(num_steps, self.episode_steps) if is_person else num_steps


class Reading:
    """Settings that note which of their fields are read, also by their properties."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        derived = getattr(type(self._settings), name, None)
        if isinstance(derived, property) and derived.fget is not None:
            return derived.fget(self)
        self._names.add(name)
        return getattr(self._settings, name)

    def section(self, name: str, *, unread: Collection[str] = ()) -> Any:
        """Return a section of the settings, of which some fields have no effect."""
        section = getattr(self._settings, name)
        self._names |= {f"{name}.{field}" for field in vars(section) if field not in unread}
        return section

    def ignored(self, defaults: Any, spell: Spelling) -> list[str]:
        """Return the settings that differ from their defaults and were not read."""
        return [
            spell(name, value)
            for name, value in changes(self._settings, defaults)
            if name not in self._names and not name.startswith(OF_COMMAND)
        ]


def changes(settings: Any, defaults: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of settings, also of sections, that differ from the defaults."""
    for name, default in vars(defaults).items():
        value = getattr(settings, name)
        if is_dataclass(default):
            yield from changes(value, default, f"{prefix}{name}.")
        elif value is not default and value != default:
            yield prefix + name, value


def resolve(
    settings: TeachConfig,
    options: RunOptions,
    env_info: EnvInfo,
    defaults: TeachConfig | None = None,
) -> RunPlan:
    """Resolve the settings of a run in its environment.

    Args:
        settings: settings of the experiment.
        options: options of the run.
        env_info: its environment.
        defaults: settings before the user changed them, as of a preset.

    Raises:
        BadConfig: settings contradict each other.
        SegmentTooLong: clips are longer than episodes.
    """
    refuse_contradictions(settings)
    if settings.collect_only and settings.asks and settings.n_labels is None:
        raise BadConfig(
            "Collecting needs a number of labels. Give it with -l; or with --queries tree or sort, "
            "the number of clips with --n-clips."
        )
    given, run = Reading(settings), Reading(options)
    warnings: list[str] = []
    shows_ends = env_info.can_terminate and not given.hide_episode_ends
    learning, segment_steps = None, max(round(settings.clip_length * env_info.fps), 1)
    if given.learns:
        clip = given.clip_length
        spelt = None if clip == TeachConfig.clip_length else as_flag("clip_length", f"{clip:g}")
        segment_steps = limited_segment_steps(segment_steps, env_info, spelt, warnings)
        is_paced = given.asks_a_person and not given.asks_upfront and run.pace == "labels"
        # With images, an agent far ahead of its labels collapses to one behaviour.
        has_images = env_info.has_image_observations
        steps_ahead = MIN_STEPS_PER_LABEL if has_images else STEPS_PER_LABEL
        labels = resolve_labels(
            given, is_paced=is_paced, steps_ahead=steps_ahead if given.follows_labeler else None
        )
        learning = resolve_learning(given, env_info, segment_steps, labels)
    if shows_ends and given.predictor != "rl":
        warnings.append(
            f"Episodes of {env_info.id} may end early, which tells the agent about the true "
            "reward. --hide-episode-ends hides it."
        )
    is_frozen = given.predictor_path is not None and learning is None
    asks_a_person, trains = given.asks_a_person, not given.collect_only
    has_warp = env_info.backend == "batch" and options.cluster is None
    is_on_policy = given.agent in ("ppo", "trpo", "a2c", "ga3c")
    workers = run.workers  # read in any case: XLA has as many threads
    page = None
    if asks_a_person or run.serve:
        page = PageOptions(host=run.host, port=run.port, no_browser=run.no_browser)
    plan = RunPlan(
        name=given.name,
        env_info=env_info,
        frames=given.frames if env_info.has_image_observations else settings.frames,
        physics=given.physics if has_warp else "cpu",
        seed=given.seed,
        hides_ends=settings.hide_episode_ends,
        agent=_agent(given, env_info, shows_ends=shows_ends),
        clip_reward=given.clip_reward if given.predictor == "rl" else 0.0,
        segment_steps=segment_steps,
        rewards="learned" if learning else "frozen" if is_frozen else "true",
        learning=learning,
        num_steps=given.total_steps if trains else 0,
        collects_only=not trains,
        cluster=run.cluster if is_on_policy else None,
        workers=None if env_info.backend == "gymnasium" else workers,
        has_videos=trains and run.videos,
        has_tensorboard=not run.no_tensorboard,
        page=page,
        stays_open=asks_a_person and trains and not run.exit_when_finished,
        instructions=run.instructions if asks_a_person else "",
        overlap=run.overlap if asks_a_person else None,
        checkpoint_seconds=run.checkpoint_seconds,
    )
    per_rollout = plan.agent.settings.num_envs * getattr(plan.agent.settings, "rollout_steps", 1)
    exploration = -(-plan.exploration_steps // per_rollout) * per_rollout
    if trains and exploration >= plan.num_steps:
        raise BadConfig(
            f"The first {counted(plan.first_labels, 'comparison')} need {exploration:,} steps "
            f"before training, which leaves none of the {plan.num_steps:,} steps (-t). Raise -t, "
            "or ask for fewer before training (-L), or for shorter clips (-c)."
        )
    ignored = [
        *given.ignored(defaults or TeachConfig(), as_flag),
        *run.ignored(RunOptions(), as_flag),
    ]
    if ignored:
        warnings.append(f"ignored: {', '.join(ignored)} ({_facts(plan)})")
    return replace(plan, warnings=tuple(warnings))


def _facts(plan: RunPlan) -> str:
    """Describe a run as far as it decides which settings it reads."""
    labels = plan.labels
    source = "the true reward" if plan.learning is None else "given labels"
    if labels is not None:
        source = "people" if labels.is_person else f"the teacher {labels.teacher_name}"
    observations = "images" if plan.env_info.has_image_observations else "vectors"
    return f"the agent is {plan.agent.name}, learns from {source}, and observes {observations}"


def _agent(given: Reading, env_info: EnvInfo, *, shows_ends: bool) -> AgentPlan:
    section, is_warm = given.agent_section, given.agent_path is not None
    unread: set[str] = set()
    if section == "sac":
        explores = given.asks and not is_warm and given.first_labels > 0
        unread |= set() if given.learns else {"no_relabel"}
        unread |= set() if explores else {"no_explore"}
        unread |= {"learning_starts", "initial_temperature"} if is_warm else set()
    elif env_info.has_image_observations:
        encoder = getattr(given.section(section, unread={"hidden"}), "image_encoder", None)
        unread |= set() if encoder == "bands" else {"hidden"}
    else:
        unread |= {"image_encoder"}
    labels_before_reset = math.inf
    # An agent that learns of terminations gains more from a habit that a reset takes from it.
    if given.asks and given.n_labels is not None and not is_warm and not shows_ends:
        default = AGENT_RESET_OF_SAC if given.agent == "sac" else 0.0
        fraction = default if given.agent_reset is None else given.agent_reset
        # With as many labels before training, no agent learns from fewer.
        if fraction * given.n_labels > given.first_labels:
            labels_before_reset = fraction * given.n_labels
    return AgentPlan(
        name=given.agent,
        settings=given.section(section, unread=unread),
        total_steps=given.total_steps,
        seed=given.seed,
        labels_before_reset=labels_before_reset,
        is_warm=is_warm,
    )


def resolve_learning(
    given: Reading, env_info: EnvInfo, segment_steps: int, labels: LabelPlan
) -> LearningPlan:
    """Resolve the settings of a reward predictor.

    Args:
        given: the settings.
        env_info: the environment.
        segment_steps: L, length of a segment.
        labels: labels that are asked for.
    """
    fits = not given.collect_only
    fits_later = fits and (labels.is_person or (labels.total != 0 and not given.asks_upfront))
    encoder = given.section("reward", unread=vars(PredictorConfig())).image_encoder
    unread: set[str] = set()
    if not env_info.has_image_observations:
        unread |= {"image_encoder", "batch_norm"}
    elif encoder in ("small", "paper"):
        unread |= {"hidden"}
    else:
        unread |= {"batch_norm", "ignore_actions" if encoder == "profiles" else "batch_norm"}
    unread |= set(NETWORK_SETTINGS) if given.predictor_path is not None else set()
    return LearningPlan(
        predictor=given.section("reward", unread=unread),
        seed=given.seed,
        segment_steps=segment_steps,
        shows_ends=env_info.can_terminate and not given.hide_episode_ends,
        first_fit_steps=given.pretrain_iters if fits else TeachConfig.pretrain_iters,
        fits_in_background=fits_later and given.fit == "async",
        labels=labels,
        given_labels=given.labels if fits else None,
        held_out=given.held_out if fits else None,
    )


def resolve_labels(
    given: Reading,
    *,
    is_paced: bool = False,
    steps_ahead: int | None = None,
    steps_between: int | None = None,
) -> LabelPlan:
    """Resolve the settings of the labels that are asked for.

    Args:
        given: the settings.
        is_paced: whether training waits for labels that are due.
        steps_ahead: environment steps for each label, at most, if comparisons are asked as fast as
            a person answers.
        steps_between: environment steps between two labels of the constant schedule.
    """
    if not given.asks:
        return LabelPlan()
    is_person, asks_later = given.asks_a_person, not given.asks_upfront
    schedule = given.schedule or ("constant" if given.n_labels is None else "annealed")
    is_falling = schedule in ("annealed", "hyperbolic") or callable(schedule)
    fraction = 1.0
    if is_falling and asks_later:
        default = SCHEDULE_FRACTION_OF_SAC if given.agent == "sac" else 1.0
        fraction = default if given.schedule_fraction is None else given.schedule_fraction
    is_fitted = given.predictor_path is not None
    compares_pairs = given.queries == "pairs"
    is_selected = compares_pairs and (is_fitted or asks_later)
    steps_between = steps_between or steps_ahead
    return LabelPlan(
        is_person=is_person,
        teacher=TeachConfig.teacher if is_person else given.teacher,
        teacher_strength=None if is_person else given.teacher_strength,
        total=given.n_labels,
        first=given.first_labels,
        schedule=schedule,
        num_steps=given.schedule_steps or 1,
        fraction=fraction,
        hyperbolic_steps=(
            given.hyperbolic_steps if schedule == "hyperbolic" else TeachConfig.hyperbolic_steps
        ),
        seconds_between=SECONDS_BETWEEN if is_person and steps_between is None else 0.0,
        steps_between=steps_between or LabelPlan.steps_between,
        is_paced=is_paced,
        follows_labeler=steps_ahead is not None,
        selector=given.selector if is_selected else TeachConfig.selector,
        queries=given.queries,
        n_clips=None if compares_pairs else given.n_clips,
        null_action_clip=not compares_pairs and given.null_action_clip,
        reuses_clips=(not compares_pairs or (not is_fitted and given.first_labels > 0))
        and given.reuse_clips,
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
            f"{longest} ({longest / env_info.fps:.6g} s). Use a shorter clip, or an environment "
            "with longer episodes."
        )
    warnings.append(f"Clips have {longest} steps, not {steps}: episodes of {env_info.id} end then.")
    return longest


def refuse_contradictions(settings: TeachConfig, spell: Spelling = as_flag) -> None:
    """Refuse settings that contradict each other about who teaches, or what is trained.

    Raises:
        BadConfig: names the settings, and what to do.
    """
    total, first, source = settings.n_labels, settings.pretrain_labels, settings.predictor
    n_labels = spell("n_labels", total)
    n_clips, schedule = spell("n_clips", settings.n_clips), settings.schedule
    max_labels = math.comb(settings.n_clips or 0, 2)
    rules = {
        f"{spell('pretrain_labels', first)} is more than {n_labels}. Lower the one, or raise the "
        "other.": total is not None and first is not None and first > total,
        f"{n_labels} is more than the {max_labels} pairs of {n_clips}. Lower the one, or raise the "
        "other.": (
            settings.queries != "pairs"
            and None not in (total, settings.n_clips)
            and (total or 0) > max_labels
        ),
        f"{spell('schedule', schedule)} distributes a number of labels, and none was given. Give "
        f"{spell('n_labels', '...')}.": (
            total is None and schedule in ("annealed", "hyperbolic", "upfront")
        ),
        "No source of rewards was given. Give -p rl, -p synth or -p human, a saved predictor with "
        "--predictor-path, or labels with --labels.": source is None and not settings.starts_fitted,
        "-p rl uses the environment's reward, and a predictor or labels were given. Omit one of "
        "them.": source == "rl" and settings.starts_fitted,
        "-p rl asks for no labels. Omit -l and -L, or give -p synth or -p human.": (
            source == "rl" and settings.wants_labels
        ),
        "Labels need a source. Give -p synth or -p human.": (
            source is None and settings.wants_labels
        ),
        f"{spell('teacher', settings.teacher)} is a synthetic teacher, and -p human asks people. "
        "Omit one of them.": source == "human" and settings.teacher != TeachConfig.teacher,
    }
    for message, is_broken in rules.items():
        if is_broken:
            raise BadConfig(message)
