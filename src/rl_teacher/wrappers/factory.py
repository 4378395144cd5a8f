"""Construction of a wrapper's reward learner from its settings."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.datasets import Spaces, load
from rl_teacher.datasets.given_labels import Labelled
from rl_teacher.datasets.import_export import SPACES
from rl_teacher.plan import SECONDS_BETWEEN
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.pairs import PairSettings
from rl_teacher.queries.planner import MAX_WAITING, PlannerSettings
from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore, load_shared_segments
from rl_teacher.queries.schedules import Budget, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.queries.sorter import SorterSettings, sorter_settings
from rl_teacher.rewards.learner import RewardLearner, RewardTask
from rl_teacher.rewards.memory import learning_arrays
from rl_teacher.rewards.trainer import TrainerSettings
from rl_teacher.runs.folder import shortened_name
from rl_teacher.runs.opening import ExperimentSpec
from rl_teacher.store.media import slug
from rl_teacher.teachers.registry import custom_teacher, teacher_named
from rl_teacher.teachers.tasks import TaskTeacher
from rl_teacher.teachers.teacher import TeacherWithTimeout, human_teacher
from rl_teacher.wrappers.environments import WrappedEnvs
from rl_teacher.wrappers.settings import WrapperSettings

FIRST_FIT_STEPS = 10_000
"""Maximum number of gradient steps of the first fit."""


def generated_name(env_id: str) -> str:
    """Return a default name: the environment, the time and four random characters."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H.%M.%S")
    return shortened_name(slug(env_id), f" {now} {secrets.token_hex(2)}")


def experiment_spec(
    envs: WrappedEnvs, settings: WrapperSettings, given: Sequence[Labelled]
) -> ExperimentSpec:
    """Return the identity of a wrapper's experiment: what must be unchanged to resume it.

    Args:
        envs: the environments.
        settings: settings of the wrapper.
        given: initial labels, which the experiment does not store.
    """
    env_id = envs.env_info.id
    config = {
        "env_id": env_id,
        "num_envs": envs.num_envs,
        SPACES: Spaces(envs.converter.space, envs.action_space).to_json(),
        "segment_steps": envs.segment_steps,
        "teacher": settings.teacher_name,
        "teacher_strength": settings.teacher_strength,
        "seed": settings.seed,
        "given_labels": {"number": len(given), "digest": digest_of(given)},
        "hide_episode_ends": settings.hide_episode_ends,
        "keep_asking": settings.keep_asking,
        "reward": asdict(reward_config(settings)),
    }
    return ExperimentSpec(
        name=generated_name(env_id) if settings.name is None else settings.name,
        env_info=envs.env_info,
        config=config,
        defaults={"reward": asdict(PredictorConfig())},
        asks_a_person=settings.is_human,
        max_labels=settings.n_labels,
        instructions=settings.instructions,
    )


def reward_config(settings: WrapperSettings) -> PredictorConfig:
    """Return the predictor's hyperparameters: those of a given predictor, or the settings'."""
    return settings.reward if settings.pretrained is None else settings.pretrained.config


def pretrained_predictor(settings: WrapperSettings, space: InputSpace) -> RewardPredictor:
    """Return the pretrained predictor if it has the required input space.

    Raises:
        BadConfig: the predictor has another input space.
    """
    predictor = settings.pretrained
    assert predictor is not None  # noqa: S101 - checked by the callers
    if predictor.space != space:
        raise BadConfig(
            f"The predictor was made for {predictor.space.description}, but this environment has "
            f"{space.description}. Use one that was fitted in this environment, with the same "
            "observation_transform."
        )
    return predictor


def reward_task(envs: WrappedEnvs, settings: WrapperSettings) -> RewardTask:
    """Return the environments as the reward learner knows them."""
    return RewardTask(
        envs.env_info.id,
        envs.input_space,
        envs.num_envs,
        envs.segment_steps,
        shows_ends=not settings.hide_episode_ends,
    )


def large_arrays(envs: WrappedEnvs, settings: WrapperSettings, num_given: int) -> dict[str, int]:
    """Return the bytes of the large arrays of a wrapper that starts with this number of labels."""
    first = settings.first_to_ask(num_given) if settings.asks else 0
    total = settings.n_labels or first
    return learning_arrays(reward_task(envs, settings), reward_config(settings), first, total)


def learner_for(
    envs: WrappedEnvs, settings: WrapperSettings, store: QueryStore, num_given: int
) -> RewardLearner:
    """Create the reward learner.

    Args:
        envs: the environments.
        settings: settings of the wrapper.
        store: store of the queries.
        num_given: number of initial labels.
    """
    task = reward_task(envs, settings)
    is_pretrained = settings.predictor_path is not None
    training = TrainerSettings(
        reward_config(settings),
        FIRST_FIT_STEPS,
        in_background=settings.fit == "async",
        seed=settings.seed,
        pretrained=pretrained_predictor(settings, task.space) if is_pretrained else None,
    )
    shared = (
        load_shared_segments(store, task.env_id, task.segment_steps) if settings.reuse_clips else ()
    )
    return RewardLearner(
        task,
        planner_settings(settings, num_given),
        choice_settings(settings, shared),
        training,
        QueryQueue(store, named_teacher(envs, settings)),
    )


def planner_settings(settings: WrapperSettings, num_given: int) -> PlannerSettings:
    """Return the settings of query planning."""
    follows_time = settings.is_human and settings.steps_between_labels is None
    budget = Budget(
        total=settings.n_labels,
        pretraining=settings.first_to_ask(num_given),
        # Only `annealed` and `hyperbolic` use it, and they require it.
        num_steps=settings.num_timesteps or 1,
        seconds_between=SECONDS_BETWEEN if follows_time else 0.0,
        steps_between=settings.steps_between_labels or Budget.steps_between,
        fraction=settings.schedule_fraction,
    )
    named = settings.schedule
    return PlannerSettings(
        schedule=schedule(named) if isinstance(named, str) else named,
        budget=budget,
        max_waiting=MAX_WAITING if settings.is_human else None,
    )


def choice_settings(
    settings: WrapperSettings, shared: Sequence[Segment]
) -> PairSettings | SorterSettings:
    """Return the settings of the choice of comparisons."""
    if settings.queries == "pairs":
        named = settings.selector
        named_selector = selector(named) if isinstance(named, str) else named
        return PairSettings(named_selector, settings.candidates, settings.is_human, shared)
    return sorter_settings(settings.queries, settings.n_labels, settings.n_clips, shared)


def named_teacher(envs: WrappedEnvs, settings: WrapperSettings) -> NamedTeacher:
    """Return the teacher that answers.

    Raises:
        UnknownName, BadInput: there is no such teacher, or it judges another environment.
    """
    if settings.is_human:
        return NamedTeacher(human_teacher, "", settings.seed)
    name = settings.teacher_name
    if isinstance(settings.teacher, str):
        teacher = teacher_named(settings.teacher, settings.teacher_strength)
    else:
        teacher = custom_teacher(settings.teacher, name)
    if isinstance(teacher, TaskTeacher):
        teacher.check_environment(envs.env_info.id)
    if settings.answer_timeout_s is not None:
        teacher = TeacherWithTimeout(teacher, name, settings.answer_timeout_s)
    return NamedTeacher(teacher, f"synthetic:{name}", settings.seed)


def given_labels(
    labels: str | Path | Iterable[Labelled] | None, num_steps: int
) -> tuple[list[Labelled], list[Labelled]]:
    """Load initial labels.

    Args:
        labels: path of a data set, or labelled comparisons.
        num_steps: L, the maximum length of a segment.

    Returns:
        The labels to fit to, and the held-out ones.

    Raises:
        BadInput: segments are longer than L.
    """
    if labels is None:
        return [], []
    training: list[Labelled] = []
    held_out: list[Labelled] = []
    for each in load(labels) if isinstance(labels, str | Path) else labels:
        (held_out if getattr(each, "is_held_out", False) else training).append(each)
    longest = max((len(side) for each in training for side in (each.left, each.right)), default=0)
    if longest > num_steps:
        raise BadInput(
            f"The given labels compare segments of up to {longest} steps, but segments have "
            f"{num_steps} here. Give segment_length={longest}."
        )
    return training, held_out


def digest_of(comparisons: Iterable[Labelled]) -> str:
    """Return a digest of labels and their clips, in order."""
    digest = hashlib.sha256()
    for each in comparisons:
        facts = each.left.content_hash, each.right.content_hash, float(each.target)
        digest.update(f"{facts}\n".encode())
    return digest.hexdigest()


def clips_of(comparisons: Iterable[Labelled]) -> set[str]:
    """Return the content hashes of the clips of comparisons."""
    return {side.content_hash for each in comparisons for side in (each.left, each.right)}
