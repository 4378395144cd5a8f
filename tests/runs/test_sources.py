"""Arguments that name an experiment, a folder or a file."""

import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.common.paths import user_path
from rl_teacher.datasets.import_export import labels_of
from rl_teacher.runs.folder import experiments_folder, find_source
from rl_teacher.runs.warm_start import load_agent_state, predictor_folder
from tests.runs.test_warm_start import config

MARK = "mark"


def source(name_or_path):
    return find_source(name_or_path, lambda path: (path / MARK).exists(), "a marked folder")


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """Make a folder that has what is needed."""

    def mark(folder):
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
        (folder / MARK).touch()
        return folder

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return mark


def test_experiment_takes_precedence_over_folder_of_the_same_name(marked, tmp_path):
    marked(tmp_path / "one")
    folder = marked(experiments_folder() / "one")
    assert source("one") == folder
    (folder / MARK).unlink()
    assert source("one").resolve() == tmp_path / "one"


@pytest.mark.parametrize("given", ["~/one", "one/", "./one", "../{0}/one"])
def test_folder_is_found_by_any_path(given, marked, tmp_path):
    folder = marked(tmp_path / "one")
    assert source(given.format(tmp_path.name)).resolve() == folder


def test_experiment_whose_name_begins_with_tilde_is_found(marked):
    folder = marked(experiments_folder() / "~one")
    assert source("~one") == folder


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("two", "There is no experiment called 'two'. Did you mean tow"),
        ("tow", "Experiment 'tow' has none."),
        ("~/two", "There is no file or folder /.*/two"),
        (".", r"\. has other contents"),
        ("x" * 300, "File name too long|There is no file or folder"),
    ],
)
def test_unusable_source_is_refused_with_reason(given, fault, marked):
    (marked(experiments_folder() / "tow") / MARK).unlink()
    with pytest.raises(BadInput, match=f"was given; a marked folder is needed.*{fault}"):
        source(given)


@pytest.mark.parametrize(
    "load", [labels_of, predictor_folder, lambda given: load_agent_state(given, config(None))]
)
def test_home_folder_of_unknown_user_is_refused(load):
    with pytest.raises(BadInput, match="the home folder of ~nobody-here is unknown"):
        load("~nobody-here/x")


def test_tilde_in_path_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/a") == tmp_path / "a"
