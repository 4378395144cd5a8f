"""Training that cannot continue ends with the reason; a process that died or waits is shown."""

import re
import signal
import time
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.agents.custom import CustomAgent
from rl_teacher.cli import main
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.runs.status import Phase
from rl_teacher.store.store import utc_now
from rl_teacher.web.experiment_views import ExperimentViews, redact_for_labelers
from tests.test_person_teaches import (
    CONFIG,
    Labeler,
    running,
    seconds_until,
    status,
    stop,
)
from tests.test_teach import start, wait_for_checkpoint

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page")

SHOWN_WITHIN_S = 10.0


class Still(CustomAgent):
    """Agent that does nothing; its loss is NaN from an update on."""

    rollout_steps = 8
    saved_attributes = ("num_updates",)
    nan_at = 10**9

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.num_updates = 0

    def act(self, observations, masks=None):
        return np.zeros((len(observations), 1), np.float32)

    def learn(self, rollout, rewards):
        self.num_updates += 1
        return {"loss": float("nan") if self.num_updates == self.nan_at else 0.0}


class Faulty(gym.Env):
    """Environment that fails in some way at its 400th step."""

    observation_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    metadata = {"render_fps": 20}  # noqa: RUF012 - Gymnasium's own spelling
    fault = ""
    num_steps = 0

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def observe(self):
        return self.rng.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action):
        Faulty.num_steps += 1
        observation, reward = self.observe(), 1.0
        if Faulty.num_steps >= 400:
            match Faulty.fault:
                case "raises":
                    raise ValueError("the simulator broke")
                case "observation":
                    observation = np.full(2, np.nan, np.float32)
                case "reward":
                    reward = float("nan")
        return observation, reward, False, False, {}


@pytest.fixture(autouse=True)
def _sound_at_first(monkeypatch):
    monkeypatch.setattr(Faulty, "num_steps", 0)
    monkeypatch.setattr(Faulty, "fault", "")
    # It takes steps, too.
    monkeypatch.setattr("rl_teacher.preparation.check_environment", lambda _: None)


def run(*arguments):
    command = ["teach", "-e", "tests.test_watchdogs:Faulty", "-n", "one", "-t", "2000"]
    agent = ["-a", "tests.test_watchdogs:Still", "--other.num-envs", "2"]
    return main([*command, *agent, "--no-tensorboard", "--checkpoint-seconds", "0", *arguments])


def show(name):
    """Return the summary of an experiment that the page shows to its owner."""
    with open_store() as store:
        views = ExperimentViews(store, utc_now)
        return views.summary(views.find(name), None)


def listed(capsys):
    """Return the list of `rl-teacher runs` as one line."""
    capsys.readouterr()
    assert main(["runs"]) == 0
    return " ".join(capsys.readouterr().out.split())


def assert_failure_is_shown(reason, error, capsys, monkeypatch):
    """Check that terminal, page and list name the reason and the last checkpoint."""
    monkeypatch.setenv("COLUMNS", "400")
    experiment = Experiment.find("one")
    assert experiment.summary().phase is Phase.FAILED
    checkpoint = experiment.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.step > 0
    of_step = f"The last checkpoint is of step {checkpoint.step:,}."
    assert re.search(reason, error)
    assert of_step in error
    assert str(home() / "experiments" / "one" / "checkpoints") in error
    shown = show("one")
    assert (shown.phase, shown.is_running) == (Phase.FAILED, False)
    assert re.search(reason, shown.message)
    assert of_step in shown.message
    assert str(home()) not in shown.message
    assert "failed" in redact_for_labelers(shown).message
    assert not re.search(reason, redact_for_labelers(shown).message)
    line = listed(capsys)
    assert " failed " in line
    assert re.search(reason, line)
    assert of_step in line


FAULTS = {"observation": "observations that are not finite", "reward": "rewards that are not"}


@pytest.mark.parametrize("fault", FAULTS)
def test_environment_that_returns_nan_ends_run_with_the_reason(fault, capsys, monkeypatch):
    monkeypatch.setattr(Faulty, "fault", fault)
    assert run("-p", "rl") == 2
    assert_failure_is_shown(FAULTS[fault], capsys.readouterr().err, capsys, monkeypatch)


def test_environment_that_raises_ends_run_with_its_traceback(capsys, monkeypatch):
    monkeypatch.setattr(Faulty, "fault", "raises")
    with pytest.raises(ValueError, match="the simulator broke") as raised:
        run("-p", "rl")
    error = "\n".join([str(raised.value), *raised.value.__notes__])
    assert_failure_is_shown("the simulator broke", error, capsys, monkeypatch)


def test_nan_loss_ends_run_with_the_reason(capsys, monkeypatch):
    monkeypatch.setattr(Still, "nan_at", 5)
    assert run("-p", "rl") == 2
    assert_failure_is_shown("loss is nan", capsys.readouterr().err, capsys, monkeypatch)


@pytest.mark.parametrize("error", [1e9, float("nan")])
def test_exploding_predicted_reward_ends_run_with_the_reason(error, capsys, monkeypatch):
    predict = RewardPredictor.member_rewards

    def explode(self, rows):
        return predict(self, rows) + (error if Faulty.num_steps > 1_200 else 0.0)

    monkeypatch.setattr(RewardPredictor, "member_rewards", explode)
    assert run("-p", "synth", "-l", "8", "-c", "0.5", "-i", "20") == 2
    reason = "The predicted rewards are not finite numbers, or larger than 1,000,000"
    assert_failure_is_shown(reason, capsys.readouterr().err, capsys, monkeypatch)


def test_failed_run_continues_after_its_environment_is_corrected(capsys, monkeypatch):
    monkeypatch.setattr(Faulty, "fault", "reward")
    assert run("-p", "rl") == 2
    monkeypatch.setattr(Faulty, "fault", "")
    assert run("-p", "rl") == 0
    assert show("one").phase is Phase.FINISHED


def test_killed_trainer_is_shown_within_ten_seconds(capsys):
    process = start("killed", 10**7)
    wait_for_checkpoint("killed")
    assert show("killed").phase is Phase.TRAINING
    process.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    process.wait()
    assert " lost " in listed(capsys)
    while show("killed").phase is not Phase.LOST:
        assert time.monotonic() - killed_s < SHOWN_WITHIN_S
        time.sleep(0.1)
    assert "has ended" in show("killed").message


def test_terminal_page_and_list_say_who_waits_since_when(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    lines = []
    monkeypatch.setattr(
        "rl_teacher.report.progress.Progress.status", lambda _, text: lines.append(text)
    )
    with running(replace(CONFIG, num_timesteps=1024)):
        seconds_until(lambda: status().get("num_missing") == 8)
        since = show("mine").waiting_since
        assert since is not None
        time_of_day = f"{since.astimezone():%H:%M:%S}"
        missing = "8 more labels until training starts"
        assert f"waits for labels since {time_of_day}: {missing}" in listed(capsys)
        with Labeler(limit=3):
            seconds_until(lambda: status().get("num_missing") == 5)
        assert show("mine").waiting_since == since
        stop()
    assert f"{missing}; waiting since {time_of_day}" in lines
    assert show("mine").waiting_since is None
