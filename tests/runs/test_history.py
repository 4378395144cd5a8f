"""Tests of the history of an agent."""

import numpy as np
import pytest

from rl_teacher.agents.actions import ActionHead
from rl_teacher.agents.numpy_policy import NumpyPolicy, VectorNormaliser
from rl_teacher.common.errors import BadInput
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.nn.numpy_networks import NumpyMLP
from rl_teacher.runs.history import EpisodeVideos, PolicyHistory, is_due


def policy(value):
    """Return a policy that always takes the action `value`."""
    normaliser = VectorNormaliser.from_stats((1,), RunningMeanStd((1,)), 5.0)
    weights, bias = np.zeros((1, 1), np.float32), np.array([value], np.float32)
    head = ActionHead("gaussian", (1,), np.zeros(1, np.float32))
    return NumpyPolicy(normaliser, NumpyMLP((weights,), (bias,), "tanh"), head)


def action(history, step):
    return history.load(step)(np.zeros(1, np.float32)).item()


def moments(num_steps, rollout, moments=()):
    """Return the steps of a run that belong to its history."""
    kept = list(moments)
    for step in range(0, num_steps, rollout):
        if is_due(step, kept[-1] if kept else None, num_steps):
            kept.append(step)
    return kept


class TestIsDue:
    def test_moments_are_a_hundredth_apart_at_first_and_a_quarter_later(self):
        assert moments(1_000, 1)[:11] == [0, 10, 20, 30, 40, 50, 63, 79, 99, 124, 155]

    def test_extended_run_keeps_earlier_moments_and_adds_ten(self):
        first = moments(10_000, 10)
        longer = moments(100_000, 10, first)
        assert longer[: len(first)] == first
        assert len(longer) == len(first) + 10


class TestPolicyHistory:
    def test_policies_are_listed_by_step(self, tmp_path):
        history = PolicyHistory(tmp_path / "history")
        assert history.steps == []
        for step in (0, 20, 3):
            history.add(step, policy(step))
        assert history.steps == [0, 3, 20]
        assert [action(history, step) for step in history.steps] == [0, 3, 20]

    def test_later_and_unfinished_policies_are_dropped(self, tmp_path):
        history = PolicyHistory(tmp_path)
        for step in (0, 5, 10):
            history.add(step, policy(step))
        (tmp_path / "step-4.unfinished").mkdir()
        history.drop_after(5)
        assert sorted(each.name for each in tmp_path.iterdir()) == ["step-0", "step-5"]

    def test_missing_policy_is_refused(self, tmp_path):
        with pytest.raises(BadInput, match="no agent"):
            PolicyHistory(tmp_path).load(7)


class TestEpisodeVideos:
    def test_names_sort_by_step(self, tmp_path):
        videos = EpisodeVideos(tmp_path / "videos")
        assert videos.steps == []
        for step in (12_288, 0, 1_048_576):
            videos.add(step, b"video")
        names = sorted(each.name for each in videos.folder.iterdir())
        assert names == ["step-000000000.mp4", "step-000012288.mp4", "step-001048576.mp4"]
        assert videos.steps == [0, 12_288, 1_048_576]

    def test_later_and_unfinished_videos_are_dropped(self, tmp_path):
        videos = EpisodeVideos(tmp_path)
        for step in (0, 5, 10):
            videos.add(step, b"video")
        (tmp_path / ".step-000000004.mp4.7.7.unfinished").write_bytes(b"vid")
        (tmp_path / "step-9-of-mine.mp4").write_bytes(b"mine")
        videos.drop_after(5)
        names = sorted(each.name for each in tmp_path.iterdir())
        assert names == ["step-000000000.mp4", "step-000000005.mp4", "step-9-of-mine.mp4"]
