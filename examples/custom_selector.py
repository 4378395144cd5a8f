"""Custom query selector: a random sample of the pairs with the most disagreement.

python examples/custom_selector.py [STEPS]
"""

import sys

import gymnasium as gym
import numpy as np

from rl_teacher import PreferenceWrapper


def unsure_and_varied(chances: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Sample from the half of the candidate pairs on which the members disagree most.

    Args:
        chances: [M, C] each member's probability that the left segment is preferred, of C pairs.
        num: number of pairs to choose.
        rng: source of randomness; using it keeps runs reproducible.

    Returns:
        [num] indices of the chosen pairs.
    """
    by_disagreement = np.argsort(-chances.var(axis=0))
    return rng.permutation(by_disagreement[: max(num, len(by_disagreement) // 2)])[:num]


def main(num_steps: int = 3_000) -> None:
    """Train a predictor on the chosen pairs, and print its correlation with the true reward."""
    env = PreferenceWrapper(
        gym.make("Pendulum-v1"),
        selector=unsure_and_varied,
        pretrain_labels=60,
        n_labels=90,
        steps_between_labels=100,
        fit="sync",
    )
    env.pretrain()
    env.action_space.seed(0)
    env.reset(seed=0)
    predicted, true = [], []
    for _ in range(num_steps):
        _, reward, _, is_over, info = env.step(env.action_space.sample())
        predicted.append(float(reward))
        true.append(info["true_reward"])
        if is_over:
            env.reset()
    print(f"correlation with the true reward: {np.corrcoef(predicted, true)[0, 1]:.2f}")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
