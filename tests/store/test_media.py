"""Tests of segment files."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import CorruptCheckpoint
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


def test_unknown_segment_raises_corrupt_checkpoint(files):
    with pytest.raises(CorruptCheckpoint, match="is not in"):
        files.load("0" * 64)


@pytest.mark.parametrize("content_hash", ["", "../../etc/passwd", "*", "A" * 64, "0" * 63])
def test_invalid_hash_is_refused(files, content_hash):
    with pytest.raises(CorruptCheckpoint, match="is not the hash of a segment"):
        files.load(content_hash)
