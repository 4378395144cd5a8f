"""Every setting, once: the command line, the saved run file and the docs are made from these."""

import math
from dataclasses import asdict, dataclass, field, fields
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
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.nn.encoders import PredictorNetwork

DEFAULT_PRETRAIN_LABELS = 50
"""Labels before training where neither -l nor -L says how many."""


@dataclass(frozen=True)
class PredictorConfig:
    """Settings of the reward predictor (Christiano et al. 2017)."""

    ensemble_size: int = 3
    """members; each learns from its own bootstrap sample"""
    hidden: tuple[int, ...] = (64, 64)
    """units of each layer, but where it learns to see"""
    image_encoder: PredictorNetwork = "auto"
    """image encoder: keypoints or profiles of fixed random filters, the better of the two on
    held-out labels (auto), a small CNN, or the paper's four convolutions"""
    ignore_actions: bool = False
    """predict rewards from observations alone; profiles never use actions"""
    batch_norm: bool = False
    """normalise what each convolution says over the minibatch, as the paper does"""
    dropout: float = 0.0
    """chance that a hidden unit is left out while fitting, or what a convolution says"""
    learning_rate: float = 1e-3
    """of Adam"""
    batch_size: int = 32
    """comparisons per member in one gradient step"""
    error_rate: float = 0.1
    """how often the teacher is taken to answer at random"""
    segment_discount: float = 1.0
    """weight of a step within a segment, against the one before it"""
    l2: float = 1e-2
    """weight decay to begin with; it adapts to the held-out loss"""
    reward_std: float = 1.0
    """spread of the predicted reward that the agent is told"""
    window_steps: int = 20_000
    """environment steps over which that spread is measured"""
    label_buffer: int = 0
    """the newest labels that it learns from, so many; 0: all of them"""


LabelerWeights = Literal["equal", "reliability"]


def _whole(text: str) -> int:
    """A whole number, also spelt 5e6 or 5_000_000."""
    number = float(text.replace("_", ""))
    if number != int(number):
        raise ValueError(f"{text} is not a whole number")
    return int(number)


_WholeNumber = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: _whole(texts[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]


def _short(letter: str) -> Any:
    return tyro.conf.arg(aliases=[f"-{letter}"])


@dataclass(frozen=True)
class TeachConfig:
    """One experiment: what is taught, by whom, and how."""

    env_id: Annotated[str, _short("e")]
    """environment to teach, for example ShortHopper-v1; `rl-teacher envs` lists them"""
    predictor: Annotated[Literal["rl", "synth", "human"] | None, _short("p")] = None
    """where rewards come from: the environment itself, a synthetic teacher's labels, a person's;
    not needed with --predictor-path"""
    name: Annotated[str, _short("n")] = field(kw_only=True)
    """of the experiment; the same command again continues it"""
    n_labels: Annotated[_WholeNumber | None, _short("l")] = None
    """labels over the whole run; without it, labels are asked at a constant rate: one every 3 s by
    a person, one every 2,000 steps by a synthetic teacher"""
    pretrain_labels: Annotated[_WholeNumber | None, _short("L")] = None
    """labels before training begins; without it, a quarter of --n-labels, or 50"""
    num_timesteps: Annotated[_WholeNumber, _short("t")] = 5_000_000
    """environment steps of training, whatever the agent"""
    agent: Annotated[str, _short("a")] = "ppo"
    """who learns: ppo, trpo, a2c, ga3c or sac; another library's, such as sb3:TD3 or sbx:SAC; your
    own as module:Class"""
    seed: Annotated[int, _short("s")] = 1
    """of environments, networks, selectors and synthetic teachers"""
    pretrain_iters: Annotated[_WholeNumber, _short("i")] = 10_000
    """gradient steps on the pretraining labels, at most; the fit ends when it stops improving"""
    clip_length: Annotated[float, _short("c")] = 1.5
    """seconds that a clip lasts"""
    stacked_frames: Annotated[int, _short("f")] = 4
    """of an environment that shows pictures: how many of the latest are seen together; 0: one"""
    frame_size: int = 84
    """pixels of height and width that larger pictures are shrunk to; 0: none is shrunk"""
    colour: bool = False
    """let agent and predictor see pictures in colour; a person always does"""
    teacher: str = "oracle"
    """who answers with -p synth: oracle, mistake, noisy, skip, equal, myopic; a task such as
    backflip; or module:function"""
    teacher_strength: float | None = None
    """the synthetic teacher's one number (its epsilon, beta or gamma), if not B-Pref's"""
    schedule: Literal["annealed", "hyperbolic", "constant", "upfront"] | None = None
    """when labels are asked; annealed with --n-labels, constant without"""
    hyperbolic_steps: _WholeNumber = 2_000_000
    """T0 of the hyperbolic schedule, whose rate is in proportion to T0 / (t + T0)"""
    selector: Literal["disagreement", "uniform", "entropy", "k_center"] = "disagreement"
    """which pairs are asked"""
    candidates: int = 10
    """pairs looked at for each one asked"""
    clip_reward: float = 0.0
    """with -p rl: rewards beyond this size count no more than it, as is usual for Atari; 0: all
    count in full. What is reported stays as it is"""
    hide_episode_ends: bool = False
    """do not tell the agent where the environment's own rules end an episode: it would learn about
    the true reward from that. Whoever teaches does not see such ends then either"""
    fit: Literal["sync", "async"] = "sync"
    """fit the predictor between two rollouts (repeatable), or beside them"""
    agent_reset: float = 0.5
    """share of --n-labels after which the agent begins anew, once, so that it keeps no habit that
    the first labels misled it to; the earlier one comes back where that is better after as many
    steps. 0, or with --agent-path: never"""
    predictor_path: str | None = None
    """begin with a saved reward predictor: an experiment's name, or a folder. It is frozen: nothing
    is asked or fitted, unless --keep-asking, --n-labels or --pretrain-labels says so"""
    keep_asking: bool = False
    """with --predictor-path: ask for labels, and go on fitting that predictor to them"""
    agent_path: str | None = None
    """begin with an earlier experiment's agent: its name, or its folder; or with the .zip file of
    one of Stable-Baselines3"""
    collect_only: bool = False
    """ask for --n-labels labels, wait for all of them, and stop; what `rl-teacher collect` does"""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    trpo: TRPOConfig = field(default_factory=TRPOConfig)
    a2c: A2CConfig = field(default_factory=A2CConfig)
    ga3c: GA3CConfig = field(default_factory=GA3CConfig)
    sac: SACConfig = field(default_factory=SACConfig)
    other: OtherAgentConfig = field(default_factory=OtherAgentConfig)
    reward: PredictorConfig = field(default_factory=PredictorConfig)

    def saved(self) -> dict[str, Any]:
        """As plain values: what makes two experiments the same.

        Note: settings that came later are there only where they are used, so that experiments
        that are older than they are can be continued.
        """
        idle = {*AGENT_SECTIONS} - {agent_section(self.agent)}
        return {name: each for name, each in as_saved(self).items() if name not in idle}

    @property
    def frames(self) -> FrameSettings:
        """What is shown of an environment that shows pictures."""
        return FrameSettings(self.stacked_frames, self.frame_size, grey=not self.colour)

    @property
    def agent_settings(self) -> AgentConfig:
        """The settings of the agent that learns."""
        return getattr(self, agent_section(self.agent))

    @property
    def wants_labels(self) -> bool:
        """Whether labels were asked for in so many words."""
        wanted = self.n_labels, self.pretrain_labels
        return self.keep_asking or any(each is not None for each in wanted)

    @property
    def asks(self) -> bool:
        """Whether somebody is asked for labels."""
        is_frozen = self.predictor_path is not None and not self.wants_labels
        return self.predictor in ("synth", "human") and not is_frozen

    @property
    def asks_a_person(self) -> bool:
        """Whether a person is asked for labels."""
        return self.asks and self.predictor == "human"


AGENT_SECTIONS = ("ppo", "trpo", "a2c", "ga3c", "sac", "other")
"""Where the settings of agents are; the last is for all that are not this package's own."""


def agent_section(agent: str) -> str:
    """Where an agent's settings are."""
    return agent if agent in AGENT_SECTIONS else AGENT_SECTIONS[-1]


def as_saved(settings: Any) -> dict[str, Any]:
    """Settings as plain values, without those that came later and are not used."""

    def used(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: used(each) if isinstance(each, dict) else each
            for name, each in values.items()
            if name not in LATER or each != LATER[name]
        }

    return used(asdict(settings))


LATER: dict[str, Any] = {
    "predictor_path": None,
    "keep_asking": False,
    "agent_path": None,
    "collect_only": False,
    "stacked_frames": 4,
    "frame_size": 84,
    "colour": False,
    "hyperbolic_steps": 2_000_000,
    "clip_reward": 0.0,
    "image_encoder": "auto",
    "ignore_actions": False,
    "batch_norm": False,
    "label_buffer": 0,
}
"""Settings that experiments of the first versions do not have, and what they are without them."""


@dataclass(frozen=True)
class CollectConfig:
    """Labels to collect: what of `rl-teacher teach` means something without training."""

    env_id: Annotated[str, _short("e")]
    """environment whose segments are compared"""
    name: Annotated[str, _short("n")]
    """of the experiment that the labels belong to; the same command again continues it"""
    n_labels: Annotated[_WholeNumber, _short("l")]
    """labels to collect"""
    predictor: Annotated[Literal["synth", "human"], _short("p")] = "human"
    """who answers: a synthetic teacher, or you"""
    seed: Annotated[int, _short("s")] = 1
    """of environments, selectors and synthetic teachers"""
    clip_length: Annotated[float, _short("c")] = 1.5
    """seconds that a clip lasts"""
    agent: Annotated[str, _short("a")] = "ppo"
    """who acts, with --agent-path"""
    agent_path: str | None = None
    """whose behaviour is compared: an earlier experiment's agent; a random policy without it"""
    predictor_path: str | None = None
    """a saved reward predictor that helps to choose the pairs, by --selector"""
    stacked_frames: Annotated[int, _short("f")] = 4
    """of an environment that shows pictures: how many of the latest are seen together; 0: one"""
    frame_size: int = 84
    """pixels of height and width that larger pictures are shrunk to; 0: none is shrunk"""
    colour: bool = False
    """let agent and predictor see pictures in colour; a person always does"""
    selector: Literal["disagreement", "uniform", "entropy", "k_center"] = "disagreement"
    """which pairs are asked, with --predictor-path; any without it"""
    candidates: int = 10
    """pairs looked at for each one asked, with --predictor-path"""
    teacher: str = "oracle"
    """who answers with -p synth"""
    teacher_strength: float | None = None
    """the synthetic teacher's one number"""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    trpo: TRPOConfig = field(default_factory=TRPOConfig)
    a2c: A2CConfig = field(default_factory=A2CConfig)
    ga3c: GA3CConfig = field(default_factory=GA3CConfig)
    sac: SACConfig = field(default_factory=SACConfig)
    other: OtherAgentConfig = field(default_factory=OtherAgentConfig)

    def as_teaching(self) -> TeachConfig:
        """The same as an experiment that ends when all labels are there."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return TeachConfig(**given, schedule="upfront", collect_only=True)


@dataclass(frozen=True)
class FitConfig:
    """A reward predictor to fit to labels that are there."""

    labels: tyro.conf.Positional[str]
    """an experiment's name, or a data set: a folder or a .zip"""
    name: Annotated[str | None, _short("n")] = None
    """a new experiment, which the predictor is kept in"""
    out: str | None = None
    """a folder for the predictor, in the place of an experiment"""
    predictor_path: str | None = None
    """begin with a saved predictor: an experiment's name, or a folder"""
    seed: Annotated[int, _short("s")] = 1
    """of networks and bootstrap samples"""
    pretrain_iters: Annotated[_WholeNumber, _short("i")] = 10_000
    """gradient steps at most; the fit ends when it stops improving"""
    reward: PredictorConfig = field(default_factory=PredictorConfig)


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; these may change when it is continued."""

    workers: Annotated[int | None, _short("w")] = None
    """threads of the physics; all cores without it. Results do not depend on it"""
    no_videos: Annotated[bool, _short("V")] = False
    """kept from the predecessor, and changes nothing: only clips that somebody looks at are made"""
    no_tensorboard: bool = False
    """write nothing for TensorBoard"""
    checkpoint_seconds: float = 20.0
    """time between two checkpoints"""
    instructions: str = ""
    """what the page tells a labeler to look for"""
    wait_for_labels: bool = False
    """with -p human: pause training while comparisons wait for an answer"""
    labeler_weights: LabelerWeights = "equal"
    """what labelers who disagree count: all the same, or by how often each is estimated to be
    right"""
    overlap: float | None = None
    """share of the comparisons that several labelers answer, from 0 to 1; without it, as it was,
    and 0 at first"""
    overlap_labelers: int | None = None
    """how many labelers answer each of those; without it, as it was, and 2 at first"""
    repeats: float | None = None
    """share of the comparisons that a labeler is asked again later, from 0 to 1; without it, as it
    was, and 0 at first"""
    gold: float | None = None
    """share of the comparisons, of those with a known answer, that are mixed in for each labeler,
    from 0 to 1; without it, as it was, and 0 at first"""
    serve: bool = False
    """show the page while it runs; with -p human it always is"""
    host: str = "127.0.0.1"
    """address that the page is served at; 0.0.0.0 for every network this machine is in"""
    port: int = 8765
    """port of the page; the next free one if it is taken"""
    no_browser: bool = False
    """print the page's link, and open no browser"""
    media: str | None = None
    """where clips are kept: a folder, or a URL such as s3://bucket/folder; the home's media folder
    without it"""
    force_new: bool = False
    """start over: forgets this experiment's labels and checkpoints, after asking"""
    yes: bool = False
    """do not ask before forgetting"""


COUNTS = (
    "num_timesteps",
    "hyperbolic_steps",
    "pretrain_iters",
    "candidates",
    "num_envs",
    "rollout_steps",
    "batch_envs",
    "minibatch_size",
    "num_epochs",
    "cg_steps",
    "line_search_steps",
    "buffer_steps",
    "policy_delay",
    "ensemble_size",
    "batch_size",
    "window_steps",
)
"""Settings that must be at least 1, in whichever part of the configuration they are."""

ABOVE_ZERO = (
    "clip_length",
    "learning_rate",
    "max_grad_norm",
    "observation_clip",
    "clip_range",
    "target_kl",
    "rms_epsilon",
    "rho_bar",
    "c_bar",
    "updates_per_step",
    "initial_temperature",
    "reward_std",
)
"""Settings that must be finite numbers above 0."""

RANGES = {
    "seed": (0, 2**31 - 1),
    "stacked_frames": (0, 64),
    "frame_size": (0, 4096),
    "agent_reset": (0.0, 1.0),
    "clip_reward": (0.0, 1e9),
    "label_buffer": (0, 2**31 - 1),
    "gamma": (0.0, 1.0),
    "gae_lambda": (0.0, 1.0),
    "entropy_coef": (0.0, 100.0),
    "final_learning_rate": (0.0, 100.0),
    "cg_damping": (0.0, 100.0),
    "line_search_shrinkage": (0.01, 0.99),
    "rms_alpha": (0.0, 1.0),
    "tau": (0.0, 1.0),
    "learning_starts": (0, 10**9),
    "compared_states": (0, 10**9),
    "dropout": (0.0, 0.99),
    "error_rate": (0.0, 0.99),
    "segment_discount": (0.0, 1.0),
    "l2": (0.0, 1.0),
}
"""Settings with a lowest and a highest value."""

SHARES = ("overlap", "repeats", "gold")
"""Options that are shares of the comparisons."""


def validate(config: TeachConfig) -> None:
    """Refuse what cannot be meant, before anything is made.

    Raises:
        BadConfig: says which value, what is allowed, and what to do.
    """
    _check_limits(config, "")
    _check_limits(config.agent_settings, f"{agent_section(config.agent)}.")
    _check_limits(config.reward, "reward.")
    _check_labels(config)
    _check_source(config)


def validate_fit(config: FitConfig) -> None:
    """Refuse settings of a fit that cannot be meant.

    Raises:
        BadConfig: says which value, what is allowed, and what to do.
    """
    if (config.name is None) == (config.out is None):
        raise BadConfig(
            "Say where the predictor goes: an experiment with -n, or a folder with --out."
        )
    validate(
        TeachConfig(
            "",
            "synth",
            name="",
            seed=config.seed,
            pretrain_iters=config.pretrain_iters,
            reward=config.reward,
        )
    )


def validate_options(options: RunOptions) -> None:
    """Refuse options that cannot be meant.

    Raises:
        BadConfig: says which value, and what is allowed.
    """
    if options.workers is not None:
        _at_least(1, "workers", options.workers)
    if not options.checkpoint_seconds >= 0:
        raise BadConfig(
            f"--checkpoint-seconds {options.checkpoint_seconds} was given; 0 or more is needed."
        )
    for setting in SHARES:
        share = getattr(options, setting)
        if share is not None and not 0 <= share <= 1:
            raise BadConfig(f"{flag(setting)} {share} was given; from 0 to 1 is possible.")
    if options.overlap_labelers is not None:
        _at_least(2, "overlap_labelers", options.overlap_labelers)


def flag(setting: str) -> str:
    """A setting as it is spelt on the command line."""
    return "--" + setting.replace("_", "-")


def _check_limits(settings: TeachConfig | AgentConfig | PredictorConfig, prefix: str) -> None:
    """Refuse numbers beyond the limits of what bears their name.

    Args:
        settings: a part of the configuration, or the whole without its parts.
        prefix: of its flags.
    """
    for each in fields(settings):
        name, given = each.name, getattr(settings, each.name)
        if name in COUNTS:
            _at_least(1, prefix + name, given)
        elif name in ABOVE_ZERO:
            _above_zero(prefix + name, given)
        elif name in RANGES:
            low, high = RANGES[name]
            _within(low, high, prefix + name, given)
        elif name == "hidden":
            for units in given:
                _at_least(1, prefix + name, units)


def _at_least(least: int, setting: str, given: int) -> None:
    if given < least:
        raise BadConfig(f"{flag(setting)} {given} was given; at least {least} is needed.")


def _above_zero(setting: str, given: float | int) -> None:
    if not 0 < given < math.inf:
        raise BadConfig(f"{flag(setting)} {given} was given; a number above 0 is needed.")


def _within(low: float | int, high: float | int, setting: str, given: float | int) -> None:
    if not low <= given <= high:
        raise BadConfig(f"{flag(setting)} {given} was given; from {low} to {high} is possible.")


def _check_labels(config: TeachConfig) -> None:
    if config.n_labels is not None:
        _at_least(1, "n_labels", config.n_labels)
    if config.pretrain_labels is not None:
        _at_least(1, "pretrain_labels", config.pretrain_labels)
    total, first = config.n_labels, config.pretrain_labels
    if total is not None and first is not None and first > total:
        raise BadConfig(
            f"--pretrain-labels {first} was given, but only --n-labels {total} in all. "
            "Ask for fewer before training, or for more in all."
        )
    if total is None and config.schedule not in (None, "constant"):
        raise BadConfig(
            f"--schedule {config.schedule} spreads a number of labels, and none was given. "
            "Say how many with --n-labels."
        )


def _check_source(config: TeachConfig) -> None:
    """Refuse rewards that come from nowhere, or from two places."""
    if config.predictor_path is None:
        if config.keep_asking:
            raise BadConfig(
                "--keep-asking says that a saved predictor is fitted further, and none was given. "
                "Name it with --predictor-path, or leave --keep-asking out."
            )
        if config.predictor is None:
            raise BadConfig(
                "It was not said where rewards come from. Give -p rl, -p synth or -p human, or a "
                "saved predictor with --predictor-path."
            )
    elif config.predictor == "rl":
        raise BadConfig(
            "-p rl takes the environment's reward, --predictor-path that of a predictor. "
            "Leave one of them out."
        )
    tells_to = (
        config.keep_asking or config.n_labels is not None or config.pretrain_labels is not None
    )
    if config.predictor is None and tells_to:
        raise BadConfig("Labels were asked for. Say who answers: -p synth or -p human.")
    if config.collect_only and (not config.asks or config.n_labels is None):
        raise BadConfig(
            "--collect-only needs to know how many labels, and who answers: give -l, and -p synth "
            "or -p human."
        )


def pretraining_labels(config: TeachConfig) -> int:
    """How many labels are asked before training: -L, or a quarter of -l, at least 1.

    With a saved predictor none, unless -L says so.
    """
    if config.predictor_path is not None and not config.collect_only:
        return config.pretrain_labels or 0
    is_upfront = config.schedule == "upfront"
    return first_labels(config.n_labels, config.pretrain_labels, is_upfront=is_upfront)


def first_labels(total: int | None, wanted: int | None, *, is_upfront: bool) -> int:
    """How many labels come before any fit: as wanted, or a quarter of all, at least 1.

    Args:
        total: labels in all; None: no end.
        wanted: said outright.
        is_upfront: all of them do, where there is an end.
    """
    if is_upfront and total is not None:
        return total
    if wanted is not None:
        return wanted
    return DEFAULT_PRETRAIN_LABELS if total is None else max(total // 4, 1)
