"""Reward sources as the configuration of `rl-teacher teach` describes them."""

import gymnasium as gym

from rl_teacher.common.errors import SegmentTooLong
from rl_teacher.config.experiment import RunOptions, TeachConfig, pretraining_labels
from rl_teacher.envs.registry import EnvInfo, get_env_info
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
from rl_teacher.teachers.registry import teacher_named
from rl_teacher.teachers.teacher import human_teacher

SECONDS_BETWEEN = 3
"""Time between two comparisons of the constant schedule, if a person labels."""


def segment_steps(config: TeachConfig, env_info: EnvInfo) -> int:
    """Compute the steps of a segment from the clip's duration and the environment's frame rate.

    Raises:
        SegmentTooLong: episodes of the environment are shorter.
    """
    steps = max(round(config.clip_length * env_info.fps), 1)
    longest = env_info.max_episode_steps
    if config.learns and longest is not None and steps > longest:
        raise SegmentTooLong(
            f"--clip-length {config.clip_length} s of {env_info.id} are {steps} steps, but an "
            f"episode has {longest}. Use --clip-length {longest / env_info.fps:.6g} or less, or an "
            "environment with longer episodes."
        )
    return steps


def make_reward_source(
    config: TeachConfig,
    venv: gym.vector.VectorEnv,
    store: QueryStore,
    options: RunOptions,
    pretrained: RewardPredictor | None = None,
) -> RewardSource:
    """Create the reward source of an experiment.

    Args:
        config: of the experiment.
        venv: environments whose observations and actions the predictor is given.
        store: where queries are stored.
        options: of the run: the pace.
        pretrained: saved predictor; frozen unless the configuration has labels to learn from.

    Returns:
        The environment's reward for -p rl, a frozen predictor without labels to learn from,
        otherwise a reward learner.
    """
    if pretrained is not None and not config.learns:
        return FrozenPredictorReward(pretrained)
    if not config.learns:
        return EnvironmentReward(config.clip_reward)
    env_info = get_env_info(config.env_id)
    length = segment_steps(config, env_info)
    space = InputSpace.from_spaces(venv.single_observation_space, venv.single_action_space)
    task = RewardTask(config.env_id, space, venv.num_envs, length, config.shows_ends(env_info))
    training = TrainerSettings(
        config.reward,
        config.pretrain_iters,
        in_background=config.fit == "async",
        seed=config.seed,
        pretrained=pretrained,
    )
    if config.asks_synthetic_teacher:
        synthetic = teacher_named(config.teacher, config.teacher_strength)
        teacher = NamedTeacher(synthetic, f"synthetic:{config.teacher}", config.seed)
    else:
        teacher = NamedTeacher(human_teacher, "", config.seed)
    planning = _planner_settings(config, is_paced=options.pace == "labels")
    choosing = _choice_settings(config, store, length)
    return RewardLearner(task, planning, choosing, training, QueryQueue(store, teacher))


def _planner_settings(config: TeachConfig, *, is_paced: bool) -> PlannerSettings:
    is_person = config.asks_a_person
    budget = Budget(
        total=config.n_labels if config.asks else 0,
        pretraining=pretraining_labels(config),
        num_steps=config.num_timesteps,
        seconds_between=SECONDS_BETWEEN if is_person else 0.0,
        hyperbolic_steps=config.hyperbolic_steps,
        fraction=config.label_fraction,
    )
    return PlannerSettings(
        schedule=schedule(config.schedule_name),
        budget=budget,
        max_waiting=MAX_WAITING if is_person else None,
        lead=LEAD if is_person and is_paced else 0,
    )


def _choice_settings(
    config: TeachConfig, store: QueryStore, length: int
) -> PairSettings | SorterSettings:
    shared = load_shared_segments(store, config.env_id, length) if config.reuse_clips else ()
    if config.queries == "pairs":
        is_person = config.asks_a_person
        return PairSettings(selector(config.selector), config.candidates, is_person, shared)
    return sorter_settings(config.queries, config.n_labels, config.n_clips, shared)
