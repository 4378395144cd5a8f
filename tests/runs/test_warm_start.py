"""Tests of warm starts from earlier experiments and from files of Stable-Baselines3."""

import dataclasses
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO, SAC

from rl_teacher.agents.registry import make_agent
from rl_teacher.agents.sb3.zip import read_zip
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.config.experiment import (
    A2CConfig,
    OtherAgentConfig,
    PPOConfig,
    RunOptions,
    TeachConfig,
)
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.warm_start import load_warm_start
from rl_teacher.teach import teach

QUIET = RunOptions(no_tensorboard=True)
HIDDEN = (16, 16)
SMALL = ("n_steps=16", "batch_size=32", "policy_kwargs={'net_arch': [16, 16]}")


class Asymmetric(gym.Env):
    """Environment with asymmetric action bounds and unbounded observations."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(
        np.array([0, -4], np.float32), np.array([3, 1], np.float32), dtype=np.float32
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=3).astype(np.float32), 0.0, False, False, {}


gym.register("Asymmetric-v0", entry_point=lambda **_: Asymmetric(), max_episode_steps=20)


def save_model(path, algorithm=PPO, env_id="Asymmetric-v0", net_arch=HIDDEN, **kwargs) -> Any:
    """Save an agent with perturbed weights and return its model."""
    policy_kwargs = {"net_arch": list(net_arch), **kwargs}
    model = algorithm("MlpPolicy", gym.make(env_id), policy_kwargs=policy_kwargs, device="cpu")
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    model.save(path)
    return model


def config(path, agent="ppo", env_id="Asymmetric-v0", **changes):
    start = TeachConfig(
        env_id,
        "rl",
        name="test",
        agent=agent,
        num_timesteps=256,
        clip_length=0.5,
        agent_path=str(path),
        ppo=PPOConfig(num_envs=4, rollout_steps=16, minibatch_size=32, hidden=HIDDEN),
        a2c=A2CConfig(num_envs=4, hidden=HIDDEN),
        other=OtherAgentConfig(4, SMALL),
    )
    return dataclasses.replace(start, **changes)


def warm_started(start) -> Any:
    agent = make_agent(start, make_vector(start.env_id, 4))
    state = load_warm_start(start).agent
    assert state is not None
    agent.warm_start_from(state)
    return agent


def observations(size, spread=4.0):
    return np.random.default_rng(0).normal(0, spread, (200, size)).astype(np.float32)


# --- files of Stable-Baselines3 ---


@pytest.mark.parametrize("agent", ["ppo", "sb3:PPO"])
@pytest.mark.parametrize("env_id", ["Asymmetric-v0", "CartPole-v1"])
def test_loaded_agent_acts_as_saved_model(agent, env_id, tmp_path):
    theirs = save_model(tmp_path / "a.zip", env_id=env_id)
    ours = warm_started(config(tmp_path / "a.zip", agent, env_id))
    seen = observations(theirs.observation_space.shape[0])
    expected, _ = theirs.predict(seen, deterministic=True)
    np.testing.assert_allclose(ours.predict(seen, deterministic=True), expected, atol=1e-3)
    assert len(np.unique(expected, axis=0)) > 1
    if env_id == "Asymmetric-v0":
        low, high = theirs.action_space.low, theirs.action_space.high
        assert ((expected > low) & (expected < high)).any()
        assert ((expected == low) | (expected == high)).any()
        assert abs(seen).max() > 10


def test_loaded_value_function_equals_saved_one(tmp_path):
    theirs = save_model(tmp_path / "a.zip")
    ours = warm_started(config(tmp_path / "a.zip"))
    seen = observations(3)
    with torch.no_grad():
        expected = theirs.policy.predict_values(torch.as_tensor(seen)).numpy()
    np.testing.assert_allclose(
        ours._networks.value(jnp.asarray(seen)), expected, rtol=1e-4, atol=1e-4
    )


def test_loaded_agent_keeps_raw_observations_after_training(tmp_path):
    save_model(tmp_path / "a.zip")
    teach(config(tmp_path / "a.zip"), QUIET)
    ours = warm_started(config("test", name="other"))
    assert ours._observation_stats.frozen
    features = ours.policy.encoder.features(observations(3))
    np.testing.assert_allclose(features, observations(3), rtol=1e-6)
    assert ours.config == config("test", name="other").agent_settings


@pytest.mark.parametrize(("algorithm", "agent"), [(PPO, "a2c"), (A2C, "ppo"), (A2C, "sb3:PPO")])
def test_equal_networks_of_other_algorithm_are_loaded(algorithm, agent, tmp_path):
    theirs = save_model(tmp_path / "a.zip", algorithm)
    ours = warm_started(config(tmp_path / "a.zip", agent))
    expected, _ = theirs.predict(observations(3), deterministic=True)
    np.testing.assert_allclose(
        ours.predict(observations(3), deterministic=True), expected, atol=1e-4
    )


def test_warm_started_run_resumes_after_file_moved(tmp_path):
    save_model(tmp_path / "a.zip")
    start = config(tmp_path / "a.zip")
    teach(start, QUIET)
    (tmp_path / "a.zip").rename(tmp_path / "moved.zip")
    assert teach(dataclasses.replace(start, agent_path=str(tmp_path / "moved.zip")), QUIET)
    assert Experiment.find("test").config["agent_path"].startswith("sha256:")


@pytest.mark.parametrize(
    ("made", "changes", "named"),
    [
        ({"net_arch": (32, 8)}, {}, "hidden"),
        ({"activation_fn": torch.nn.ReLU}, {}, "tanh"),
        ({}, {"env_id": "Pendulum-v1"}, "mean"),
        ({}, {"env_id": "CartPole-v1"}, "logits"),
        ({"algorithm": SAC}, {}, "MlpPolicy"),
        ({"algorithm": SAC}, {"agent": "sb3:PPO"}, "policy/act"),
        ({"net_arch": (8,)}, {"agent": "sb3:PPO"}, r"\(8,"),
        ({}, {"agent": "tests.agents.test_custom:Constant"}, "--agent"),
    ],
)
def test_incompatible_model_is_refused(made, changes, named, tmp_path):
    save_model(tmp_path / "a.zip", **made)
    with pytest.raises(BadConfig, match=named):
        warm_started(config(tmp_path / "a.zip", **changes))


# --- invalid and malicious files ---


class Bomb:
    """Object that creates a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in members.items():
            opened.writestr(name.replace("_pth", ".pth"), content)


def pickled(mark):
    with_torch = io.BytesIO()
    torch.save({"action_net.weight": Bomb(mark)}, with_torch)
    return [pickle.dumps(Bomb(mark)), with_torch.getvalue()]


@pytest.mark.parametrize("number", [0, 1])
def test_pickle_in_place_of_tensors_is_refused_and_not_run(number, tmp_path):
    mark = tmp_path / "it-ran"
    archive(tmp_path / "a.zip", policy_pth=pickled(mark)[number], data="{}")
    with pytest.raises(BadInput, match="tensors"):
        read_zip(tmp_path / "a.zip")
    assert not mark.exists()
    pickle.loads(pickled(mark)[0])  # noqa: S301 - proves that the pickle is harmful
    assert mark.exists()


def test_other_pickles_in_archive_are_not_run(tmp_path):
    save_model(tmp_path / "a.zip")
    mark = tmp_path / "it-ran"
    with zipfile.ZipFile(tmp_path / "a.zip") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    harm = pickle.dumps(Bomb(mark)).hex()
    members["data"] = f'{{"policy_kwargs": {{":serialized:": "{harm}"}}}}'.encode()
    members["policy.optimizer.pth"] = pickle.dumps(Bomb(mark))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    warm_started(config(tmp_path / "b.zip"))
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"no zip at all", b"", None])
def test_invalid_zip_is_refused(content, tmp_path):
    if content is None:
        archive(tmp_path / "a.zip", readme="hello")
    else:
        (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.zip"):
        load_warm_start(config(tmp_path / "a.zip"))


def test_weights_that_are_not_finite_are_refused(tmp_path):
    with_torch = io.BytesIO()
    torch.save({"action_net.weight": torch.tensor([1.0, float("nan")])}, with_torch)
    archive(tmp_path / "a.zip", policy_pth=with_torch.getvalue(), data="{}")
    with pytest.raises(BadInput, match="finite"):
        read_zip(tmp_path / "a.zip")


# --- earlier experiments ---


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param("sb3:PPO", marks=pytest.mark.slow),
        "tests.agents.test_custom:Constant",
    ],
)
def test_agent_of_any_kind_warm_starts_from_experiment(agent):
    env = {"env_id": "ShortReacher-v1", "clip_length": 1.0}
    other = config(None, agent).other if agent == "sb3:PPO" else OtherAgentConfig(4)
    first = dataclasses.replace(config(None, agent, **env), agent_path=None, other=other)
    teach(dataclasses.replace(first, name="first"), QUIET)
    second = dataclasses.replace(first, name="second", agent_path="first")
    seen = observations(10)
    taught = make_agent(first, make_vector("ShortReacher-v1", 4))
    checkpoint = Experiment.find("first").load_checkpoint()
    assert checkpoint is not None
    taught.load_state(
        {name[6:]: each for name, each in checkpoint.arrays.items() if name.startswith("agent/")}
    )
    np.testing.assert_array_equal(
        warm_started(second).predict(seen, deterministic=True),
        taught.predict(seen, deterministic=True),
    )
    teach(second, QUIET)
    assert Experiment.find("second").metrics()[-1]["step"] >= 256


@pytest.mark.parametrize("saved", [{"fit": {}}, {"agent": "ppo", "collect_only": True}])
def test_experiment_without_agent_is_refused(saved):
    Experiment.open("labels", saved).close()
    with pytest.raises(BadInput, match="labels"):
        load_warm_start(config("labels"))
