"""CleanRL-style training loop in one file: REINFORCE on predicted rewards.

python examples/cleanrl_loop.py [STEPS]
"""

import sys

import gymnasium as gym
import numpy as np

from rl_teacher import PreferenceVectorWrapper

GAMMA, LEARNING_RATE, ROLLOUT = 0.99, 0.02, 128


def main(num_steps: int = 60_000) -> None:
    """Train on predicted rewards, and print the mean true return."""
    venv = PreferenceVectorWrapper(
        gym.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync"), n_labels=150
    )
    venv.pretrain()
    rng = np.random.default_rng(0)
    weights = np.zeros((5, 2))  # a linear policy: logits of two actions
    observations, _ = venv.reset(seed=0)
    true_total, num_episodes = 0.0, 0
    for step in range(0, num_steps, 8 * ROLLOUT):
        rows, steps, rewards, dones = [], [], [], []
        for _ in range(ROLLOUT):
            x = np.concatenate([observations, np.ones((8, 1))], axis=1)
            chances = np.exp(x @ weights) / np.exp(x @ weights).sum(1, keepdims=True)
            actions = (rng.random(8) > chances[:, 0]).astype(int)
            observations, reward, terminated, truncated, infos = venv.step(actions)
            rows.append(x)
            steps.append(np.eye(2)[actions] - chances)  # the gradient of log pi
            rewards.append(reward)
            dones.append(terminated | truncated)
            true_total += infos["true_reward"].sum()
            num_episodes += int(dones[-1].sum())
        returns = np.zeros((ROLLOUT + 1, 8))
        for t in reversed(range(ROLLOUT)):
            returns[t] = rewards[t] + GAMMA * returns[t + 1] * ~dones[t]
        advantages = (returns[:-1] - returns[:-1].mean()) / (returns[:-1].std() + 1e-8)
        gradient = np.einsum("tni,tna,tn->ia", np.array(rows), np.array(steps), advantages)
        weights += LEARNING_RATE * gradient / ROLLOUT
        if num_episodes >= 50:
            print(f"step {step:,}: true return {true_total / num_episodes:.0f}")
            true_total, num_episodes = 0.0, 0
    print(f"done, with {venv.session.num_labels} labels")
    venv.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
