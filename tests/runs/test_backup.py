import asyncio
import os
import sqlite3
import stat
import subprocess
import threading
import zipfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput, CorruptBackup, InviteUnusable
from rl_teacher.runs import backup as backup_module
from rl_teacher.runs.backup import restore_backup, save_backup
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.store.checkpoints import Checkpoint, CheckpointFiles
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import utc_now
from rl_teacher.teach import teach
from rl_teacher.web.address import access_token
from rl_teacher.web.authentication import Authenticator
from rl_teacher.web.settings import Settings
from tests.store.comparisons import ask_and_show, pair

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "home"))


@pytest.fixture
def filled(make_database):
    """Return a home with an experiment, a checkpoint, two labels, a clip and a segment."""
    make_database(home() / "labels.sqlite")
    with open_store() as store:
        fill(store)
    with Experiment.open("one", {"name": "one"}) as experiment:
        experiment.checkpoints.save(Checkpoint(7, {"weights": np.arange(3)}, {}))
        experiment.metrics_file.append({"step": 7})
    (home() / "segments" / "E").mkdir(parents=True)
    (home() / "segments" / "E" / f"{'a' * 64}.safetensors").write_bytes(b"arrays")
    for clip in pair("a"):
        MediaFiles(home() / "media").put(f"clips/{clip}.poses", b"poses")
    for name in ("logs/service.log", "cache/xla/program", "notes"):
        (home() / name).parent.mkdir(parents=True, exist_ok=True)
        (home() / name).write_text("not in a backup")
    access_token(home())
    return home()


def fill(store):
    experiment_id = store.experiments.ensure("one", "E", {"name": "one"})
    ids = ask_and_show(store, experiment_id, "a", "b")
    store.labels.add(ids[0], Answer.LEFT, "Ada")
    store.labels.add(ids[1], Answer.EQUAL, "Ada")


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Return a function that sets a new home."""

    def move(name="restored"):
        monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / name))
        return tmp_path / name

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


@pytest.mark.parametrize("has_mount_point", [False, True])
def test_restored_home_has_files_and_rows_of_the_original(
    filled, tmp_path, elsewhere, has_mount_point
):
    with open_store() as store:
        expected = labels_of(store)
    copy = tmp_path / "a #1?.zip"
    assert main(["backup", str(copy)]) == 0
    restored = elsewhere()
    if has_mount_point:  # an empty folder that cannot be replaced, as the volume of a container
        restored.mkdir()
    assert main(["restore", str(copy)]) == 0
    left_out = {"logs/service.log", "cache/xla/program", "notes", "experiments/one/lock"}
    left_out |= {"access-token"}
    original = files_below(filled)
    assert left_out <= original.keys()
    assert files_below(restored) == {k: v for k, v in original.items() if k not in left_out}
    with open_store() as store:
        assert labels_of(store) == expected
    checkpoint = Experiment.find("one").checkpoints.load()
    assert checkpoint is not None
    assert checkpoint.step == 7
    for path in (copy, restored, restored / "labels.sqlite"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


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
    for stream in streams:
        stream.start()
    for stream in streams:
        assert stream.has_begun.wait(60)
    acknowledged = [label for stream in streams for label in [*stream.acknowledged]]
    try:
        action()
    finally:
        for stream in streams:
            stream.ended.set()
            stream.join()
    return acknowledged


@pytest.mark.parametrize("server", [None, pytest.param("postgres", marks=pytest.mark.postgres)])
def test_backup_while_labels_stream_in_has_each_earlier_label_once(
    server, request, tmp_path, elsewhere, monkeypatch
):
    if server is not None:
        url = request.getfixturevalue("shared_postgres_url")
        monkeypatch.setenv("RL_TEACHER_DATABASE_URL", url)
    home().mkdir()
    with open_store() as store:
        fill(store)
        first = labels_of(store)
    acknowledged = stream_while(lambda: save_backup(tmp_path / "copy"))
    elsewhere()
    monkeypatch.delenv("RL_TEACHER_DATABASE_URL", raising=False)
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
    elsewhere()
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", postgres_url)
    restore_backup(tmp_path / "copy")
    assert not list(home().glob("labels.sqlite*"))
    with open_store() as store:
        assert labels_of(store) == expected
        [asked] = ask_and_show(store, store.experiments.get("one").id, "new")
        assert asked == max(each[0] for each in expected) + 1
    elsewhere("another")
    with pytest.raises(BadInput, match="postgresql"):
        restore_backup(tmp_path / "copy")
    assert not any(home().iterdir())


def test_files_that_appear_or_vanish_during_backup_do_not_disturb_it(
    filled, tmp_path, elsewhere, monkeypatch
):
    """A trainer saves a checkpoint, forgets a clip, and stores one for a new comparison."""
    media = MediaFiles(home() / "media")
    save_snapshot = backup_module.save_snapshot
    checkpoints = CheckpointFiles(home() / "experiments" / "one" / "checkpoints")

    def train_and_save(database, path):
        with Experiment.open("one", {"name": "one"}) as experiment:
            experiment.metrics_file.append({"step": 8})
        checkpoints.save(Checkpoint(8, {}, {}))
        with open_store() as store:
            ask_and_show(store, store.experiments.get("one").id, "late")
        media.put(f"clips/{pair('late')[0]}.poses", b"late")
        save_snapshot(database, path)
        media.remove(f"clips/{pair('a')[0]}.poses")

    monkeypatch.setattr(backup_module, "save_snapshot", train_and_save)
    save_backup(tmp_path / "copy")
    elsewhere()
    restore_backup(tmp_path / "copy")
    restored = MediaFiles(home() / "media")
    assert restored.get(f"clips/{pair('late')[0]}.poses") == b"late"
    assert not restored.exists(f"clips/{pair('a')[0]}.poses")
    copied = Experiment.find("one")
    checkpoint = copied.checkpoints.load()
    assert checkpoint is not None
    assert (checkpoint.step, copied.metrics()) == (7, [{"step": 7}])


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def alter(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def add(path, name, mode=stat.S_IFREG | 0o600, compression=zipfile.ZIP_STORED):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc", compression)


def change_database(path, statements):
    """Change the database in a backup, with the right checksum."""
    with zipfile.ZipFile(path) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    database = path.with_name("changed.sqlite")
    [info] = [each for each in members if each.filename == "labels.sqlite"]
    database.write_bytes(members[info])
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(statements)
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in (members | {info: database.read_bytes()}).items():
            archive.writestr(each, content)


DAMAGES = {
    "truncated": truncate,
    "altered": alter,
    "no archive": lambda path: path.write_bytes(b"no archive"),
    "path out of the home": lambda path: add(path, "../evil"),
    "hidden path": lambda path: add(path, f"experiments/../media/clips/{'a' * 64}.poses"),
    "absolute path": lambda path: add(path, "/evil"),
    "folder": lambda path: add(path, "experiments/one/"),
    **{
        name: lambda path, name=name: add(path, name)
        for name in (
            *("cache/xla/program", "cache/xla/jit_step-cache", "experiments/one/cache/xla/program"),
            *("experiments/one/predictor/predictor.so", "segments/E/__pycache__/run.pyc"),
            *("media/clips/run.so", "experiments/one/../../evil", "C:\\evil", "services/one.json"),
        )
    },
    "program in the database": lambda path: change_database(
        path, "CREATE TRIGGER t AFTER INSERT ON labels BEGIN DELETE FROM labels; END"
    ),
    "table that is a program": lambda path: change_database(
        path, "DROP TABLE metrics; CREATE VIEW metrics AS SELECT zeroblob(1000000000) AS id"
    ),
    "unknown file": lambda path: add(path, "experiments/one/run.py"),
    "link": lambda path: add(path, "experiments/two/config.json", stat.S_IFLNK | 0o777),
    "compressed": lambda path: add(path, "access-token", compression=zipfile.ZIP_DEFLATED),
    "twice": lambda path: add(path, "labels.sqlite"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_or_foreign_backup_is_refused_and_nothing_restored(
    filled, damage, tmp_path, elsewhere
):
    copy = tmp_path / "copy"
    save_backup(copy)
    DAMAGES[damage](copy)
    restored = elsewhere()
    with pytest.raises(CorruptBackup, match="copy"):
        restore_backup(copy)
    assert not any(restored.iterdir())


def test_restored_home_revokes_all_access_and_names_it(filled, tmp_path, elsewhere, capsys):
    """Credentials, invites and sessions may have been revoked after the backup."""
    token = access_token(home())
    with open_store() as store:
        _, credential = store.access.add_labeler("Ada Lovelace")
        _, invite = store.access.invite(expires_at=utc_now() + timedelta(days=1))
        session = Authenticator(store, Settings(token)).start_session(token)
    copy = tmp_path / "copy"
    save_backup(copy)
    add(copy, "access-token")  # of an earlier version, or of an attacker
    elsewhere()
    assert main(["restore", str(copy)]) == 0
    printed = capsys.readouterr().out
    assert "'Ada Lovelace'" in printed
    assert "1 invite" in printed
    assert "labelers invite" in printed
    assert access_token(home()) not in (token, "/etc")
    with open_store() as store:
        authenticator = Authenticator(store, Settings(access_token(home())))
        for old in (token, credential, session):
            assert asyncio.run(authenticator.of(old)) is None
        authenticator.close()
        with pytest.raises(InviteUnusable, match="revoked"):
            store.access.accept_invite(invite, "Eve")


def test_home_that_is_not_empty_is_refused(filled, tmp_path, elsewhere):
    save_backup(tmp_path / "copy")
    restored = elsewhere()
    restored.mkdir()
    (restored / "file").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        restore_backup(tmp_path / "copy")
    assert files_below(restored) == {"file": b"mine"}


def test_media_are_restored_to_the_configured_storage(filled, tmp_path, elsewhere, monkeypatch):
    save_backup(tmp_path / "copy")
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", str(tmp_path / "other"))
    restored = elsewhere()
    restore_backup(tmp_path / "copy")
    key = f"clips/{pair('a')[0]}.poses"
    assert MediaFiles(tmp_path / "other").get(key) == b"poses"
    assert not (restored / "media").exists()
    save_backup(tmp_path / "again")
    with zipfile.ZipFile(tmp_path / "again") as archive:
        assert f"media/{key}" in archive.namelist()


def test_damaged_clip_is_left_out_with_a_warning(filled, tmp_path, caplog):
    key = f"clips/{pair('a')[0]}.poses"
    truncate(home() / "media" / key)
    save_backup(tmp_path / "copy")
    assert key in caplog.text
    with zipfile.ZipFile(tmp_path / "copy") as archive:
        assert f"media/{key}" not in archive.namelist()


def test_existing_file_is_refused_and_stays(filled, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BadInput, match="mine"):
        save_backup(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.fixture
def read_only(filled):
    """Mount the home read-only, with labels in its write-ahead log."""
    folder = home()
    with closing(sqlite3.connect(folder / "labels.sqlite")) as held:
        held.execute("SELECT count(*) FROM labels").fetchone()  # or the log would be merged
        with open_store() as store:
            ids = ask_and_show(store, store.experiments.get("one").id, "c")
            store.labels.add(ids[0], Answer.LEFT, "Ada")
        mount = ["mount", "--bind", "-o", "ro", str(folder), str(folder)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("this user may not mount a file system")
        yield folder
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_read_only_home_is_backed_up_and_exported_with_its_newest_labels(
    read_only, tmp_path, elsewhere
):
    assert (read_only / "labels.sqlite-wal").stat().st_size > 0
    assert main(["export", "one", "--format", "jsonl", "--out", str(tmp_path / "labels")]) == 0
    assert main(["backup", str(tmp_path / "copy")]) == 0
    elsewhere()
    restore_backup(tmp_path / "copy")
    with open_store() as store:
        restored = labels_of(store)
    assert len(restored) == len((tmp_path / "labels").read_text().splitlines()) == 3


def test_files_are_writable_by_their_owner_only_whatever_the_umask(filled, tmp_path, elsewhere):
    before = os.umask(0)
    try:
        assert main(["backup", str(tmp_path / "new" / "copy")]) == 0
        assert main(["export", "one", "--format", "jsonl", "--out", str(tmp_path / "labels")]) == 0
        elsewhere("new/home")
        assert main(["restore", str(tmp_path / "new" / "copy")]) == 0
    finally:
        os.umask(before)
    made = [tmp_path / "labels", tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert len(made) > 10
    assert [each for each in made if each.stat().st_mode & 0o022] == []


def test_failed_backup_leaves_no_files(filled, tmp_path, monkeypatch):
    def fail(database, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_module, "save_snapshot", fail)
    assert main(["backup", str(tmp_path / "new" / "copy")]) == 2
    assert not any((tmp_path / "new").iterdir())


def test_backup_of_running_experiment_is_restored_without_its_lock(filled, tmp_path, elsewhere):
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
