import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rl_teacher
from rl_teacher.agents.actions import ActionHead, ActionScale
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.numpy_policy import (
    SCHEMA_VERSION,
    NumpyPolicy,
    VectorNormaliser,
    export_policy,
    load_agent,
)
from rl_teacher.agents.policies import CategoricalPolicy
from rl_teacher.agents.ppo import PPO
from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import BadInput, BadObservation, CorruptCheckpoint
from rl_teacher.config.experiment import (
    A2CConfig,
    GA3CConfig,
    PPOConfig,
    SACConfig,
    TeachConfig,
    TRPOConfig,
)
from rl_teacher.envs.registry import make_vector
from rl_teacher.nn.conv import ImageEncoder
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.numpy_networks import NumpyImageEncoder, NumpyMLP
from tests.image_environments import make_corridors

CONFIG = PPOConfig(num_envs=4, rollout_steps=16)
SETTINGS = {
    "ppo": CONFIG,
    "trpo": TRPOConfig(num_envs=4, rollout_steps=16),
    "a2c": A2CConfig(num_envs=4, rollout_steps=16),
    "ga3c": GA3CConfig(num_envs=4, rollout_steps=16),
    "sac": SACConfig(num_envs=4, rollout_steps=16, learning_starts=16, hidden=(16,)),
}


def trained(env_id, name="ppo"):
    """Return a briefly trained agent, so that no part has its initial value, and observations."""
    settings = SETTINGS[name]
    config = TeachConfig(env_id, "rl", name="x", agent=name, seed=3, **{name: settings})
    venv = make_vector(env_id, settings.num_envs, 1)
    agent = make_agent(config, venv)
    collector = Collector(venv, seed=3)
    for _ in range(3):
        rollout = collector.collect(agent.act, settings.rollout_steps)
        agent.learn(rollout, rollout.rewards)
    return agent, collector.collect(agent.predict, 1).observations[0]


@pytest.fixture(scope="module")
def hopper():
    return trained("ShortHopper-v1")


@pytest.fixture
def folder(hopper, tmp_path):
    export_policy(hopper[0]).save(tmp_path / "agent")
    return tmp_path / "agent"


def floats(*numbers):
    return np.array(numbers, np.float32)


def tiny_policy(head, weights, biases):
    """Create a one-layer policy of two inputs of mean 1 and deviation 0.5, clipped at 2."""
    encoder = VectorNormaliser((2,), floats(1, 1), floats(2, 2), 2.0)
    return NumpyPolicy(encoder, NumpyMLP((floats(*weights),), (floats(*biases),), "tanh"), head)


class TestHandComputed:
    def test_observations_are_normalised_and_clipped_and_actions_scaled_to_bounds(self):
        head = ActionHead("gaussian", (1,), floats(0), ActionScale(floats(10), floats(4)))
        agent = tiny_policy(head, [[0.25], [0.1]], [0.05])
        # (1.5 - 1) * 2 = 1, and (9 - 1) * 2 is clipped to 2: 0.25 + 0.2 + 0.05 = 0.5 -> 10 + 2
        assert agent(np.array([1.5, 9.0])) == pytest.approx([12.0])

    def test_image_encoder_applies_filters_and_dense_layer(self):
        layout = ImageLayout((3, 4), None)
        filters = floats(*range(1, 5)).reshape(2, 2, 1, 1)  # 1 2 over 3 4
        weights = np.eye(2, dtype=np.float32)
        encoder = NumpyImageEncoder(
            layout, (filters,), (floats(-2),), (2,), weights, floats(0, -20)
        )
        pixels = np.zeros((1, 3, 4), np.uint8)
        pixels[0, 0], pixels[0, 1] = (255, 0, 0, 255), (0, 255, 255, 255)
        # Left 1 + 4 - 2 = 3, right 2 + 3 + 4 - 2 = 7; the last row has no row below it.
        np.testing.assert_allclose(encoder.features(pixels), [[3, 0]], rtol=1e-6)


class TestRoundTrip:
    @pytest.mark.parametrize(
        ("env_id", "name"),
        [
            ("ShortHopper-v1", "ppo"),
            ("CartPole-v1", "ppo"),
            ("Pendulum-v1", "trpo"),
            ("Pendulum-v1", "a2c"),
            ("CartPole-v1", "ga3c"),
            ("Pendulum-v1", "sac"),
        ],
    )
    def test_loaded_policy_acts_like_agent(self, env_id, name, tmp_path):
        agent, observations = trained(env_id, name)
        export_policy(agent).save(tmp_path)
        loaded = rl_teacher.load_agent(tmp_path)
        best = agent.predict(observations, deterministic=True)
        np.testing.assert_allclose(loaded(observations), best, rtol=1e-6, atol=1e-6)
        assert loaded(observations).dtype == best.dtype
        np.testing.assert_allclose(loaded(observations[0]), best[0], rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("network", ["small", pytest.param("paper", marks=pytest.mark.slow)])
    def test_loaded_image_policy_acts_like_agent(self, network, tmp_path):
        space = gym.spaces.Box(0, 255, (2, 44, 50), np.uint8)
        config = PPOConfig(num_envs=4, rollout_steps=16, image_encoder=network)
        agent = PPO(space, gym.spaces.Discrete(6), config, total_steps=10, seed=0)
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (20, 2, 44, 50), dtype=np.uint8)
        export_policy(agent).save(tmp_path)
        loaded = load_agent(tmp_path)
        np.testing.assert_array_equal(loaded(images), agent.predict(images, deterministic=True))
        assert loaded(images[0]) == loaded(images)[0]
        policy, _, encoder = agent._networks
        assert isinstance(policy, CategoricalPolicy)
        assert isinstance(encoder, ImageEncoder)
        expected = policy.logits(encoder(jnp.asarray(encoder.to_tiles(images.reshape(20, -1)))))
        logits = loaded.network(loaded.encoder.features(images))
        np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-5)
        assert np.ptp(logits, axis=0).min() > 1e-3

    def test_loaded_policy_of_bands_acts_like_agent(self, tmp_path):
        venv = make_corridors(4)
        agent = PPO(
            venv.single_observation_space,
            venv.single_action_space,
            PPOConfig(num_envs=4, rollout_steps=16, minibatch_size=32),
            total_steps=10,
            seed=0,
        )
        rollout = Collector(venv, seed=0).collect(agent.act, 16)
        agent.learn(rollout, rollout.rewards)
        export_policy(agent).save(tmp_path)
        loaded, images = load_agent(tmp_path), rollout.observations[:, 0]
        np.testing.assert_array_equal(loaded(images), agent.predict(images, deterministic=True))
        assert loaded(images[0]) == loaded(images)[0]

    def test_loaded_policy_imports_no_heavy_modules(self, folder):
        code = (
            "import sys, numpy as np, rl_teacher; "
            f"print(rl_teacher.load_agent({str(folder)!r})(np.zeros(12)).shape); "
            "print(*sys.modules)"
        )
        completed = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        shape, modules = completed.stdout.splitlines()
        assert shape == "(3,)"
        heavy = {"jax", "gymnasium", "mujoco", "equinox", "sqlalchemy", "fastapi"}
        assert heavy.isdisjoint(modules.split())


class TestWrongInput:
    @pytest.mark.parametrize("shape", [(), (11,), (2, 11), (1, 1, 12), (2, 2, 12), (13,)])
    def test_observation_of_wrong_shape_is_refused_with_both_shapes(self, folder, shape):
        with pytest.raises(BadInput) as error:
            load_agent(folder)(np.zeros(shape))
        assert str(shape) in str(error.value)
        assert "(12,)" in str(error.value)

    def test_non_finite_observation_is_refused(self, folder):
        with pytest.raises(BadObservation):
            load_agent(folder)(np.full(12, np.nan))

    def test_folder_without_agent_is_refused(self, tmp_path):
        with pytest.raises(BadInput, match="--format safetensors"):
            load_agent(tmp_path / "nowhere")

    def test_export_of_agent_without_policy_is_refused(self):
        with pytest.raises(BadInput, match="numpy_policy"):
            export_policy(object())


def change_description(folder, **changed):
    path = folder / "agent.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


class TestWrongFiles:
    def test_newer_schema_is_refused(self, folder):
        change_description(folder, schema_version=SCHEMA_VERSION + 1)
        with pytest.raises(CorruptCheckpoint, match="version"):
            load_agent(folder)

    @pytest.mark.parametrize(
        "changed",
        [
            {"format": "something else"},
            {"observations": {}},
            {"layers": {"number": 2, "activation": "tanh"}},
            {"layers": {"number": 3, "activation": "eval"}},
            {"actions": {"kind": "gaussian", "shape": [4], "first": 0}},
            {"actions": {"kind": "guess", "shape": [3], "first": 0}},
            {"actions": {"kind": "gaussian", "shape": [3], "first": float("inf")}},
            {"observations": {"shape": [12], "limit": float("nan")}},
            {"made_from": 3},
            {"sha256": "0" * 64},
        ],
    )
    def test_inconsistent_description_is_refused(self, folder, changed):
        change_description(folder, **changed)
        with pytest.raises(CorruptCheckpoint, match="agent"):
            load_agent(folder)

    @pytest.mark.parametrize("factor", [np.float32(np.nan), np.float64(1.0)])
    def test_arrays_of_other_type_or_not_finite_are_refused(self, folder, factor):
        arrays = load_file(folder / "agent.safetensors")
        arrays["layers/1/biases"] = arrays["layers/1/biases"] * factor
        save_file(arrays, folder / "agent.safetensors")
        content = (folder / "agent.safetensors").read_bytes()
        change_description(folder, sha256=hashlib.sha256(content).hexdigest())
        with pytest.raises(CorruptCheckpoint, match=r"layers/1/biases"):
            load_agent(folder)

    def test_bias_of_another_number_of_places_is_refused(self, tmp_path):
        space = gym.spaces.Box(0, 255, (2, 12, 12), np.uint8)
        config = PPOConfig(image_encoder="small")
        policy = PPO(space, gym.spaces.Discrete(3), config, total_steps=10, seed=0).numpy_policy()
        biases = (policy.encoder.biases[0][:1, :1], *policy.encoder.biases[1:])
        replace(policy, encoder=replace(policy.encoder, biases=biases)).save(tmp_path)
        with pytest.raises(CorruptCheckpoint, match=r"bias \(1, 1, 16\)"):
            load_agent(tmp_path)
