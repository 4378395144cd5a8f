"""Stable-Baselines3's DQN learns CartPole from comparisons alone.

pip install "rl-teacher[sb3]"
python examples/sb3_agent.py [STEPS]
"""

import sys

import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

from rl_teacher import PreferenceWrapper
from rl_teacher.wrappers.sb3 import RelabelReplay


def main(num_steps: int = 50_000) -> None:
    """Train from labels, then evaluate with the true reward."""
    env = PreferenceWrapper(
        gym.make("CartPole-v1"), n_labels=200, schedule="annealed", num_timesteps=num_steps
    )
    env.pretrain()  # random actions until the first fit, before which all rewards are 0
    agent = DQN(
        "MlpPolicy",
        env,
        learning_rate=2.3e-3,
        batch_size=64,
        learning_starts=500,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=0,
    )
    agent.learn(num_steps, callback=RelabelReplay(env))
    labels = env.session.num_labels
    env.close()
    mean, spread = evaluate_policy(agent, gym.make("CartPole-v1"), 20, warn=False)
    print(f"true return {mean:.0f} +- {spread:.0f}, from {labels} labels")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
