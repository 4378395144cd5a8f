"""Training that diverges stops the run, keeps the last good checkpoint, and names the setting."""

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher import PreferenceWrapper
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.custom import CustomAgent
from rl_teacher.agents.registry import check_losses, make_agent
from rl_teacher.cli import main
from rl_teacher.common.errors import BadObservation, Diverged
from rl_teacher.config.experiment import PredictorConfig, TeachConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.status import Phase

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

LEARNING_RATES = {
    "ppo": ("--ppo.learning-rate", "1e30"),
    "ga3c": ("--ga3c.learning-rate", "1e30"),
    "sac": ("--sac.learning-rate", "1e30", "--sac.learning-starts", "100"),
    "sb3:PPO": ("--other.arguments", "learning_rate=1e30", "n_steps=64"),
    "sbx:SAC": ("--other.arguments", "learning_rate=1e30", "learning_starts=100"),
}


def with_marker(agents):
    """Return parameters of a test, with the marker of SBX where it is needed."""
    return [
        pytest.param(agent, marks=pytest.mark.sbx) if agent.startswith("sbx") else agent
        for agent in agents
    ]


def run(*arguments):
    command = ["teach", "-e", "Pendulum-v1", "-n", "test", "-t", "20000", "--no-tensorboard"]
    return main([*command, "--checkpoint-seconds", "0", *arguments])


def assert_checkpoints_are_finite(name="test"):
    checkpoint = Experiment.find(name).checkpoints.load()
    for path, array in {} if checkpoint is None else checkpoint.arrays.items():
        if path.startswith(("agent/", "rewards/")) and array.dtype.kind == "f":
            assert np.isfinite(array).all(), path


@pytest.mark.parametrize("agent", with_marker(LEARNING_RATES))
def test_diverging_agent_ends_run_with_error_that_names_learning_rate(agent, capsys):
    assert run("-p", "rl", "-a", agent, *LEARNING_RATES[agent]) == 2
    error = capsys.readouterr().err
    assert ("other.arguments" if ":" in agent else f"--{agent}.learning-rate") in error
    assert Experiment.find("test").summary().phase is Phase.FAILED
    assert_checkpoints_are_finite()


def test_diverging_fit_ends_run_with_error_that_names_learning_rate(capsys):
    flags = ("-l", "20", "--reward.learning-rate", "1e30")
    assert run("-p", "synth", "-c", "1", *flags) == 2
    assert "--reward.learning-rate" in capsys.readouterr().err
    assert Experiment.find("test").summary().phase is Phase.FAILED


class Diverging(CustomAgent):
    """Agent whose weights and loss are NaN from its fourth update on."""

    rollout_steps = 8
    saved_attributes = ("weights", "num_updates")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.weights, self.num_updates = np.zeros(3), 0

    def act(self, observations, masks=None):
        return np.zeros((len(observations), 1), np.float32)

    def learn(self, rollout, rewards):
        self.num_updates += 1
        if self.num_updates == 4:
            self.weights += np.nan
        return {"loss": float(self.weights.sum())}


def test_checkpoint_before_divergence_is_kept(capsys):
    assert run("-p", "rl", "-a", "tests.test_divergence:Diverging") == 2
    assert "loss is nan" in capsys.readouterr().err
    checkpoint = Experiment.find("test").checkpoints.load()
    assert checkpoint is not None
    assert checkpoint.arrays["agent/num_updates"] == 3
    assert_checkpoints_are_finite()


@pytest.mark.parametrize(
    "name",
    with_marker(["ppo", "sac", "sb3:PPO", "sbx:SAC", "tests.test_divergence:Diverging"]),
)
def test_nan_weights_are_not_saved(name):
    config = TeachConfig("Pendulum-v1", "rl", name="test", agent=name)
    agent = make_agent(config, make_vector("Pendulum-v1", config.agent_settings.num_envs))
    weights = "weights" if ":" in name else "networks"
    broken = {
        path: array * np.nan if path.startswith(weights) and array.dtype.kind == "f" else array
        for path, array in agent.state().items()
    }
    agent.load_state(broken)
    with pytest.raises(Diverged, match="weights"):
        agent.state()


def act_at_random(env, num_steps):
    env.reset(seed=0)
    for _ in range(num_steps):
        *_, is_truncated, _ = env.step(env.action_space.sample())
        if is_truncated:
            env.reset()


def test_diverging_fit_in_wrapper_raises_and_saves_no_nan():
    env = PreferenceWrapper(
        gym.make("Pendulum-v1"),
        **{"name": "test", "n_labels": 20, "clip_length": 1.0, "checkpoint_interval": 1},
        reward=PredictorConfig(learning_rate=1e30),
    )
    with pytest.raises(Diverged, match=r"reward\.learning-rate"):
        act_at_random(env, 5_000)
    env.close()
    assert_checkpoints_are_finite()


def test_nan_actions_are_not_blamed_on_environment():
    venv = make_vector("Pendulum-v1", 2)
    collector = Collector(venv, seed=0)
    with pytest.raises(Diverged, match="action"):
        collector.collect(lambda _: np.array([[0.0], [np.nan]], np.float32), 3)


def test_nan_observation_after_finite_actions_is_blamed_on_environment(monkeypatch):
    venv = make_vector("Pendulum-v1", 2)
    collector = Collector(venv, seed=0)
    step = venv.step

    def broken(actions):
        observations, *rest = step(actions)
        return np.full_like(observations, np.nan), *rest

    monkeypatch.setattr(venv, "step", broken)
    with pytest.raises(BadObservation, match="Environment"):
        collector.collect(lambda _: np.zeros((2, 1), np.float32), 3)


def test_undefined_metric_that_is_no_loss_is_allowed():
    config = TeachConfig("Pendulum-v1", "rl", name="test")
    check_losses(
        config.agent, config.agent_settings, {"explained_variance": float("nan"), "value_loss": 1.0}
    )
    with pytest.raises(Diverged, match="value_loss"):
        check_losses(
            config.agent,
            config.agent_settings,
            {"explained_variance": float("nan"), "value_loss": float("inf")},
        )
