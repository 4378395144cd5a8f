"""imitation's preference comparisons on Hopper of fixed horizon; prints one JSON line.

Run in its own virtual environment: `python imitation_train.py JOB`, where JOB is JSON with env_id,
steps, labels, seed, fragment_length, iterations (query rounds), is_normalised (VecNormalize around
the agent's environment) and threads. Settings are the defaults of imitation where it has them, and
otherwise those of the paper: an ensemble of 3 normalised members, 10 % error rate, a quarter of the
labels before training.
"""

import json
import sys
import time
from importlib.metadata import version

import gymnasium  # noqa: F401 - registers the environments
import numpy as np
import torch
from imitation.algorithms import preference_comparisons as pc
from imitation.rewards.reward_nets import (
    AddSTDRewardWrapper,
    BasicRewardNet,
    NormalizedRewardNet,
    RewardEnsemble,
)
from imitation.util.networks import RunningNorm
from imitation.util.util import make_vec_env
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

PACKAGES = ("imitation", "stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")
ENDLESS = {"terminate_when_unhealthy": False}


def make_learner(job: dict, venv, rng: np.random.Generator) -> tuple:  # noqa: ANN001
    """Create the agent and the algorithm that trains it."""
    spaces = venv.observation_space, venv.action_space
    members = [
        NormalizedRewardNet(BasicRewardNet(*spaces, hid_sizes=(64, 64)), RunningNorm)
        for _ in range(3)
    ]
    net = AddSTDRewardWrapper(RewardEnsemble(*spaces, members), default_alpha=0)
    agent = PPO(
        "MlpPolicy",
        venv,
        n_steps=128,
        batch_size=256,
        n_epochs=10,
        seed=job["seed"],
        device="cpu",
    )
    trainer = pc.AgentTrainer(agent, net, venv, rng=rng, exploration_frac=0.0)
    if job["is_normalised"]:
        # Around imitation's own wrappers: the agent gets normalised observations and predicted
        # rewards, the reward model raw observations.
        agent.set_env(VecNormalize(trainer.venv, gamma=agent.gamma))
    # imitation chooses this trainer for ensembles; no public function accepts the epochs.
    reward_trainer = pc._make_reward_trainer(
        pc.PreferenceModel(net, noise_prob=0.1),
        pc.CrossEntropyRewardLoss(),
        rng=rng,
        reward_trainer_kwargs={"epochs": 3},
    )
    algorithm = pc.PreferenceComparisons(
        trainer,
        net,
        num_iterations=job["iterations"],
        fragmenter=pc.RandomFragmenter(warning_threshold=0, rng=rng),
        preference_gatherer=pc.SyntheticGatherer(rng=rng),
        reward_trainer=reward_trainer,
        fragment_length=job["fragment_length"],
        transition_oversampling=1,
        initial_comparison_frac=0.25,
        initial_epoch_multiplier=10,
    )
    return agent, algorithm


def evaluate(agent: PPO, venv) -> tuple[float, float]:  # noqa: ANN001
    """Return mean and standard deviation of the true return over 10 episodes."""
    trained_in = agent.get_vec_normalize_env()
    if trained_in is not None:
        venv = VecNormalize(venv, training=False, norm_reward=False)
        venv.obs_rms = trained_in.obs_rms
    return evaluate_policy(agent, venv, n_eval_episodes=10)


def main() -> None:
    """Train, evaluate and print the result."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    rng = np.random.default_rng(job["seed"])
    began_s = time.perf_counter()
    venv = make_vec_env(job["env_id"], n_envs=16, rng=rng, env_make_kwargs=ENDLESS)
    agent, algorithm = make_learner(job, venv, rng)
    algorithm.train(total_timesteps=job["steps"], total_comparisons=job["labels"])
    trained_s = time.perf_counter()
    returns = [episode["r"] for episode in agent.ep_info_buffer or []]
    fresh = make_vec_env(job["env_id"], n_envs=1, rng=rng, env_make_kwargs=ENDLESS)
    mean, spread = evaluate(agent, fresh)
    figures = {
        "work_s": trained_s - began_s,
        "evaluation_s": time.perf_counter() - trained_s,
        "return": float(mean),
        "return_std": float(spread),
        "training_return": float(np.mean(returns)) if returns else None,
        "peer_versions": {name: version(name) for name in PACKAGES},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
