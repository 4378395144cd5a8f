import dataclasses

import numpy as np
import pytest

from rl_teacher.clips.segment import Segment, frame_steps, playback_speed

SEGMENT = Segment(
    env_id="Test-v0",
    observations=np.arange(6, dtype=np.float32).reshape(3, 2),
    actions=np.zeros((3, 1), np.float32),
    rewards=np.array([1, 2, 3.5], np.float32),
    scene_states=np.zeros((3, 0)),
)


def test_true_return_is_sum_of_rewards():
    assert SEGMENT.true_return == pytest.approx(6.5)


def test_equal_content_has_equal_hash():
    copy = dataclasses.replace(SEGMENT, observations=SEGMENT.observations.copy())
    assert copy.content_hash == SEGMENT.content_hash


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_changed_content_changes_hash(name):
    changed = getattr(SEGMENT, name).copy()
    changed.flat[0] += 1
    assert dataclasses.replace(SEGMENT, **{name: changed}).content_hash != SEGMENT.content_hash


def test_other_environment_changes_hash():
    assert dataclasses.replace(SEGMENT, env_id="Other").content_hash != SEGMENT.content_hash


@pytest.mark.parametrize(
    ("num_steps", "fps", "stride", "shown_fps"),
    [
        (21, 20.0, 1, 20.0),
        (31, 30.0, 1, 30.0),
        (40, 40.0, 2, 20.0),
        (60, 50.0, 2, 25.0),
        (67, 67.0, 3, 67 / 3),
        (125, 125.0, 5, 25.0),
    ],
)
def test_clips_have_at_most_thirty_frames_per_second(num_steps, fps, stride, shown_fps):
    indices, frames_fps = frame_steps(num_steps, fps)
    assert indices.tolist() == list(range(0, num_steps, stride))
    assert frames_fps == pytest.approx(shown_fps)


@pytest.mark.parametrize(("num_steps", "fps"), [(1, 125.0), (6, 50.0), (49, 50.0)])
def test_clip_under_a_second_shows_every_step(num_steps, fps):
    indices, frames_fps = frame_steps(num_steps, fps)
    assert indices.tolist() == list(range(num_steps))
    assert frames_fps == fps


@pytest.mark.parametrize(
    ("duration_s", "speed"), [(0.0, 1 / 16), (0.01, 1 / 16), (0.25, 0.25), (1.0, 1.0), (9.0, 1.0)]
)
def test_clip_under_a_second_is_slowed_down_to_a_second(duration_s, speed):
    assert playback_speed(duration_s) == speed
