"""Custom agent: the cross-entropy method in 25 lines; python examples/custom_agent.py [STEPS].

From the command line, with this folder on Python's path: `-a custom_agent:CrossEntropy`.
"""

import sys
from typing import Any

import numpy as np

from rl_teacher.agents.custom import CustomAgent
from rl_teacher.config.experiment import OtherAgentConfig, RunOptions, TeachConfig
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach


class CrossEntropy(CustomAgent):
    """Cross-entropy method: one sampled linear policy per environment, refitted to the best."""

    rollout_steps = 50
    saved_attributes = ("mean", "std", "drawn")

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        spaces = self.observation_space, self.action_space
        self.mean = np.zeros([size for space in spaces for size in space.shape or ()])
        self.std = np.ones_like(self.mean)
        self.drawn = self._draw()

    def _draw(self) -> np.ndarray:
        return self.rng.normal(self.mean, self.std, (self.num_envs, *self.mean.shape))

    def act(self, observations: np.ndarray, masks: Any = None) -> np.ndarray:  # noqa: ARG002
        """Return the actions of each environment's sampled policy."""
        return np.tanh(np.einsum("ni,nia->na", observations, self.drawn)).astype(np.float32)

    def predict(self, observations: np.ndarray, *_: Any, **__: Any) -> np.ndarray:
        """Return the actions of the mean policy."""
        return np.tanh(observations @ self.mean).astype(np.float32)

    def learn(self, rollout: Any, rewards: np.ndarray) -> dict[str, float]:  # noqa: ARG002
        """Refit mean and standard deviation to the quarter of policies with the highest reward."""
        best = self.drawn[np.argsort(rewards.mean(axis=0))[-self.num_envs // 4 :]]
        self.mean, self.std = best.mean(axis=0), best.std(axis=0) + 0.05
        self.drawn = self._draw()
        return {"spread": float(self.std.mean())}


def main(steps: int = 16_000) -> None:
    """Train from the labels of a synthetic teacher, and print the true return."""
    own: Any = {"agent": "__main__:CrossEntropy", "other": OtherAgentConfig(num_envs=32)}
    budget: Any = {"n_labels": 60, "num_timesteps": steps}
    config = TeachConfig("ShortInvertedPendulum-v1", "synth", name="custom-agent", **own, **budget)
    teach(config, RunOptions(no_tensorboard=True))
    print(f"true return {Experiment.find('custom-agent').metrics()[-1]['true_return']:.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
