"""Runs and fits that start with labels that exist already, and held-out sets."""

import dataclasses
import shutil

import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.config.experiment import PredictorConfig, TeachConfig
from rl_teacher.datasets import Dataset
from rl_teacher.datasets.given_labels import COPY, labels_of_predictor, load_copy
from rl_teacher.datasets.import_export import import_as, labels_of
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.teach import teach
from tests.test_teach import curve
from tests.test_workflows import PPO, QUIET, SMALL, collect, fit, rows

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "given")

TEACH = TeachConfig(
    env_id="ShortReacher-v1",
    name="agent",
    labels="labels",
    num_timesteps=1_024,
    clip_length=1.0,
    pretrain_iters=200,
    ppo=PPO,
    reward=SMALL,
)


@pytest.fixture(scope="module")
def _labelled_home(tmp_path_factory):
    """Return a home folder with an experiment of 60 labels."""
    folder = tmp_path_factory.mktemp("labelled-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(folder))
        collect()
    return folder


@pytest.fixture
def given(_labelled_home):
    """Give the test its own copy of the home folder."""
    shutil.copytree(_labelled_home, home())


def changed(**changes):
    return dataclasses.replace(TEACH, **changes)


def accuracy_on(predictor, dataset):
    """Return the fraction of comparisons whose larger predicted return is the preferred one."""
    returns = [
        [predictor(side.observations, side.actions).sum() for side in (each.left, each.right)]
        for each in dataset
    ]
    return np.mean(
        [(left > right) == (each.target > 0.5) for (left, right), each in zip(returns, dataset)]  # noqa: B905
    )


# --- teach with labels ---


def test_run_learns_from_file_of_labels_without_asking(tmp_path):
    labels_of("labels").save(tmp_path / "set")
    assert teach(changed(labels=str(tmp_path / "set")), QUIET).is_finished
    last = rows("agent")[-1]
    assert (last["labels_asked"], last["comparisons"], last["fits"]) == (0, 60, 1)
    predictor = RewardPredictor.load(Experiment.find("agent").folder / "predictor")
    assert accuracy_on(predictor, labels_of("labels")) > 0.75


def test_new_labels_are_counted_apart_and_fitted_together():
    teach(changed(predictor="synth", n_labels=10), QUIET)
    last = rows("agent")[-1]
    assert (last["labels_answered"], last["comparisons"]) == (10, 70)
    assert last["fits"] > 1


@pytest.mark.parametrize("changes", [{"pretrain_labels": 10}, {"schedule": "upfront"}])
def test_pretraining_labels_are_asked_before_the_first_fit(changes):
    teach(changed(predictor="synth", n_labels=10, num_timesteps=1_024, **changes), QUIET)
    first = rows("agent")[0]
    assert (first["labels_answered"], first["comparisons"], first["fits"]) == (10, 70, 1)


def test_stopped_run_resumes_exactly_after_labels_were_deleted():
    config = changed(predictor="synth", n_labels=10, num_timesteps=2_048)
    teach(config, QUIET)
    half = dataclasses.replace(config, name="half")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 1_024)
        assert not teach(half, QUIET).is_finished
    assert main(["delete", "labels", "--yes"]) == 0
    assert teach(half, QUIET).is_finished
    assert curve("half") == curve("agent")


def stop_after(patch, num_steps):
    from rl_teacher.session import PreferenceSession

    is_requested = PreferenceSession.is_stop_requested

    def request(session):
        if session.step >= num_steps:
            session.stop.set()
        return is_requested(session)

    patch.setattr(PreferenceSession, "is_stop_requested", request)


def test_finished_run_is_extended_by_steps_and_labels_and_keeps_its_labels():
    config = changed(predictor="synth", n_labels=4)
    teach(config, QUIET)
    teach(dataclasses.replace(config, num_timesteps=2_048, n_labels=8), QUIET)
    last = rows("agent")[-1]
    assert (last["step"], last["labels_answered"], last["comparisons"]) == (2_048, 8, 68)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": "nobody"}, "nobody"),
        ({"env_id": "ShortHopper-v1"}, "ShortReacher-v1"),
        ({"clip_length": 1.5}, "--clip-length"),
        ({"held_out": "labels"}, "held out"),
        ({"n_labels": 5}, "-p synth"),
    ],
)
def test_unsuitable_labels_are_refused(changes, named):
    with pytest.raises((BadInput, BadConfig), match=named):
        teach(changed(**changes), QUIET)
    assert not (home() / "experiments" / "agent").exists()


def test_labels_with_other_spaces_are_refused():
    dataset = labels_of("labels")
    segments = {
        name: dataclasses.replace(each, observations=each.observations[:, :4])
        for name, each in dataset.segments.items()
    }
    space = dataclasses.replace(dataset.space, observation_shape=(4,))
    other = dataclasses.replace(dataset, segments=segments, space=space)
    renamed = {name: each.content_hash for name, each in segments.items()}
    sides = ("left_clip", "right_clip", "shown_left")
    labels = tuple({**row, **{side: renamed[row[side]] for side in sides}} for row in other.rows)
    by_hash = {each.content_hash: each for each in segments.values()}
    import_as(dataclasses.replace(other, rows=labels, segments=by_hash), "four")
    with pytest.raises(BadInput, match="observations"):
        teach(changed(labels="four"), QUIET)


# --- fine-tuned predictors keep their labels ---


def fine_tuned(**changes):
    """Return the settings of a run that fine-tunes the predictor of an experiment."""
    return changed(labels=None, predictor="synth", predictor_path="first", n_labels=4, **changes)


def test_fine_tuned_predictor_of_a_run_keeps_all_its_labels():
    teach(changed(name="first", predictor="synth", n_labels=6, num_timesteps=512), QUIET)
    teach(fine_tuned(), QUIET)
    last = rows("agent")[-1]
    assert (last["labels_answered"], last["comparisons"]) == (4, 60 + 6 + 4)


def test_fine_tuned_predictor_of_a_fit_keeps_its_labels_once_they_are_deleted():
    fit(name="first", pretrain_iters=50)
    assert main(["delete", "labels", "--yes"]) == 0
    teach(fine_tuned(num_timesteps=512), QUIET)
    assert rows("agent")[-1]["comparisons"] == 64
    assert rows("agent")[-1]["fits"] >= 1


def test_predictor_without_available_labels_warns_and_learns_from_new_ones(tmp_path, caplog):
    outcome = fit(name="first", pretrain_iters=50)
    shutil.copytree(outcome.folder, tmp_path / "alone")
    config = dataclasses.replace(fine_tuned(), predictor_path=str(tmp_path / "alone"))
    teach(dataclasses.replace(config, num_timesteps=512), QUIET)
    assert "--labels" in caplog.text
    assert rows("agent")[-1]["comparisons"] == rows("agent")[-1]["labels_answered"]


# --- held-out sets ---


def test_held_out_set_of_run_is_never_trained_on_and_gives_the_reported_accuracy():
    teach(changed(held_out=exported_part("part", 12), num_timesteps=512), QUIET)
    last = rows("agent")[-1]
    assert last["comparisons"] == 48
    kept = load_copy(Experiment.find("agent").folder / COPY)
    assert (len(kept.training), len(kept.held_out)) == (48, 12)
    assert last["held_out_accuracy"] * 36 == pytest.approx(round(last["held_out_accuracy"] * 36))


def test_held_out_set_evaluates_a_run_whose_labels_are_all_asked():
    """Three members judge 12 comparisons each."""
    asked = {"predictor": "synth", "n_labels": 8, "pretrain_labels": 8}
    held_out = exported_part("part", 12)
    teach(changed(labels=None, held_out=held_out, num_timesteps=2_048, **asked), QUIET)
    last = rows("agent")[-1]
    assert (last["comparisons"], last["labels_answered"]) == (8, 8)
    assert last["held_out_accuracy"] * 36 == pytest.approx(round(last["held_out_accuracy"] * 36))


@pytest.mark.parametrize("option", ["labels", "held_out"])
@pytest.mark.parametrize("queries", ["pairs", "sort"])
def test_run_with_the_seed_of_given_labels_compares_other_clips(option, queries):
    """It records the same steps, and would ask for the same labels again."""
    collect(name="before", queries=queries)
    asked = {"predictor": "synth", "n_labels": 60, "pretrain_labels": 60, "queries": queries}
    given = {"labels": None, option: "before"}
    teach(changed(num_timesteps=2_048, **asked, **given), QUIET)
    before, now = (labels_of(name).segments.keys() for name in ("before", "agent"))
    assert rows("agent")[-1]["labels_answered"] == 60
    assert before.isdisjoint(now)


def exported_part(name, num):
    path = str(home() / f"{name}.zip")
    labels = labels_of("labels")
    labels.subset([*labels][:num]).save(path)
    return path


def test_held_out_accuracy_of_a_single_network_is_that_on_the_held_out_set():
    one = PredictorConfig(hidden=(16,), ensemble_size=1)
    held_out = exported_part("part", 12)
    outcome = fit_of(one, held_out=held_out)
    predictor = RewardPredictor.load(outcome.folder)
    expected = accuracy_on(predictor, labels_of(held_out))
    assert outcome.report.held_out_accuracy == pytest.approx(expected)


def fit_of(reward, **changes):
    from rl_teacher.config.experiment import TeachConfig
    from rl_teacher.fit_offline import fit_labels

    return fit_labels(TeachConfig(labels="labels", name="predictor", reward=reward, **changes))


def test_held_out_labels_that_the_saved_predictor_was_fitted_to_are_refused():
    fit(name="first", pretrain_iters=50)
    with pytest.raises(BadInput, match="first"):
        teach(fine_tuned(held_out=exported_part("part", 12)), QUIET)
    with pytest.raises(BadInput, match="first"):
        fit(predictor_path="first", held_out=exported_part("part", 12), name="second")


def test_labels_of_a_predictor_are_those_of_its_experiment_and_its_copy():
    teach(changed(name="first", predictor="synth", n_labels=6, num_timesteps=512), QUIET)
    expected = Dataset.merged([labels_of("labels"), labels_of("first")])
    assert labels_of_predictor("first").content_hash == expected.content_hash
