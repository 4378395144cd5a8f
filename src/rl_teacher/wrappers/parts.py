"""Construction of a wrapper's reward learner from its settings."""

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.planner import MAX_WAITING, PlannerSettings
from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore, load_shared_segments
from rl_teacher.queries.schedules import Budget, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.rewards.factory import SECONDS_BETWEEN
from rl_teacher.rewards.learner import RewardLearner, RewardTask
from rl_teacher.rewards.trainer import TrainerSettings
from rl_teacher.store.media import slug
from rl_teacher.teachers.human import through_the_store
from rl_teacher.teachers.registry import from_function, teacher_named
from rl_teacher.teachers.tasks import TaskTeacher
from rl_teacher.teachers.teacher import Teacher
from rl_teacher.wrappers.answers import AnswersInTime
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.world import World

FIRST_FIT_STEPS = 10_000
"""Maximum number of gradient steps of the first fit."""


def generated_name(env_id: str) -> str:
    """Return a default name: the environment, the time and four random characters."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H.%M.%S")
    return f"{slug(env_id)} {now} {secrets.token_hex(2)}"


def identity(world: World, settings: WrapperSettings) -> dict[str, Any]:
    """Return the configuration that must be unchanged to resume an experiment."""
    return {
        "env_id": world.env_info.id,
        "num_envs": world.num_envs,
        "space": world.input_space.to_json(),
        "segment_steps": world.segment_steps,
        "teacher": settings.teacher_name,
        "teacher_strength": settings.teacher_strength,
        "seed": settings.seed,
        "reward": asdict(reward_config(settings)),
    }


def loaded(predictor: str | Path | RewardPredictor) -> RewardPredictor:
    """Return a given predictor, or load it from a folder.

    Raises:
        CorruptCheckpoint: the folder has no predictor, or it is damaged.
    """
    is_made = isinstance(predictor, RewardPredictor)
    return predictor if is_made else RewardPredictor.load(predictor)


def reward_config(settings: WrapperSettings) -> PredictorConfig:
    """Return the predictor's hyperparameters: those of a given predictor, or the settings'."""
    path = settings.predictor_path
    return settings.reward if path is None else loaded(path).config


def fitting_predictor(settings: WrapperSettings, space: InputSpace) -> RewardPredictor:
    """Return the pretrained predictor if it has the required input space.

    Raises:
        BadConfig: the predictor has another input space.
    """
    assert settings.predictor_path is not None  # noqa: S101 - checked by the callers
    predictor = loaded(settings.predictor_path)
    if predictor.space != space:
        raise BadConfig(
            f"The predictor was made for {predictor.space.description}, but this environment has "
            f"{space.description}. Use one that was fitted in this environment, with the same "
            "observation_transform."
        )
    return predictor


def learner_for(
    world: World, settings: WrapperSettings, store: QueryStore, num_given: int
) -> RewardLearner:
    """Create the reward learner.

    Args:
        world: the environments.
        settings: settings of the wrapper.
        store: store of the queries.
        num_given: number of initial labels.
    """
    space, steps = world.input_space, world.segment_steps
    shows_ends = not settings.hide_episode_ends
    task = RewardTask(world.env_info.id, space, world.num_envs, steps, shows_ends)
    pretrained = None if settings.predictor_path is None else fitting_predictor(settings, space)
    training = TrainerSettings(
        reward_config(settings),
        FIRST_FIT_STEPS,
        in_background=settings.fit == "async",
        seed=settings.seed,
        pretrained=pretrained,
    )
    queue = QueryQueue(store, named_teacher(world, settings))
    shared = load_shared_segments(store, world.env_info.id, steps) if settings.is_human else ()
    queries = query_settings(settings, num_given, [each for each in shared if _fits(each, space)])
    return RewardLearner(task, queries, training, queue)


def _fits(segment: Segment, space: InputSpace) -> bool:
    return segment.observations.shape[1:] == space.observation_shape


def query_settings(
    settings: WrapperSettings, num_given: int, shared: Sequence[Segment]
) -> PlannerSettings:
    """Return the settings of query planning."""
    by_the_clock = settings.is_human and settings.steps_between_labels is None
    budget = Budget(
        total=settings.n_labels,
        pretraining=max(settings.first_labels - num_given, 0),
        num_steps=settings.num_timesteps or 1,
        seconds_between=SECONDS_BETWEEN if by_the_clock else 0.0,
        steps_between=settings.steps_between_labels or Budget.steps_between,
    )
    named_schedule, named_selector = settings.schedule, settings.selector
    return PlannerSettings(
        selector=selector(named_selector) if isinstance(named_selector, str) else named_selector,
        schedule=schedule(named_schedule) if isinstance(named_schedule, str) else named_schedule,
        budget=budget,
        candidates_per_pair=settings.candidates,
        max_waiting=MAX_WAITING if settings.is_human else None,
        shared_segments=shared,
    )


def named_teacher(world: World, settings: WrapperSettings) -> NamedTeacher:
    """Return the teacher that answers.

    Raises:
        UnknownName, BadInput: there is no such teacher, or it judges another environment.
    """
    if settings.is_human:
        return NamedTeacher(through_the_store, "", settings.seed)
    name = settings.teacher_name
    teacher = teacher_of(settings)
    if isinstance(teacher, TaskTeacher):
        teacher.check_environment(world.env_info.id)
    if settings.answer_timeout_s is not None:
        teacher = AnswersInTime(teacher, name, settings.answer_timeout_s)
    return NamedTeacher(teacher, f"synthetic:{name}", settings.seed)


def teacher_of(settings: WrapperSettings) -> Teacher:
    """Return the synthetic teacher or the user's function."""
    if isinstance(settings.teacher, str):
        return teacher_named(settings.teacher, settings.teacher_strength)
    return from_function(settings.teacher, settings.teacher_name)
