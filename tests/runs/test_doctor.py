import sqlite3
from contextlib import closing

import numpy as np
import pytest
from sqlalchemy import text

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.store.checkpoints import Checkpoint
from rl_teacher.store.media import MediaFiles, SegmentFiles
from rl_teacher.store.records import RenderedClip
from tests.runs.test_backup import alter
from tests.store.comparisons import clip

ENV_ID = "ShortHopper-v1"
SCENE = clip("scene")
ONLY_SQLITE = pytest.mark.parametrize("hashes", ["sqlite"], indirect=True)


def segment(number):
    steps = np.full((3, 2), number, np.float32)
    return Segment(ENV_ID, steps, steps, steps[:, 0], steps.astype(np.float64))


def publish(store, hashes):
    files = MediaFiles(home() / "media")
    files.put(f"scenes/{SCENE}.json", b"scene")
    for each in hashes:
        files.put(f"clips/{each}.poses", b"poses")
    key = "clips/{}.poses"
    rendered = {
        each: RenderedClip(ENV_ID, 3, "poses", key.format(each), SCENE, 3, 20.0) for each in hashes
    }
    store.clips.publish(rendered)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def hashes(request, make_database, monkeypatch):
    """Make a sound home on both databases; return the hashes of its clips.

    Of two comparisons, the first is answered.
    """
    if request.param == "postgres":
        url = request.getfixturevalue("shared_postgres_url")
        monkeypatch.setenv("RL_TEACHER_DATABASE_URL", url)
        home().mkdir(mode=0o700)
    else:
        home().mkdir(mode=0o700)
        make_database(home() / "labels.sqlite").chmod(0o600)
    segments = [segment(number) for number in range(4)]
    (home() / "segments").mkdir()
    for each in segments:
        SegmentFiles(home() / "segments").save(each)
    hashes = [each.content_hash for each in segments]
    with open_store() as store:
        experiment_id = store.experiments.ensure("one", ENV_ID, {"name": "one"})
        pairs = [(hashes[0], hashes[1]), (hashes[2], hashes[3])]
        ids = store.comparisons.add(experiment_id, pairs, ENV_ID, 3, 0)
        publish(store, hashes)
        store.labels.add(ids[0], Answer.LEFT, "Ada")
        store.labels.add(ids[0], Answer.RIGHT, "Ben")
    with Experiment.open("one", {"name": "one"}) as experiment:
        for step in (7, 8):
            experiment.checkpoints.save(Checkpoint(step, {"weights": np.arange(3)}, {}))
    return hashes


def execute(statement):
    with open_store() as store, store.database.writing() as connection:
        connection.execute(text(statement))


def first_line(printed, word):
    return next(line for line in printed.splitlines() if line.startswith(word))


def examine(capsys):
    code = main(["doctor"])
    return code, capsys.readouterr().out


def assert_sound(capsys):
    code, printed = examine(capsys)
    assert code == 0, printed
    assert "fault" not in printed


WRONG_COUNTS = [
    "UPDATE comparisons SET num_labels = 7 WHERE num_labels = 2",
    "UPDATE experiments SET num_asked = 9",
    "DELETE FROM tallies",
]


@pytest.mark.parametrize("statement", WRONG_COUNTS)
def test_wrong_counts_are_found(hashes, statement, capsys):
    execute(statement)
    code, printed = examine(capsys)
    assert code == 1
    assert first_line(printed, "fault: counts")


@pytest.mark.parametrize("name", ["clip", "scene"])
@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_damaged_clip_is_found(hashes, name, damage, capsys):
    path = home() / "media" / "clips" / f"{hashes[3]}.poses"
    if name == "scene":
        path = home() / "media" / "scenes" / f"{SCENE}.json"
    path.unlink() if damage == "missing" else alter(path)
    code, printed = examine(capsys)
    assert code == 1
    assert path.name in first_line(printed, "fault: clips")


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_damaged_segment_is_found(hashes, damage, capsys):
    path = home() / "segments" / ENV_ID / f"{hashes[0]}.safetensors"
    path.unlink() if damage == "missing" else alter(path)
    code, printed = examine(capsys)
    assert code == 1
    assert "experiment one" in first_line(printed, "fault: segments")


@pytest.mark.parametrize("name", ["config.json", "checkpoints/checkpoint-000001*"])
def test_damaged_file_of_a_run_is_found(hashes, name, capsys):
    assert_sound(capsys)
    [path] = (home() / "experiments" / "one").glob(name)
    path.write_text("{")
    code, printed = examine(capsys)
    assert code == 1
    assert path.name in first_line(printed, "fault: run folders")


@ONLY_SQLITE
def test_segments_of_other_homes_are_not_missed_in_a_shared_database(
    hashes, tmp_path, capsys, monkeypatch
):
    database = tmp_path / "shared.sqlite"
    (home() / "labels.sqlite").rename(database)
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", str(database))
    assert_sound(capsys)
    with open_store() as store:
        others = store.experiments.ensure("of another home", ENV_ID, {})
        store.comparisons.add(others, [(clip("x"), clip("y"))], ENV_ID, 3, 0)
    assert_sound(capsys)
    next((home() / "segments").rglob(f"{hashes[0]}*")).unlink()
    code, printed = examine(capsys)
    assert code == 1
    assert f"experiment one: The segment {hashes[0]} is not in" in printed


@pytest.fixture
def file(hashes):
    """Return the SQLite file of a sound home."""
    path = home() / "labels.sqlite"
    with open_store() as store, store.database.writing() as connection:
        connection.execute(text("SELECT 1"))
    return path


@ONLY_SQLITE
def test_damaged_database_is_found_and_not_opened(file, capsys):
    content = bytearray(file.read_bytes())
    # The pages after the first; the header stays readable.
    content[8_192:40_000] = bytes(40_000 - 8_192)
    file.write_bytes(bytes(content))
    code, printed = examine(capsys)
    assert code == 1
    assert file.name in first_line(printed, "fault: database")
    assert "counts" not in printed


@ONLY_SQLITE
def test_missing_database_is_found_and_not_created(file, capsys):
    file.unlink()
    code, printed = examine(capsys)
    assert code == 1
    assert file.name in first_line(printed, "fault: database")
    assert not file.exists()


@ONLY_SQLITE
def test_row_that_refers_to_a_missing_one_is_found(file, capsys):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM labelers WHERE name = 'Ada'")
        connection.commit()
    code, printed = examine(capsys)
    assert code == 1
    assert "a row of labels refers to a missing one" in printed


def test_missing_home_is_refused(capsys):
    assert main(["doctor"]) == 2
    assert str(home()) in capsys.readouterr().err
