"""Reward sources as the plan of a run describes them."""

import gymnasium as gym

from rl_teacher.plan import LabelPlan, LearningPlan, RunPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.pairs import PairSettings
from rl_teacher.queries.planner import LEAD, MAX_WAITING, PlannerSettings
from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore, load_shared_segments
from rl_teacher.queries.schedules import Budget, schedule
from rl_teacher.queries.selectors import selector
from rl_teacher.queries.sorter import SorterSettings, sorter_settings
from rl_teacher.rewards.learner import RewardLearner, RewardTask
from rl_teacher.rewards.source import EnvironmentReward, FrozenPredictorReward, RewardSource
from rl_teacher.rewards.trainer import TrainerSettings
from rl_teacher.teachers.registry import custom_teacher, teacher_named
from rl_teacher.teachers.tasks import TaskTeacher
from rl_teacher.teachers.teacher import TeacherWithTimeout, human_teacher


def make_reward_source(
    plan: RunPlan,
    venv: gym.vector.VectorEnv,
    store: QueryStore,
    pretrained: RewardPredictor | None = None,
) -> RewardSource:
    """Create the reward source of a run.

    Args:
        plan: plan of the run.
        venv: environments whose observations and actions the predictor is given.
        store: where queries are stored.
        pretrained: saved predictor; frozen unless there are labels to learn from.

    Returns:
        The environment's reward for -p rl, a frozen predictor without labels to learn from,
        otherwise a reward learner.
    """
    learning = plan.learning
    if learning is None:
        if plan.rewards == "frozen" and pretrained is not None:
            return FrozenPredictorReward(pretrained)
        return EnvironmentReward(plan.clip_reward)
    space = InputSpace.from_spaces(venv.single_observation_space, venv.single_action_space)
    task = RewardTask(
        plan.env_info.id, space, venv.num_envs, learning.segment_steps, learning.shows_ends
    )
    return make_learner(task, learning, store, pretrained)


def named_teacher(learning: LearningPlan, env_id: str) -> NamedTeacher:
    """Return the teacher that answers; a person if none is asked.

    Raises:
        UnknownName, BadInput: there is no such teacher, or it judges another environment.
    """
    labels = learning.labels
    if labels.is_person or labels.total == 0:
        return NamedTeacher(human_teacher, "", learning.seed)
    if isinstance(labels.teacher, str):
        teacher = teacher_named(labels.teacher, labels.teacher_strength)
    else:
        teacher = custom_teacher(labels.teacher, labels.teacher_name)
    if isinstance(teacher, TaskTeacher):
        teacher.check_environment(env_id)
    if labels.answer_timeout_s is not None:
        teacher = TeacherWithTimeout(teacher, labels.teacher_name, labels.answer_timeout_s)
    return NamedTeacher(teacher, f"synthetic:{labels.teacher_name}", learning.seed)


def make_learner(
    task: RewardTask,
    learning: LearningPlan,
    store: QueryStore,
    pretrained: RewardPredictor | None,
) -> RewardLearner:
    """Create a source that learns rewards from labels, for the loop or for a wrapper.

    Args:
        task: environments for which a reward is learned.
        learning: how.
        store: where queries are stored.
        pretrained: predictor to start from.
    """
    training = TrainerSettings(
        learning.predictor,
        learning.first_fit_steps,
        in_background=learning.fits_in_background,
        seed=learning.seed,
        pretrained=pretrained,
    )
    planning = _planner_settings(learning.labels)
    choosing = _choice_settings(learning.labels, store, task)
    return RewardLearner(
        task, planning, choosing, training, QueryQueue(store, named_teacher(learning, task.env_id))
    )


def _planner_settings(labels: LabelPlan) -> PlannerSettings:
    budget = Budget(
        total=labels.total,
        pretraining=labels.first,
        num_steps=labels.num_steps,
        seconds_between=labels.seconds_between,
        steps_between=labels.steps_between,
        hyperbolic_steps=labels.hyperbolic_steps,
        fraction=labels.fraction,
    )
    return PlannerSettings(
        schedule=labels.schedule if callable(labels.schedule) else schedule(labels.schedule),
        budget=budget,
        max_waiting=MAX_WAITING if labels.is_person else None,
        lead=LEAD if labels.is_paced else 0,
    )


def _choice_settings(
    labels: LabelPlan, store: QueryStore, task: RewardTask
) -> PairSettings | SorterSettings:
    shared = (
        load_shared_segments(store, task.env_id, task.segment_steps) if labels.reuses_clips else ()
    )
    if labels.queries == "pairs":
        choose = labels.selector if callable(labels.selector) else selector(labels.selector)
        return PairSettings(choose, labels.candidates, labels.is_person, shared)
    return sorter_settings(labels.queries, labels.total, labels.n_clips, shared)
