"""Settings: the command line, config.json, the wrappers and docs/settings.md are made from them."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, field, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field
from pydantic.dataclasses import dataclass

from rl_teacher.config.agents import (
    A2CConfig,
    AgentConfig,
    GA3CConfig,
    Hidden,
    OtherAgentConfig,
    PPOConfig,
    SACConfig,
    TRPOConfig,
)
from rl_teacher.config.fields import (
    LABELS,
    MAX_SEED,
    NEGATABLE,
    NO_FLAG,
    PAGE,
    STRICT,
    TEACHER,
    TRAINING,
    WHAT,
    Count,
    Fraction,
    Port,
    Positive,
    Seed,
    short,
)
from rl_teacher.config.preprocessing import MAX_SIZE, MAX_STACKED, FrameSettings
from rl_teacher.nn.encoders import PredictorEncoder

DEFAULT_PRETRAIN_LABELS = 50
"""Labels before training where neither -l nor -L is given."""
DEFAULT_STEPS = 5_000_000
"""Environment steps where -t is not given and no person labels."""
FIRST_STEPS = 32_000
"""Environment steps of whole episodes from which a person's first comparisons are chosen, at most;
there are more if the comparisons need them."""
MIN_STEPS_PER_LABEL, STEPS_PER_LABEL = 2_000, 20_000
"""Minimum and maximum environment steps for each of a person's labels where -t is not given. With
images, the minimum is also the maximum during labelling; see docs/labelling.md."""
UNLIMITED_STEPS = MAX_SEED
"""Environment steps of a run that its labels, or its owner, end."""
SCHEDULE_FRACTION_OF_SAC = 0.5
"""On walker-walk, SAC is stuck in a poor gait less often with early labels; see docs/results.md."""
AGENT_RESET_OF_SAC = 0.5
"""On walker-run, SAC is stuck less often with a reset, after which it has a full replay buffer."""
AGENT_SECTIONS = ("ppo", "trpo", "a2c", "ga3c", "sac", "other")
"""Fields with the settings of agents; `other` is for agents from outside this package."""


def max_steps(n_labels: int) -> int:
    """Return the environment steps, at most, of a run whose length follows from its labels."""
    return FIRST_STEPS + STEPS_PER_LABEL * n_labels


def last_step(step: int, n_labels: int) -> int:
    """Return the step at which such a run ends, given that of its last label.

    It trains for as many steps again, so that the end takes no longer than the labels took.
    """
    return min(max(2 * step, FIRST_STEPS + MIN_STEPS_PER_LABEL * n_labels), max_steps(n_labels))


Objective = Literal["preferences", "rank"]
SelectorName = Literal["disagreement", "uniform"]
PhysicsBackend = Literal["cpu", "warp"]
QueryMethod = Literal["pairs", "tree", "sort"]
ScheduleName = Literal["annealed", "hyperbolic", "constant", "upfront"]
Rate = Annotated[float, Field(ge=0, le=0.99)]


@dataclass(frozen=True, config=STRICT)
class PredictorConfig:
    """Settings of the reward predictor (Christiano et al. 2017)."""

    objective: Annotated[Objective, short("--objective")] = "preferences"
    """fitting target of the predictor: the labels (preferences), or the rank of each clip,
    computed from all labels (rank)"""
    ensemble_size: Count = 3
    """ensemble members; each is fitted to its own 85 % of the labels"""
    hidden: Hidden = (128,)
    """hidden layer sizes (not of the convolutional encoders)"""
    image_encoder: PredictorEncoder = "auto"
    """image encoder: an MLP on keypoints or profiles of fixed random filters, the better of the two
    by held-out loss (auto), a small CNN, or the CNN of the paper"""
    ignore_actions: Annotated[bool, NEGATABLE] = False
    """predict rewards from observations alone; --reward.image-encoder profiles never uses
    actions"""
    batch_norm: Annotated[bool, NEGATABLE] = False
    """batch normalisation after each convolution of a CNN, as in the paper"""
    dropout: Rate = 0.0
    """dropout rate of hidden units and convolution outputs during a fit"""
    learning_rate: Positive | None = None
    """learning rate of Adam; by default 0.005, or 0.001 for a CNN"""
    batch_size: Count = 32
    """comparisons (or clips) per member and gradient step"""
    error_rate: Rate = 0.1
    """assumed probability that the teacher answers at random"""
    segment_discount: Fraction = 1.0
    """discount factor within a segment; with a low one, only the first steps count"""
    l2: Annotated[float, Field(ge=0, le=1e6)] = 100.0
    """weight decay, divided by the number of labels (or clips) that are fitted; 0: none"""
    reward_std: Positive = 1.0
    """standard deviation of the normalised predicted reward"""
    label_buffer: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """number of most recent labels that are fitted; 0: all"""


@dataclass(frozen=True, config=STRICT)
class TeachConfig:
    """Settings of an experiment, or of a training loop of one's own around a wrapper.

    `teach` has all but those at the end, which are keywords of the wrappers; `collect`, `fit` and
    the wrappers have some of them, see `offered`.
    """

    env_id: Annotated[str, WHAT, short("-e")] = ""
    """environment, for example ShortHopper-v1; `rl-teacher envs` lists them"""
    predictor: Annotated[Literal["rl", "synth", "human"] | None, TEACHER, short("-p")] = None
    """source of rewards: rl (the environment), synth (labels of a synthetic teacher) or human
    (labels of people); without it, --predictor-path or --labels is used as it is"""
    _: KW_ONLY
    name: Annotated[str, WHAT, short("-n")] = ""
    """name of the experiment; repeating the command continues it"""
    agent: Annotated[str, WHAT, short("-a")] = "ppo"
    """agent: ppo, trpo, a2c, ga3c or sac; one of another library, such as sb3:TD3 or sbx:SAC; or a
    custom one as module:Class"""
    seed: Annotated[Seed, WHAT, short("-s")] = 1
    """seed of environments, networks, selectors and synthetic teachers"""
    hide_episode_ends: Annotated[bool, WHAT, NEGATABLE] = False
    """hide the environment's terminations from agent and teacher; they reveal something about the
    true reward"""
    stacked_frames: Annotated[int, Field(ge=0, le=MAX_STACKED), short("-f")] = 4
    """frames stacked into one image observation; 0 or 1: a single frame"""
    frame_size: Annotated[int, Field(ge=0, le=MAX_SIZE)] = 42
    """height and width in pixels that larger images are resized to; 0: no resizing"""
    colour: bool = False
    """colour instead of greyscale images for agent and predictor; clips always have colours"""
    physics: PhysicsBackend = "cpu"
    """physics of MuJoCo tasks: MuJoCo in threads (cpu), or MuJoCo Warp on an NVIDIA GPU (warp),
    which rounds to 32 bits"""

    teacher: Annotated[str | Callable[..., Any], TEACHER] = "oracle"
    """synthetic teacher: oracle, mistake, noisy, skip, equal or myopic; a task such as backflip;
    spectator, for Atari games with a sparse score; or module:function"""
    teacher_strength: float | None = None
    """parameter of the synthetic teacher (epsilon, beta, share_skip, share_equal or gamma; epsilon
    of a task); by default B-Pref's value, 0 of a task"""
    labels: Annotated[str | None, TEACHER] = None
    """existing labels to fit the predictor to, before training and in all later fits: name of an
    experiment, or a data set (a .zip file). New labels are requested only with -p synth or -p
    human; --n-labels does not count these"""
    predictor_path: Annotated[str | None, TEACHER] = None
    """saved reward predictor: name of an experiment, or a folder; it stays frozen unless -p synth,
    -p human or --labels is given"""
    agent_path: str | None = None
    """warm start of the agent: name or folder of an experiment"""
    held_out: str | None = None
    """labels that the predictor is never fitted to, only evaluated on: name of an experiment, or a
    data set"""

    n_labels: Annotated[Count | None, LABELS, short("-l")] = None
    """total number of labels; if omitted, a person labels until the run is finished, and a
    synthetic teacher every 2,000 steps"""
    pretrain_labels: Annotated[Count | None, LABELS, short("-L")] = None
    """labels before the first fit; by default a quarter of the total, or 50 without a total"""
    clip_length: Annotated[Positive, LABELS, short("-c")] = 1.5
    """length of a clip in seconds"""
    schedule: Annotated[ScheduleName | Callable[..., Any] | None, LABELS] = None
    """label schedule; by default annealed with --n-labels, otherwise constant; without
    --num-timesteps and --schedule, a person is asked as fast as they answer"""
    hyperbolic_steps: Count = 2_000_000
    """T0 of the hyperbolic schedule, whose label rate is proportional to T0 / (t + T0)"""
    schedule_fraction: Annotated[float, Field(ge=0.01, le=1)] | None = None
    """fraction of --num-timesteps within which an annealed or hyperbolic schedule requests all
    labels; by default 1, and 0.5 with -a sac"""
    selector: SelectorName | Callable[..., Any] = "disagreement"
    """query selection: how pairs are chosen among the candidates"""
    queries: Annotated[QueryMethod, LABELS] = "pairs"
    """comparisons of unrelated pairs (pairs), or comparisons that sort clips: by binary insertion
    (tree), or between neighbours in the current ranking (sort)"""
    n_clips: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """number of clips to sort; if omitted, clips are added as labels are requested. If --n-labels
    is omitted, it is set to the number of comparisons that sorting takes"""
    null_action_clip: bool = False
    """the first clip to sort shows null actions (zeros, or NOOP), as a reference for the others"""
    reuse_clips: bool = False
    """also compare clips from other experiments in the same environment"""
    collect_only: Annotated[bool, NO_FLAG] = False
    """request all labels and stop without training"""

    num_timesteps: Annotated[Count | None, TRAINING, short("-t")] = None
    """environment steps, with those of the exploration before training; by default 5,000,000. With
    -p human as many as the labels need, or without --n-labels until you finish the run"""
    clip_reward: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """largest absolute value of a true reward that the agent learns from, usually 1 for Atari; 0:
    no clipping. Reported returns are never clipped"""
    agent_reset: Fraction | None = None
    """fraction of --n-labels after which the agent is reset once (Nikishin et al. 2022). 0: no
    reset. By default 0, and 0.5 with -a sac where a reset is possible"""
    fit: Literal["sync", "async"] = "sync"
    """fit the reward predictor between rollouts (sync, reproducible) or in a thread (async)"""
    pretrain_iters: Annotated[Count, short("-i")] = 10_000
    """maximum number of gradient steps of the first fit; early stopping ends a fit"""
    reward: PredictorConfig = field(default_factory=PredictorConfig)
    """the reward predictor"""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """PPO"""
    trpo: TRPOConfig = field(default_factory=TRPOConfig)
    """TRPO"""
    a2c: A2CConfig = field(default_factory=A2CConfig)
    """A2C"""
    ga3c: GA3CConfig = field(default_factory=GA3CConfig)
    """GA3C"""
    sac: SACConfig = field(default_factory=SACConfig)
    """SAC"""
    other: OtherAgentConfig = field(default_factory=OtherAgentConfig)
    """other agents"""

    def with_label_budget(self) -> Self:
        """Return the settings with the number of labels that sorting `n_clips` takes."""
        return replace(self, n_labels=label_budget(self.queries, self.n_labels, self.n_clips))

    def saved(self) -> dict[str, Any]:
        """Return the settings that identify the experiment, as plain values.

        Sections of other agents are left out.
        """
        idle = {*AGENT_SECTIONS} - {self.agent_section}
        saved = {name: value for name, value in asdict(self).items() if name not in idle}
        # A rate that is constant by default and one that is given as such are the same experiment.
        agent = saved[self.agent_section]
        if agent.get("final_learning_rate", 0.0) is None:
            agent["final_learning_rate"] = agent["learning_rate"]
        return saved

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

    @property
    def starts_fitted(self) -> bool:
        """True if there is a predictor before labels are requested: saved, or of given labels."""
        return self.predictor_path is not None or self.labels is not None

    @property
    def wants_labels(self) -> bool:
        """True if a setting asks for labels explicitly."""
        numbers = self.n_labels, self.pretrain_labels
        return self.collect_only or any(number is not None for number in numbers)

    @property
    def asks(self) -> bool:
        """True if labels are requested from a teacher."""
        return self.predictor in ("synth", "human")

    @property
    def total_steps(self) -> int:
        """Environment steps of training: -t, or its default."""
        if self.follows_labeler:
            return UNLIMITED_STEPS
        return self.schedule_steps

    @property
    def schedule_steps(self) -> int:
        """Environment steps over which the labels are spread."""
        if self.num_timesteps is not None:
            return self.num_timesteps
        if not self.asks_a_person:
            return DEFAULT_STEPS
        return UNLIMITED_STEPS if self.n_labels is None else max_steps(self.n_labels)

    @property
    def follows_labeler(self) -> bool:
        """True if a person's pace determines when to ask, and the labels how long to train."""
        is_scheduled = self.n_labels is None and self.schedule is not None
        is_labelled = self.asks_a_person and not self.asks_upfront and not is_scheduled
        return is_labelled and self.num_timesteps is None

    @property
    def asks_upfront(self) -> bool:
        """True if all labels are requested before training."""
        return self.collect_only or self.schedule == "upfront"

    @property
    def learns(self) -> bool:
        """True if a reward predictor is fitted, to labels that exist or are asked for."""
        return self.labels is not None or self.asks

    @property
    def asks_a_person(self) -> bool:
        """True if labels are requested from people."""
        return self.predictor == "human" and self.asks

    @property
    def first_labels(self) -> int:
        """Labels before training: -L, or a quarter of -l, at least 1; or all.

        With a saved predictor or given labels it is 0 unless -L or an upfront schedule asks for
        some.
        """
        total = self.n_labels
        if total is not None and self.asks_upfront:
            return total
        if self.pretrain_labels is not None:
            return self.pretrain_labels
        if self.starts_fitted and not self.asks_upfront:
            return 0
        return DEFAULT_PRETRAIN_LABELS if total is None else max(total // 4, 1)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PageOptions:
    """Options of a command that serves the page."""

    host: str = "127.0.0.1"
    """address of the page; 0.0.0.0 listens on every network of this machine"""
    port: Port = 8765
    """port of the page; the next free one if it is taken; 0: any"""
    no_browser: bool = False
    """print the link to the page without opening a browser"""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ServeOptions(PageOptions):
    """Options of `rl-teacher serve`."""

    end_after_runs: Annotated[float, Field(ge=0)] | None = None
    """seconds after the last run until the service ends; by default it does not end"""
    public_url: str | None = None
    """address that browsers open, in printed links, such as https://label.example.org behind a
    reverse proxy; by default that of --host and --port"""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RunOptions(PageOptions):
    """Options of a run; they may change when an experiment is continued."""

    workers: Annotated[Count | None, TRAINING, short("-w")] = None
    """threads of MuJoCo tasks and Atari games, on each node with --cluster, and of the networks; by
    default one per core. Results do not depend on it"""
    cluster: str | None = None
    """Ray cluster whose nodes step the environments: local starts one on this machine, auto finds
    the running one, HOST:PORT is a head node. Results do not depend on it"""
    videos: Annotated[bool, TRAINING] = False
    """write videos (MP4) of at most 20 of the agent's episodes, spread over the run, to the videos
    folder of the experiment"""
    no_tensorboard: bool = False
    """write no TensorBoard logs"""
    checkpoint_seconds: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 20.0
    """seconds between checkpoints"""
    instructions: Annotated[str, PAGE] = ""
    """instructions for labelers, shown on the page"""
    pace: Literal["labels", "steps"] = "labels"
    """pace of a run with human labels: training waits for labels that are due (labels), or does not
    wait (steps)"""
    exit_when_finished: bool = False
    """end the command after the last step; otherwise the page stays open until Ctrl-C, and the
    experiment can be extended on it"""
    overlap: Fraction | None = None
    """fraction of comparisons that several labelers answer; unchanged if omitted, initially 0"""
    serve: Annotated[bool, PAGE] = False
    """serve the page during the run; always on with -p human"""
    force_new: Annotated[bool, WHAT] = False
    """start over: delete the labels and checkpoints of this experiment, after confirmation"""


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
    return min(needed, math.comb(num_clips, 2))
