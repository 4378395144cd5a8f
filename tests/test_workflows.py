"""Piece by piece: labels collected in one process, fitted in a second, used by a third."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadConfig, BadInput, ConfigMismatch
from rl_teacher.common.state_dict import part_of
from rl_teacher.config.experiment import (
    CollectConfig,
    FitConfig,
    PPOConfig,
    PredictorConfig,
    RunOptions,
    TeachConfig,
)
from rl_teacher.datasets.import_export import labels_of
from rl_teacher.fit_offline import fit_labels
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.teach import teach

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

QUIET = RunOptions(no_tensorboard=True)
PPO = PPOConfig(num_envs=16, rollout_steps=32)
SMALL = PredictorConfig(hidden=(16, 16))
COLLECT = CollectConfig(
    env_id="ShortReacher-v1",
    name="labels",
    n_labels=60,
    predictor="synth",
    clip_length=1.0,
    ppo=PPO,
)
TEACH = TeachConfig(
    env_id="ShortReacher-v1",
    name="agent",
    num_timesteps=4_096,
    clip_length=1.0,
    ppo=PPO,
    reward=SMALL,
)


def rows(name):
    return Experiment.find(name).metrics()


def figures(name):
    """Every figure of the last row that does not depend on the clock."""
    last = rows(name)[-1]
    return {key: each for key, each in last.items() if key not in ("wall_s", "steps_per_second")}


def collect(**changes):
    return teach(dataclasses.replace(COLLECT, **changes).as_teaching(), QUIET)


def fit(labels="labels", name="predictor", **changes):
    return fit_labels(FitConfig(labels, name=name, reward=SMALL, **changes))


@pytest.fixture(scope="module")
def _shelf(tmp_path_factory):
    """A function that does something in a home of its own, once; what it left and returned."""
    done = {}

    def home_after(work):
        if work not in done:
            folder = tmp_path_factory.mktemp("shelf")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RL_TEACHER_HOME", str(folder))
                done[work] = folder, work()
        return done[work]

    return home_after


@pytest.fixture
def fitted(_shelf):
    """A predictor, and the experiment whose labels it was fitted to."""
    folder, outcome = _shelf(collect_and_fit)
    shutil.copytree(folder, home())
    return dataclasses.replace(outcome, folder=home() / outcome.folder.relative_to(folder))


def collect_and_fit():
    collect()
    return fit()


@pytest.fixture
def first(_shelf):
    """An experiment with an agent that learned from the true reward."""
    folder, _ = _shelf(teach_the_first)
    shutil.copytree(folder, home())


def teach_the_first():
    return teach(dataclasses.replace(TEACH, predictor="rl", name="first"), QUIET)


def networks(name):
    checkpoint = Experiment.find(name).load_checkpoint()
    assert checkpoint is not None
    return part_of(checkpoint.arrays, "agent/networks")


# --- the four workflows, each in processes of its own ---


def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "rl_teacher.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TINY_PPO = ["--ppo.num-envs", "16", "--ppo.rollout-steps", "32"]


@pytest.mark.slow
def test_labels_are_collected_in_one_process_fitted_in_a_second_and_used_by_a_third():
    on = ["-e", "ShortReacher-v1"]
    printed = run("collect", *on, "-c", "1", "-n", "labels", "-l", "60", "-p", "synth", *TINY_PPO)
    assert "60 labels in experiment labels" in printed
    assert Experiment.find("labels").state == "finished"
    assert not (Experiment.find("labels").folder / "predictor").exists()

    printed = run("fit", "labels", "-n", "predictor", "--reward.hidden", "16", "16")
    assert "fitted to 60 comparisons" in printed
    assert "held-out accuracy: " in printed

    run("teach", *on, "-n", "agent", "--predictor-path", "predictor", "-t", "4096", *TINY_PPO)
    assert Experiment.find("agent").state == "finished"
    last = rows("agent")[-1]
    assert last["correlation"] > 0.3
    assert "labels_asked" not in last


def test_end_to_end_and_the_true_reward_alone_leave_what_the_others_begin_with():
    teach_on = ["teach", "-e", "ShortReacher-v1", "-t", "2048", *TINY_PPO]
    synthetic = ["-p", "synth", "-l", "20", "-c", "1", "--reward.hidden", "16", "16"]
    assert main([*teach_on, "-n", "true", "-p", "rl"]) == 0
    assert main([*teach_on, "-n", "whole", *synthetic]) == 0
    assert main([*teach_on, "-n", "both", "--predictor-path", "whole", "--agent-path", "true"]) == 0
    assert Experiment.find("both").state == "finished"


# --- collect ---


def test_collecting_asks_for_exactly_so_many_and_stops():
    assert collect().is_finished
    last = rows("labels")[-1]
    assert last["labels_answered"] == last["labels_asked"] == 60
    assert last["step"] == 0
    assert "fits" not in last or last["fits"] == 0
    assert len(labels_of("labels")) == 60


def test_collecting_again_asks_nothing_new():
    collect()
    before = labels_of("labels").content_hash
    assert collect().is_finished
    assert labels_of("labels").content_hash == before


@pytest.mark.usefixtures("first")
def test_an_earlier_agent_is_what_is_compared():
    collect(name="random")
    collect(name="taught", agent_path="first")
    random, taught = labels_of("random"), labels_of("taught")
    assert random.segments.keys().isdisjoint(taught.segments)
    assert Experiment.find("taught").config["agent_path"].startswith("sha256:")


def test_a_saved_predictor_helps_to_choose_the_pairs(fitted):
    collect(name="chosen", predictor_path="predictor", n_labels=20)
    assert len(labels_of("chosen")) == 20


def test_waiting_for_a_person_can_be_stopped_and_their_labels_stay():
    arguments = ["collect", "-e", "ShortReacher-v1", "-n", "mine", "-l", "4", "-c", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_teacher.cli", *arguments, "--no-browser", *TINY_PPO],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while "waiting" not in status_of("mine"):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    assert Experiment.find("mine").state == "stopped"


def status_of(name):
    from rl_teacher.common.errors import RlTeacherError
    from rl_teacher.store.store import Store

    if not (home() / "labels.sqlite").exists():
        return ""
    try:
        with Store.open(home() / "labels.sqlite") as store:
            return json.dumps(store.experiments.get(name).status)
    except RlTeacherError:
        return ""


# --- fit ---


def test_a_predictor_fitted_to_saved_labels_knows_what_is_better(fitted):
    assert fitted.num_comparisons == 60
    assert fitted.report.held_out_accuracy > 0.6
    predictor = RewardPredictor.load(fitted.folder)
    right = []
    for each in labels_of("labels"):
        left, right_ = (
            predictor(side.observations, side.actions).sum() for side in (each.left, each.right)
        )
        right.append((left > right_) == (each.target > 0.5))
    assert np.mean(right) > 0.8


def test_its_rewards_have_mean_0_on_the_labelled_segments(fitted):
    predictor = RewardPredictor.load(fitted.folder)
    sides = [side for each in labels_of("labels") for side in (each.left, each.right)]
    rewards = np.concatenate([predictor(side.observations, side.actions) for side in sides])
    assert rewards.mean() == pytest.approx(0, abs=0.01)


def test_a_data_set_is_fitted_as_its_experiment_is(fitted, tmp_path):
    labels_of("labels").save(tmp_path / "set.zip")
    other = fit_labels(
        FitConfig(str(tmp_path / "set.zip"), out=str(tmp_path / "out"), reward=SMALL)
    )
    assert other.folder == tmp_path / "out"
    ours, theirs = (RewardPredictor.load(each.folder).state() for each in (fitted, other))
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_a_fit_can_begin_with_a_saved_predictor(fitted):
    again = fit(name="further", predictor_path="predictor", pretrain_iters=8)
    assert again.report.num_steps == 8
    assert again.report.held_out_accuracy > 0.6
    assert "predictor_path" in Experiment.find("further").config["fit"]


def test_a_report_of_a_fit_has_its_accuracy(fitted, capsys):
    assert main(["report", "predictor"]) == 0
    assert "held-out accuracy" in capsys.readouterr().out


@pytest.mark.usefixtures("fitted")
def test_fits_that_make_no_sense_are_refused_in_words():
    with pytest.raises(BadInput, match="neither an experiment nor a data set"):
        fit("nothing")
    with pytest.raises(BadConfig, match="-n, or a folder with --out"):
        fit_labels(FitConfig("labels"))
    collect(env_id="Pendulum-v1", name="pendulum", n_labels=8)
    fit("pendulum", "of pendulums")
    with pytest.raises(BadConfig, match="made for"):
        fit(predictor_path="of pendulums", name="x")


# --- teach with a saved predictor ---


def test_a_frozen_predictor_is_never_changed_and_asks_nothing(fitted):
    before = RewardPredictor.load(fitted.folder).state()
    teach(dataclasses.replace(TEACH, predictor_path="predictor"), QUIET)
    after = RewardPredictor.load(fitted.folder).state()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    assert labels_count("agent") == 0
    assert not (Experiment.find("agent").folder / "predictor").exists()


def labels_count(name):
    return Experiment.find(name).summary().labels


def test_p_human_asks_nobody_while_the_predictor_is_frozen(fitted):
    config = dataclasses.replace(TEACH, predictor="human", predictor_path="predictor")
    assert teach(config, QUIET).is_finished


@pytest.mark.parametrize("changes", [{"keep_asking": True}, {"n_labels": 40}])
def test_told_to_it_goes_on_asking_and_fitting(fitted, changes):
    config = dataclasses.replace(TEACH, predictor="synth", predictor_path="predictor", **changes)
    teach(
        dataclasses.replace(config, num_timesteps=16_384 if "keep_asking" in changes else 4096),
        QUIET,
    )
    last = rows("agent")[-1]
    assert last["labels_answered"] >= 8
    if "n_labels" in changes:
        assert last["labels_answered"] == 40
        assert last["fits"] >= 1
    assert (Experiment.find("agent").folder / "predictor" / "predictor.json").exists()


def test_the_first_rewards_of_a_predictor_that_is_fitted_further_are_already_good(fitted):
    config = dataclasses.replace(TEACH, predictor="synth", predictor_path="predictor", n_labels=40)
    teach(dataclasses.replace(config, num_timesteps=512), QUIET)
    assert rows("agent")[0]["correlation"] > 0.3


def test_a_predictor_for_other_spaces_is_refused_in_words(fitted):
    config = dataclasses.replace(TEACH, env_id="Pendulum-v1", predictor_path="predictor")
    with pytest.raises(BadConfig, match=r"made for observations of shape \(10,\).*Pendulum-v1 has"):
        teach(config, QUIET)
    with pytest.raises(BadInput, match="no reward predictor in 'nobody'"):
        teach(dataclasses.replace(TEACH, predictor_path="nobody"), QUIET)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "-p rl, -p synth or -p human"),
        ({"predictor": "rl", "predictor_path": "x"}, "Leave one of them out"),
        ({"predictor": "synth", "keep_asking": True}, "belongs|none was given"),
        ({"predictor_path": "x", "n_labels": 5}, "Give -p synth or -p human"),
        ({"predictor": "synth", "collect_only": True}, "a number of labels"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, says):
    with pytest.raises(BadConfig, match=says):
        teach(dataclasses.replace(TEACH, **changes), QUIET)


# --- teach with an earlier agent ---


@pytest.mark.usefixtures("first")
def test_an_agent_begins_where_another_ended():
    longer = dataclasses.replace(TEACH, predictor="rl", name="second", num_timesteps=512)
    teach(dataclasses.replace(longer, agent_path="first"), QUIET)
    teach(dataclasses.replace(longer, name="anew"), QUIET)
    first, second, anew = (networks(name) for name in ("first", "second", "anew"))
    weight = next(name for name, each in first.items() if each.ndim == 2 and each.shape[0] == 64)

    def distance(other):
        return float(np.abs(other[weight] - first[weight]).max())

    assert distance(second) < 0.3 * distance(anew)
    assert rows("second")[-1]["step"] == 512


@pytest.mark.usefixtures("first")
def test_an_agent_is_found_by_its_folder_too():
    folder = str(Experiment.find("first").folder)
    config = dataclasses.replace(TEACH, predictor="rl", name="second", agent_path=folder)
    assert teach(config, QUIET).is_finished


@pytest.mark.usefixtures("first")
def test_an_agent_that_does_not_fit_is_refused_in_words():
    other = dataclasses.replace(TEACH, predictor="rl", agent_path="first")
    with pytest.raises(BadConfig, match="networks of"):
        teach(dataclasses.replace(other, env_id="Pendulum-v1"), QUIET)
    with pytest.raises(BadInput, match="nobody"):
        teach(dataclasses.replace(other, name="other", agent_path="nobody"), QUIET)
    collect(name="no agent", n_labels=4)
    with pytest.raises(BadInput, match="has no agent yet"):
        teach(dataclasses.replace(other, name="third", agent_path="no agent"), QUIET)


# --- going on ---


def test_another_predictor_in_the_same_place_is_refused_on_going_on(fitted):
    config = dataclasses.replace(TEACH, predictor_path="predictor")
    teach(config, QUIET)
    assert teach(config, QUIET).is_finished
    fit(name="other", seed=2)
    with pytest.raises(ConfigMismatch, match=r"predictor_path: was .sha256:"):
        teach(dataclasses.replace(config, predictor_path="other"), QUIET)


def test_the_same_predictor_in_another_place_is_the_same(fitted, tmp_path):
    teach(dataclasses.replace(TEACH, predictor_path="predictor"), QUIET)
    RewardPredictor.load(fitted.folder).save(tmp_path / "moved")
    moved = dataclasses.replace(TEACH, predictor_path=str(tmp_path / "moved"))
    assert teach(moved, QUIET).is_finished


def test_experiments_from_before_these_settings_can_be_continued():
    saved = dataclasses.replace(TEACH, predictor="rl").saved()
    assert {"predictor_path", "agent_path", "keep_asking", "collect_only"}.isdisjoint(saved)


SCRIPT = """
import dataclasses, sys
from tests.test_workflows import QUIET, TEACH
from rl_teacher.teach import teach
changes = {"predictor_path": "predictor"}
if sys.argv[2] == "asking":
    changes |= {"predictor": "synth", "n_labels": 60}
config = dataclasses.replace(TEACH, name=sys.argv[1], num_timesteps=20_000, **changes)
teach(config, dataclasses.replace(QUIET, checkpoint_seconds=0.3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["frozen", "asking"])
def test_a_run_with_a_saved_predictor_killed_and_continued_ends_with_the_same_numbers(fitted, how):
    def start(name):
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, name, how],
            env=os.environ | {"PYTHONPATH": f"{os.getcwd()}:{os.environ.get('PYTHONPATH', '')}"},  # noqa: PTH109
            stdout=subprocess.DEVNULL,
        )

    assert start("whole").wait(timeout=600) == 0
    process = start("killed")
    deadline = time.monotonic() + 300
    while not list((home() / "experiments/killed/checkpoints").glob("*.safetensors")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert start("killed").wait(timeout=600) == 0
    assert figures("killed") == figures("whole")
