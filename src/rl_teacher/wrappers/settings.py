"""Settings of the wrappers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadConfig, UnknownName
from rl_teacher.config.experiment import (
    FittingSettings,
    PredictorConfig,
    QuerySettings,
    first_labels,
    label_budget,
    too_few_clips,
)
from rl_teacher.config.fields import (
    FITS,
    LABELS,
    LEARNING,
    MAX_SEED,
    PAIR_SCORES,
    Above,
    AtLeast,
    Between,
    OnlyWith,
    RunSetup,
    as_keyword,
    check_bounds,
    refuse_ineffective,
)
from rl_teacher.datasets.given_labels import Labelled
from rl_teacher.envs.registry import EnvInfo
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.queries.schedules import Schedule
from rl_teacher.queries.selectors import Selector

CONSTANT_SCHEDULE = OnlyWith(
    "--schedule constant",
    lambda run: run.config.schedule == "constant" or callable(run.config.schedule),
    "schedule='constant'",
)

FALLING_SCHEDULE = OnlyWith(
    "--schedule annealed or hyperbolic, and labels to ask for after the first fit",
    lambda run: (
        run.config.asks_in_two_parts
        and (run.config.schedule in ("annealed", "hyperbolic") or callable(run.config.schedule))
    ),
    "schedule='annealed' or 'hyperbolic' (not with collect_only)",
)


@dataclass(frozen=True, kw_only=True)
class WrapperSettings(FittingSettings, QuerySettings):
    """Keywords of `PreferenceWrapper` and `PreferenceVectorWrapper`.

    Settings shared with `rl-teacher teach` are inherited, with the same names, units and bounds.
    """

    name: Annotated[str | None, LEARNING] = None
    """name of the experiment; the same name continues it. By default it consists of environment and
    time"""
    teacher: Annotated[str | Callable[[Segment, Segment], Any], LABELS] = "oracle"
    """a synthetic teacher or a task by name, `human`, `module:function`, or a function of two
    segments"""
    segment_length: Annotated[int | None, AtLeast(1), LEARNING] = None
    """steps of a segment, in place of `clip_length`; an alias that drlhp used"""
    initial_fits: Annotated[int, AtLeast(1), LEARNING, FITS] = 1
    """fits before the predicted reward is returned"""
    true_reward_until_fit: Annotated[bool, LABELS, FITS] = False
    """return the true reward until then, instead of 0"""
    steps_between_labels: Annotated[int | None, AtLeast(1), LABELS, CONSTANT_SCHEDULE] = None
    """environment steps per comparison of the constant schedule; by default 2,000, or one every 3 s
    where a person answers"""
    schedule: Annotated[str | Schedule, LABELS] = "constant"
    """label schedule: `constant`, `annealed`, `hyperbolic`, `upfront`, or a function"""
    num_timesteps: Annotated[int | None, AtLeast(1), LEARNING] = None
    """environment steps of training; `annealed` and `hyperbolic` distribute the labels over them"""
    schedule_fraction: Annotated[float, Between(0.01, 1.0), LABELS, FALLING_SCHEDULE] = 1.0
    """fraction of `num_timesteps` within which `annealed` and `hyperbolic` request all labels"""
    selector: Annotated[str | Selector, PAIR_SCORES] = "disagreement"
    """query selection: a name, or a function"""
    train_only: bool = False
    """fit once to `labels`, ask for none, and return the predicted reward"""
    labels: str | Path | Iterable[Labelled] | None = None
    """initial labels: the path of a data set, or comparisons with left, right and target"""
    predictor_path: str | Path | RewardPredictor | None = None
    """a saved predictor's folder, or the predictor; it stays frozen unless `keep_asking`"""
    wait_for_labels: Annotated[bool, LABELS] = False
    """block `step` until every comparison is answered"""
    answer_timeout_s: Annotated[float | None, Above(0), LABELS] = None
    """seconds to wait for an answer before training continues without it; None: no limit"""
    checkpoint_interval: Annotated[int, AtLeast(1), LEARNING] = 10_000
    """environment steps between checkpoints"""
    refresh_interval: Annotated[int, AtLeast(0), LEARNING, FITS] = 0
    """environment steps between fits; 0: as soon as there are new labels"""
    observation_transform: Callable[[Any], np.ndarray] | None = None
    """function of one observation, whose result predictor and teacher receive; by default,
    observations other than Box are flattened"""
    fit: Annotated[Literal["sync", "async"], LEARNING] = "async"
    """fit before the next step (sync, reproducible) or in a thread (async)"""
    seed: Annotated[int, Between(0, MAX_SEED)] = 0
    """seed of networks, selectors and synthetic teachers"""
    instructions: Annotated[str, LABELS] = ""
    """instructions for labelers, shown on the page"""

    @property
    def is_human(self) -> bool:
        """True if people answer, through the store."""
        return self.teacher == "human"

    @cached_property
    def pretrained(self) -> RewardPredictor | None:
        """The predictor of `predictor_path`; None without one.

        Raises:
            CorruptCheckpoint: the folder has no predictor, or it is damaged.
        """
        given = self.predictor_path
        return RewardPredictor.load(given) if isinstance(given, str | Path) else given

    @property
    def is_frozen(self) -> bool:
        """True if a saved predictor is used without further fits."""
        return self.predictor_path is not None and not self.keep_asking

    @property
    def learns(self) -> bool:
        """True if the predictor is fitted to labels."""
        return not self.is_frozen

    @property
    def asks(self) -> bool:
        """True if a teacher is asked for labels."""
        return self.learns and not self.train_only

    @property
    def asks_before_fit(self) -> bool:
        """True if labels are requested while there is no fitted predictor."""
        return self.asks and self.predictor_path is None

    @property
    def asks_upfront(self) -> bool:
        """True if all labels are requested before the first fit."""
        # Without training, no step makes a label due later.
        return self.collect_only or self.schedule == "upfront"

    @property
    def asks_in_two_parts(self) -> bool:
        """True if `pretrain_labels` are a part of the labels, or limit them, and not all."""
        return not self.asks_upfront or self.n_labels is None

    @property
    def asks_after_fit(self) -> bool:
        """True if labels are requested once a predictor is fitted."""
        return self.asks and (self.predictor_path is not None or not self.asks_upfront)

    @property
    def asks_a_person(self) -> bool:
        """True if people are asked for labels."""
        return self.asks and self.is_human

    @property
    def asks_synthetic_teacher(self) -> bool:
        """True if a teacher with a name is asked for labels."""
        return self.asks and isinstance(self.teacher, str) and not self.is_human

    @property
    def first_labels(self) -> int:
        """Labels before the first fit."""
        return first_labels(self.n_labels, self.pretrain_labels, is_upfront=self.asks_upfront)

    def first_to_ask(self, num_given: int) -> int:
        """Return how many of the first labels are requested, beside the given ones."""
        return max(self.first_labels - num_given, 0)

    @property
    def teacher_name(self) -> str:
        """Name of the teacher in the store and in messages."""
        if isinstance(self.teacher, str):
            return self.teacher
        module = getattr(self.teacher, "__module__", None) or "?"
        return f"{module}:{name_of(self.teacher)}"


def name_of(function: Any) -> str:
    """Return the qualified name of a function, or of an object's type."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def settings_of(keywords: dict[str, Any]) -> WrapperSettings:
    """Create and check settings from keywords.

    Raises:
        UnknownName: no such keyword; the message offers the nearest one.
        BadConfig: a value is out of bounds, or contradicts another.
    """
    known = [each.name for each in fields(WrapperSettings)]
    for keyword in keywords:
        if keyword not in known:
            raise UnknownName("keyword of the wrapper", keyword, known)
    settings = WrapperSettings(**keywords)
    check_bounds(settings, spell=as_keyword)
    budget = label_budget(settings.queries, settings.n_labels, settings.n_clips)
    settings = replace(settings, n_labels=budget)
    check_bounds(settings.reward, "reward.", spell=as_keyword)
    if message := contradiction(settings):
        raise BadConfig(message)
    return settings


def check_effects(settings: WrapperSettings, env_info: EnvInfo) -> None:
    """Refuse settings that have no effect for the environment or beside other settings.

    Raises:
        BadConfig: names the setting and what it applies to.
    """
    run = RunSetup(settings, None, env_info)
    refuse_ineffective(settings, WrapperSettings(), run, as_keyword)


def contradiction(settings: WrapperSettings) -> str | None:
    """Return a message about settings that exclude each other; None if there are none."""
    given = settings.schedule
    few = too_few_clips(settings.queries, settings.n_labels, settings.n_clips)
    rules = {
        f"pretrain_labels={settings.pretrain_labels} was given, but n_labels={settings.n_labels} "
        "limits all labels. Decrease the former or increase the latter.": (
            settings.n_labels is not None and settings.first_labels > settings.n_labels
        ),
        f"{few} Decrease n_labels or increase n_clips.": bool(few),
        f"schedule={given!r} distributes a number of labels, and none was given. Give n_labels.": (
            given in ("annealed", "hyperbolic", "upfront") and settings.n_labels is None
        ),
        f"schedule={given!r} distributes labels over the whole training. Give the number of "
        "environment steps as num_timesteps.": (
            given in ("annealed", "hyperbolic") and settings.num_timesteps is None
        ),
        "clip_length and segment_length were both given; they set the same. Leave one out.": (
            settings.segment_length is not None
            and settings.clip_length != WrapperSettings.clip_length
        ),
        "reward was given, but the predictor in predictor_path has its own settings. Leave reward "
        "out.": settings.predictor_path is not None and settings.reward != PredictorConfig(),
        "collect_only and train_only exclude each other. Without both, labels are collected and "
        "fitted.": settings.collect_only and settings.train_only,
        "train_only fits a predictor to labels, and none were given. Name a label data set with "
        "labels=PATH.": settings.train_only and settings.labels is None,
        "keep_asking fine-tunes a saved predictor, and none was given. Name it with "
        "predictor_path=PATH.": settings.keep_asking and settings.predictor_path is None,
        "schedule='upfront' requests all labels before training, but the predictor in "
        "predictor_path rewards the first step already. Leave schedule out, or collect the labels "
        "with collect_only=True, and give them as labels=PATH.": (
            given == "upfront" and settings.keep_asking and not settings.collect_only
        ),
        "predictor_path was given, so the predictor stays frozen: collect_only and labels have no "
        "effect. Give keep_asking=True to fine-tune it.": (
            settings.is_frozen and (settings.labels is not None or settings.collect_only)
        ),
    }
    return next((message for message, is_broken in rules.items() if is_broken), None)
