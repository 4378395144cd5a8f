"""Settings of experiments: the CLI, config.json, the wrappers and the docs are made from them.

The classes with shared settings come first; `TeachConfig`, `CollectConfig` and the wrappers'
`WrapperSettings` are composed of them.
"""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal

import tyro

from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import (
    A2CConfig,
    AgentConfig,
    GA3CConfig,
    OtherAgentConfig,
    PPOConfig,
    SACConfig,
    TRPOConfig,
)
from rl_teacher.config.fields import (
    ACTIONS,
    CANDIDATES,
    CLUSTER,
    CONVOLUTIONS,
    EARLY_ENDS,
    FALLING_SCHEDULE,
    FEATURES,
    FIRST_LABELS,
    FITS,
    HUMAN_LABELS,
    HYPERBOLIC_SCHEDULE,
    IMAGES,
    LABELS,
    LATER_FITS,
    LATER_LABELS,
    LEARNING,
    MAX_PORT,
    MAX_SEED,
    MEDIA,
    NEW_CLIPS,
    NEW_PREDICTOR,
    OTHER_CLIPS,
    OVERLAP,
    PAGE,
    PAIR_SCORES,
    REPLACES,
    RESETS,
    SORTING,
    SYNTHETIC_LABELS,
    TENSORBOARD,
    THREADS,
    TRUE_REWARD,
    VIDEOS,
    WARP,
    Above,
    AtLeast,
    Between,
    WholeNumber,
    alias,
    check_bounds,
    only_with_agent,
    short_flag,
)
from rl_teacher.config.preprocessing import MAX_SIZE, MAX_STACKED, FrameSettings
from rl_teacher.nn.encoders import PredictorEncoder

DEFAULT_PRETRAIN_LABELS = 50
"""Labels before training where neither -l nor -L is given."""
SCHEDULE_FRACTION_OF_SAC = 0.5
"""On walker-walk, SAC is stuck in a poor gait less often with early labels; see docs/results.md."""
AGENT_RESET_OF_SAC = 0.5
"""On walker-run, SAC is stuck less often with a reset, after which it has a full replay buffer."""
MAX_CLIPS = 1_000_000

Objective = Literal["preferences", "rank"]
SelectorName = Literal["disagreement", "uniform", "entropy", "k_center"]
PhysicsBackend = Literal["cpu", "warp"]
QueryMethod = Literal["pairs", "tree", "sort"]
SortingMethod = Literal["tree", "sort"]


@dataclass(frozen=True)
class PredictorConfig:
    """Settings of the reward predictor (Christiano et al. 2017)."""

    objective: Annotated[Objective, alias("--objective")] = "preferences"
    """fitting target of the predictor: the labels (preferences), or the rank of each clip,
    computed from all labels (rank)"""
    ensemble_size: Annotated[int, AtLeast(1), NEW_PREDICTOR] = 3
    """ensemble members; each is fitted to its own 85 % of the labels"""
    hidden: Annotated[tuple[int, ...], AtLeast(1), FEATURES, NEW_PREDICTOR] = (128,)
    """hidden layer sizes (not of the convolutional encoders)"""
    image_encoder: Annotated[PredictorEncoder, IMAGES, NEW_PREDICTOR] = "auto"
    """image encoder: an MLP on keypoints or profiles of fixed random filters, the better of the two
    by held-out loss (auto), a small CNN, or the CNN of the paper"""
    ignore_actions: Annotated[bool, ACTIONS, NEW_PREDICTOR] = False
    """predict rewards from observations alone; --reward.image-encoder profiles never uses
    actions"""
    batch_norm: Annotated[bool, CONVOLUTIONS, NEW_PREDICTOR] = False
    """batch normalisation after each convolution, as in the paper"""
    dropout: Annotated[float, Between(0.0, 0.99)] = 0.0
    """dropout rate of hidden units and convolution outputs during a fit"""
    learning_rate: Annotated[float | None, Above(0)] = None
    """learning rate of Adam; by default 0.005, or 0.001 for a CNN"""
    batch_size: Annotated[int, AtLeast(1)] = 32
    """comparisons (or clips) per member and gradient step"""
    error_rate: Annotated[float, Between(0.0, 0.99)] = 0.1
    """assumed probability that the teacher answers at random"""
    segment_discount: Annotated[float, Between(0.0, 1.0)] = 1.0
    """discount factor within a segment; with a low one, only the first steps count"""
    l2: Annotated[float, Between(0.0, 1e6)] = 100.0
    """weight decay, divided by the number of labels (or clips) that are fitted; 0: none"""
    reward_std: Annotated[float, Above(0)] = 1.0
    """standard deviation of the normalised predicted reward"""
    window_steps: Annotated[int, AtLeast(1)] = 20_000
    """environment steps over which the predicted reward is normalised"""
    label_buffer: Annotated[int, Between(0, MAX_SEED)] = 0
    """number of most recent labels that are fitted; 0: all"""


@dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """Settings of queries that `teach`, `collect` and the wrappers share."""

    seed: Annotated[int, short_flag("s"), Between(0, MAX_SEED)] = 1
    """seed of environments, networks, selectors and synthetic teachers"""
    clip_length: Annotated[float, short_flag("c"), Above(0), LEARNING] = 1.5
    """length of a clip in seconds"""
    teacher_strength: Annotated[float | None, SYNTHETIC_LABELS] = None
    """parameter of the synthetic teacher (epsilon, beta, share_skip, share_equal or gamma); by
    default B-Pref's value"""
    candidates: Annotated[int, AtLeast(1), LABELS, PAIR_SCORES, CANDIDATES] = 10
    """candidate pairs per query, from which the selector chooses"""
    queries: Annotated[QueryMethod, LABELS] = "pairs"
    """comparisons of unrelated pairs (pairs), or comparisons that sort clips: by binary insertion
    (tree), or between neighbours in the current ranking (sort)"""
    n_clips: Annotated[WholeNumber | None, Between(2, MAX_CLIPS), SORTING] = None
    """number of clips to sort; if omitted, clips are added as labels are requested. If --n-labels
    is omitted, it is set to the number of comparisons that sorting takes"""
    reuse_clips: Annotated[bool, LABELS, OTHER_CLIPS] = False
    """also compare clips from other experiments in the same environment"""


@dataclass(frozen=True, kw_only=True)
class FittingSettings:
    """Settings of label schedule and fits that `teach` and the wrappers share."""

    n_labels: Annotated[WholeNumber | None, short_flag("l"), AtLeast(1), LABELS] = None
    """total number of labels; if omitted, labels are requested at a constant rate: one every 3 s
    from a person, one every 2,000 steps from a synthetic teacher"""
    pretrain_labels: Annotated[
        WholeNumber | None, short_flag("L"), AtLeast(1), LABELS, FIRST_LABELS
    ] = None
    """labels before the first fit; by default a quarter of the total, or 50 without a total"""
    hide_episode_ends: Annotated[bool, EARLY_ENDS] = False
    """hide the environment's terminations from agent and teacher; they reveal something about the
    true reward"""
    fit: Annotated[Literal["sync", "async"], LEARNING, FITS, LATER_FITS] = "sync"
    """fit the reward predictor between rollouts (sync, reproducible) or in a thread (async)"""
    keep_asking: bool = False
    """request new labels in a run that starts with labels or a predictor, and fit the predictor to
    them as well"""
    collect_only: bool = False
    """request all labels and stop without training"""
    reward: Annotated[PredictorConfig, LEARNING, FITS] = field(default_factory=PredictorConfig)


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Settings of environment, agent and teacher that `teach` and `collect` share."""

    env_id: Annotated[str, short_flag("e")] = field(kw_only=False)
    """environment, for example ShortHopper-v1; `rl-teacher envs` lists them"""
    predictor: Annotated[Literal["rl", "synth", "human"] | None, short_flag("p")] = field(
        default=None, kw_only=False
    )
    """source of rewards: rl (the environment), synth (labels of a synthetic teacher) or human
    (labels of people); optional with --predictor-path or --labels"""
    name: Annotated[str, short_flag("n")]
    """name of the experiment; repeating the command continues it"""
    agent: Annotated[str, short_flag("a")] = "ppo"
    """agent: ppo, trpo, a2c, ga3c or sac; one of another library, such as sb3:TD3 or sbx:SAC; or a
    custom one as module:Class"""
    agent_path: str | None = None
    """warm start of the agent: name or folder of an experiment, or a .zip file of
    Stable-Baselines3"""
    predictor_path: str | None = None
    """saved reward predictor: name of an experiment, or a folder; it stays frozen unless
    --keep-asking, --n-labels, --pretrain-labels or --labels is given"""
    stacked_frames: Annotated[int, short_flag("f"), Between(0, MAX_STACKED), IMAGES] = 4
    """frames stacked into one image observation; 0 or 1: a single frame"""
    frame_size: Annotated[int, Between(0, MAX_SIZE), IMAGES] = 84
    """height and width in pixels that larger images are resized to; 0: no resizing"""
    colour: Annotated[bool, IMAGES] = False
    """colour instead of greyscale images for agent and predictor; clips always have colours"""
    physics: Annotated[PhysicsBackend, WARP] = "cpu"
    """physics of MuJoCo tasks: MuJoCo in threads (cpu), or MuJoCo Warp on an NVIDIA GPU (warp),
    which rounds to 32 bits"""
    teacher: Annotated[str, SYNTHETIC_LABELS] = "oracle"
    """synthetic teacher: oracle, mistake, noisy, skip, equal or myopic; a task such as backflip; or
    module:function"""
    selector: Annotated[SelectorName, LABELS, PAIR_SCORES] = "disagreement"
    """query selection: how pairs are chosen among the candidates"""
    null_action_clip: Annotated[bool, SORTING] = False
    """the first clip to sort shows null actions (zeros, or NOOP), as a reference for the others"""
    ppo: Annotated[PPOConfig, only_with_agent("ppo")] = field(default_factory=PPOConfig)
    trpo: Annotated[TRPOConfig, only_with_agent("trpo")] = field(default_factory=TRPOConfig)
    a2c: Annotated[A2CConfig, only_with_agent("a2c")] = field(default_factory=A2CConfig)
    ga3c: Annotated[GA3CConfig, only_with_agent("ga3c")] = field(default_factory=GA3CConfig)
    sac: Annotated[SACConfig, only_with_agent("sac")] = field(default_factory=SACConfig)
    other: Annotated[OtherAgentConfig, only_with_agent("other")] = field(
        default_factory=OtherAgentConfig
    )


@dataclass(frozen=True, kw_only=True)
class TeachConfig(FittingSettings, QuerySettings, ExperimentSettings):
    """Settings that define an experiment."""

    num_timesteps: Annotated[WholeNumber, short_flag("t"), AtLeast(1), FITS] = 5_000_000
    """environment steps of training"""
    labels: Annotated[str | None, FITS] = None
    """existing labels to fit the predictor to, before training and in all later fits: name of an
    experiment, or a data set (a folder or a .zip file). New labels are requested only with
    --n-labels, --pretrain-labels or --keep-asking, which do not count these"""
    held_out: Annotated[str | None, LEARNING, FITS] = None
    """labels that the predictor is never fitted to, only evaluated on: name of an experiment, or a
    data set"""
    pretrain_iters: Annotated[WholeNumber, short_flag("i"), AtLeast(1), LEARNING, FITS] = 10_000
    """maximum number of gradient steps of the first fit; early stopping ends a fit"""
    schedule: Annotated[
        Literal["annealed", "hyperbolic", "constant", "upfront"] | None, LABELS, FITS
    ] = None
    """label schedule; by default annealed with --n-labels, otherwise constant"""
    hyperbolic_steps: Annotated[WholeNumber, AtLeast(1), HYPERBOLIC_SCHEDULE] = 2_000_000
    """T0 of the hyperbolic schedule, whose label rate is proportional to T0 / (t + T0)"""
    schedule_fraction: Annotated[float | None, Between(0.01, 1.0), FALLING_SCHEDULE] = None
    """fraction of --num-timesteps within which an annealed or hyperbolic schedule requests all
    labels; by default 1, and 0.5 with -a sac"""
    clip_reward: Annotated[float, Between(0.0, 1e9), TRUE_REWARD] = 0.0
    """largest absolute value of a true reward that the agent learns from, usually 1 for Atari; 0:
    no clipping. Reported returns are never clipped"""
    agent_reset: Annotated[float | None, Between(0.0, 1.0), LABELS, FITS, RESETS] = None
    """fraction of --n-labels after which the agent is reset once (Nikishin et al. 2022). 0: no
    reset. By default 0, and 0.5 with -a sac where a reset is possible"""

    def with_label_budget(self) -> "TeachConfig":
        """Return the settings with the number of labels that sorting `n_clips` takes.

        Raises:
            BadConfig: a setting is out of bounds.
        """
        check_bounds(self)
        return replace(self, n_labels=label_budget(self.queries, self.n_labels, self.n_clips))

    def saved(self) -> dict[str, Any]:
        """Return the settings that identify the experiment, as plain values.

        Sections of other agents are left out.
        """
        idle = {*AGENT_SECTIONS} - {self.agent_section}
        saved = {name: each for name, each in asdict(self).items() if name not in idle}
        # A rate that is constant by default and one that is given as such are the same experiment.
        agent = saved[self.agent_section]
        if agent.get("final_learning_rate", 0.0) is None:
            agent["final_learning_rate"] = agent["learning_rate"]
        return saved

    def defaults(self) -> dict[str, Any]:
        """Return the values of settings that an older experiment does not have yet."""
        return TeachConfig(self.env_id, name=self.name, agent=self.agent).saved()

    @property
    def frames(self) -> FrameSettings:
        """Preprocessing of image observations."""
        return FrameSettings(self.stacked_frames, self.frame_size, grey=not self.colour)

    @property
    def agent_section(self) -> str:
        """Name of the section with the agent's settings."""
        return self.agent if self.agent in AGENT_SECTIONS else "other"

    @property
    def agent_settings(self) -> AgentConfig:
        """Settings of the agent."""
        return getattr(self, self.agent_section)

    def shows_ends(self, env_info: Any) -> bool:
        """Return whether agent and teacher learn of terminations, at which segments then end.

        In CartPole, two segments differ in nothing else.

        Args:
            env_info: properties of the environment, as `EnvInfo`.
        """
        return env_info.can_terminate and not self.hide_episode_ends

    @property
    def labels_before_reset(self) -> float:
        """Number of labels after which the agent is reset; infinity for never.

        Where the agent learns of terminations, it is not reset either; see `TrainingLoop`.
        """
        if self.n_labels is None or not self.asks or self.agent_path is not None:
            return math.inf
        default = AGENT_RESET_OF_SAC if self.agent == "sac" else 0.0
        fraction = default if self.agent_reset is None else self.agent_reset
        labels = fraction * self.n_labels
        # With as many labels before training, no agent learns from fewer.
        return labels if labels > pretraining_labels(self) else math.inf

    @property
    def schedule_name(self) -> str:
        """Name of the label schedule; an annealed rate needs a number of labels to anneal to."""
        return self.schedule or ("constant" if self.n_labels is None else "annealed")

    @property
    def label_fraction(self) -> float:
        """Fraction of the steps within which an annealed or hyperbolic schedule asks all labels."""
        if self.schedule_fraction is not None:
            return self.schedule_fraction
        return SCHEDULE_FRACTION_OF_SAC if self.agent == "sac" else 1.0

    @property
    def starts_fitted(self) -> bool:
        """True if there is a predictor before labels are requested: saved, or of given labels."""
        return self.predictor_path is not None or self.labels is not None

    @property
    def wants_labels(self) -> bool:
        """True if a setting asks for labels explicitly."""
        wanted = self.n_labels, self.pretrain_labels
        return self.keep_asking or any(each is not None for each in wanted)

    @property
    def asks(self) -> bool:
        """True if labels are requested from a teacher."""
        is_enough = self.starts_fitted and not self.wants_labels
        return self.predictor in ("synth", "human") and not is_enough

    @property
    def asks_before_training(self) -> bool:
        """True if labels are requested before the first step of training."""
        return self.asks and pretraining_labels(self) > 0

    @property
    def asks_before_fit(self) -> bool:
        """True if labels are requested while there is no fitted predictor."""
        return self.asks_before_training and self.predictor_path is None

    @property
    def asks_after_fit(self) -> bool:
        """True if labels are requested once a predictor is fitted."""
        return self.asks and (self.predictor_path is not None or not self.asks_upfront)

    @property
    def asks_in_two_parts(self) -> bool:
        """True if `pretrain_labels` are a part of the labels, and not all."""
        return self.asks and not self.asks_upfront

    @property
    def asks_upfront(self) -> bool:
        """True if all labels are requested before training."""
        return self.collect_only or self.schedule == "upfront"

    @property
    def training_steps(self) -> int:
        """Environment steps of training; 0 if the run only collects labels."""
        return 0 if self.collect_only else self.num_timesteps

    @property
    def learns(self) -> bool:
        """True if a reward predictor is fitted, to labels that exist or are asked for."""
        return self.asks or self.labels is not None

    @property
    def asks_a_person(self) -> bool:
        """True if labels are requested from people."""
        return self.asks and self.predictor == "human"

    @property
    def asks_synthetic_teacher(self) -> bool:
        """True if a synthetic teacher is asked for labels."""
        return self.asks and self.predictor == "synth"


AGENT_SECTIONS = ("ppo", "trpo", "a2c", "ga3c", "sac", "other")
"""Fields with the settings of agents; `other` is for agents from outside this package."""


@dataclass(frozen=True, kw_only=True)
class CollectConfig(QuerySettings, ExperimentSettings):
    """Settings of `rl-teacher collect`."""

    predictor: Annotated[Literal["synth", "human"], short_flag("p")] = "human"
    """source of labels: synth (a synthetic teacher) or human (people)"""
    n_labels: Annotated[WholeNumber | None, short_flag("l"), AtLeast(1)] = None
    """labels to collect; may be omitted with --n-clips"""
    agent_path: str | None = None
    """agent whose clips are compared: name or folder of an experiment; by default a random
    policy"""
    predictor_path: str | None = None
    """saved reward predictor for query selection; if omitted, pairs are random"""

    def as_teaching(self) -> TeachConfig:
        """Return the settings of a run that ends when all labels are there."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return TeachConfig(**given, collect_only=True).with_label_budget()


@dataclass(frozen=True)
class FitConfig:
    """Settings of `rl-teacher fit`."""

    labels: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="LABELS")]
    """name of an experiment, or a data set: a folder or a .zip file"""
    name: Annotated[str | None, short_flag("n")] = None
    """name of a new experiment for the predictor"""
    out: str | None = None
    """folder for the predictor, instead of an experiment"""
    predictor_path: str | None = None
    """warm start from a saved predictor: name of an experiment, or a folder"""
    held_out: str | None = None
    """labels that the predictor is never fitted to, only evaluated on: name of an experiment, or a
    data set"""
    seed: Annotated[int, short_flag("s"), Between(0, MAX_SEED)] = 1
    """seed of networks and of what is held out"""
    pretrain_iters: Annotated[WholeNumber, short_flag("i"), AtLeast(1)] = 10_000
    """maximum number of gradient steps; early stopping ends a fit"""
    reward: PredictorConfig = field(default_factory=PredictorConfig)


@dataclass(frozen=True)
class RunOptions:
    """Options of a run; they may change when an experiment is continued."""

    workers: Annotated[int | None, short_flag("w"), AtLeast(1), THREADS] = None
    """threads of MuJoCo tasks and Atari games, on each node with --cluster; by default one per
    core. Results do not depend on it"""
    cluster: Annotated[str | None, CLUSTER] = None
    """Ray cluster whose nodes step the environments: local starts one on this machine, auto finds
    the running one, HOST:PORT is a head node. Results do not depend on it"""
    videos: Annotated[bool, VIDEOS] = False
    """write videos (MP4) of at most 20 of the agent's episodes, spread over the run, to the videos
    folder of the experiment"""
    no_videos: Annotated[bool, short_flag("V")] = False
    """write no videos: the default, unlike in the original rl-teacher"""
    no_tensorboard: bool = False
    """write no TensorBoard logs"""
    tensorboard_dir: Annotated[str | None, TENSORBOARD] = None
    """folder of TensorBoard logs, one subfolder per experiment; by default the tensorboard folder
    of RL_TEACHER_HOME"""
    checkpoint_seconds: Annotated[float, AtLeast(0)] = 20.0
    """seconds between checkpoints"""
    instructions: Annotated[str, HUMAN_LABELS] = ""
    """instructions for labelers, shown on the page"""
    pace: Annotated[Literal["labels", "steps"], HUMAN_LABELS, LATER_LABELS] = "labels"
    """pace of a run with human labels: training waits for labels that are due (labels), or does not
    wait (steps)"""
    exit_when_finished: Annotated[bool, HUMAN_LABELS, FITS] = False
    """end the command after the last step; otherwise the page stays open until Ctrl-C, and the
    experiment can be extended on it"""
    overlap: Annotated[float | None, Between(0.0, 1.0), HUMAN_LABELS] = None
    """fraction of comparisons that several labelers answer; unchanged if omitted, initially 0"""
    overlap_labelers: Annotated[int | None, AtLeast(2), HUMAN_LABELS, OVERLAP] = None
    """labelers per comparison with overlap; unchanged if omitted, initially 2"""
    repeats: Annotated[float | None, Between(0.0, 1.0), HUMAN_LABELS] = None
    """fraction of comparisons that a labeler is asked a second time; unchanged if omitted,
    initially 0"""
    gold: Annotated[float | None, Between(0.0, 1.0), HUMAN_LABELS] = None
    """fraction of gold comparisons, whose answer is known; unchanged if omitted,
    initially 0"""
    serve: bool = False
    """serve the page during the run; always on with -p human"""
    host: Annotated[str, PAGE] = "127.0.0.1"
    """address of the page; 0.0.0.0 listens on every network of this machine"""
    port: Annotated[int, PAGE, Between(0, MAX_PORT)] = 8765
    """port of the page; the next free one if it is taken; 0: any"""
    no_browser: Annotated[bool, PAGE] = False
    """print the link to the page without opening a browser"""
    media: Annotated[str | None, MEDIA] = None
    """storage of clips: a folder, or a URL such as s3://bucket/folder; by default
    RL_TEACHER_MEDIA_URL, or the media folder of RL_TEACHER_HOME"""
    force_new: bool = False
    """start over: delete the labels and checkpoints of this experiment, after confirmation"""
    force_new_environment_clips: Annotated[bool, NEW_CLIPS, LABELS, FITS] = False
    """archive this experiment, after confirmation, and start a new one of the same name that keeps
    the agent and the reward predictor, but neither clips nor labels"""
    force_new_training_labels: Annotated[bool, LABELS, FITS] = False
    """archive this experiment, after confirmation, and start a new one of the same name that keeps
    the agent and the reward predictor, but not the labels. To compare the archived clips as well,
    add --reuse-clips, which needs --force-new-reward-model, --queries tree or --queries sort"""
    force_new_reward_model: Annotated[bool, LEARNING, FITS] = False
    """archive this experiment, after confirmation, and start a new one of the same name that keeps
    the agent and the labels, but not the reward predictor"""
    force_new_agent_model: Annotated[bool, FITS] = False
    """archive this experiment, after confirmation, and start a new one of the same name that keeps
    the labels and the reward predictor, but not the agent"""
    yes: Annotated[bool, REPLACES] = False
    """delete or archive without confirmation"""

    @property
    def archives(self) -> bool:
        """True if an existing experiment of the name is archived, and parts of it are kept."""
        return (
            self.force_new_environment_clips
            or self.force_new_training_labels
            or self.force_new_reward_model
            or self.force_new_agent_model
        )


def label_budget(queries: QueryMethod, num_labels: int | None, num_clips: int | None) -> int | None:
    """Return the number of labels; by default as many as sorting the clips takes, or all pairs.

    Args:
        queries: `tree`: N log2(N) comparisons, by binary insertion; `sort`: 8 per clip, with which
            10 % of wrong answers leave a rank correlation of 0.93.
        num_labels: the number where it is given.
        num_clips: N, or None.
    """
    if num_labels is not None or num_clips is None or queries == "pairs":
        return num_labels
    needed = math.ceil(num_clips * (math.log2(num_clips) if queries == "tree" else 8))
    return min(needed, num_pairs_of(num_clips))


def num_pairs_of(num_clips: int) -> int:
    """Return the number of pairs of different clips."""
    return num_clips * (num_clips - 1) // 2


def too_few_clips(queries: QueryMethod, num_labels: int | None, num_clips: int | None) -> str:
    """Return a message if there are more labels than pairs of the clips to sort; otherwise ""."""
    if queries == "pairs" or num_clips is None or num_labels is None:
        return ""
    num_pairs = num_pairs_of(num_clips)
    if num_labels <= num_pairs:
        return ""
    return f"{num_clips} clips have {num_pairs} pairs, and {num_labels} labels were wanted."


def validate(config: TeachConfig) -> None:
    """Check the settings of an experiment before anything is created.

    Raises:
        BadConfig: names the value, what is allowed, and what to do.
    """
    check_bounds(config)
    check_bounds(config.agent_settings, f"{config.agent_section}.")
    check_bounds(config.reward, "reward.")
    total, first = config.n_labels, config.pretrain_labels
    if total is not None and first is not None and first > total:
        raise BadConfig(
            f"--pretrain-labels {first} was given, which is more than --n-labels {total}. "
            "Lower the one, or raise the other."
        )
    if message := too_few_clips(config.queries, total, config.n_clips):
        raise BadConfig(f"{message} Lower --n-labels, or raise --n-clips.")
    if total is None and config.collect_only:
        raise BadConfig(
            "Collecting needs a number of labels. Give it with -l; or with --queries tree or "
            "sort, the number of clips with --n-clips."
        )
    if total is None and config.schedule not in (None, "constant"):
        raise BadConfig(
            f"--schedule {config.schedule} needs a total number of labels. Give it with --n-labels."
        )
    _check_source(config)


def validate_fit(config: FitConfig) -> None:
    """Check the settings of a fit.

    Raises:
        BadConfig: names the value, what is allowed, and what to do.
    """
    if (config.name is None) == (config.out is None):
        raise BadConfig(
            "The predictor is saved either in an experiment or in a folder. Give -n or --out."
        )
    check_bounds(config)
    check_bounds(config.reward, "reward.")


def _check_source(config: TeachConfig) -> None:
    """Check that there is exactly one source of rewards."""
    if not config.starts_fitted:
        if config.keep_asking:
            raise BadConfig(
                "--keep-asking continues with a saved predictor or saved labels, and none was "
                "given. Name them with --predictor-path or --labels, or omit --keep-asking."
            )
        if config.predictor is None:
            raise BadConfig(
                "No source of rewards was given. Give -p rl, -p synth or -p human, a saved "
                "predictor with --predictor-path, or labels with --labels."
            )
    elif config.predictor == "rl":
        flag = "--labels" if config.predictor_path is None else "--predictor-path"
        raise BadConfig(
            f"-p rl uses the environment's reward, {flag} that of a predictor. Omit one of them."
        )
    elif config.predictor is not None and not config.wants_labels:
        raise BadConfig(
            f"-p {config.predictor} was given, but no labels are asked for: a saved predictor, or "
            "saved labels, are used as they are. Give the number of new labels with -l, or "
            "--keep-asking; or omit -p."
        )
    if config.predictor is None and config.wants_labels:
        raise BadConfig("Labels need a source. Give -p synth or -p human.")
    if config.collect_only and not config.asks:
        raise BadConfig("--collect-only needs a teacher. Give -p synth or -p human.")


def pretraining_labels(config: TeachConfig) -> int:
    """Return the number of labels before training: -L, or a quarter of -l, at least 1; or all.

    With a saved predictor or given labels it is 0 unless -L or an upfront schedule asks for some.
    """
    if config.starts_fitted and not config.asks_upfront:
        return config.pretrain_labels or 0
    return first_labels(config.n_labels, config.pretrain_labels, is_upfront=config.asks_upfront)


def first_labels(total: int | None, wanted: int | None, *, is_upfront: bool) -> int:
    """Return the number of labels before the first fit; by default a quarter of all, at least 1.

    Args:
        total: labels in all; None: unlimited.
        wanted: the number where it is given explicitly.
        is_upfront: ask for all labels first, where their number is limited.
    """
    if is_upfront and total is not None:
        return total
    if wanted is not None:
        return wanted
    return DEFAULT_PRETRAIN_LABELS if total is None else max(total // 4, 1)
