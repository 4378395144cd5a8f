"""Stable-Baselines3's PPO on an Atari game; prints one JSON line.

Run in its own virtual environment: `python sb3_atari.py JOB`, where JOB is JSON with env_id,
network (paper or small), num_envs, arguments (of the agent's constructor), seed, threads, processes
(whether each environment has one of its own), warm_up_steps (not timed) and steps. Optional are
annealed (names of the arguments that fall linearly to 0) and minutes (processor time after which
training ends).
"""

import json
import sys
import time

import ale_py
import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack
from torch import nn

gymnasium.register_envs(ale_py)


class SmallCNN(BaseFeaturesExtractor):
    """Small CNN: 16 filters of 8 x 8 with stride 4, 32 of 4 x 4 with stride 2, 256 units."""

    def __init__(self, observation_space: gymnasium.spaces.Box) -> None:
        super().__init__(observation_space, 256)
        self.see = nn.Sequential(
            nn.Conv2d(observation_space.shape[0], 16, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            num_seen = self.see(torch.zeros(1, *observation_space.shape)).shape[1]
        self.dense = nn.Sequential(nn.Linear(num_seen, 256), nn.ReLU())

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return [B, 256] features."""
        return self.dense(self.see(pictures))


class TimeLimit(BaseCallback):
    """Ends training after an amount of processor time."""

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self.seconds = 60 * minutes

    def _on_step(self) -> bool:
        return time.process_time() < self.seconds


NETWORKS = {"paper": NatureCNN, "small": SmallCNN}


def make_agent(job: dict) -> PPO:
    """Create an agent with the usual Atari wrappers and four stacked frames."""
    venv = make_atari_env(
        job["env_id"],
        n_envs=job["num_envs"],
        seed=job["seed"],
        env_kwargs={"frameskip": 1, "repeat_action_probability": 0.0},
        vec_env_cls=SubprocVecEnv if job["processes"] else DummyVecEnv,
    )
    arguments = dict(job["arguments"])
    for name in job.get("annealed", ()):
        arguments[name] = LinearSchedule(arguments[name], 0.0, 1.0)
    return PPO(
        "CnnPolicy",
        VecFrameStack(venv, 4),
        **arguments,
        policy_kwargs={"features_extractor_class": NETWORKS[job["network"]]},
        seed=job["seed"],
        device="cpu",
    )


def main() -> None:
    """Warm up, train and print the result."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    agent = make_agent(job)
    if job["warm_up_steps"]:
        agent.learn(job["warm_up_steps"])
    began_at, began_s = agent.num_timesteps, time.perf_counter()
    limit = TimeLimit(job["minutes"]) if "minutes" in job else None
    agent.learn(job["steps"], limit, reset_num_timesteps=not job["warm_up_steps"])
    seconds = time.perf_counter() - began_s
    num_steps = agent.num_timesteps - began_at
    returns = [episode["r"] for episode in agent.ep_info_buffer]
    figures = {
        "steps": num_steps,
        "steps_per_second": num_steps / seconds,
        "final_return": float(np.mean(returns)) if returns else None,
        "peer_versions": {
            "stable-baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "ale-py": ale_py.__version__,
            "numpy": np.__version__,
        },
    }
    agent.env.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
