"""Tests of deleting, renaming and archiving experiments."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import (
    BadExperimentName,
    CorruptCheckpoint,
    ExperimentExists,
    ExperimentInUse,
    ExperimentNotFound,
)
from rl_teacher.runs import management
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.management import (
    archive_experiment,
    delete_experiment,
    rename_experiment,
)
from rl_teacher.store.database import default_url
from rl_teacher.store.store import Store
from tests.store.comparisons import (
    ENV_ID,
    add_labeler,
    ask_and_show,
    open_comparisons,
    recorded_events,
)
from tests.store.credentials import identify, issue_credential

CONFIG = {"env_id": ENV_ID, "name": "hopper"}


@pytest.fixture
def store():
    with Store.open(default_url(home())) as opened:
        yield opened


@pytest.fixture
def labels(store):
    """Give the experiment `hopper` a folder, and two comparisons of which one is answered."""
    with Experiment.open("hopper", CONFIG) as experiment:
        experiment.metrics_file.append({"step": 1})
    experiment_id = store.experiments.ensure("hopper", ENV_ID, CONFIG)
    first, second = ask_and_show(store, experiment_id, 1, 2)
    store.labels.add(first, Answer.LEFT, "ann")
    return first, second


def names(store):
    return [each.name for each in store.experiments.all()]


def test_deleted_experiment_leaves_neither_folder_nor_labels(store, labels):
    delete_experiment(store, "hopper", by="zoe")
    assert names(store) == []
    assert store.labels.answers(labels) == {}
    assert not (home() / "experiments" / "hopper").exists()
    assert recorded_events(store) == [
        ("delete", {"experiment": "hopper", "comparisons": 2, "labels": 1}, "zoe")
    ]


@pytest.mark.usefixtures("labels")
def test_rest_of_interrupted_deletion_is_not_continued(store, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(management.shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            delete_experiment(store, "hopper")
    with Experiment.open("hopper", CONFIG) as new:
        assert new.metrics() == []


def test_deleted_experiment_leaves_nothing_where_its_folder_links_to(store, labels, tmp_path):
    folder = home() / "experiments" / "hopper"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    delete_experiment(store, "hopper")
    assert store.labels.answers(labels) == {}
    assert not folder.is_symlink()
    assert not (tmp_path / "elsewhere").exists()


def test_renamed_experiment_keeps_labels_and_continues(store, labels):
    curves = home() / "tensorboard"
    (curves / "hopper").mkdir(parents=True)
    (curves / "hopper" / "events").write_text("curves")
    rename_experiment(store, "hopper", "walker", by="zoe")
    assert names(store) == ["walker"]
    assert store.labels.answers(labels) == {labels[0]: Answer.LEFT}
    assert store.experiments.get("walker").config == CONFIG | {"name": "walker"}
    with Experiment.open("walker", CONFIG | {"name": "walker"}) as continued:
        assert continued.metrics() == [{"step": 1}]
    with pytest.raises(ExperimentNotFound):
        Experiment.find("hopper")
    assert recorded_events(store) == [("rename", {"from": "hopper", "to": "walker"}, "zoe")]
    assert [path.name for path in curves.iterdir()] == ["walker"]
    assert (curves / "walker" / "events").read_text() == "curves"


@pytest.mark.usefixtures("labels")
def test_credentials_and_invites_follow_a_renaming(store):
    add_labeler(store, "ann2")
    token = issue_credential(store, "ann2", experiment="hopper")
    expires_at = datetime.now(UTC) + timedelta(days=1)
    store.access.invite(experiment="hopper", expires_at=expires_at)
    rename_experiment(store, "hopper", "walker")
    identity = identify(store, token)
    assert identity is not None
    assert identity.experiment == "walker"
    assert [each.experiment for each in store.access.invites()] == ["walker"]


@pytest.mark.parametrize(
    ("new_name", "error"),
    [("other", ExperimentExists), ("a/b", BadExperimentName), ("hopper", ExperimentExists)],
)
@pytest.mark.usefixtures("labels")
def test_unusable_new_name_changes_nothing(store, new_name, error):
    store.experiments.ensure("other", ENV_ID, {})
    with pytest.raises(error):
        rename_experiment(store, "hopper", new_name)
    assert names(store) == ["other", "hopper"]
    assert json.loads((home() / "experiments/hopper/config.json").read_text()) == CONFIG


@pytest.mark.usefixtures("labels")
def test_name_under_which_a_run_starts_is_refused(store):
    with store.locks.hold("walker"), pytest.raises(ExperimentInUse, match="walker"):
        rename_experiment(store, "hopper", "walker")
    assert names(store) == ["hopper"]


@pytest.mark.usefixtures("labels")
def test_experiment_with_damaged_configuration_is_not_renamed(store):
    (home() / "experiments" / "hopper" / "config.json").write_text("{")
    with pytest.raises(CorruptCheckpoint):
        rename_experiment(store, "hopper", "walker")
    assert names(store) == ["hopper"]
    assert recorded_events(store) == []


@pytest.fixture
def _offline_fit():
    """Create the experiment `fitted` as `rl-teacher fit` does: without an entry in the store."""
    Experiment.open("fitted", {"env_id": ENV_ID, "fit": {"seed": 0}}).close()


@pytest.mark.usefixtures("_offline_fit")
def test_offline_fit_is_renamed_unless_the_name_is_taken(store):
    store.experiments.ensure("hopper", ENV_ID, {})
    with pytest.raises(ExperimentExists):
        rename_experiment(store, "fitted", "hopper")
    rename_experiment(store, "fitted", "renamed")
    assert Experiment.find("renamed").config["fit"] == {"seed": 0}
    assert not (home() / "experiments" / "fitted").exists()


@pytest.mark.usefixtures("_offline_fit")
def test_offline_fit_is_not_archived(store):
    with pytest.raises(ExperimentNotFound):
        archive_experiment(store, "fitted", is_archived=True)


def test_archived_experiment_is_not_labelled_until_restored(store, labels):
    experiment_id = store.experiments.get("hopper").id
    for is_archived, waiting in ((True, []), (False, [labels[1]])):
        archive_experiment(store, "hopper", is_archived=is_archived, by="zoe")
        assert [each.id for each in open_comparisons(store, experiment_id)] == waiting
    assert recorded_events(store) == [("restore", {}, "zoe"), ("archive", {}, "zoe")]


@pytest.mark.usefixtures("labels")
def test_running_experiment_is_neither_deleted_nor_renamed_nor_archived(store):
    with Experiment.open("hopper", CONFIG):
        for manage in (
            lambda: delete_experiment(store, "hopper"),
            lambda: rename_experiment(store, "hopper", "walker"),
            lambda: archive_experiment(store, "hopper", is_archived=True),
        ):
            with pytest.raises(ExperimentInUse, match="hopper"):
                manage()
    assert names(store) == ["hopper"]
    assert recorded_events(store) == []


def test_experiment_that_another_home_runs_is_refused(store):
    store.experiments.ensure("remote", ENV_ID, {})
    with store.locks.hold("remote"), pytest.raises(ExperimentInUse, match="remote"):
        delete_experiment(store, "remote")
    delete_experiment(store, "remote")
    assert names(store) == []


@pytest.mark.parametrize(
    "command",
    [
        ["rename", "hoper", "walker"],
        ["label", "hoper"],
        ["labelers", "invite", "--experiment", "hoper"],
        ["export", "hoper"],
        ["delete", "hoper"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("labels")
def test_unknown_experiment_is_answered_with_similar_names(command, capsys):
    assert main(command) == 2
    assert "hopper" in capsys.readouterr().err


@pytest.mark.usefixtures("labels")
def test_commands_rename_archive_and_delete(store, capsys):
    assert main(["rename", "hopper", "walker"]) == 0
    assert main(["archive", "add", "walker"]) == 0
    assert store.experiments.get("walker").archived_at is not None
    assert main(["archive", "restore", "walker"]) == 0
    assert main(["delete", "walker"]) == 2
    assert "delete walker --yes" in capsys.readouterr().err
    assert main(["delete", "walker", "--yes"]) == 0
    assert names(store) == []
