"""An on-policy agent of Stable-Baselines3 or sb3-contrib on one environment; prints one JSON line.

Run in its own virtual environment: `python sb3_agents.py JOB`; JOB is JSON with agent (TRPO or
A2C), env_id, num_envs, arguments (of the agent's constructor), seed, threads, is_normalised
(VecNormalize) and steps.
"""

import json
import sys
import time

import gymnasium
import mujoco
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

AGENTS = {"TRPO": sb3_contrib.TRPO, "A2C": stable_baselines3.A2C}


def main() -> None:
    """Train and print the result."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    venv = make_vec_env(job["env_id"], n_envs=job["num_envs"], seed=job["seed"])
    if job["is_normalised"]:
        venv = VecNormalize(venv, gamma=0.99)
    # The default networks are 2 x 64 tanh, for policy and value function.
    agent = AGENTS[job["agent"]](
        "MlpPolicy", venv, **job["arguments"], seed=job["seed"], device="cpu"
    )
    began_s = time.perf_counter()
    agent.learn(job["steps"])
    seconds = time.perf_counter() - began_s
    returns = [episode["r"] for episode in agent.ep_info_buffer]
    figures = {
        "steps": agent.num_timesteps,
        "seconds": seconds,
        "steps_per_second": agent.num_timesteps / seconds,
        "final_return": float(np.mean(returns)) if returns else None,
        "peer_versions": {
            "stable-baselines3": stable_baselines3.__version__,
            "sb3-contrib": sb3_contrib.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "mujoco": mujoco.__version__,
            "numpy": np.__version__,
        },
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
