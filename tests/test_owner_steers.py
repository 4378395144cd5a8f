"""Tests of pausing, resuming and stopping a run through the store, as the page does."""

import json
import threading
import time
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.reset import AgentReset
from rl_teacher.common.errors import BadConfig, ExperimentNotFound
from rl_teacher.common.state_dict import array_to_text
from rl_teacher.config.experiment import PPOConfig, PredictorConfig, RunOptions, TeachConfig
from rl_teacher.preparation import split_length
from rl_teacher.runs.control import switch_reward
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.checkpoints import Checkpoint
from rl_teacher.store.database import default_url
from rl_teacher.store.records import Control
from rl_teacher.store.store import Store
from rl_teacher.teach import teach

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

CONFIG = TeachConfig(
    env_id="ShortReacher-v1",
    predictor="synth",
    name="mine",
    n_labels=20,
    num_timesteps=100_000_000,
    ppo=PPOConfig(num_envs=8, rollout_steps=32),
    reward=PredictorConfig(hidden=(16, 16)),
    pretrain_iters=16,
)
OPTIONS = RunOptions(no_tensorboard=True, workers=1)


class Owner(threading.Thread):
    """Gives commands in order, each one once the run is in a phase or a condition holds."""

    def __init__(self, *commands):
        super().__init__(daemon=True)
        self._commands = commands
        self.statuses = []

    def run(self):
        with Store.open(default_url(home())) as store:
            for awaited, command in self._commands:
                if callable(awaited):
                    while not awaited(store.experiments.get("mine")):
                        time.sleep(0.02)
                else:
                    self._await_phase(store, awaited)
                store.experiments.set_control(store.experiments.get("mine").id, command)

    def _await_phase(self, store, phase):
        """Wait for two statuses of a phase, which show whether the step has advanced."""
        times = []
        while len(times) < 2:
            time.sleep(0.02)
            try:
                view = store.experiments.get("mine")
            except ExperimentNotFound:
                continue
            if (view.status or {}).get("phase") == phase and view.status_at not in times:
                times.append(view.status_at)
                self.statuses.append(view.status)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.join()


@pytest.mark.usefixtures("_prompt_control")
@pytest.mark.parametrize("predictor", [pytest.param("synth", marks=pytest.mark.slow), "rl"])
def test_run_is_paused_resumed_and_stopped_with_checkpoint(predictor):
    commands = (
        ("training", Control(state="pause")),
        ("paused", Control(state="run")),
        ("training", Control(state="stop")),
    )
    with Owner(*commands) as owner:
        labels = CONFIG.n_labels if predictor == "synth" else None
        outcome = teach(replace(CONFIG, predictor=predictor, n_labels=labels), OPTIONS)
    before, paused, still_paused, after = (owner.statuses[i]["step"] for i in (1, 2, 3, 5))
    assert before <= paused == still_paused < after
    assert "resume or stop it there" in owner.statuses[2]["message"]
    assert not outcome.is_finished
    checkpoint = Experiment.find("mine").checkpoints.load()
    assert checkpoint is not None
    assert checkpoint.step == outcome.step > 0
    with Store.open(default_url(home())) as store:
        assert (store.experiments.get("mine").status or {})["phase"] == "stopped"


@pytest.mark.usefixtures("_prompt_control")
def test_raised_target_asks_more_labels_and_survives_restart():
    config = replace(CONFIG, schedule="constant")
    commands = (
        ("training", Control(target_labels=33, seconds_between=0.01)),
        (lambda view: view.asked == 33, Control(state="pause")),
        ("paused", Control(state="stop")),
    )
    with Owner(*commands):
        teach(config, OPTIONS)
    assert Experiment.find("mine").metrics()[-1]["labels_asked"] == 33
    with Owner(("training", Control(state="stop"))):
        teach(config, OPTIONS)
    with Store.open(default_url(home())) as store:
        view = store.experiments.get("mine")
        assert (view.asked, view.target_labels) == (33, 33)


def test_cleared_settings_are_those_of_the_command_from_the_next_start():
    changed = Control(target_labels=1000, seconds_between=7.0)
    with Owner(("training", changed), ("training", Control(state="stop"))):
        teach(CONFIG, OPTIONS)
    assert saved_plan() == (1000, 7.0)
    with Store.open(default_url(home())) as store:
        experiment_id = store.experiments.get("mine").id
        store.experiments.set_control(
            experiment_id, Control(), cleared=["target_labels", "seconds_between"]
        )
    with Owner(("training", Control(state="stop"))):
        teach(CONFIG, OPTIONS)
    assert saved_plan() == (CONFIG.n_labels, 0.0)


def saved_plan():
    """Return the number of labels and the seconds between them in the latest checkpoint."""
    checkpoint = Experiment.find("mine").checkpoints.load()
    assert checkpoint is not None
    budget = json.loads(array_to_text(checkpoint.arrays["rewards/planner/budget"]))
    return budget["total"], budget["seconds_between"]


def test_learning_rate_is_annealed_to_the_last_step_of_an_extension(monkeypatch):
    rates = []
    annealed = OnPolicyAgent._annealed

    def recorded(agent, first, last):
        rates.append(float(annealed(agent, first, last)))
        return rates[-1]

    monkeypatch.setattr(OnPolicyAgent, "_annealed", recorded)
    ppo = replace(CONFIG.ppo, learning_rate=1e-3, final_learning_rate=0.0)
    config = replace(CONFIG, predictor="rl", n_labels=None, num_timesteps=512, ppo=ppo)
    teach(config, OPTIONS)
    teach(replace(config, num_timesteps=1024), OPTIONS)
    assert rates == pytest.approx([1e-3, 0.5e-3, 0.5e-3, 0.25e-3])


def test_agent_learns_from_reward_that_owner_selects(monkeypatch):
    learned_from_true, relabelled, judged = [], [], []
    learn = OnPolicyAgent.learn

    def recording_learn(agent, rollout, rewards):
        learned_from_true.append(np.array_equal(rewards, rollout.rewards))
        return learn(agent, rollout, rewards)

    monkeypatch.setattr(OnPolicyAgent, "learn", recording_learn)
    monkeypatch.setattr(OnPolicyAgent, "relabel_buffer", lambda *_: relabelled.append(True))
    monkeypatch.setattr(AgentReset, "apply_if_due", lambda *_: judged.append(True))
    teach(replace(CONFIG, num_timesteps=768), OPTIONS)
    assert learned_from_true == [False, False]
    assert "uses_true_reward" not in Experiment.find("mine").metrics()[-1]
    choices: tuple[tuple[int, Literal["true", "predicted"]], ...] = (
        (6144, "true"),
        (6656, "predicted"),
    )
    for steps, reward in choices:
        with Store.open(default_url(home())) as store:
            switch_reward(store, "mine", reward)
        learned_from_true.clear()
        relabelled.clear()
        judged.clear()
        teach(replace(CONFIG, num_timesteps=steps), OPTIONS)
        assert set(learned_from_true) == {reward == "true"}
        assert Experiment.find("mine").metrics()[-1]["uses_true_reward"] == (reward == "true")
        # 5,000 steps without relabelling: a replay buffer would lose its true rewards.
        assert reward == "predicted" or not relabelled
        assert (reward == "predicted") == bool(judged)


def test_buffer_of_a_frozen_predictor_is_relabelled_once_the_true_reward_ends(monkeypatch):
    """No fit and no moving window ever relabels it."""
    teach(replace(CONFIG, num_timesteps=512), OPTIONS)
    frozen = replace(CONFIG, name="frozen", predictor=None, n_labels=None, predictor_path="mine")
    frozen = replace(frozen, reward=PredictorConfig(), pretrain_iters=TeachConfig.pretrain_iters)
    relabelled = []
    monkeypatch.setattr(OnPolicyAgent, "relabel_buffer", lambda *_: relabelled.append(True))
    choices: tuple[tuple[Literal["true", "predicted"], int], ...] = (
        *(("predicted", 0), ("true", 0)),
        *(("predicted", 1), ("predicted", 1)),
    )
    for number, (reward, expected) in enumerate(choices):
        if number:
            with Store.open(default_url(home())) as store:
                switch_reward(store, "frozen", reward)
        teach(replace(frozen, num_timesteps=512 * (number + 1)), OPTIONS)
        assert len(relabelled) == expected


@pytest.mark.parametrize(
    ("steps", "labels", "expected"),
    [
        (500_000, 20, None),
        (1_500_000, 20, Control(target_steps=1_500_000, target_labels=20)),
        (4_000_000, 160, Control(target_steps=4_000_000, target_labels=160)),
        # Below what is done: it finishes with its labels, of which there are none here.
        (1_000_000, 80, Control(target_steps=1_000_000, target_labels=1)),
    ],
)
def test_command_with_other_numbers_sets_both_and_the_same_command_keeps_those_of_the_page(
    steps, labels, expected
):
    begun = replace(CONFIG, num_timesteps=500_000)
    extend_on_page(begun, step=1_200_000)
    given = replace(CONFIG, num_timesteps=steps, n_labels=labels)
    assert split_length(given) == (begun, expected)


@pytest.mark.parametrize(
    ("answered", "labels", "expected"),
    [
        (60, 80, Control(target_steps=320_000, target_labels=80)),
        (30, 80, Control(target_labels=80)),
        (30, 20, Control(target_steps=160_000, target_labels=20)),
    ],
    ids=["finished", "still labelling", "finishes"],
)
def test_steps_of_a_person_follow_from_labels_that_a_command_changes(answered, labels, expected):
    begun = replace(CONFIG, predictor="human", n_labels=60, num_timesteps=None)
    with Experiment.open("mine", begun.saved()) as experiment:
        experiment.metrics_file.append({"step": 240_000, "labels_answered": answered})
        experiment.checkpoints.save(Checkpoint(240_000, {}, {}))
    assert split_length(replace(begun, n_labels=labels)) == (begun, expected)


def test_more_labels_are_refused_after_the_last_step_of_an_extension_on_the_page():
    extend_on_page(replace(CONFIG, num_timesteps=500_000), step=2_000_000)
    with pytest.raises(BadConfig, match=r"all 2,000,000 steps.*-t 4000000"):
        split_length(replace(CONFIG, num_timesteps=1_000_000, n_labels=160))


def extend_on_page(config, step):
    """Create an experiment that was extended to 2 million steps and 80 labels, at a step."""
    with Experiment.open("mine", config.saved()) as experiment:
        experiment.metrics_file.append({"step": step})
        experiment.checkpoints.save(Checkpoint(step, {}, {}))
    with Store.open(default_url(home())) as store:
        experiment_id = store.experiments.ensure("mine", config.env_id, config.saved())
        extension = Control(target_steps=2_000_000, target_labels=80)
        store.experiments.set_control(experiment_id, extension)


def test_run_on_true_reward_has_no_other_reward_to_switch_to():
    teach(replace(CONFIG, predictor="rl", n_labels=None, num_timesteps=256), OPTIONS)
    with Store.open(default_url(home())) as store, pytest.raises(BadConfig, match="'mine' is not"):
        switch_reward(store, "mine", "predicted")
