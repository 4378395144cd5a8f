import dataclasses

import numpy as np
import pytest

from rl_teacher.clips.segment import Segment, frame_steps

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
    ("num_steps", "fps", "steps", "shown_fps"),
    [
        (4, 20.0, [0, 1, 2, 3], 20.0),
        (4, 30.0, [0, 1, 2, 3], 30.0),
        (5, 40.0, [0, 2, 4], 20.0),
        (6, 50.0, [0, 2, 4], 25.0),
        (7, 67.0, [0, 3, 6], 67 / 3),
        (1, 125.0, [0], 25.0),
    ],
)
def test_clips_have_at_most_thirty_frames_per_second(num_steps, fps, steps, shown_fps):
    indices, frames_fps = frame_steps(num_steps, fps)
    assert indices.tolist() == steps
    assert frames_fps == pytest.approx(shown_fps)
