import errno
import os
import resource
import shlex
import shutil
import stat
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput, CorruptBackup
from rl_teacher.runs import backup as backup_module
from rl_teacher.runs.backup import read_sums, restore_backup, save_backup, verify_backup
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.store.checkpoints import Checkpoint, CheckpointFiles
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import NewLabel
from rl_teacher.teach import teach
from rl_teacher.web.address import access_token
from tests.store.comparisons import ask_and_show, clip, pair

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")


@pytest.fixture
def filled(make_database):
    """Return a home with an experiment, a checkpoint, two labels, a clip and a segment."""
    make_database(home() / "labels.sqlite")
    with open_store() as store:
        fill(store)
    with Experiment.open("one", {"name": "one"}) as experiment:
        experiment.save_checkpoint(7, {"weights": np.arange(3)}, {})
        experiment.append_metrics({"step": 7})
    (home() / "segments" / "E").mkdir(parents=True)
    (home() / "segments" / "E" / "a.safetensors").write_bytes(b"arrays")
    MediaFiles(home() / "media").put(f"clips/{pair('a')[0]}.poses", b"poses")
    (home() / "logs").mkdir()
    (home() / "logs" / "service.log").write_text("GET /")
    access_token(home())
    return home()


def fill(store):
    experiment_id = store.experiments.ensure("one", "E", {"name": "one"})
    ids = ask_and_show(store, experiment_id, "a", "b")
    store.labels.add(ids[0], Answer.LEFT, "Ada")
    store.labels.add(ids[1], Answer.EQUAL, "Ada")


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Return a function that sets a new, empty home."""

    def move():
        monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "restored"))
        return tmp_path / "restored"

    return move


def labels_of(store, name="one"):
    exported = store.labels.export(store.experiments.get(name).id, limit=1_000_000)
    return [(each.comparison_id, each.labeler, each.answer) for each in exported]


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("labels.sqlite")
    }


def test_restored_home_has_files_and_rows_of_the_original(filled, tmp_path, elsewhere, capsys):
    with open_store() as store:
        expected = labels_of(store)
    assert main(["backup", str(tmp_path / "copy")]) == 0
    assert "1 experiment with 2 labels" in capsys.readouterr().out
    restored = elsewhere()
    assert main(["restore", str(tmp_path / "copy")]) == 0
    left_out = {"logs/service.log", "experiments/one/lock"}
    original = files_below(filled)
    assert left_out <= original.keys()
    assert files_below(restored) == {k: v for k, v in original.items() if k not in left_out}
    with open_store() as store:
        assert labels_of(store) == expected
    experiment = Experiment.find("one")
    checkpoint = experiment.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.step == 7


def test_printed_restore_command_works_for_a_folder_with_spaces(
    filled, tmp_path, elsewhere, capsys
):
    assert main(["backup", str(tmp_path / "my copy")]) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: "))
    elsewhere()
    assert main(command[command.index("restore") :]) == 0


def test_backup_and_restored_home_are_readable_by_their_owner_only(filled, tmp_path, elsewhere):
    save_backup(tmp_path / "copy")
    restored = elsewhere()
    restore_backup(tmp_path / "copy")
    for folder in (tmp_path / "copy", restored):
        # The files in it are protected by the folder, and again if they are copied elsewhere.
        for path in (folder, *filter(Path.is_file, folder.rglob("*"))):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


class Stream(threading.Thread):
    """Thread that asks and answers comparisons, and records those that were acknowledged."""

    def __init__(self, number):
        super().__init__()
        self.labeler = f"labeler {number}"
        self.acknowledged = []
        self.ended = threading.Event()
        self.has_begun = threading.Event()

    def run(self):
        with open_store() as store:
            experiment_id = store.experiments.ensure("one", "E", {"name": "one"})
            for number in range(10_000):
                [asked] = ask_and_show(store, experiment_id, f"{self.labeler} {number}")
                store.labels.add_many([NewLabel(asked, Answer.LEFT, self.labeler)])
                self.acknowledged.append((asked, self.labeler, Answer.LEFT))
                self.has_begun.set()
                if self.ended.is_set():
                    return


def stream_while(action):
    """Run an action while two labelers answer; return the labels acknowledged before it."""
    streams = [Stream(number) for number in range(2)]
    for each in streams:
        each.start()
    for each in streams:
        assert each.has_begun.wait(60)
    acknowledged = [label for each in streams for label in [*each.acknowledged]]
    try:
        action()
    finally:
        for each in streams:
            each.ended.set()
            each.join()
    assert sum(len(each.acknowledged) for each in streams) > len(acknowledged)
    return acknowledged


def test_backup_while_labels_stream_in_has_each_earlier_label_once(filled, tmp_path, elsewhere):
    acknowledged = stream_while(lambda: save_backup(tmp_path / "copy"))
    elsewhere()
    restore_backup(tmp_path / "copy")
    with open_store() as store:
        found = Counter(labels_of(store))
    assert set(found.values()) == {1}
    assert set(acknowledged) <= found.keys()


@pytest.mark.postgres
def test_postgres_is_backed_up_while_labels_stream_in(
    shared_postgres_url, tmp_path, elsewhere, monkeypatch
):
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", shared_postgres_url)
    home().mkdir()
    with open_store() as store:
        fill(store)
        first = labels_of(store)
    acknowledged = stream_while(lambda: save_backup(tmp_path / "copy"))
    elsewhere()
    monkeypatch.delenv("RL_TEACHER_DATABASE_URL")
    restore_backup(tmp_path / "copy")
    with open_store() as store:
        found = Counter(labels_of(store))
    assert set(found.values()) == {1}
    assert {*first, *acknowledged} <= found.keys()


@pytest.mark.postgres
def test_backup_is_restored_into_empty_postgres_whose_ids_continue(
    filled, postgres_url, tmp_path, elsewhere, monkeypatch
):
    with open_store() as store:
        expected = labels_of(store)
    save_backup(tmp_path / "copy")
    before = files_below(tmp_path / "copy")
    elsewhere()
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", postgres_url)
    restore_backup(tmp_path / "copy")
    assert files_below(tmp_path / "copy") == before
    assert not list(home().glob(".labels*"))
    with open_store() as store:
        assert labels_of(store) == expected
        [asked] = ask_and_show(store, store.experiments.get("one").id, "new")
        assert asked == max(each[0] for each in expected) + 1
    shutil.rmtree(home())
    with pytest.raises(BadInput, match=r"database postgresql.*is not empty"):
        restore_backup(tmp_path / "copy")
    assert not home().exists()


@pytest.mark.postgres
def test_ids_of_deleted_rows_are_not_used_again_after_restoring(
    shared_postgres_url, tmp_path, elsewhere, monkeypatch
):
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", shared_postgres_url)
    home().mkdir()
    with open_store() as store:
        experiment_id = store.experiments.ensure("gone", "E", {})
        ids = ask_and_show(store, experiment_id, "a", "b")
        store.experiments.delete("gone")
    save_backup(tmp_path / "copy")
    elsewhere()
    monkeypatch.delenv("RL_TEACHER_DATABASE_URL")
    restore_backup(tmp_path / "copy")
    with open_store() as store:
        [asked] = ask_and_show(store, store.experiments.ensure("new", "E", {}), "a")
    assert asked > max(ids)


def test_files_that_appear_or_vanish_during_backup_do_not_disturb_it(
    filled, tmp_path, elsewhere, monkeypatch
):
    """A trainer replaces its checkpoints, forgets a clip, and stores one for a new comparison."""
    media = MediaFiles(home() / "media")
    save_snapshot, copy_file = backup_module.save_snapshot, backup_module.copy_file
    checkpoints = CheckpointFiles(home() / "experiments" / "one" / "checkpoints")

    def snapshot_and_delete(database, path):
        with open_store() as store:
            ask_and_show(store, store.experiments.get("one").id, "late")
        media.put(f"clips/{pair('late')[0]}.poses", b"late")
        save_snapshot(database, path)
        media.remove(f"clips/{pair('a')[0]}.poses")

    def replace_and_copy(source, target):
        if source.name.startswith("checkpoint-000001"):
            for step in (8, 9):
                checkpoints.save(Checkpoint(step, {}, {}))
        return copy_file(source, target)

    monkeypatch.setattr(backup_module, "save_snapshot", snapshot_and_delete)
    monkeypatch.setattr(backup_module, "copy_file", replace_and_copy)
    save_backup(tmp_path / "copy")
    monkeypatch.undo()
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "restored"))
    restore_backup(tmp_path / "copy")
    restored = MediaFiles(home() / "media")
    assert restored.get(f"clips/{pair('late')[0]}.poses") == b"late"
    assert restored.get(f"clips/{pair('a')[0]}.poses") == b"poses"
    checkpoint = Experiment.find("one").load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.step == 9


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def alter(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


DAMAGES = {
    "truncated checkpoint": ("experiments/one/checkpoints/*", truncate, "truncated or altered"),
    "altered database": ("labels.sqlite", alter, "truncated or altered"),
    "truncated database": ("labels.sqlite", truncate, "truncated or altered"),
    "missing clip": ("media/clips/*", Path.unlink, "is missing"),
    "altered config": ("experiments/one/config.json", alter, "truncated or altered"),
    "truncated list": ("SHA256SUMS", truncate, "SHA256SUMS is truncated or altered"),
    "no list": ("SHA256SUMS", Path.unlink, "SHA256SUMS is missing"),
    "no description": ("backup.json", Path.unlink, "backup.json or SHA256SUMS is missing"),
    "truncated description": ("backup.json", truncate, "backup.json or SHA256SUMS is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_backup_is_refused_and_nothing_restored(
    damage, filled, tmp_path, elsewhere, capsys
):
    save_backup(tmp_path / "copy")
    pattern, do_damage, fault = DAMAGES[damage]
    [path] = (tmp_path / "copy").glob(pattern)
    do_damage(path)
    restored = elsewhere()
    assert main(["restore", str(tmp_path / "copy")]) == 2
    assert fault in capsys.readouterr().err
    assert not restored.exists()


def test_name_that_leads_out_of_the_backup_is_refused(filled, tmp_path, elsewhere):
    save_backup(tmp_path / "copy")
    digests = read_sums(tmp_path / "copy")
    backup_module.write_sums(tmp_path / "copy", {**digests, "../outside": clip("x")})
    elsewhere()
    with pytest.raises(CorruptBackup, match="not a list of files"):
        restore_backup(tmp_path / "copy")


def test_home_that_is_not_empty_is_refused(filled, tmp_path, elsewhere, capsys):
    save_backup(tmp_path / "copy")
    restored = elsewhere()
    restored.mkdir()
    (restored / "mine").write_text("mine")
    assert main(["restore", str(tmp_path / "copy")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in restored.iterdir()] == ["mine"]


@pytest.mark.parametrize("moment", ["verify_backup", "load_snapshot_of"])
def test_home_in_which_a_process_starts_during_restoration_stays(
    moment, filled, tmp_path, elsewhere, monkeypatch
):
    save_backup(tmp_path / "copy")
    restored = elsewhere()
    restored.mkdir()
    original = getattr(backup_module, moment)

    def start_and_continue(*arguments):
        restored.mkdir(exist_ok=True)
        (restored / "access-token").write_text("live")
        return original(*arguments)

    monkeypatch.setattr(backup_module, moment, start_and_continue)
    with pytest.raises(BadInput, match="is not empty"):
        restore_backup(tmp_path / "copy")
    assert files_below(restored) == {"access-token": b"live"}
    assert not list(tmp_path.glob(".restored*"))


@pytest.fixture
def mount_point(tmp_path, monkeypatch):
    """Return an empty folder that cannot be replaced."""
    restored = tmp_path / "restored"
    restored.mkdir()
    is_mount, rmdir = Path.is_mount, Path.rmdir

    def refuse(path):
        if path == restored:
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        rmdir(path)

    monkeypatch.setattr(Path, "is_mount", lambda path: path == restored or is_mount(path))
    monkeypatch.setattr(Path, "rmdir", refuse)
    return restored


def test_home_that_is_a_mount_point_is_filled(filled, tmp_path, elsewhere, mount_point):
    with open_store() as store:
        expected = labels_of(store)
    save_backup(tmp_path / "copy")
    elsewhere()
    restore_backup(tmp_path / "copy")
    assert not [path for path in mount_point.iterdir() if path.name.startswith(".restored")]
    assert stat.S_IMODE(mount_point.stat().st_mode) == 0o700
    with open_store() as store:
        assert labels_of(store) == expected
    assert Experiment.find("one").load_checkpoint() is not None


def test_mount_point_in_which_a_process_starts_during_restoration_stays(
    filled, tmp_path, elsewhere, mount_point, monkeypatch
):
    save_backup(tmp_path / "copy")
    elsewhere()
    original = backup_module.load_snapshot_of

    def start_and_continue(*arguments):
        (mount_point / "access-token").write_text("live")
        return original(*arguments)

    monkeypatch.setattr(backup_module, "load_snapshot_of", start_and_continue)
    with pytest.raises(BadInput, match="is not empty"):
        restore_backup(tmp_path / "copy")
    assert files_below(mount_point) == {"access-token": b"live"}


def test_media_in_another_folder_of_the_home_are_restored_there(
    filled, tmp_path, elsewhere, monkeypatch
):
    save_backup(tmp_path / "copy")
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", str(elsewhere() / "clips of people"))
    restore_backup(tmp_path / "copy")
    key = f"clips/{pair('a')[0]}.poses"
    assert MediaFiles(home() / "clips of people").get(key) == b"poses"


@pytest.mark.usefixtures("filled")
def test_damaged_clip_is_left_out_of_another_media_storage(
    tmp_path, elsewhere, monkeypatch, caplog
):
    sound, damaged = (f"clips/{pair(name)[0]}.poses" for name in "ab")
    MediaFiles(home() / "media").put(damaged, b"poses")
    truncate(home() / "media" / damaged)
    save_backup(tmp_path / "copy")
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", str(tmp_path / "other"))
    elsewhere()
    restore_backup(tmp_path / "copy")
    assert f"media/{damaged} was damaged before the backup" in caplog.text
    media = MediaFiles(tmp_path / "other")
    assert (media.exists(sound), media.exists(damaged)) == (True, False)


def test_file_beside_the_clips_is_not_in_the_backup(filled, tmp_path):
    (filled / "media" / ".DS_Store").touch()
    save_backup(tmp_path / "copy")
    assert "media/.DS_Store" not in read_sums(tmp_path / "copy")


def test_existing_folder_is_refused_and_stays(filled, tmp_path, monkeypatch, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for path in (str(tmp_path / "full"), "."):
        assert main(["backup", path]) == 2
        assert "exists already" in capsys.readouterr().err
    # Not replaced by a folder of the same name, which the shell would not see.
    assert Path.cwd().samefile(tmp_path / "empty")
    assert not any((tmp_path / "empty").iterdir())


def test_place_in_home_is_refused(filled, capsys):
    assert main(["backup", str(home() / "copy")]) == 2
    assert "is inside the home" in capsys.readouterr().err


@pytest.mark.parametrize("name", [b"\xff.zip", b"two\nlines"])
def test_file_whose_name_cannot_be_listed_is_refused_before_copying(name, filled, tmp_path, capsys):
    (filled / os.fsdecode(name)).touch()
    assert main(["backup", str(tmp_path / "new" / "copy")]) == 2
    assert repr(os.fsdecode(name)) in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["#1", "a?b", "50%25"])
def test_name_with_a_meaning_in_urls_is_that_of_a_folder(name, filled, tmp_path, monkeypatch):
    copy = tmp_path / name
    assert main(["backup", str(copy)]) == 0
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / f"home{name}"))
    assert main(["restore", str(copy)]) == 0
    [database, *_] = examine()
    assert database.faults == []


def test_restored_experiment_has_its_time_of_change(filled, tmp_path, elsewhere):
    for path in (filled / "experiments" / "one").glob("*.json*"):
        os.utime(path, (1_000_000, 1_000_000))
    before = Experiment.find("one").summary().changed_at
    save_backup(tmp_path / "copy")
    elsewhere()
    restore_backup(tmp_path / "copy")
    assert Experiment.find("one").summary().changed_at == before


def test_home_that_was_copied_from_a_backup_is_backed_up(filled, tmp_path, monkeypatch):
    save_backup(tmp_path / "first")
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "first"))
    assert save_backup(tmp_path / "second").num_labels == 2


def test_checkpoint_in_a_backup_is_not_newer_than_the_metrics(filled, tmp_path, monkeypatch):
    copy_file = backup_module.copy_file

    def copy_and_train(source, target):
        digest = copy_file(source, target)
        if source.name == "metrics.jsonl":
            with Experiment.open("one", {"name": "one"}) as experiment:
                experiment.append_metrics({"step": 8})
                experiment.save_checkpoint(8, {}, {})
        return digest

    monkeypatch.setattr(backup_module, "copy_file", copy_and_train)
    save_backup(tmp_path / "copy")
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "copy"))
    copied = Experiment.find("one")
    checkpoint = copied.load_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.step, copied.metrics()) == (7, [{"step": 7}])


@pytest.mark.usefixtures("bound_by_permissions")
@pytest.mark.parametrize(
    ("name", "mode"), [("segments/E", 0o000), ("segments/E", 0o600), ("access-token", 0o000)]
)
def test_what_may_not_be_read_is_named(filled, name, mode, tmp_path, capsys):
    path = filled / name
    path.chmod(mode)
    code = main(["backup", str(tmp_path / "copy")])
    path.chmod(0o700)
    assert code == 2
    assert f"{path} cannot be read: Permission denied" in capsys.readouterr().err


def test_full_disk_is_that_of_the_backup(filled, tmp_path, capsys):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit_bytes = (filled / "labels.sqlite").stat().st_size // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        assert main(["backup", str(tmp_path / "copy")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    error = capsys.readouterr().err
    assert str(tmp_path / ".copy.") in error
    assert str(filled / "labels.sqlite") not in error


def test_failed_backup_leaves_no_files(filled, tmp_path, monkeypatch):
    def fail(database, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_module, "save_snapshot", fail)
    assert main(["backup", str(tmp_path / "new" / "copy")]) == 2
    assert not any((tmp_path / "new").iterdir())


def test_clips_of_another_media_folder_are_in_the_backup(filled, tmp_path):
    MediaFiles(tmp_path / "other").put(f"clips/{clip('x')}.mp4", b"video")
    save_backup(tmp_path / "copy", tmp_path / "other")
    assert f"media/clips/{clip('x')}.mp4" in read_sums(tmp_path / "copy")
    assert verify_backup(tmp_path / "copy").num_labels == 2


@pytest.mark.parametrize("place", ["data", "link"])
def test_database_in_a_folder_of_the_home_is_copied_once(filled, place, tmp_path, monkeypatch):
    data = filled / "data"
    data.mkdir()
    (filled / "labels.sqlite").rename(data / "all.sqlite")
    (data / "all.sqlite.before-0007").touch()
    (data / "notes").touch()
    (tmp_path / "link").symlink_to(data)
    folder = {"data": data, "link": tmp_path / "link"}[place]
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", str(folder / "all.sqlite"))
    # The write-ahead log exists meanwhile.
    with open_store():
        save_backup(tmp_path / "copy")
    names = read_sums(tmp_path / "copy")
    assert [name for name in names if name.startswith("data/")] == ["data/notes"]
    assert verify_backup(tmp_path / "copy").num_labels == 2


def test_experiment_whose_name_looks_temporary_is_in_the_backup(filled, tmp_path):
    """Earlier versions accepted such names."""
    folder = filled / "experiments" / "one.unfinished"
    (filled / "experiments" / "one").rename(folder)
    (folder / "history" / "step-5.unfinished").mkdir(parents=True)
    (folder / "history" / "step-5.unfinished" / "config.json").touch()
    save_backup(tmp_path / "copy")
    names = [name for name in read_sums(tmp_path / "copy") if "unfinished" in name]
    assert "experiments/one.unfinished/config.json" in names
    assert not [name for name in names if "step-5" in name]


@pytest.mark.usefixtures("filled")
def test_backup_of_running_experiment_is_restored_without_its_lock(tmp_path, elsewhere):
    with open_store() as store, store.locks.hold("one"):
        save_backup(tmp_path / "copy")
        elsewhere()
        restore_backup(tmp_path / "copy")
        # The original, which is still running, would otherwise exclude the copy.
        with open_store() as restored, restored.locks.hold("one") as lock:
            assert lock.name == "one"


def test_run_continues_from_restored_home_exactly(tmp_path, elsewhere):
    from tests.test_teach import CONFIG, QUIET, curve

    config = replace(CONFIG, num_timesteps=2048, name="whole")
    teach(config, replace(QUIET, checkpoint_seconds=0.0))
    expected = curve("whole")
    checkpoints = sorted((home() / "experiments" / "whole" / "checkpoints").iterdir())
    checkpoints[-1].unlink()
    save_backup(tmp_path / "copy")
    elsewhere()
    restore_backup(tmp_path / "copy")
    teach(config, QUIET)
    assert curve("whole") == expected


@pytest.mark.usefixtures("filled")
def test_backup_that_cannot_be_written_is_refused_with_advice_for_its_folder(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["backup", str(tmp_path / "file" / "copy")]) == 2
    error = capsys.readouterr().err
    assert f"The backup cannot be written to {tmp_path}/file/copy: Not a directory." in error
    assert "Name another folder" in error
