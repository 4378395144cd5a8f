"""One Stable-Baselines3 run in its own process: `python -m benchmarks._wrapped SETTINGS` (JSON).

The result is printed as one line of JSON.
"""

import json
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import QRDQN
from stable_baselines3 import DQN, SAC

from benchmarks._ours import EVALUATION_SEEDS
from rl_teacher import PreferenceWrapper
from rl_teacher.envs.interface import environment_seeds
from rl_teacher.wrappers.sb3 import RelabelReplay

AGENTS: dict[str, Any] = {"DQN": DQN, "QRDQN": QRDQN, "SAC": SAC}

Metrics = dict[str, Any]


def train(  # noqa: PLR0913 - as the benchmark names them
    env_id: str,
    agent: str,
    agent_settings: dict[str, Any],
    wrapper: dict[str, Any] | None,
    steps: int,
    seed: int,
    evaluated: int,
    agent_reset: int | None = None,
) -> Metrics:
    """Train an agent and evaluate it in the unwrapped environment.

    Args:
        env_id: environment.
        agent: class name in Stable-Baselines3.
        agent_settings: keyword arguments of the agent.
        wrapper: keyword arguments of the PreferenceWrapper; None for the true reward.
        steps: environment steps of training.
        seed: seed of environment, agent and labels.
        evaluated: number of evaluation episodes.
        agent_reset: number of labels after which the agent is reset once.
    """
    torch.set_num_threads(1)
    start_s = time.perf_counter()
    env = gym.make(env_id)
    labels = 0
    if wrapper is not None:
        env = PreferenceWrapper(env, num_timesteps=steps, seed=seed, fit="sync", **wrapper)
        env.pretrain()
    model = AGENTS[agent]("MlpPolicy", env, seed=seed, **agent_settings)
    is_taught = isinstance(env, PreferenceWrapper)
    relabels = RelabelReplay(env, agent_reset=agent_reset) if is_taught else None
    model.learn(steps, callback=relabels)
    if isinstance(env, PreferenceWrapper):
        labels = env.session.num_labels
    env.close()
    work_s = time.perf_counter() - start_s
    seeds = environment_seeds(seed + EVALUATION_SEEDS, evaluated)
    returns = play(env_id, lambda obs: model.predict(obs, deterministic=True)[0], seeds)
    actions = gym.make(env_id).action_space
    actions.seed(seed)
    random_returns = play(env_id, lambda obs: actions.sample(), seeds)  # noqa: ARG005
    return {
        "return": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "random_return": float(np.mean(random_returns)),
        "labels": labels,
        "work_s": work_s,
    }


def play(env_id: str, act: Any, seeds: list[int]) -> list[float]:
    """Return the true returns of evaluation episodes, one of each seed."""
    env = gym.make(env_id)
    returns = []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total, is_over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return returns


if __name__ == "__main__":
    print(json.dumps(train(**json.loads(sys.argv[1]))))
