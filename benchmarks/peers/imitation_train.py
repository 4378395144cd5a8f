"""imitation's preference comparisons on Hopper of fixed horizon; prints one JSON line.

Run in its own virtual environment: `python imitation_train.py JOB`, where JOB is JSON with env_id,
steps, labels, seed, threads, fragment_length, iterations (query rounds) and configuration:

* `ours`: as this project sets imitation up: the paper's ensemble of 3 normalised members, 10 %
  error rate and a quarter of the labels before training; PPO with 16 environments, rollouts of 128
  steps, minibatches of 256. A further field is is_normalised: VecNormalize around the agent's
  environment.
* `tutorial`: as imitation's authors set it up, in docs/tutorials/5_train_preference_comparisons of
  v1.0.1, every value of it, if there are 60 iterations ("Set to 60 for better performance") and
  fragments of 100 steps. Its authors tuned it approximately, on Pendulum. At the end it trains a
  fresh agent with the learned reward for another 100,000 steps, which the budget does not count.
"""

import json
import sys
import time
from importlib.metadata import version

import gymnasium  # noqa: F401 - registers the environments
import numpy as np
import torch
from imitation.algorithms import preference_comparisons as pc
from imitation.policies.base import FeedForward32Policy, NormalizeFeaturesExtractor
from imitation.rewards.reward_nets import (
    AddSTDRewardWrapper,
    BasicRewardNet,
    NormalizedRewardNet,
    RewardEnsemble,
    RewardNet,
)
from imitation.rewards.reward_wrapper import RewardVecEnvWrapper
from imitation.util.networks import RunningNorm
from imitation.util.util import make_vec_env
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

PACKAGES = ("imitation", "stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")
ENDLESS = {"terminate_when_unhealthy": False}
FRESH_STEPS = 100_000
"""Steps of the tutorial's second agent, which learns from the final reward model."""


class StepCounter(VecEnvWrapper):
    """Environments that count their steps, also those that only collect trajectories to compare."""

    num_steps = 0

    def reset(self):  # noqa: ANN201
        """Reset all environments."""
        return self.venv.reset()

    def step_wait(self):  # noqa: ANN201
        """Step all environments."""
        self.num_steps += self.num_envs
        return self.venv.step_wait()


def make_tutorial_agent(seed: int, venv) -> PPO:  # noqa: ANN001
    """Create the PPO agent of imitation's tutorial."""
    return PPO(
        FeedForward32Policy,
        venv,
        policy_kwargs={
            "features_extractor_class": NormalizeFeaturesExtractor,
            "features_extractor_kwargs": {"normalize_class": RunningNorm},
        },
        seed=seed,
        n_steps=2048 // venv.num_envs,
        batch_size=64,
        ent_coef=0.01,
        learning_rate=2e-3,
        clip_range=0.1,
        gae_lambda=0.95,
        gamma=0.97,
        n_epochs=10,
        device="cpu",
    )


def shared_settings(job: dict, rng: np.random.Generator) -> dict:
    """Return the settings of the comparisons that both configurations have."""
    return {
        "num_iterations": job["iterations"],
        "fragmenter": pc.RandomFragmenter(warning_threshold=0, rng=rng),
        "preference_gatherer": pc.SyntheticGatherer(rng=rng),
        "fragment_length": job["fragment_length"],
        "transition_oversampling": 1,
    }


def make_tutorial(job: dict, venv, rng: np.random.Generator) -> tuple:  # noqa: ANN001
    """Create the agent, the algorithm and the reward model of imitation's tutorial."""
    spaces = venv.observation_space, venv.action_space
    net = BasicRewardNet(*spaces, normalize_input_layer=RunningNorm)
    agent = make_tutorial_agent(job["seed"], venv)
    trainer = pc.AgentTrainer(agent, net, venv, rng=rng, exploration_frac=0.05)
    reward_trainer = pc.BasicRewardTrainer(
        pc.PreferenceModel(net), pc.CrossEntropyRewardLoss(), rng=rng, epochs=3
    )
    algorithm = pc.PreferenceComparisons(
        trainer,
        net,
        reward_trainer=reward_trainer,
        **shared_settings(job, rng),
        initial_comparison_frac=0.1,
        allow_variable_horizon=False,
        initial_epoch_multiplier=4,
        query_schedule="hyperbolic",
    )
    return agent, algorithm, net


def make_as_we_do(job: dict, venv, rng: np.random.Generator) -> tuple:  # noqa: ANN001
    """Create the agent, the algorithm and the reward model as this project sets them up."""
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
        reward_trainer=reward_trainer,
        **shared_settings(job, rng),
        initial_comparison_frac=0.25,
        initial_epoch_multiplier=10,
    )
    return agent, algorithm, net


def train_fresh_agent(job: dict, venv, net: RewardNet) -> PPO:  # noqa: ANN001
    """Train the tutorial's second agent with the final reward model."""
    agent = make_tutorial_agent(job["seed"], RewardVecEnvWrapper(venv, net.predict_processed))
    return agent.learn(FRESH_STEPS)


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
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    is_tutorial = job["configuration"] == "tutorial"
    # The tutorial takes imitation's default, 8 environments.
    num_envs = 8 if is_tutorial else 16
    venv = StepCounter(
        make_vec_env(job["env_id"], n_envs=num_envs, rng=rng, env_make_kwargs=ENDLESS)
    )
    agent, algorithm, net = (make_tutorial if is_tutorial else make_as_we_do)(job, venv, rng)
    algorithm.train(total_timesteps=job["steps"], total_comparisons=job["labels"])
    trained_s, trained_cpu_s = time.perf_counter(), time.process_time()
    environment_steps = venv.num_steps
    returns = [episode["r"] for episode in agent.ep_info_buffer or []]
    fresh = make_vec_env(job["env_id"], n_envs=1, rng=rng, env_make_kwargs=ENDLESS)
    mean, spread = evaluate(agent, fresh)
    fresh_agent = train_fresh_agent(job, venv, net) if is_tutorial else None
    figures = {
        "work_s": trained_s - began_s,
        "work_cpu_s": trained_cpu_s - began_cpu_s,
        "evaluation_s": time.perf_counter() - trained_s,
        "agent_steps": agent.num_timesteps,
        "environment_steps": environment_steps,
        "fresh_agent_return": evaluate(fresh_agent, fresh)[0] if fresh_agent else None,
        "return": float(mean),
        "return_std": float(spread),
        "training_return": float(np.mean(returns)) if returns else None,
        "peer_versions": {name: version(name) for name in PACKAGES},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
