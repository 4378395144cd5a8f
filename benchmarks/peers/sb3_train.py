"""Stable-Baselines3's PPO on one environment; prints one JSON line.

Run in its own virtual environment: `python sb3_train.py JOB`, where JOB is JSON with env_id,
num_envs, arguments (of the agent's constructor), seed, threads, is_normalised (VecNormalize),
warm_up_steps (not timed) and steps.
"""

import json
import sys
import time

import gymnasium
import mujoco
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize


def make_agent(job: dict) -> PPO:
    """Create an agent with the default networks: 2 x 64 tanh for policy and value function."""
    venv = make_vec_env(job["env_id"], n_envs=job["num_envs"], seed=job["seed"])
    if job["is_normalised"]:
        venv = VecNormalize(venv, gamma=job["arguments"]["gamma"])
    return PPO("MlpPolicy", venv, **job["arguments"], seed=job["seed"], device="cpu")


def main() -> None:
    """Warm up, train and print the result."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    agent = make_agent(job)
    if job["warm_up_steps"]:
        agent.learn(job["warm_up_steps"])
    began_at = agent.num_timesteps
    began_s = time.perf_counter()
    agent.learn(job["steps"], reset_num_timesteps=not job["warm_up_steps"])
    seconds = time.perf_counter() - began_s
    num_steps = agent.num_timesteps - (began_at if job["warm_up_steps"] else 0)
    returns = [episode["r"] for episode in agent.ep_info_buffer]
    figures = {
        "steps": num_steps,
        "seconds": seconds,
        "steps_per_second": num_steps / seconds,
        "final_return": float(np.mean(returns)) if returns else None,
        "peer_versions": {
            "stable-baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "mujoco": mujoco.__version__,
            "numpy": np.__version__,
        },
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
