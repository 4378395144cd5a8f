"""A run whose owner pauses, resumes and stops it through the store, as the page does."""

import threading
import time
from dataclasses import replace

import pytest

from rl_teacher.common.errors import ExperimentNotFound
from rl_teacher.config.experiment import PPOConfig, PredictorConfig, RunOptions, TeachConfig
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.database import default_url
from rl_teacher.store.records import AssignmentPolicy, Control
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
    """Says what it wants, one wish after another, each as soon as the run does the one before."""

    def __init__(self, *wishes):
        super().__init__(daemon=True)
        self._wishes = wishes
        self.statuses = []

    def run(self):
        with Store.open(default_url(home())) as store:
            for awaited, wish in self._wishes:
                self._await_phase(store, awaited)
                store.experiments.set_control(store.experiments.get("mine").id, wish)

    def _await_phase(self, store, phase):
        """Until it is said twice, so that one can see what has moved between."""
        said = []
        while len(said) < 2:
            time.sleep(0.02)
            try:
                view = store.experiments.get("mine")
            except ExperimentNotFound:
                continue
            if (view.status or {}).get("phase") == phase and view.status_at not in said:
                said.append(view.status_at)
                self.statuses.append(view.status)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.join()


@pytest.mark.parametrize("predictor", [pytest.param("synth", marks=pytest.mark.slow), "rl"])
def test_a_run_is_paused_resumed_and_stopped_and_saves(predictor):
    wishes = (
        ("training", Control(state="pause")),
        ("paused", Control(state="run")),
        ("training", Control(state="stop")),
    )
    with Owner(*wishes) as owner:
        outcome = teach(replace(CONFIG, predictor=predictor), OPTIONS)
    before, paused, still_paused, after = (owner.statuses[i]["step"] for i in (1, 2, 3, 5))
    assert before <= paused == still_paused < after
    assert "resume or stop it there" in owner.statuses[2]["says"]
    assert not outcome.is_finished
    checkpoint = Experiment.find("mine").load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.step == outcome.step > 0
    with Store.open(default_url(home())) as store:
        assert (store.experiments.get("mine").status or {})["phase"] == "stopped"


@pytest.mark.slow
def test_a_paused_run_can_be_stopped_and_its_next_run_goes_on():
    wishes = (("training", Control(state="pause")), ("paused", Control(state="stop")))
    with Owner(*wishes):
        stopped_at = teach(CONFIG, OPTIONS).step
    with Owner(("training", Control(state="stop"))) as owner:
        outcome = teach(CONFIG, OPTIONS)
    assert owner.statuses[0]["step"] >= stopped_at
    assert outcome.step > stopped_at


def test_more_labels_are_asked_once_more_are_wanted_and_the_wish_outlives_the_run():
    config = replace(CONFIG, schedule="constant")
    wishes = (
        ("training", Control(target_labels=33, seconds_between=0.01)),
        ("training", Control(state="pause")),
        ("paused", Control(state="stop")),
    )
    with Owner(*wishes):
        teach(config, OPTIONS)
    assert Experiment.find("mine").metrics()[-1]["labels_asked"] == 33
    with Owner(("training", Control(state="stop"))):
        teach(config, OPTIONS)
    with Store.open(default_url(home())) as store:
        view = store.experiments.get("mine")
        assert (view.asked, view.target_labels) == (33, 33)


def test_a_study_is_kept_and_what_is_not_said_again_stays():
    config = replace(CONFIG, num_timesteps=512)
    teach(config, replace(OPTIONS, overlap=0.5, overlap_labelers=3))
    teach(config, replace(OPTIONS, repeats=0.25))
    with Store.open(default_url(home())) as store:
        experiment_id = store.experiments.get("mine").id
        assert store.experiments.assignment(experiment_id) == AssignmentPolicy(0.5, 3, repeats=0.25)
