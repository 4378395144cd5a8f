import numpy as np
import pytest

from rl_teacher.clips.recorder import Recorder, SegmentSpans
from rl_teacher.envs.rollout import Rollout

RNG = np.random.default_rng


def rollout_of(lengths, num_steps, num_envs=2, first=0):
    """Return a rollout whose observations count steps and whose rewards number episodes."""
    time = np.arange(first, first + num_steps)
    age, episode = time % lengths, time // lengths
    tiled = np.tile(age[:, None, None], (1, num_envs, 1)).astype(np.float32)
    ended = np.tile((age == lengths - 1)[:, None], (1, num_envs))
    return Rollout(
        observations=tiled,
        actions=np.zeros((num_steps, num_envs, 1), np.float32),
        rewards=np.tile(episode[:, None], (1, num_envs)).astype(np.float32),
        next_observations=tiled + 1,
        terminated=ended,
        truncated=np.zeros_like(ended),
        is_valid=np.ones_like(ended),
        scene_states=np.zeros((num_steps, num_envs, 0)),
    )


def recorder_with(*rollouts, segment_steps=5, capacity=100, shows_ends=False):
    recorder = Recorder(
        "Test-v0", segment_steps=segment_steps, capacity=capacity, shows_ends=shows_ends
    )
    for rollout in rollouts:
        recorder.observe(rollout)
    return recorder


def test_segment_lies_within_one_episode():
    recorder = recorder_with(rollout_of(8, 80))
    for segment in recorder.segments(recorder.cut(200, RNG(0))):
        assert len(segment) == 5
        assert len(set(segment.rewards)) == 1
        np.testing.assert_array_equal(np.diff(segment.observations[:, 0]), 1)


def test_segments_span_rollouts():
    rollouts = [rollout_of(50, 3, first=3 * k) for k in range(10)]
    recorder = recorder_with(*rollouts)
    for segment in recorder.segments(recorder.cut(50, RNG(0))):
        np.testing.assert_array_equal(np.diff(segment.observations[:, 0]), 1)


def test_segment_does_not_span_a_restart_of_the_environments():
    recorder = recorder_with(rollout_of(100, 12))
    recorder.end_episodes()
    # The same step numbers again: a segment across the restart would have a jump.
    recorder.observe(rollout_of(100, 12))
    segments = recorder.segments(recorder.cut(200, RNG(0)))
    assert len(segments) == 200
    for segment in segments:
        np.testing.assert_array_equal(np.diff(segment.observations[:, 0]), 1)


def test_every_position_is_sampled():
    cuts = recorder_with(rollout_of(1000, 20)).cut(1000, RNG(0))
    assert set(cuts.first) == set(range(16))
    assert set(cuts.env) == {0, 1}


def test_short_episode_is_one_segment():
    recorder = recorder_with(rollout_of(3, 30))
    segments = recorder.segments(recorder.cut(20, RNG(0)))
    assert segments
    for segment in segments:
        np.testing.assert_array_equal(segment.observations[:, 0], [0, 1, 2])


def test_shown_ends_include_short_segments_before_termination():
    recorder = recorder_with(rollout_of(8, 80), shows_ends=True)
    segments = recorder.segments(recorder.cut(400, RNG(0)))
    assert {len(segment) for segment in segments} == {1, 2, 3, 4, 5}
    for segment in segments:
        ages = segment.observations[:, 0]
        np.testing.assert_array_equal(np.diff(ages), 1)
        assert len(segment) == 5 or ages[-1] == 7


def test_truncated_episode_has_no_short_segments():
    rollout = rollout_of(8, 80)
    by_time = {"terminated": np.zeros_like(rollout.terminated), "truncated": rollout.terminated}
    recorder = recorder_with(Rollout(**(vars(rollout) | by_time)), shows_ends=True)
    assert {len(segment) for segment in recorder.segments(recorder.cut(200, RNG(0)))} == {5}


def test_sampling_needs_enough_steps():
    assert len(Recorder("Test-v0", segment_steps=5, capacity=10).cut(4, RNG(0))) == 0
    assert len(recorder_with(rollout_of(50, 4)).cut(4, RNG(0))) == 0


def test_oldest_steps_are_overwritten():
    recorder = recorder_with(*[rollout_of(10, 7, first=7 * k) for k in range(20)], capacity=30)
    assert recorder.num_steps == 30
    oldest = min(segment.rewards[0] for segment in recorder.segments(recorder.cut(200, RNG(0))))
    assert oldest >= (140 - 30) // 10


def test_gathered_columns_equal_segments():
    recorder = recorder_with(rollout_of(3, 30))
    cuts = recorder.cut(10, RNG(0))
    observations, is_real = recorder.gather("observations", cuts)
    for row, real, segment in zip(observations, is_real, recorder.segments(cuts), strict=True):
        np.testing.assert_array_equal(row[real], segment.observations)
        np.testing.assert_array_equal(row[~real], 2)


def test_reset_steps_are_never_in_segment():
    rollout = rollout_of(6, 60)
    is_valid = rollout.observations[..., 0] != 0
    recorder = recorder_with(Rollout(**(vars(rollout) | {"is_valid": is_valid})))
    for segment in recorder.segments(recorder.cut(100, RNG(0))):
        assert 0 not in segment.observations


@pytest.mark.parametrize("capacity", [20, 33])
def test_restored_recorder_samples_equally(capacity):
    one = recorder_with(*[rollout_of(10, 7, first=7 * k) for k in range(9)], capacity=capacity)
    other = Recorder("Test-v0", segment_steps=5, capacity=capacity)
    other.load_state(one.state())
    hashes = [
        [segment.content_hash for segment in recorder.segments(recorder.cut(30, RNG(0)))]
        for recorder in (one, other)
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("num_rollouts", [2, 4])
@pytest.mark.parametrize("capacity", [10, 20, 25, 40])
def test_restoration_into_another_capacity_keeps_newest_steps_in_order(num_rollouts, capacity):
    """A resumed wrapper may have another number of labels, which sets the capacity."""
    rollouts = [rollout_of(100, 7, first=7 * k) for k in range(num_rollouts)]
    saved = recorder_with(*rollouts, capacity=20)
    restored = Recorder("Test-v0", segment_steps=5, capacity=capacity)
    restored.load_state(saved.state())
    written = 7 * num_rollouts
    restored.observe(rollout_of(100, 3, first=written))
    num_kept = min(capacity, min(20, written) + 3)
    assert restored.num_steps == num_kept
    span = SegmentSpans(np.array([0]), np.array([1]), np.array([num_kept]))
    (segment,) = restored.segments(span)
    expected = np.arange(written + 3 - num_kept, written + 3)
    np.testing.assert_array_equal(segment.observations[:, 0], expected)
