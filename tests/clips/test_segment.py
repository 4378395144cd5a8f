import dataclasses

import numpy as np
import pytest

from rl_teacher.clips.segment import Segment

SEGMENT = Segment(
    env_id="Test-v0",
    observations=np.arange(6, dtype=np.float32).reshape(3, 2),
    actions=np.zeros((3, 1), np.float32),
    rewards=np.array([1, 2, 3.5], np.float32),
    scene_states=np.zeros((3, 0)),
)


def test_its_true_return_is_the_sum_of_its_rewards():
    assert SEGMENT.true_return == pytest.approx(6.5)


def test_equal_content_has_an_equal_name():
    copy = dataclasses.replace(SEGMENT, observations=SEGMENT.observations.copy())
    assert copy.content_hash == SEGMENT.content_hash


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_any_other_content_has_another_name(name):
    changed = getattr(SEGMENT, name).copy()
    changed.flat[0] += 1
    assert dataclasses.replace(SEGMENT, **{name: changed}).content_hash != SEGMENT.content_hash


def test_the_same_arrays_of_another_environment_have_another_name():
    assert dataclasses.replace(SEGMENT, env_id="Other").content_hash != SEGMENT.content_hash
