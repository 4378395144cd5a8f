import numpy as np

from rl_teacher.agents import replay
from rl_teacher.agents.replay import ReplayBuffer
from rl_teacher.envs.rollout import Rollout


def rollout_of(numbers, is_valid=None):
    """Create a rollout of one environment in which every array holds the number of its step."""
    numbers = np.asarray(numbers, np.float32)[:, None]
    steps = numbers[..., None]
    never = np.zeros(numbers.shape, bool)
    return Rollout(
        observations=np.repeat(steps, 2, axis=-1),
        actions=steps,
        rewards=numbers,
        next_observations=np.repeat(steps + 1, 2, axis=-1),
        terminated=numbers % 2 == 1,
        truncated=never,
        is_valid=~never if is_valid is None else np.asarray(is_valid)[:, None],
        scene_states=np.empty((*numbers.shape, 0)),
    )


def buffer_after(*rollouts, capacity=5):
    buffer = ReplayBuffer(capacity, (2,), (1,))
    for rollout in rollouts:
        buffer.add(rollout, rollout.rewards)
    return buffer


def test_full_buffer_overwrites_oldest_steps():
    buffer = buffer_after(rollout_of([0, 1, 2]), rollout_of([3, 4, 5, 6]))
    assert len(buffer) == 5
    assert buffer.num_added == 7
    assert buffer.state()["rewards"].tolist() == [5, 6, 2, 3, 4]


def test_relabel_changes_only_rewards(monkeypatch):
    monkeypatch.setattr(replay, "CHUNK", 2)
    buffer = buffer_after(rollout_of([0, 1, 2]))
    before = buffer.state()
    buffer.relabel(lambda observations, actions: 10 * observations[:, 0] + actions[:, 0])
    after = buffer.state()
    assert after["rewards"].tolist() == [0, 11, 22]
    for name in before.keys() - {"rewards"}:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)


def test_restored_buffer_continues_at_same_position():
    buffer = buffer_after(rollout_of(range(7)))
    other = ReplayBuffer(5, (2,), (1,))
    other.load_state(buffer.state())
    for each in (buffer, other):
        each.add(rollout_of([7, 8]), rollout_of([7, 8]).rewards)
        assert each.state()["rewards"].tolist() == [5, 6, 7, 8, 4]
