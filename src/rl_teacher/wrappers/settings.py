"""Settings of the wrappers, and what follows from them in an environment."""

import logging
from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from rl_teacher.common.errors import BadConfig, UnknownName
from rl_teacher.config.experiment import PredictorConfig, ScheduleName, TeachConfig
from rl_teacher.config.fields import (
    STRICT,
    Count,
    Natural,
    Seed,
    as_keyword,
    build,
    fields_of,
)
from rl_teacher.envs.registry import EnvInfo
from rl_teacher.plan import (
    LearningPlan,
    Reading,
    limited_segment_steps,
    refuse_contradictions,
    resolve_labels,
    resolve_learning,
)
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.warm_start import predictor_folder, with_network_settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WrapperSettings(TeachConfig):
    """Keywords of `PreferenceWrapper` and `PreferenceVectorWrapper`.

    Settings of `rl-teacher teach` have the same names, units and bounds. A teacher may also be a
    function of two segments or `human`, a schedule or a selector a function, labels may be
    comparisons with left, right and target, and a predictor the object.
    """

    seed: Seed = 0
    """seed of networks, selectors and synthetic teachers"""
    fit: Literal["sync", "async"] = "async"
    """fit before the next step (sync, reproducible) or in a thread (async)"""
    schedule: ScheduleName | Callable[..., Any] | None = "constant"
    """label schedule"""
    labels: Any = None
    """initial labels: the path of a data set, or comparisons; new labels are requested only with
    `teacher`, `n_labels` or `pretrain_labels`"""
    predictor_path: Any = None
    """saved reward predictor: its folder, or the predictor; it stays frozen unless labels are given
    or requested"""
    num_timesteps: Natural = 0
    """environment steps, those before the first fit included; `annealed` and `hyperbolic`
    distribute the labels over them"""
    segment_length: Count | None = None
    """steps of a segment, in place of `clip_length`"""
    true_reward_until_fit: bool = False
    """return the true reward until the first fit, instead of 0"""
    steps_between_labels: Count | None = None
    """environment steps per comparison of the constant schedule; by default 2,000, or one every 3 s
    where a person answers"""
    wait_for_labels: bool = False
    """block `step` until every comparison is answered"""
    checkpoint_interval: Count = 10_000
    """environment steps between checkpoints"""
    observation_transform: Annotated[Callable[[Any], np.ndarray] | None, Field()] = None
    """function of one observation, whose result predictor and teacher receive; by default,
    observations other than Box are flattened"""
    instructions: str = ""
    """instructions for labelers, shown on the page"""


@plain_dataclass(frozen=True)
class WrapperPlan:
    """Plan of a wrapper.

    Attributes:
        name: name of the experiment; empty for one of environment and time.
        learning: the reward predictor that is fitted; None if it stays as it was saved.
        predictor: the saved predictor; None for a new one.
        collects_only: whether nothing is ever fitted.
        true_reward_until_fit: whether the true reward is returned until the first fit, instead of
            0.
        waits: whether a step waits until every comparison is answered.
        num_timesteps: environment steps of the run; 0 if they are not known.
        checkpoint_interval: environment steps between checkpoints.
        instructions: instructions for labelers.
    """

    name: str
    learning: LearningPlan | None
    predictor: RewardPredictor | None
    collects_only: bool
    true_reward_until_fit: bool
    waits: bool
    num_timesteps: int
    checkpoint_interval: int
    instructions: str


def settings_of(keywords: dict[str, Any]) -> WrapperSettings:
    """Create and check settings from keywords.

    Raises:
        UnknownName: no such keyword; the message offers the nearest one.
        BadConfig: a value is out of bounds, or contradicts another.
    """
    known = fields_of(WrapperSettings)
    for keyword in keywords:
        if keyword not in known:
            raise UnknownName("keyword of the wrapper", keyword, known)
    given = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in keywords.items()
        if value is not None
    }
    given["predictor"] = "synth"
    if given.get("teacher") == "human":
        given["predictor"] = "human"
        del given["teacher"]
    settings = build(WrapperSettings, given, as_keyword).with_label_budget()
    asks = keywords.get("teacher") is not None or settings.wants_labels
    if settings.starts_fitted and not asks:
        settings = replace(settings, predictor=None)
    refuse_contradictions(settings, as_keyword)
    if settings.schedule in ("annealed", "hyperbolic") and not settings.num_timesteps:
        raise BadConfig(
            f"schedule={settings.schedule!r} distributes labels over the whole training. Give the "
            "number of environment steps as num_timesteps."
        )
    return settings


def resolve_wrapper(settings: WrapperSettings, env_info: EnvInfo) -> WrapperPlan:
    """Resolve the settings of a wrapper in its environment; warn about those without effect.

    Raises:
        SegmentTooLong: clips are longer than episodes.
        CorruptCheckpoint: the folder of a predictor has none, or it is damaged.
    """
    given, warnings = Reading(settings), list[str]()
    learning = None
    predictor = given.predictor_path
    if isinstance(predictor, str | Path):
        predictor = RewardPredictor.load(predictor_folder(str(predictor)))
    if given.learns:
        labels = resolve_labels(given, steps_between=given.steps_between_labels)
        learning = resolve_learning(
            given, env_info, segment_steps(given, env_info, warnings), labels
        )
        if predictor is not None and learning.predictor == PredictorConfig():
            learning = replace(learning, predictor=predictor.config)
        elif predictor is not None:
            kept = with_network_settings(predictor, learning.predictor)
            learning = replace(learning, predictor=kept)
    plan = WrapperPlan(
        name=given.name if learning else "",
        learning=learning,
        predictor=predictor,
        collects_only=given.collect_only,
        true_reward_until_fit=given.true_reward_until_fit,
        waits=given.asks and given.wait_for_labels,
        num_timesteps=given.num_timesteps,
        checkpoint_interval=given.checkpoint_interval,
        instructions=given.instructions if given.asks_a_person else "",
    )
    if ignored := given.ignored(WrapperSettings(), as_keyword):
        warnings.append(f"ignored: {', '.join(ignored)}")
    for text in warnings:
        logger.warning(text)
    return plan


def segment_steps(given: Any, env_info: EnvInfo, warnings: list[str]) -> int:
    """Compute the steps of a segment from `segment_length` or `clip_length`.

    Raises:
        SegmentTooLong: an episode has fewer steps.
    """
    steps, spelt = given.segment_length, None
    if steps is not None:
        spelt = as_keyword("segment_length", steps)
    else:
        steps = max(round(given.clip_length * env_info.fps), 1)
        if given.clip_length != WrapperSettings.clip_length:
            spelt = as_keyword("clip_length", given.clip_length)
    return limited_segment_steps(steps, env_info, spelt, warnings)
