"""Tests of the separate steps: collect labels, fit a predictor, train an agent with it."""

import dataclasses
import shutil
import subprocess
import sys

import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig, BadInput, ConfigMismatch
from rl_teacher.common.state_dict import part_of
from rl_teacher.config.experiment import (
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
COLLECT = TeachConfig(
    env_id="ShortReacher-v1",
    name="labels",
    n_labels=60,
    predictor="synth",
    clip_length=1.0,
    collect_only=True,
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


def collect(**changes):
    return teach(dataclasses.replace(COLLECT, **changes), QUIET)


def fit(labels="labels", name="predictor", **changes):
    return fit_labels(TeachConfig(labels=labels, name=name, reward=SMALL, **changes))


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
    checkpoint = Experiment.find(name).checkpoints.load()
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
    run("collect", *on, "-c", "1", "-n", "labels", "-l", "300", "-p", "synth", *TINY_PPO)
    assert Experiment.find("labels").summary().phase == "finished"
    assert not (Experiment.find("labels").folder / "predictor").exists()

    printed = run("fit", "labels", "-n", "predictor", "--reward.hidden", "16", "16")
    assert "300" in printed

    run("teach", *on, "-n", "agent", "--predictor-path", "predictor", "-t", "4096", *TINY_PPO)
    assert Experiment.find("agent").summary().phase == "finished"
    last = rows("agent")[-1]
    assert last["correlation"] > 0.3
    assert "labels_asked" not in last


# --- collect ---


def test_collect_stops_after_requested_number_of_labels():
    assert collect().is_finished
    last = rows("labels")[-1]
    assert last["labels_answered"] == last["labels_asked"] == 60
    # 60 comparisons of two clips of 10 steps
    assert last["step"] >= 60 * 2 * 10
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


def test_fit_of_data_set_equals_fit_of_experiment(fitted, tmp_path):
    labels_of("labels").save(tmp_path / "set.zip")
    other = fit_labels(
        TeachConfig(labels=str(tmp_path / "set.zip"), reward=SMALL), str(tmp_path / "out")
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


def test_fit_with_other_networks_than_those_of_the_saved_predictor_is_refused(fitted):
    other = dataclasses.replace(SMALL, hidden=(8,))
    with pytest.raises(BadConfig, match=r"reward\.hidden"):
        fit_labels(TeachConfig(labels="labels", name="x", predictor_path="predictor", reward=other))


@pytest.mark.usefixtures("fitted")
def test_invalid_fit_raises_with_reason():
    with pytest.raises(BadInput, match="nothing"):
        fit("nothing")
    with pytest.raises(BadConfig, match="--out"):
        fit_labels(TeachConfig(labels="labels"))
    collect(env_id="Pendulum-v1", name="pendulum", n_labels=8)
    fit("pendulum", "of pendulums")
    with pytest.raises(BadConfig, match="predictor"):
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


@pytest.mark.parametrize("changes", [{}, {"n_labels": 40}])
def test_saved_predictor_is_fine_tuned_when_labels_are_requested(fitted, changes):
    config = dataclasses.replace(TEACH, predictor="synth", predictor_path="predictor", **changes)
    teach(
        dataclasses.replace(config, num_timesteps=4096 if changes else 16_384),
        QUIET,
    )
    last = rows("agent")[-1]
    assert last["labels_answered"] >= 8
    if "n_labels" in changes:
        assert last["labels_answered"] == 40
        assert last["fits"] >= 1
    assert (Experiment.find("agent").folder / "predictor" / "predictor.json").exists()


def test_predictor_for_other_spaces_raises_bad_config(fitted):
    config = dataclasses.replace(TEACH, env_id="Pendulum-v1", predictor_path="predictor")
    with pytest.raises(BadConfig, match="predictor predictor was made"):
        teach(config, QUIET)
    with pytest.raises(BadInput, match="nobody"):
        teach(dataclasses.replace(TEACH, predictor_path="nobody"), QUIET)


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
def test_unsuitable_agent_path_raises_with_reason():
    other = dataclasses.replace(TEACH, predictor="rl", agent_path="first")
    with pytest.raises(BadConfig, match="saved agent"):
        teach(dataclasses.replace(other, env_id="Pendulum-v1"), QUIET)
    with pytest.raises(BadInput, match="nobody"):
        teach(dataclasses.replace(other, name="other", agent_path="nobody"), QUIET)
    collect(name="no agent", n_labels=4)
    with pytest.raises(BadInput, match="no agent"):
        teach(dataclasses.replace(other, name="third", agent_path="no agent"), QUIET)


# --- continued runs ---


def test_continued_run_with_other_predictor_raises_config_mismatch(fitted):
    config = dataclasses.replace(TEACH, predictor_path="predictor")
    teach(config, QUIET)
    assert teach(config, QUIET).is_finished
    fit(name="other", seed=2)
    with pytest.raises(ConfigMismatch, match="predictor_path"):
        teach(dataclasses.replace(config, predictor_path="other"), QUIET)
