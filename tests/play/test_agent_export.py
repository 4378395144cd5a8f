"""Exported agents and predictors act and predict as the originals, without this package."""

import importlib.util
import subprocess
import sys
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import onnxruntime
import pytest

from rl_teacher.agents.ppo import PPO
from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import PPOConfig, PredictorConfig
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.preprocessing import ImagePreprocessing
from rl_teacher.envs.registry import get_env_info, make_single_env, make_vector
from rl_teacher.nn.encoders import ImageBox
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.play.agent_export import play_script, write
from rl_teacher.play.onnx_graphs import save_predictor
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputNormaliser, InputSpace
from rl_teacher.wrappers import PreferenceWrapper
from tests.agents.test_numpy_policy import trained
from tests.envs.custom_environments import MODULE

NUM = 1000
AGENTS = [
    ("Hopper-v5", "ppo"),
    ("Pendulum-v1", "a2c"),
    ("Pendulum-v1", "trpo"),
    ("Pendulum-v1", "sac"),
    ("CartPole-v1", "ppo"),
    ("CartPole-v1", "ga3c"),
]


def run_module(path):
    """Return the module of a script, which is executed as far as an import does it."""
    spec = importlib.util.spec_from_file_location(path.parent.name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported(form, policy, kind, venv, folder):
    """Export a policy and return the module of its `play.py`."""
    actor: Any = SimpleNamespace(
        name="x",
        kind=kind,
        step=1,
        venv=venv,
        env_info=get_env_info("CartPole-v1"),
        frames=FrameSettings(),
        predictor=None,
    )
    write(actor, policy, form, folder)
    return run_module(folder / "play.py")


@pytest.fixture(scope="module", params=AGENTS, ids=lambda each: f"{each[1]}-{each[0]}")
def original(request):
    """Return an agent, its name, spaces, and observations that are not clipped."""
    env_id, name = request.param
    agent: Any = trained(env_id, name)[0]
    encoder = agent.numpy_policy().encoder
    deviations = np.random.default_rng(5).uniform(-4, 4, (NUM, encoder.mean.size))
    observations = (encoder.mean + deviations / encoder.inverse_std).astype(np.float32)
    with closing(make_vector(env_id, 1, 1)) as venv:
        yield agent, name, venv, observations


def sampled_with_noise(agent, observations):
    """Return sampled actions of an agent, and the noise that they were sampled with."""
    policy = agent.numpy_policy()
    rng, same_rng = np.random.default_rng(1), np.random.default_rng(1)
    actions = policy(observations, explore=True, rng=rng)
    size = policy.network.biases[-1].size // (2 if policy.head.kind == "squashed_gaussian" else 1)
    shape = len(observations), size
    if policy.head.kind == "categorical":
        return actions, same_rng.gumbel(size=shape)
    return actions, same_rng.standard_normal(shape, dtype=np.float32)


class TestPolicies:
    @pytest.mark.parametrize("form", ["numpy", "onnx", "sb3"])
    def test_best_actions_equal_those_of_the_agent(self, original, form, tmp_path):
        agent, name, venv, observations = original
        act = exported(form, agent.numpy_policy(), name, venv, tmp_path).act
        actions = [act(each) for each in observations]
        best = agent.predict(observations, deterministic=True)
        np.testing.assert_allclose(actions, best, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("form", ["numpy", "onnx"])
    def test_sampled_actions_equal_those_of_the_agent_for_equal_noise(
        self, original, form, tmp_path
    ):
        agent, name, venv, observations = original
        act = exported(form, agent.numpy_policy(), name, venv, tmp_path).act
        sampled, noise = sampled_with_noise(agent, observations)
        actions = [act(*each) for each in zip(observations, noise, strict=True)]
        np.testing.assert_allclose(actions, sampled, rtol=0, atol=1e-5)
        assert not np.array_equal(sampled, agent.predict(observations, deterministic=True))

    @pytest.mark.parametrize("form", ["numpy", "onnx"])
    def test_observations_are_clipped(self, original, form, tmp_path):
        agent, name, venv, observations = original
        act = exported(form, agent.numpy_policy(), name, venv, tmp_path).act
        distant = 1e4 * observations[:20]
        best = agent.predict(distant, deterministic=True)
        np.testing.assert_allclose([act(each) for each in distant], best, rtol=0, atol=1e-5)

    def test_distribution_in_stable_baselines3_is_that_of_the_agent(self, original, tmp_path):
        import torch

        agent, name, venv, observations = original
        model = exported("sb3", agent.numpy_policy(), name, venv, tmp_path).agent
        assert model.observation_space == venv.single_observation_space
        sampled, noise = sampled_with_noise(agent, observations)
        given = torch.as_tensor(observations)
        with torch.no_grad():
            if name == "sac":
                mean, log_std, _ = model.actor.get_action_dist_params(given)
                actions = torch.tanh(mean + log_std.exp() * torch.as_tensor(noise)).numpy()
                actions = model.policy.unscale_action(actions)
            else:
                own = model.policy.get_distribution(given).distribution
                if isinstance(venv.single_action_space, gym.spaces.Discrete):
                    actions = np.argmax(own.logits.numpy() + noise, -1)
                else:
                    actions = (own.mean + own.stddev * torch.as_tensor(noise)).numpy()
                    space = venv.single_action_space
                    actions = np.clip(actions, space.low, space.high)
        np.testing.assert_allclose(actions, sampled, rtol=0, atol=1e-5)


def image_agent(encoder):
    space = ImageBox(ImageLayout((2, 44, 50), 0))
    config = PPOConfig(num_envs=4, rollout_steps=16, image_encoder=encoder)
    agent = PPO(space, gym.spaces.Discrete(6), config, total_steps=10, seed=0)
    venv = SimpleNamespace(
        single_observation_space=space, single_action_space=gym.spaces.Discrete(6)
    )
    images = np.random.default_rng(0).integers(0, 256, (NUM, *space.shape), dtype=np.uint8)
    return agent, venv, images


class TestImages:
    @pytest.mark.parametrize(
        ("form", "encoder"),
        [
            ("numpy", "bands"),
            ("onnx", "bands"),
            ("numpy", "small"),
            ("onnx", "small"),
            ("numpy", "paper"),
            ("onnx", "paper"),
            ("sb3", "paper"),
        ],
    )
    def test_image_policy_acts_as_agent(self, form, encoder, tmp_path):
        agent, venv, images = image_agent(encoder)
        policy = agent.numpy_policy()
        act = exported(form, policy, "ppo", venv, tmp_path).act
        images = images[: 1000 if (form, encoder) == ("onnx", "small") else 50]
        features = policy.encoder.features(images)
        if encoder == "bands":
            features = policy.encoder.normalise(features)
        logits = policy.network(features)
        # Where two logits are equal up to rounding, either action is right.
        is_clear = np.diff(np.sort(logits)[:, -2:]).ravel() > 1e-5
        assert is_clear.mean() > 0.9
        actions = np.array([act(each) for each in images])
        best = agent.predict(images, deterministic=True)
        np.testing.assert_array_equal(actions[is_clear], best[is_clear])
        assert len(set(best)) > 1

    @pytest.mark.parametrize("encoder", ["bands", "small"])
    def test_encoder_that_stable_baselines3_does_not_have_is_refused(self, encoder, tmp_path):
        agent, venv, _ = image_agent(encoder)
        with pytest.raises(BadInput, match="--format onnx"):
            exported("sb3", agent.numpy_policy(), "ppo", venv, tmp_path)

    def test_exported_frames_equal_those_of_training(self, tmp_path):
        frames = FrameSettings(stacked=2, size=12)
        with closing(make_vector(f"{MODULE}:Lamp", 1, 1, frames=frames)) as venv:
            info = get_env_info(f"{MODULE}:Lamp")
            actor: Any = SimpleNamespace(
                name="x", kind="ppo", step=1, venv=venv, env_info=info, frames=frames
            )
            text = play_script(actor, "act = None")
        (tmp_path / "play.py").write_text(text)
        env = run_module(tmp_path / "play.py").Frames(make_single_env(info.id))
        reference = ImagePreprocessing(make_single_env(info.id), frames)
        np.testing.assert_array_equal(env.reset(seed=0)[0], reference.reset(seed=0)[0])
        for action in (0, 1, 1):
            np.testing.assert_array_equal(env.step(action)[0], reference.step(action)[0])


VECTOR = gym.spaces.Box(-5, 5, (4,), np.float32)
TORQUES = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = ImageBox(ImageLayout((3, 48, 50), 0))


class TestPredictors:
    @pytest.mark.parametrize(
        ("observations", "actions", "config"),
        [
            (VECTOR, TORQUES, PredictorConfig()),
            (VECTOR, gym.spaces.Discrete(3, start=1), PredictorConfig(ignore_actions=True)),
            (gym.spaces.Box(0, 255, (6,), np.uint8), TORQUES, PredictorConfig()),
            (IMAGE, gym.spaces.Discrete(3), PredictorConfig()),
            (ImageBox(ImageLayout((4, 30, 40), 0)), TORQUES, PredictorConfig()),
            (IMAGE, TORQUES, PredictorConfig(image_encoder="paper", batch_norm=True)),
            (
                IMAGE,
                gym.spaces.Discrete(3),
                PredictorConfig(image_encoder="small", ignore_actions=True),
            ),
        ],
    )
    @pytest.mark.parametrize("keeps_zero", [False, True])
    def test_onnx_predicts_the_rewards_of_the_predictor(
        self, observations, actions, config, keeps_zero, tmp_path
    ):
        predictor = RewardPredictor(InputSpace.from_spaces(observations, actions), config, seed=2)
        rng = np.random.default_rng(3)
        size = len(predictor.normaliser.mean)
        normaliser = InputNormaliser(
            rng.normal(size=size).astype(np.float32),
            rng.uniform(0.5, 2, size).astype(np.float32),
            rng.random(size) < 0.8,
        )
        # Every parameter has another value than its initial one.
        networks = jax.tree.map(
            lambda leaf: leaf + 0.1 * rng.random(leaf.shape, np.float32), predictor.networks
        )
        predictor.set_networks(networks, normaliser)
        predictor.recent.update(rng.normal(2, 3, (config.ensemble_size, 50)))
        predictor.keeps_zero = keeps_zero
        observations.seed(0)
        actions.seed(0)
        steps = {
            "observation": np.stack([observations.sample() for _ in range(NUM)]),
            "action": np.stack([np.asarray(actions.sample()) for _ in range(NUM)]),
        }
        save_predictor(predictor, tmp_path / "reward.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "reward.onnx")
        expected = predictor(*steps.values())
        assert expected.std() > 1e-3
        rewards = np.asarray(session.run(None, steps)[0])
        np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)


class TestCommand:
    def test_script_plays_the_agent_of_each_format(self, home, tmp_path, capsys):
        for form in ("numpy", "onnx", "sb3"):
            folder = tmp_path / form
            assert main(["export", "cart", "--format", form, "--out", str(folder)]) == 0
            command = [sys.executable, str(folder / "play.py")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert done.stdout.count("return") == 3, form
            assert done.stderr == ""
        assert "play.py" in capsys.readouterr().out

    def test_exported_reward_equals_that_of_the_frozen_predictor(self, home, tmp_path, monkeypatch):
        folder = tmp_path / "agent"
        assert main(["export", "synth", "--format", "onnx", "--out", str(folder)]) == 0
        exported_reward = run_module(folder / "reward.py").PredictedReward
        with (
            closing(exported_reward(make_single_env("ShortReacher-v1"))) as env,
            closing(
                PreferenceWrapper(make_single_env("ShortReacher-v1"), predictor_path="synth")
            ) as reference,
        ):
            env.reset(seed=0)
            reference.reset(seed=0)
            env.action_space.seed(0)
            for _ in range(20):
                action = env.action_space.sample()
                _, reward, *_, info = env.step(action)
                _, expected, *_, expected_info = reference.step(action)
                assert reward == pytest.approx(expected, abs=1e-4)
                assert info["true_reward"] == pytest.approx(expected_info["true_reward"])
