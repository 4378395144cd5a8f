"""Tests of experiments of one name in two homes that share a database."""

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ConfigMismatch, ExperimentInUse
from rl_teacher.runs.folder import home
from rl_teacher.runs.management import locked_experiment
from rl_teacher.store.database import default_url
from rl_teacher.store.store import Store
from tests.store.comparisons import ENV_ID, ask

CONFIG = {"env_id": ENV_ID, "seed": 0, "reward": {"l2": 0.1}}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", str(tmp_path / "shared" / "labels.sqlite"))
    with Store.open(default_url(home())) as opened:
        yield opened


@pytest.fixture
def move(tmp_path, monkeypatch):
    """Function that makes another folder the home."""
    return lambda name: monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / name))


def run(store, config=CONFIG, labeler="ann", **options):
    """Run an experiment that gets a label, and return its id in the database."""
    with locked_experiment(store, "shared", config, **options) as (folder, _):
        experiment_id = store.experiments.ensure("shared", ENV_ID, config)
        folder.metrics_file.append({"step": 1})
        store.metrics.append(experiment_id, 1, {"step": 1})
        if labeler is not None:
            [comparison_id] = ask(store, experiment_id, 1)
            store.labels.add(comparison_id, Answer.LEFT, labeler)
    return experiment_id


def test_second_home_cannot_run_the_experiment_at_the_same_time(store, move):
    with locked_experiment(store, "shared", CONFIG):
        move("second")
        for force_new in (False, True):
            with pytest.raises(ExperimentInUse, match="shared"):
                run(store, force_new=force_new)
    assert not (home() / "experiments").exists()


@pytest.mark.parametrize("labeler", ["ann", "synthetic:oracle"])
def test_second_home_with_other_configuration_is_refused(store, move, labeler):
    experiment_id = run(store, labeler=labeler)
    move("second")
    with pytest.raises(ConfigMismatch) as caught:
        run(store, {**CONFIG, "seed": 7, "reward": {"l2": 0.5}})
    lines = str(caught.value).splitlines()[1:3]
    assert lines == ["  seed: was 0, now 7", "  reward.l2: was 0.1, now 0.5"]
    assert store.experiments.get("shared").id == experiment_id
    assert not (home() / "experiments/shared/config.json").exists()


def test_second_home_with_the_same_configuration_continues(store, move):
    experiment_id = run(store)
    move("second")
    assert run(store) == experiment_id


def test_first_home_is_refused_after_second_one_started_over(store, move):
    run(store)
    first = home()
    move("second")
    changed = {**CONFIG, "seed": 7}
    run(store, changed, force_new=True)
    move(first.name)
    with pytest.raises(ConfigMismatch, match="seed: was 7, now 0"):
        run(store)


def test_start_over_from_second_home_is_audited(store, move):
    run(store)
    move("second")
    run(store, force_new=True)
    [event] = store.events.page().rows
    details = {"experiment": "shared", "comparisons": 1, "labels": 1}
    assert (event.kind, event.details, event.labeler) == ("delete", details, "owner")


def test_run_whose_lock_file_was_deleted_excludes_a_second_one(store):
    with locked_experiment(store, "shared", CONFIG) as (folder, _):
        (folder.folder / "lock").unlink()
        with pytest.raises(ExperimentInUse):
            run(store)
