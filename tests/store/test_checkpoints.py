"""Tests of intact and damaged checkpoints."""

import logging

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.store.checkpoints import Checkpoint, CheckpointFiles, list_checkpoints

dtypes = st.sampled_from(
    [np.float64, np.float32, np.uint32, np.uint64, np.int64, np.bool_, np.uint8, np.float16]
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name != "__metadata__"
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def make(step):
    return Checkpoint(step, {"agent/policy/0": np.full(1000, step, np.float32)}, {"seed": step})


@pytest.fixture
def files(tmp_path):
    return CheckpointFiles(tmp_path / "checkpoints")


def newest(files):
    checkpoint = files.load()
    assert checkpoint is not None
    return checkpoint


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def test_recorded_images_are_compressed_and_restored(files):
    rng = np.random.default_rng(0)
    images = np.zeros((20, 4, 4, 84, 84), np.uint8)
    images[..., 40:44, 40:44] = rng.integers(0, 256, (20, 4, 4, 4, 4))
    noise = rng.normal(size=(3, 5))
    path = files.save(Checkpoint(1, {"rewards/observations": images, "agent/noise": noise}, {}))
    assert path.stat().st_size < images.nbytes / 20
    restored = newest(files).arrays
    np.testing.assert_array_equal(restored["rewards/observations"], images)
    np.testing.assert_array_equal(restored["agent/noise"], noise)
    assert restored["rewards/observations"].flags.writeable


def test_uniform_images_are_restored_and_not_taken_for_a_bomb(files):
    files.save(Checkpoint(1, {"images": np.zeros(2**25, np.uint8)}, {}))
    assert newest(files).arrays["images"].shape == (2**25,)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    named=st.dictionaries(paths, arrays, max_size=4),
    meta=st.dictionaries(st.text(), json_values, max_size=3),
)
def test_arrays_and_meta_round_trip_exactly(tmp_path_factory, named, meta):
    files = CheckpointFiles(tmp_path_factory.mktemp("checkpoints"))
    files.save(Checkpoint(7, named, meta))
    loaded = newest(files)
    assert (loaded.step, loaded.meta) == (7, meta)
    assert {name: as_bits(array) for name, array in loaded.arrays.items()} == {
        name: as_bits(array) for name, array in named.items()
    }


def as_bits(array):
    return array.dtype, array.shape, array.tobytes()


def test_last_two_checkpoints_are_kept(files):
    for step in (10, 20, 30):
        files.save(make(step))
    assert [file.step for file in list_checkpoints(files.folder)] == [30, 20]


@pytest.mark.parametrize("damage", [flip_a_byte, truncate, empty])
def test_damaged_newest_checkpoint_falls_back_with_warning(files, damage, caplog):
    files.save(make(10))
    damage(files.save(make(20)))
    with caplog.at_level(logging.WARNING):
        assert newest(files).step == 10
    assert "step 20 is damaged" in caplog.text
    assert "The one before it is used instead" in caplog.text


@pytest.mark.parametrize("damage", [flip_a_byte, truncate, empty])
def test_all_checkpoints_damaged_raises_error_with_remedy(files, damage):
    damage(files.save(make(10)))
    damage(files.save(make(20)))
    with pytest.raises(CorruptCheckpoint, match=r"None of the 2 checkpoints.*rl-teacher delete"):
        files.load()


def test_intact_older_checkpoint_survives_next_save(files):
    files.save(make(10))
    damaged = files.save(make(20))
    flip_a_byte(damaged)
    files.load()
    flip_a_byte(files.save(make(15)))
    assert not damaged.exists()
    assert newest(files).step == 10


def test_unfinished_files_of_killed_process_are_deleted(files):
    files.save(make(10))
    (files.folder / ".checkpoint-000002.1234.1.unfinished").write_bytes(b"half")
    files.clear_unfinished()
    assert [path.name.startswith("checkpoint-") for path in files.folder.iterdir()] == [True]
