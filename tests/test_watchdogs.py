"""Training that cannot continue ends with the reason; a process that died or waits is shown."""

import time

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
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(Faulty, "num_steps", 0)
    monkeypatch.setattr(Faulty, "fault", "")
    # It takes steps, too.
    monkeypatch.setattr("rl_teacher.preparation.check_environment", lambda *_, **__: None)


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


def explode(monkeypatch, error):
    """Add an error to the predicted rewards from a step on."""
    predict = RewardPredictor.member_rewards

    def wrong(self, rows):
        return predict(self, rows) + (error if Faulty.num_steps > 1_200 else 0.0)

    monkeypatch.setattr(RewardPredictor, "member_rewards", wrong)


TRUE_REWARD = ("-p", "rl")
LABELS = ("-p", "synth", "-l", "8", "-c", "0.5", "-i", "20")
FAILURES = {
    "observation": (TRUE_REWARD, lambda patch: patch.setattr(Faulty, "fault", "observation")),
    "reward": (TRUE_REWARD, lambda patch: patch.setattr(Faulty, "fault", "reward")),
    "simulator": (TRUE_REWARD, lambda patch: patch.setattr(Faulty, "fault", "raises")),
    "loss": (TRUE_REWARD, lambda patch: patch.setattr(Still, "nan_at", 5)),
    "predicted reward": (LABELS, lambda patch: explode(patch, 1e9)),
    "predicted rewards": (LABELS, lambda patch: explode(patch, float("nan"))),
}
"""Words of the error, and the arguments and the fault of the run."""


@pytest.mark.parametrize("word", FAILURES)
def test_run_that_cannot_continue_names_reason_and_last_checkpoint(word, capsys, monkeypatch):
    arguments, fail = FAILURES[word]
    fail(monkeypatch)
    if word == "simulator":
        with pytest.raises(ValueError, match=word) as raised:
            run(*arguments)
        error = "\n".join([str(raised.value), *raised.value.__notes__])
    else:
        assert run(*arguments) == 2
        error = capsys.readouterr().err
    experiment = Experiment.find("one")
    checkpoint = experiment.checkpoints.load()
    assert checkpoint is not None
    assert checkpoint.step > 0
    shown = show("one")
    assert experiment.summary().phase is shown.phase is Phase.FAILED
    for text in (error, shown.message, listed(capsys)):
        assert word in text
        assert f"step {checkpoint.step:,}" in text
    assert str(home()) not in shown.message
    assert word not in redact_for_labelers(shown).message


def test_failed_run_continues_after_its_environment_is_corrected(capsys, monkeypatch):
    monkeypatch.setattr(Faulty, "fault", "reward")
    assert run(*TRUE_REWARD) == 2
    monkeypatch.setattr(Faulty, "fault", "")
    assert run(*TRUE_REWARD) == 0
    assert show("one").phase is Phase.FINISHED


@pytest.mark.slow
def test_killed_trainer_is_shown_within_ten_seconds(capsys):
    process = start("killed", 10**7)
    wait_for_checkpoint("killed")
    while show("killed").phase is not Phase.TRAINING:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    killed_s = time.monotonic()
    process.wait()
    assert " lost " in listed(capsys)
    while show("killed").phase is not Phase.LOST:
        assert time.monotonic() - killed_s < SHOWN_WITHIN_S
        time.sleep(0.1)
