"""Arguments that name an experiment, a folder or a file."""

import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import experiments_folder, find_source

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


@pytest.mark.parametrize("given", ["~/one", "one/", "../{0}/one"])
def test_folder_is_found_by_any_path(given, marked, tmp_path):
    folder = marked(tmp_path / "one")
    assert source(given.format(tmp_path.name)).resolve() == folder


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("two", "tow"),
        ("tow", "tow"),
        ("~/two", "/two"),
        (".", r"\."),
        ("x" * 300, "x"),
        ("~no/x", "~no"),
    ],
)
def test_unusable_source_is_refused(given, named, marked):
    (marked(experiments_folder() / "tow") / MARK).unlink()
    with pytest.raises(BadInput, match=named):
        source(given)
