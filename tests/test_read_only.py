"""Files that may not be written, or are of a newer version: runs end, and continue afterwards."""

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.checkpoints import CheckpointFiles, list_checkpoints
from rl_teacher.teach import teach
from tests.test_full_disk import COMMAND, at_call, trained_home
from tests.test_person_teaches import CONFIG, OPTIONS, Labeler
from tests.test_teach import curve, policies

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page", "bound_by_permissions")

SHORT = [*COMMAND, "-t", "2048"]


@pytest.fixture(scope="module")
def _home_of_short_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("short") / "home"
    with trained_home(folder, SHORT):
        return folder


@pytest.fixture
def _short_run(_home_of_short_run):
    """The home of this test, in which the run of `SHORT` has finished."""
    shutil.copytree(_home_of_short_run, home())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Curve and policies of an uninterrupted run of `COMMAND`."""
    with trained_home(tmp_path_factory.mktemp("uninterrupted") / "home", COMMAND):
        return curve("one"), policies("one")


def set_writable(path, *, is_writable):
    path.chmod(path.stat().st_mode | 0o200 if is_writable else path.stat().st_mode & ~0o222)


AT_START = {
    ".": "cannot be",
    "labels.sqlite": r"labels\.sqlite cannot be used: it may be read but not written",
    "experiments/one": "experiments/one cannot be used: you may not write there",
}


@pytest.mark.usefixtures("_short_run")
@pytest.mark.parametrize("name", AT_START)
def test_read_only_file_is_named_at_the_start_and_the_same_command_continues(name, capsys):
    step = Experiment.find("one").latest_metrics["step"]
    set_writable(home() / name, is_writable=False)
    longer = [*COMMAND, "-t", "4096"]
    assert main(longer) == 2
    assert re.search(AT_START[name], capsys.readouterr().err)
    set_writable(home() / name, is_writable=True)
    assert main(longer) == 0
    assert Experiment.find("one").latest_metrics["step"] > step
    assert [fault for check in examine() for fault in check.faults] == []


@pytest.mark.parametrize(
    "name",
    [
        "experiments/one",
        pytest.param("segments/*", marks=pytest.mark.slow),
        pytest.param("experiments/one/checkpoints", marks=pytest.mark.slow),
        pytest.param("experiments/one/history", marks=pytest.mark.slow),
    ],
)
def test_folder_that_becomes_read_only_ends_the_run_which_continues(
    name, uninterrupted, monkeypatch, capsys
):
    def make_read_only(_, call):
        path = call()
        for folder in home().glob(name):
            set_writable(folder, is_writable=False)
        return path

    with monkeypatch.context() as patched:
        at_call(patched, CheckpointFiles, "save", 2, make_read_only)
        assert main(COMMAND) == 2
    error = capsys.readouterr().err
    assert "cannot be used: you may not write there. Give yourself write permission" in error
    assert "The last checkpoint is of step" in error
    for folder in home().glob(name):
        set_writable(folder, is_writable=True)
    assert main(COMMAND) == 0
    assert (curve("one"), policies("one")) == uninterrupted


def test_run_whose_clips_cannot_be_written_ends_and_continues():
    media = home() / "media"
    media.mkdir(parents=True)
    set_writable(media, is_writable=False)
    config = replace(CONFIG, num_timesteps=1024)
    with pytest.raises(RunFolderUnusable, match="media cannot be used: you may not write there"):
        teach(config, OPTIONS)
    set_writable(media, is_writable=True)
    with Labeler() as labeler:
        assert teach(config, OPTIONS).is_finished
    assert len(labeler.answers) == CONFIG.n_labels


@pytest.mark.usefixtures("_short_run")
def test_checkpoint_of_another_version_is_refused_and_an_earlier_one_continues(capsys):
    files = CheckpointFiles(Experiment.find("one").folder / "checkpoints")
    checkpoint = files.load()
    assert checkpoint is not None
    arrays = {each: checkpoint.arrays[each] for each in checkpoint.arrays if "agent/" not in each}
    newest = files.save(replace(checkpoint, arrays=arrays))
    longer = [*COMMAND, "-t", "4096"]
    assert main(longer) == 2
    error = capsys.readouterr().err
    assert "does not fit this version of rl-teacher" in error
    assert "Resume it with the version that wrote it" in error
    assert newest in [each.path for each in list_checkpoints(files.folder)]
    newest.unlink()
    assert main(longer) == 0


@pytest.mark.usefixtures("_short_run")
@pytest.mark.parametrize("command", [SHORT, ["serve", "--no-browser", "--port", "0"], ["runs"]])
def test_newer_database_is_refused_unchanged_by_every_command(command, capsys):
    file = home() / "labels.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = file.read_bytes()
    code = main(command)
    printed = capsys.readouterr()
    if command == ["runs"]:
        # The list has what the run folders contain.
        assert code == 0
        assert "one" in printed.out
    else:
        assert code == 2
        assert "has version 9999, and this rl-teacher knows versions up to" in printed.err
        assert "Install the newer rl-teacher" in printed.err
    assert file.read_bytes() == content
