"""Tests of segment files."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.common.errors import CorruptCheckpoint, RunFolderUnusable
from rl_teacher.common.files import TEMPORARY_SUFFIX, pack
from rl_teacher.store.media import SegmentFiles, slug


def make_segment(env_id="Hopper-v5", num_steps=30, scene_size=6, seed=0):
    rng = np.random.default_rng(seed)
    return Segment(
        env_id=env_id,
        observations=rng.normal(size=(num_steps, 11)).astype(np.float32),
        actions=rng.normal(size=(num_steps, 3)).astype(np.float32),
        rewards=rng.normal(size=num_steps).astype(np.float32),
        scene_states=rng.normal(size=(num_steps, scene_size)),
    )


def assert_same(one, other):
    assert one.env_id == other.env_id
    assert one.content_hash == other.content_hash
    for field in ("observations", "actions", "rewards", "scene_states"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        assert getattr(one, field).dtype == getattr(other, field).dtype


@pytest.fixture
def files(tmp_path):
    return SegmentFiles(tmp_path / "segments")


def only_file(files):
    [path] = [path for path in files.folder.rglob("*") if path.is_file()]
    return path


def test_saved_segment_loads_unchanged(files):
    segment = make_segment()
    files.save(segment)
    assert_same(files.load(segment.content_hash), segment)


@pytest.mark.parametrize(
    "env_id",
    ["ALE/Pong-v5", "my.module:Env-v0", "环境/ünï", "..", ".", "", "a" * 300, "con\\x", "  ", "-"],
)
def test_any_environment_id_is_accepted(files, env_id):
    segment = make_segment(env_id)
    files.save(segment)
    assert_same(SegmentFiles(files.folder).load(segment.content_hash), segment)
    assert only_file(files).parent.parent == files.folder


def test_folder_of_an_environment_never_looks_temporary():
    assert not slug("Hopper.unfinished").endswith(TEMPORARY_SUFFIX)


@given(one=st.text(max_size=30), other=st.text(max_size=30))
def test_environments_have_separate_folders(one, other):
    assert (slug(one) == slug(other)) == (one == other)


def test_discrete_actions_and_images_without_scene_round_trip(files):
    segment = dataclasses.replace(
        make_segment(scene_size=0),
        observations=np.arange(30 * 84 * 84, dtype=np.uint8).reshape(30, 84, 84),
        actions=np.arange(30, dtype=np.int64),
    )
    files.save(segment)
    assert_same(files.load(segment.content_hash), segment)


def test_array_view_loads_unchanged(files):
    every = np.arange(400, dtype=np.float32).reshape(2, 100, 2).transpose(1, 0, 2)
    segment = dataclasses.replace(make_segment(), observations=every[10:40, 1])
    files.save(segment)
    assert_same(files.load(segment.content_hash), segment)


def test_second_save_leaves_file_untouched(files):
    segment = make_segment()
    files.save(segment)
    before = only_file(files).stat()
    files.save(segment)
    assert only_file(files).stat().st_mtime_ns == before.st_mtime_ns
    assert only_file(files).stat().st_ino == before.st_ino


def test_second_save_repairs_truncated_file(files):
    segment = make_segment()
    files.save(segment)
    only_file(files).write_bytes(only_file(files).read_bytes()[:100])
    files.save(segment)
    assert_same(files.load(segment.content_hash), segment)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bit_never_returns_other_segment(files, place, bit):
    segment = make_segment(num_steps=4)
    files.save(segment)
    path = only_file(files)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[int(place * len(whole))] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        assert_same(files.load(segment.content_hash), segment)
    except CorruptCheckpoint:
        pass
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("kept_bytes", [0, 7, 8, 200, -1])
def test_truncated_file_is_detected(files, kept_bytes):
    segment = make_segment()
    files.save(segment)
    only_file(files).write_bytes(only_file(files).read_bytes()[:kept_bytes])
    with pytest.raises(CorruptCheckpoint, match="is not what was written"):
        files.load(segment.content_hash)


def test_file_with_name_of_another_segment_is_detected(files):
    one, other = make_segment(seed=1), make_segment(seed=2)
    files.save(one)
    only_file(files).rename(only_file(files).with_name(f"{other.content_hash}.safetensors"))
    with pytest.raises(CorruptCheckpoint, match="another hash"):
        files.load(other.content_hash)


def test_unknown_segment_raises_corrupt_checkpoint(files):
    with pytest.raises(CorruptCheckpoint, match="is not in"):
        files.load("0" * 64)


@pytest.mark.parametrize("content_hash", ["", "../../etc/passwd", "*", "A" * 64, "0" * 63])
def test_invalid_hash_is_refused(files, content_hash):
    with pytest.raises(CorruptCheckpoint, match="is not the hash of a segment"):
        files.load(content_hash)


def test_file_in_place_of_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderUnusable, match="a file is where a folder is needed"):
        SegmentFiles(tmp_path / "file" / "segments").save(make_segment())


def test_no_temporary_files_remain(files):
    for seed in range(5):
        files.save(make_segment(seed=seed))
    assert len([path for path in files.folder.rglob("*") if path.is_file()]) == 5


def test_segment_without_text_for_its_environment_is_refused(files):
    arrays = {name: np.zeros((3, 1), np.float32) for name in SEGMENT_ARRAYS}
    path = files.folder / "a" / f"{'0' * 64}.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(pack(arrays, {"env_id": 3}))
    with pytest.raises(CorruptCheckpoint, match="is not what was written"):
        files.load("0" * 64)
