"""Reward sources as the plan of a run describes them."""

import gymnasium as gym

from rl_teacher.plan import LearningPlan, RunPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.queries.queue import NamedTeacher, QueryQueue, QueryStore
from rl_teacher.rewards.learner import RewardLearner
from rl_teacher.rewards.source import EnvironmentReward, FrozenPredictorReward, RewardSource
from rl_teacher.teachers.registry import custom_teacher, teacher_named
from rl_teacher.teachers.tasks import TaskTeacher
from rl_teacher.teachers.teacher import human_teacher


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
    return make_learner(plan.env_info.id, space, venv.num_envs, learning, store, pretrained)


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
    return NamedTeacher(teacher, f"synthetic:{labels.teacher_name}", learning.seed)


def make_learner(
    env_id: str,
    space: InputSpace,
    num_envs: int,
    learning: LearningPlan,
    store: QueryStore,
    pretrained: RewardPredictor | None,
) -> RewardLearner:
    """Create a source that learns rewards from labels, for the loop or for a wrapper.

    Args:
        env_id: environment for which a reward is learned.
        space: spaces of observations and actions.
        num_envs: environments of a rollout.
        learning: how.
        store: where queries are stored.
        pretrained: predictor to start from.
    """
    queue = QueryQueue(store, named_teacher(learning, env_id))
    return RewardLearner(env_id, space, num_envs, learning, queue, pretrained)
