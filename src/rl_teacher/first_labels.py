"""The first labels: what is compared before the agent trains."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from rl_teacher.agents.agent import Agent
from rl_teacher.agents.collector import Act, Collector, RolloutInterrupted
from rl_teacher.common.errors import TeacherFailed
from rl_teacher.common.text import counted
from rl_teacher.envs.rollout import Rollout
from rl_teacher.plan import RunPlan
from rl_teacher.runs.status import Phase
from rl_teacher.session import PreferenceSession

if TYPE_CHECKING:
    from rl_teacher.cluster.collector import ClusterCollector

FIRST_STEPS = 32_000
"""Environment steps of whole episodes from which a person's first comparisons are chosen, at most;
there are more if the comparisons need them."""
MAX_EXPLORATION_ROLLOUTS = 100
"""Rollouts, at most, until enough different segments are recorded for the first comparisons."""

StopRequested = Callable[[], bool]
AnyCollector: TypeAlias = "Collector | ClusterCollector"


def add_null_action_clip(
    session: PreferenceSession,
    plan: RunPlan,
    collector: AnyCollector,
    is_stop_requested: StopRequested,
) -> None:
    """Begin the ranking with a clip of null actions, from which no other clip is cut.

    A run that was killed before its first checkpoint repeats the steps and finds the same clip.
    """
    assert session.learner is not None  # noqa: S101 - only a learner sorts clips
    session.set_phase(Phase.RANDOM, "taking null actions, for the first clip")
    is_added = False
    while not is_added and session.should_continue():
        # In twice the length, there is a whole segment or a complete episode.
        num_steps = 2 * plan.segment_steps
        rollout = _collect(collector, collector.null_actions, num_steps, is_stop_requested)
        if rollout is not None:
            session.count_episodes(rollout)
            is_added = session.learner.add_clip_to_sort(rollout)


def ask_first_comparisons(
    session: PreferenceSession,
    plan: RunPlan,
    agent: Agent,
    collector: AnyCollector,
    is_stop_requested: StopRequested,
) -> None:
    """Act for long enough to cut the first segments, and ask; stop early if that is requested.

    Raises:
        TeacherFailed: too few different segments are found.
    """
    assert session.learner is not None  # noqa: S101 - there are labels to collect
    queue, length, num = session.learner.queue, plan.segment_steps, plan.first_labels
    num_steps, episode_steps = 2 * num * length, _episode_steps(plan, collector)
    if plan.asks_a_person:
        # A person is asked about whole episodes, so that the clips differ.
        num_steps = max(num_steps, episode_steps)
    act, doing = _exploration(plan, agent, collector)
    segments = counted(num_steps // length, "segment")
    per_rollout = collector.num_envs * agent.rollout_steps
    # At least these steps, then more rollouts for as long as too few distinct pairs are found.
    most = num_steps + MAX_EXPLORATION_ROLLOUTS * per_rollout
    for steps in range(0, most, per_rollout):
        if not session.should_continue():
            return
        recorded = min(steps, num_steps) // length
        text = f"{doing}, for the first comparisons: {recorded:,} of {segments}"
        session.set_phase(Phase.RANDOM, text)
        if steps >= num_steps:
            while queue.num_asked < num and session.ask():
                pass
            # The next clips to sort follow from answers that are missing.
            if queue.num_asked >= num or (plan.sorts_clips and queue.num_waiting):
                return
        elif plan.asks_a_person and steps >= episode_steps:
            # A person compares the first clips while the agent explores.
            session.ask(limit=num * steps // num_steps)
        rollout = _collect(collector, act, agent.rollout_steps, is_stop_requested)
        if rollout is not None:
            session.observe(rollout, is_training=False)
            agent.observe(rollout)
    raise TeacherFailed(
        f"No two different clips of {plan.env_info.id} were found in {MAX_EXPLORATION_ROLLOUTS} "
        "rollouts before training, so there is nothing to compare. Use an environment whose "
        "observations change, longer clips (-c), or another agent to begin with (--agent-path)."
    )


def _collect(
    collector: AnyCollector, act: Act, num_steps: int, is_stop_requested: StopRequested
) -> Rollout | None:
    """Collect a rollout; return None if a stop request interrupts it."""
    with contextlib.suppress(RolloutInterrupted):
        return collector.collect(act, num_steps, is_stop_requested)
    return None


def _exploration(plan: RunPlan, agent: Agent, collector: AnyCollector) -> tuple[Act, str]:
    """Return the policy that acts before the first labels, and what it does, for people."""
    # The first comparisons are about the agent, if it is warm-started.
    if plan.agent.is_warm:
        return agent.predict, "acting as the agent it starts from"
    explore = getattr(agent, "explore", None)
    if explore is not None:
        return explore, "exploring"
    return collector.random_actions, "acting at random"


def _episode_steps(plan: RunPlan, collector: AnyCollector) -> int:
    """Return the environment steps of one episode in all environments, at most `FIRST_STEPS`."""
    episode = plan.env_info.max_episode_steps or FIRST_STEPS
    # Steps with images are slower, and a person waits for the first clips.
    limit = FIRST_STEPS // (4 if plan.env_info.has_image_observations else 1)
    return min(episode * collector.num_envs, limit)
