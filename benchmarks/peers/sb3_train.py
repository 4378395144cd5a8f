"""PPO of Stable-Baselines3 or SBX on one environment; prints one JSON line.

Run in its own virtual environment: `python sb3_train.py JOB`, where JOB is JSON with env_id,
num_envs, environments (DummyVecEnv, SubprocVecEnv or EnvPool), arguments (of the agent's
constructor), seed, threads, is_normalised (VecNormalize), warm_up_steps (not timed) and steps, and
library ("sb3", the default, or "sbx").
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
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecMonitor,
    VecNormalize,
)


class EnvPoolVecEnv(VecEnv):
    """EnvPool's environments as Stable-Baselines3 expects them, after EnvPool's own example.

    EnvPool spends a step on each reset; here the environments that ended are reset at once.
    """

    def __init__(self, env_id: str, num_envs: int, seed: int) -> None:
        import envpool

        self.pool = envpool.make(env_id, env_type="gymnasium", num_envs=num_envs, seed=seed)
        super().__init__(num_envs, self.pool.observation_space, self.pool.action_space)

    def reset(self) -> np.ndarray:
        """Start new episodes."""
        return self.pool.reset()[0]

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions of the next step."""
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """Take a step and reset the environments that ended."""
        observations, rewards, terminated, truncated, _ = self.pool.step(self.actions)
        ended = terminated | truncated
        infos: list[dict] = [{} for _ in ended]
        if ended.any():
            for i in np.flatnonzero(ended):
                infos[i] = {
                    "terminal_observation": observations[i].copy(),
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                }
            observations[ended] = self.pool.reset(np.flatnonzero(ended))[0]
        return observations, rewards, ended, infos

    def close(self) -> None:
        """Close the environments."""
        self.pool.close()

    def get_attr(self, attr_name: str, indices: object = None) -> list:  # noqa: ARG002
        """Return the render mode of each environment, the only attribute that is asked for."""
        return [{"render_mode": None}[attr_name]] * self.num_envs

    def set_attr(self, attr_name: str, value: object, indices: object = None) -> None:
        """Refuse to set an attribute."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: object, **kwargs: object) -> list:
        """Refuse to call a method."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: object = None) -> list[bool]:  # noqa: ARG002
        """Return False for each environment."""
        return [False] * self.num_envs


def make_environments(job: dict) -> VecEnv:
    """Create the environments with a monitor of their returns."""
    env_id, num_envs = job["env_id"], job["num_envs"]
    if job["environments"] == "EnvPool":
        return VecMonitor(EnvPoolVecEnv(env_id, num_envs, job["seed"]))
    vec_env_cls = {"DummyVecEnv": DummyVecEnv, "SubprocVecEnv": SubprocVecEnv}[job["environments"]]
    return make_vec_env(env_id, n_envs=num_envs, seed=job["seed"], vec_env_cls=vec_env_cls)


def make_agent(job: dict) -> PPO:
    """Create an agent with the default networks: 2 x 64 tanh for policy and value function."""
    agent_class = PPO
    if job.get("library") == "sbx":
        import sbx

        agent_class = sbx.PPO
    venv = make_environments(job)
    if job["is_normalised"]:
        venv = VecNormalize(venv, gamma=job["arguments"]["gamma"])
    return agent_class("MlpPolicy", venv, **job["arguments"], seed=job["seed"], device="cpu")


def main() -> None:
    """Warm up, train and print the result."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    agent = make_agent(job)
    if job["warm_up_steps"]:
        agent.learn(job["warm_up_steps"])
    began_at = agent.num_timesteps
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    agent.learn(job["steps"], reset_num_timesteps=not job["warm_up_steps"])
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    num_steps = agent.num_timesteps - (began_at if job["warm_up_steps"] else 0)
    returns = [episode["r"] for episode in agent.ep_info_buffer]
    figures = {
        "steps": num_steps,
        "seconds": seconds,
        "steps_per_second": num_steps / seconds,
        "steps_per_cpu_second": num_steps / cpu_s,
        "final_return": float(np.mean(returns)) if returns else None,
        "peer_versions": {
            "stable-baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "mujoco": mujoco.__version__,
            "numpy": np.__version__,
        },
    }
    agent.env.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
