"""Stacked images sent with each frame once are the images that were given."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.cluster.frame_stacks import FrameStacks


def stacked(seed, num_steps, num_envs, num_frames, frame):
    """Return [T, S, C, 2, 3] stacks of random frames, and where episodes start."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(1, 256, (num_steps, num_envs, frame, 2, 3), dtype=np.uint8)
    starts = rng.random((num_steps, num_envs)) < 0.2
    starts[0] = True
    stacks = np.zeros((num_steps, num_envs, num_frames * frame, 2, 3), np.uint8)
    for t in range(num_steps):
        if t > 0:
            stacks[t, :, :-frame] = stacks[t - 1, :, frame:]
        stacks[t, starts[t]] = 0
        stacks[t, :, -frame:] = frames[t]
    return stacks, starts


@given(
    seed=st.integers(0, 1_000),
    num_steps=st.integers(1, 8),
    num_envs=st.integers(1, 3),
    num_frames=st.integers(2, 4),
    frame=st.sampled_from([1, 3]),
)
def test_unpacked_images_are_the_packed_ones(seed, num_steps, num_envs, num_frames, frame):
    images, starts = stacked(seed, num_steps, num_envs, num_frames, frame)
    packed = FrameStacks.of(images, frame)
    assert packed.newest.shape[2] == frame
    # An episode that starts after black frames may look like a continued one.
    assert 0 < len(packed.stacks) <= starts.sum()
    unpacked = np.ones_like(images)
    packed.unpack(unpacked)
    np.testing.assert_array_equal(unpacked, images)


@pytest.mark.parametrize("num_steps", [1, 16])
def test_continued_stacks_are_sent_once(num_steps):
    frames = np.arange(num_steps + 3, dtype=np.uint8)[:, None, None, None, None]
    images = np.concatenate([frames[i : i + num_steps] for i in range(4)], axis=2)
    packed = FrameStacks.of(images, 1)
    assert packed.newest.nbytes == num_steps
    assert (packed.times.tolist(), packed.envs.tolist()) == ([0], [0])
    np.testing.assert_array_equal(packed.stacks[0, :, 0, 0], [0, 1, 2, 3])
