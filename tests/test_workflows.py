"""Tests of the separate steps: collect labels, fit a predictor, train an agent with it."""

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


def last_metrics(name):
    """Return the metrics of the last row that do not depend on the clock."""
    last = rows(name)[-1]
    return {
        key: each
        for key, each in last.items()
        if key != "steps_per_second" and not key.endswith("_s")
    }


def collect(**changes):
    return teach(dataclasses.replace(COLLECT, **changes).as_teaching(), QUIET)


def fit(labels="labels", name="predictor", **changes):
    return fit_labels(FitConfig(labels, name=name, reward=SMALL, **changes))


@pytest.fixture(scope="module")
def _cached_home(tmp_path_factory):
    """Return a function that runs a job once in its own home and caches the result."""
    done = {}

    def home_after(work):
        if work not in done:
            folder = tmp_path_factory.mktemp("cached-home")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RL_TEACHER_HOME", str(folder))
                done[work] = folder, work()
        return done[work]

    return home_after


@pytest.fixture
def fitted(_cached_home):
    """Return a fitted predictor; its home also has the labelled experiment."""
    folder, outcome = _cached_home(collect_and_fit)
    shutil.copytree(folder, home())
    return dataclasses.replace(outcome, folder=home() / outcome.folder.relative_to(folder))


def collect_and_fit():
    collect()
    return fit()


@pytest.fixture
def first(_cached_home):
    """Create an experiment whose agent was trained on the true reward."""
    folder, _ = _cached_home(teach_first)
    shutil.copytree(folder, home())


def teach_first():
    return teach(dataclasses.replace(TEACH, predictor="rl", name="first"), QUIET)


def networks(name):
    checkpoint = Experiment.find(name).load_checkpoint()
    assert checkpoint is not None
    return part_of(checkpoint.arrays, "agent/networks")


# --- whole workflows ---


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
def test_collect_fit_and_teach_run_in_separate_processes():
    on = ["-e", "ShortReacher-v1"]
    printed = run("collect", *on, "-c", "1", "-n", "labels", "-l", "300", "-p", "synth", *TINY_PPO)
    assert "300 labels in experiment labels" in printed
    assert Experiment.find("labels").summary().phase == "finished"
    assert not (Experiment.find("labels").folder / "predictor").exists()

    printed = run("fit", "labels", "-n", "predictor", "--reward.hidden", "16", "16")
    assert "fitted to 300 comparisons" in printed
    assert "held-out accuracy: " in printed

    run("teach", *on, "-n", "agent", "--predictor-path", "predictor", "-t", "4096", *TINY_PPO)
    assert Experiment.find("agent").summary().phase == "finished"
    last = rows("agent")[-1]
    assert last["correlation"] > 0.3
    assert "labels_asked" not in last


def test_predictor_and_agent_of_earlier_runs_start_third_run():
    teach_on = ["teach", "-e", "ShortReacher-v1", "-t", "2048", *TINY_PPO]
    synthetic = ["-p", "synth", "-l", "20", "-c", "1", "--reward.hidden", "16", "16"]
    assert main([*teach_on, "-n", "true", "-p", "rl"]) == 0
    assert main([*teach_on, "-n", "whole", *synthetic]) == 0
    assert main([*teach_on, "-n", "both", "--predictor-path", "whole", "--agent-path", "true"]) == 0
    assert Experiment.find("both").summary().phase == "finished"


# --- collect ---


def test_collect_stops_after_requested_number_of_labels():
    assert collect().is_finished
    last = rows("labels")[-1]
    assert last["labels_answered"] == last["labels_asked"] == 60
    assert last["step"] == 0
    assert "fits" not in last or last["fits"] == 0
    assert len(labels_of("labels")) == 60


def test_repeated_collect_asks_no_new_comparisons():
    collect()
    before = labels_of("labels").content_hash
    assert collect().is_finished
    assert labels_of("labels").content_hash == before


@pytest.mark.parametrize("queries", ["pairs", "sort"])
def test_collect_with_more_labels_asks_the_missing_ones(queries):
    def compared():
        labels = labels_of("labels")
        return {(each.left.content_hash, each.right.content_hash) for each in labels}

    collect(n_labels=4, queries=queries)
    before = compared()
    for num_labels in (10, 4):
        assert collect(n_labels=num_labels, queries=queries).is_finished
        assert len(compared()) == 10
        assert before < compared()


@pytest.mark.usefixtures("first")
def test_collect_with_agent_path_compares_behaviour_of_agent():
    collect(name="random")
    collect(name="taught", agent_path="first")
    random, taught = labels_of("random"), labels_of("taught")
    assert random.segments.keys().isdisjoint(taught.segments)
    assert Experiment.find("taught").config["agent_path"].startswith("sha256:")


def test_collect_with_saved_predictor_collects_all_labels(fitted):
    collect(name="chosen", predictor_path="predictor", n_labels=20)
    assert len(labels_of("chosen")) == 20


@pytest.mark.slow
def test_interrupted_collect_exits_cleanly_and_is_stopped():
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
    assert Experiment.find("mine").summary().phase == "stopped"


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


def test_fitted_predictor_ranks_labelled_segments(fitted):
    assert fitted.num_comparisons == 60
    assert fitted.report.held_out_accuracy > 0.6
    predictor = RewardPredictor.load(fitted.folder)
    is_right = []
    for each in labels_of("labels"):
        left, right = (
            predictor(side.observations, side.actions).sum() for side in (each.left, each.right)
        )
        is_right.append((left > right) == (each.target > 0.5))
    assert np.mean(is_right) > 0.8


def test_fitted_predictor_has_mean_reward_0_on_labelled_segments(fitted):
    predictor = RewardPredictor.load(fitted.folder)
    sides = [side for each in labels_of("labels") for side in (each.left, each.right)]
    rewards = np.concatenate([predictor(side.observations, side.actions) for side in sides])
    assert rewards.mean() == pytest.approx(0, abs=0.01)


def test_fit_of_data_set_equals_fit_of_experiment(fitted, tmp_path):
    labels_of("labels").save(tmp_path / "set.zip")
    other = fit_labels(
        FitConfig(str(tmp_path / "set.zip"), out=str(tmp_path / "out"), reward=SMALL)
    )
    assert other.folder == tmp_path / "out"
    ours, theirs = (RewardPredictor.load(each.folder).state() for each in (fitted, other))
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_fit_with_saved_predictor_continues_from_it(fitted):
    again = fit(name="further", predictor_path="predictor", pretrain_iters=8)
    assert again.report.num_steps == 8
    assert again.report.held_out_accuracy > 0.6
    assert "predictor_path" in Experiment.find("further").config["fit"]


@pytest.mark.parametrize(
    "networks",
    [{"hidden": (8,)}, {"ensemble_size": 2}, {"ignore_actions": True}, {"batch_norm": True}],
)
def test_fit_with_other_networks_than_those_of_the_saved_predictor_is_refused(fitted, networks):
    [setting] = networks
    flag = f"--reward.{setting.replace('_', '-')} was given"
    with pytest.raises(BadConfig, match=f"{flag}.*keeps its networks"):
        fit_labels(
            FitConfig(
                "labels",
                name="other",
                predictor_path="predictor",
                reward=dataclasses.replace(SMALL, **networks),
            )
        )


def test_report_of_fit_has_held_out_accuracy(fitted, capsys):
    assert main(["report", "predictor"]) == 0
    assert "held-out accuracy" in capsys.readouterr().out


@pytest.mark.usefixtures("fitted")
def test_invalid_fit_raises_with_reason():
    with pytest.raises(BadInput, match="the name of an experiment with labels, or a data set"):
        fit("nothing")
    with pytest.raises(BadConfig, match="Give -n or --out"):
        fit_labels(FitConfig("labels"))
    collect(env_id="Pendulum-v1", name="pendulum", n_labels=8)
    fit("pendulum", "of pendulums")
    with pytest.raises(BadConfig, match="made for"):
        fit(predictor_path="of pendulums", name="x")


# --- teach with a saved predictor ---


def test_frozen_predictor_is_unchanged_and_asks_no_labels(fitted):
    before = RewardPredictor.load(fitted.folder).state()
    teach(dataclasses.replace(TEACH, predictor_path="predictor"), QUIET)
    after = RewardPredictor.load(fitted.folder).state()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    assert labels_count("agent") == 0
    assert not (Experiment.find("agent").folder / "predictor").exists()


def labels_count(name):
    return Experiment.find(name).summary().labels.answered


def test_source_of_labels_with_frozen_predictor_is_refused(fitted):
    config = dataclasses.replace(TEACH, predictor="human", predictor_path="predictor")
    with pytest.raises(BadConfig, match=r"no labels are asked for.*--keep-asking; or omit -p"):
        teach(config, QUIET)


@pytest.mark.parametrize("changes", [{"keep_asking": True}, {"n_labels": 40}])
def test_saved_predictor_is_fine_tuned_when_labels_are_requested(fitted, changes):
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


def test_fine_tuned_predictor_correlates_with_true_reward_from_first_step(fitted):
    config = dataclasses.replace(TEACH, predictor="synth", predictor_path="predictor", n_labels=40)
    teach(dataclasses.replace(config, num_timesteps=512), QUIET)
    assert rows("agent")[0]["correlation"] > 0.3


def test_predictor_for_other_spaces_raises_bad_config(fitted):
    config = dataclasses.replace(TEACH, env_id="Pendulum-v1", predictor_path="predictor")
    with pytest.raises(BadConfig, match=r"made for observations of shape \(10,\).*Pendulum-v1 has"):
        teach(config, QUIET)
    with pytest.raises(BadInput, match=r"'nobody' was given; .* a fitted predictor"):
        teach(dataclasses.replace(TEACH, predictor_path="nobody"), QUIET)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "-p rl, -p synth or -p human"),
        ({"predictor": "rl", "predictor_path": "x"}, "Omit one of them"),
        ({"predictor": "synth", "keep_asking": True}, "none was given"),
        ({"predictor_path": "x", "n_labels": 5}, "Give -p synth or -p human"),
        ({"predictor": "synth", "collect_only": True}, "a number of labels"),
    ],
)
def test_contradictory_settings_raise_bad_config(changes, message):
    with pytest.raises(BadConfig, match=message):
        teach(dataclasses.replace(TEACH, **changes), QUIET)


# --- teach with an earlier agent ---


@pytest.mark.usefixtures("first")
def test_agent_path_starts_from_weights_of_earlier_agent():
    longer = dataclasses.replace(TEACH, predictor="rl", name="second", num_timesteps=512)
    teach(dataclasses.replace(longer, agent_path="first"), QUIET)
    teach(dataclasses.replace(longer, name="scratch"), QUIET)
    first, second, scratch = (networks(name) for name in ("first", "second", "scratch"))
    weight = next(name for name, each in first.items() if each.ndim == 2 and each.shape[0] == 64)

    def distance(other):
        return float(np.abs(other[weight] - first[weight]).max())

    assert distance(second) < 0.3 * distance(scratch)
    assert rows("second")[-1]["step"] == 512


@pytest.mark.usefixtures("first")
def test_agent_path_accepts_experiment_folder():
    folder = str(Experiment.find("first").folder)
    config = dataclasses.replace(TEACH, predictor="rl", name="second", agent_path=folder)
    assert teach(config, QUIET).is_finished


@pytest.mark.usefixtures("first")
def test_unsuitable_agent_path_raises_with_reason():
    other = dataclasses.replace(TEACH, predictor="rl", agent_path="first")
    with pytest.raises(BadConfig, match="saved agent does not fit this one"):
        teach(dataclasses.replace(other, env_id="Pendulum-v1"), QUIET)
    with pytest.raises(BadInput, match="nobody"):
        teach(dataclasses.replace(other, name="other", agent_path="nobody"), QUIET)
    collect(name="no agent", n_labels=4)
    with pytest.raises(BadInput, match="has no agent: only"):
        teach(dataclasses.replace(other, name="third", agent_path="no agent"), QUIET)


# --- continued runs ---


def test_continued_run_with_other_predictor_raises_config_mismatch(fitted):
    config = dataclasses.replace(TEACH, predictor_path="predictor")
    teach(config, QUIET)
    assert teach(config, QUIET).is_finished
    fit(name="other", seed=2)
    with pytest.raises(ConfigMismatch, match=r"predictor_path: was .sha256:"):
        teach(dataclasses.replace(config, predictor_path="other"), QUIET)


def test_continued_run_accepts_same_predictor_at_other_path(fitted, tmp_path):
    teach(dataclasses.replace(TEACH, predictor_path="predictor"), QUIET)
    RewardPredictor.load(fitted.folder).save(tmp_path / "moved")
    moved = dataclasses.replace(TEACH, predictor_path=str(tmp_path / "moved"))
    assert teach(moved, QUIET).is_finished


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
@pytest.mark.parametrize("mode", ["frozen", "asking"])
def test_killed_run_with_saved_predictor_continues_with_identical_metrics(fitted, mode):
    def start(name):
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, name, mode],
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
    assert last_metrics("killed") == last_metrics("whole")
