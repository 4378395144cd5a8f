"""The parts that a wrapper's learner is made of, from its settings."""

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rl_teacher.common.errors import BadConfig
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.queue import QueryQueue, Respondent, Shelf, library_of
from rl_teacher.queries.schedules import Budget, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.session import Asking, Fitting, RewardLearner, Subject
from rl_teacher.store.media import slug
from rl_teacher.teachers.human import through_the_store
from rl_teacher.teachers.registry import from_function, teacher_named
from rl_teacher.teachers.tasks import TaskTeacher
from rl_teacher.teachers.teacher import Teacher
from rl_teacher.wrappers.answers import AnswersInTime
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.world import World

FIRST_FIT_STEPS = 10_000
"""Gradient steps, at most, of the first fit."""
MOST_WAITING = 20
"""Comparisons that wait for a person, at most, once there is a predictor."""
REMEMBERED_BYTES = 500_000_000
"""Of observations, at most, that segments are cut out of."""
SECONDS_BETWEEN = 3.0
"""Two comparisons for a person."""
STEPS_BETWEEN = 2_000
"""Environment steps between two comparisons for anybody else."""


def generated_name(env_id: str) -> str:
    """A name for an experiment that has none: the environment, the time, and four letters."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H.%M.%S")
    return f"{slug(env_id)} {now} {secrets.token_hex(2)}"


def identity(world: World, settings: WrapperSettings) -> dict[str, Any]:
    """What must be the same for an experiment to be gone on with."""
    return {
        "env_id": world.env_info.id,
        "num_envs": world.num_envs,
        "space": world.input_space.to_json(),
        "segment_steps": world.segment_steps,
        "teacher": settings.teacher_name,
        "teacher_strength": settings.teacher_strength,
        "seed": settings.seed,
        "reward": asdict(predictor_config(settings)),
    }


def predictor_config(settings: WrapperSettings) -> PredictorConfig:
    """Settings of the predictor: those of the one that is gone on from, if there is one."""
    return (
        settings.reward
        if settings.predictor_path is None
        else loaded(settings.predictor_path).config
    )


def loaded(predictor: str | Path | RewardPredictor) -> RewardPredictor:
    """A predictor that was given, or is in a folder.

    Raises:
        CorruptCheckpoint: the folder holds none.
    """
    is_made = isinstance(predictor, RewardPredictor)
    return predictor if is_made else RewardPredictor.load(predictor)


def reward_config(settings: WrapperSettings) -> PredictorConfig:
    """Settings of the predictor: those that a given one was made with, or the wrapper's own."""
    return (
        settings.reward
        if settings.predictor_path is None
        else loaded(settings.predictor_path).config
    )


def fitting_predictor(settings: WrapperSettings, space: InputSpace) -> RewardPredictor:
    """The predictor that was given, if it is one for these spaces.

    Raises:
        BadConfig: it is for others.
    """
    assert settings.predictor_path is not None  # noqa: S101 - whoever calls has looked
    predictor = loaded(settings.predictor_path)
    if predictor.space != space:
        raise BadConfig(
            f"The predictor was made for {predictor.space.description}, but this environment has "
            f"{space.description}. Use one that was fitted in this environment, with the same "
            "observation_transform."
        )
    return predictor


def learner_for(
    world: World, settings: WrapperSettings, shelf: Shelf, num_given: int
) -> RewardLearner:
    """A reward learner for a world.

    Args:
        world: the environments.
        settings: of the wrapper.
        shelf: where questions and answers are kept.
        num_given: labels that are there before anything is asked.
    """
    space, steps = world.input_space, world.segment_steps
    subject = Subject(
        world.env_info.id,
        space,
        world.num_envs,
        steps,
        shows_ends=not settings.hide_episode_ends,
        most_remembered=most_remembered(world),
    )
    pretrained = None if settings.predictor_path is None else fitting_predictor(settings, space)
    fitting = Fitting(
        reward_config(settings),
        FIRST_FIT_STEPS,
        in_background=settings.fit == "async",
        seed=settings.seed,
        pretrained=pretrained,
    )
    query_queue = QueryQueue(shelf, respondent_of(world, settings))
    library = library_of(shelf, world.env_info.id, steps) if settings.is_human else ()
    asking = asking_of(settings, num_given, [s for s in library if _fits(s, space)])
    return RewardLearner(subject, asking, fitting, query_queue)


def _fits(segment: Any, space: InputSpace) -> bool:
    return segment.observations.shape[1:] == space.observation_shape


def asking_of(settings: WrapperSettings, num_given: int, library: Sequence[Any]) -> Asking:
    """What is asked, and when."""
    by_the_clock = settings.is_human and settings.steps_between_labels is None
    budget = Budget(
        total=settings.n_labels,
        pretraining=max(settings.first_labels - num_given, 0),
        num_steps=settings.num_timesteps or 1,
        seconds_between=SECONDS_BETWEEN if by_the_clock else 0.0,
        steps_between=settings.steps_between_labels or STEPS_BETWEEN,
    )
    named_schedule, named_selector = settings.schedule, settings.selector
    return Asking(
        selector=selector(named_selector) if isinstance(named_selector, str) else named_selector,
        schedule=schedule(named_schedule) if isinstance(named_schedule, str) else named_schedule,
        budget=budget,
        candidates_per_pair=settings.candidates,
        most_waiting=MOST_WAITING if settings.is_human else None,
        library=library,
    )


def respondent_of(world: World, settings: WrapperSettings) -> Respondent:
    """Whoever answers.

    Raises:
        UnknownName, BadInput: there is no such teacher, or it is about another environment.
    """
    if settings.is_human:
        return Respondent(through_the_store, "", settings.seed)
    name = settings.teacher_name
    teacher = teacher_of(settings)
    if isinstance(teacher, TaskTeacher):
        teacher.check_environment(world.env_info.id)
    if settings.answer_timeout_s is not None:
        teacher = AnswersInTime(teacher, name, settings.answer_timeout_s)
    return Respondent(teacher, f"synthetic:{name}", settings.seed)


def teacher_of(settings: WrapperSettings) -> Teacher:
    """The teacher that answers at once."""
    if isinstance(settings.teacher, str):
        return teacher_named(settings.teacher, settings.teacher_strength)
    return from_function(settings.teacher, settings.teacher_name)


def most_remembered(world: World) -> int:
    """Steps of each environment that fit into memory."""
    view = world.view.space
    bytes_per_step = world.num_envs * int(np.prod(view.shape)) * np.dtype(view.dtype).itemsize
    return max(REMEMBERED_BYTES // max(bytes_per_step, 1), 2 * world.segment_steps)
