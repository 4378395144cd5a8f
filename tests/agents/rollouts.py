"""Letting an agent live and learn, for tests."""

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.episode_stats import EpisodeReturns


def train(make, venv, config, num_rollouts, seed):
    """The agent after so many rollouts with the environment's own reward, and how it fared."""
    collector = Collector(venv, seed=seed)
    episodes = EpisodeReturns(venv.num_envs, begins_whole=True)
    agent = new_agent(make, venv, config, seed)
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, config.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        episodes.observe(rollout, rollout.rewards)
    return agent, collector, episodes


def new_agent(make, venv, config, seed=0):
    """One that has learned nothing yet."""
    spaces = venv.single_observation_space, venv.single_action_space
    return make(*spaces, config, total_steps=10**6, seed=seed)


def state_after(agent, collector, num_rollouts):
    """Where it stands after some more."""
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, rollout.rewards)
    return agent.state()
