"""SAC of SBX or of Stable-Baselines3 on one environment; prints one JSON line.

Run in its own virtual environment: `python sac_train.py JOB`, where JOB is JSON with library
("sbx" or "sb3"), env_id, num_envs, hidden, minibatch_size, learning_rate, buffer_steps,
learning_starts, seed, threads, is_normalised (VecNormalize for observations), warm_up_steps (not
timed), steps, latest (training episodes of the latest return) and evaluated (fresh episodes of the
final policy). One gradient step for each environment step, as both libraries recommend.
"""

import importlib.metadata
import json
import os
import sys
import time

JOB = json.loads(sys.argv[1])
os.environ["OMP_NUM_THREADS"] = str(JOB["threads"])
if JOB["threads"] == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import SAC as SB3  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

PACKAGES = ("sbx-rl", "stable-baselines3", "jax", "torch", "gymnasium", "mujoco", "numpy")


class RunTimer(BaseCallback):
    """Callback that records wall time, processor time and step at the end of the warm-up."""

    def __init__(self, warm_up_steps: int) -> None:
        super().__init__()
        self.warm_up_steps = warm_up_steps
        self.began: tuple[float, float, int] | None = None

    def _on_step(self) -> bool:
        if self.began is None and self.num_timesteps >= self.warm_up_steps:
            self.began = time.perf_counter(), time.process_time(), self.num_timesteps
        return True


def make_agent(job: dict) -> SB3:
    """Create an agent with the given networks and default settings otherwise."""
    if job["library"] == "sbx":
        from sbx import SAC
    else:
        SAC = SB3  # noqa: N806
    venv = make_vec_env(job["env_id"], n_envs=job["num_envs"], seed=job["seed"])
    if job["is_normalised"]:
        venv = VecNormalize(venv, norm_reward=False)
    return SAC(
        "MlpPolicy",
        venv,
        train_freq=1,
        gradient_steps=job["num_envs"],
        batch_size=job["minibatch_size"],
        learning_rate=job["learning_rate"],
        buffer_size=job["buffer_steps"],
        learning_starts=job["learning_starts"],
        policy_kwargs={"net_arch": list(job["hidden"])},
        seed=job["seed"],
        device="cpu",
    )


def evaluate(agent: SB3, job: dict) -> tuple[float, float]:
    """Return mean and standard deviation of the deterministic policy's return."""
    # One episode of each environment, whose seeds are not those of the training.
    num_episodes = job["evaluated"]
    venv = make_vec_env(job["env_id"], n_envs=num_episodes, seed=job["seed"] + 10_000)
    trained_in = agent.get_vec_normalize_env()
    if trained_in is not None:
        venv = VecNormalize(venv, training=False, norm_reward=False)
        venv.obs_rms = trained_in.obs_rms
    return evaluate_policy(agent, venv, n_eval_episodes=num_episodes)


def versions() -> dict[str, str]:
    """Return the versions of the installed packages."""
    installed = {each.metadata["Name"] for each in importlib.metadata.distributions()}
    return {name: importlib.metadata.version(name) for name in PACKAGES if name in installed}


def main() -> None:
    """Warm up, train and print the result."""
    torch.set_num_threads(JOB["threads"])
    agent = make_agent(JOB)
    clock = RunTimer(JOB["warm_up_steps"])
    agent.learn(JOB["steps"], callback=clock)
    assert clock.began is not None, "fewer steps than the warm-up has"  # noqa: S101
    began_s, began_cpu_s, began_at = clock.began
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    num_steps = agent.num_timesteps - began_at
    returns = [episode["r"] for episode in agent.ep_info_buffer]
    latest = returns[-JOB["latest"] :] if len(returns) >= JOB["latest"] else None
    figures = {
        "steps": agent.num_timesteps,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "steps_per_second": num_steps / seconds,
        "final_return": float(np.mean(returns)) if returns else None,
        "latest_return": None if latest is None else float(np.mean(latest)),
        "peer_versions": versions(),
    }
    if JOB["evaluated"]:
        figures["return"], figures["return_std"] = map(float, evaluate(agent, JOB))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
