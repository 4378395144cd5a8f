"""What a wrapper is told: every keyword of `PreferenceWrapper` and `PreferenceVectorWrapper`."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadConfig, UnknownName
from rl_teacher.config.experiment import PredictorConfig, first_labels
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.queries.schedules import Schedule
from rl_teacher.queries.selectors import Selector


@runtime_checkable
class LabelledComparison(Protocol):
    """A comparison with what was said of it, as a label data set holds it."""

    @property
    def left(self) -> Segment:
        """One segment."""
        ...

    @property
    def right(self) -> Segment:
        """The other."""
        ...

    @property
    def target(self) -> float:
        """1 where the left is better, 0 where the right is, 1/2 where they are equal."""
        ...


@dataclass(frozen=True)
class WrapperSettings:
    """The keywords of the wrappers.

    Attributes:
        name: of the experiment that the labels belong to; the same name goes on with it. Made from
            the environment and the time where none is given.
        teacher: who answers: a synthetic teacher or a task by name, `human`, `module:function`, or
            a function of two segments.
        teacher_strength: the synthetic teacher's one number, if not B-Pref's.
        clip_length: seconds that a clip lasts; an environment that declares no frame rate counts as
            one of 20 steps per second. Clips are no longer than episodes.
        segment_length: steps of a segment, in the place of `clip_length`; the spelling of drlhp.
        pretrain_labels: answers to wait for before the first fit; without it, a quarter of
            n_labels, or 50.
        initial_fits: fits to do before the predicted reward is returned.
        n_labels: comparisons to ask in all; None: no end.
        steps_between_labels: environment steps between two comparisons of the constant schedule;
            without it 2,000, or one every 3 s where a person answers.
        schedule: `constant`, `annealed`, `hyperbolic`, `upfront`, or a function.
        num_timesteps: environment steps of the whole training, which `annealed` and `hyperbolic`
            spread the labels over.
        selector: which pairs are asked: a name, or a function.
        candidates: pairs looked at for each one asked.
        collect_only: ask, and keep the labels; fit nothing.
        train_only: ask nothing; fit to `labels` once, and return that reward.
        labels: a label data set to begin with: its path, or comparisons with left, right, target.
        predictor_path: a trained predictor, or its folder. It is frozen, and nothing is asked.
        keep_asking: go on from `predictor_path` instead: ask, and fit.
        wait_for_labels: let `step` wait until everything asked is answered.
        answer_timeout_s: how long an answer is waited for; then training goes on without, and
            nobody is waited for again. None: without a limit.
        checkpoint_interval: environment steps between two checkpoints of what was learned.
        refresh_interval: environment steps between two fits; 0: as soon as there are new labels.
        observation_transform: of one observation; what the predictor and the teacher see of it.
            Without it, what is no Box is flattened.
        hide_episode_ends: do not cut segments short where the rules of the environment end an
            episode. Without it, a segment earns nothing after such an end, and the zero of the
            predicted reward is kept.
        fit: `async`, in a thread beside the steps, or `sync`, before the next step (repeatable).
        seed: of networks, selectors and synthetic teachers.
        instructions: what the page tells a person to look for.
        reward: settings of the predictor.
    """

    name: str | None = None
    teacher: str | Callable[[Segment, Segment], Any] = "oracle"
    teacher_strength: float | None = None
    clip_length: float = 1.5
    segment_length: int | None = None
    pretrain_labels: int | None = None
    initial_fits: int = 1
    n_labels: int | None = None
    steps_between_labels: int | None = None
    schedule: str | Schedule = "constant"
    num_timesteps: int | None = None
    selector: str | Selector = "disagreement"
    candidates: int = 10
    collect_only: bool = False
    train_only: bool = False
    labels: str | Path | Iterable[LabelledComparison] | None = None
    predictor_path: str | Path | RewardPredictor | None = None
    keep_asking: bool = False
    wait_for_labels: bool = False
    answer_timeout_s: float | int | None = None
    checkpoint_interval: int = 10_000
    refresh_interval: int = 0
    observation_transform: Callable[[Any], np.ndarray] | None = None
    hide_episode_ends: bool = False
    fit: Literal["sync", "async"] = "async"
    seed: int = 0
    instructions: str = ""
    reward: PredictorConfig = field(default_factory=PredictorConfig)

    @property
    def is_human(self) -> bool:
        """Whether a person answers, through the store."""
        return self.teacher == "human"

    @property
    def is_frozen(self) -> bool:
        """Whether a predictor is used as it is."""
        return self.predictor_path is not None and not self.keep_asking

    @property
    def first_labels(self) -> int:
        """Answers to wait for before the first fit."""
        is_upfront = self.schedule == "upfront"
        return first_labels(self.n_labels, self.pretrain_labels, is_upfront=is_upfront)

    @property
    def teacher_name(self) -> str:
        """What the store and messages call the teacher."""
        if isinstance(self.teacher, str):
            return self.teacher
        module = getattr(self.teacher, "__module__", None) or "?"
        return f"{module}:{name_of(self.teacher)}"


def name_of(function: Any) -> str:
    """A function's own name, or its type's."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


COUNTS = (
    "segment_length",
    "pretrain_labels",
    "initial_fits",
    "n_labels",
    "steps_between_labels",
    "num_timesteps",
    "candidates",
    "checkpoint_interval",
)
"""Keywords that must be at least 1, where they are given."""


def settings_of(keywords: dict[str, Any]) -> WrapperSettings:
    """The settings that keywords make, checked.

    Raises:
        UnknownName, BadConfig: says which keyword, and what is possible.
    """
    known = [each.name for each in fields(WrapperSettings)]
    for keyword in keywords:
        if keyword not in known:
            raise UnknownName("keyword of the wrapper", keyword, known)
    settings = WrapperSettings(**keywords)
    check(settings)
    return settings


def check(settings: WrapperSettings) -> None:
    """Refuse what cannot be meant.

    Raises:
        BadConfig: says what was given, what is needed, what to do.
    """
    for keyword in COUNTS:
        value = getattr(settings, keyword)
        if value is not None and not value >= 1:
            raise BadConfig(f"{keyword}={value} was given; at least 1 is needed.")
    if not 0 < settings.clip_length < math.inf:
        raise BadConfig(
            f"clip_length={settings.clip_length} was given; a number above 0 is needed."
        )
    if settings.refresh_interval < 0:
        raise BadConfig(f"refresh_interval={settings.refresh_interval} was given; not below 0.")
    if settings.fit not in ("sync", "async"):
        raise BadConfig(f"fit={settings.fit!r} was given; 'sync' or 'async' is needed.")
    if settings.answer_timeout_s is not None and not settings.answer_timeout_s > 0:
        raise BadConfig(f"answer_timeout_s={settings.answer_timeout_s} was given; above 0, please.")
    if settings.n_labels is not None and settings.first_labels > settings.n_labels:
        raise BadConfig(
            f"pretrain_labels={settings.pretrain_labels} was given, but only "
            f"n_labels={settings.n_labels} in all. Ask for fewer at first, or for more in all."
        )
    _check_schedule(settings)
    _check_workflow(settings)


def _check_schedule(settings: WrapperSettings) -> None:
    name = settings.schedule
    if name in ("annealed", "hyperbolic", "upfront") and settings.n_labels is None:
        raise BadConfig(
            f"schedule={name!r} spreads a number of labels, and none was given. Say how many with "
            "n_labels."
        )
    if name in ("annealed", "hyperbolic") and settings.num_timesteps is None:
        raise BadConfig(
            f"schedule={name!r} spreads labels over the whole training. Say how many environment "
            "steps that has with num_timesteps."
        )


def _check_workflow(settings: WrapperSettings) -> None:
    if settings.collect_only and settings.train_only:
        raise BadConfig(
            "collect_only and train_only were both given, and nothing is left to do. Without both, "
            "labels are collected and fitted."
        )
    if settings.train_only and settings.labels is None:
        raise BadConfig(
            "train_only fits a predictor to labels, and none were given. Name a label data set "
            "with labels=PATH."
        )
    if settings.is_frozen and (settings.labels is not None or settings.collect_only):
        raise BadConfig(
            "A predictor was given, which is used as it is: neither collect_only nor labels can be "
            "meant beside it. To go on from it, give keep_asking=True too."
        )
    if settings.keep_asking and settings.predictor_path is None:
        raise BadConfig(
            "keep_asking goes on from a predictor, and none was given (predictor_path=PATH)."
        )
