"""Vector environment of Atari games."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.common.errors import BadConfig, CorruptCheckpoint
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.rules import MONTEZUMAS_LADDER
from rl_teacher.envs.registry import env_spaces, mujoco_model
from tests.envs.atari.rollouts import make_games, take_random_steps

GAMES = ("Adventure", "BattleZone", "BeamRider", "ElevatorAction", "MsPacman")
OTHERS = ("Pitfall", "TicTacToe3D", "Tetris", "Qbert", "UpNDown")


@pytest.mark.parametrize("name", [*GAMES, *OTHERS])
def test_games_have_image_and_discrete_action_spaces(name):
    with_sticky = env_spaces(f"ALE/{name}-v5")
    observations, actions = env_spaces(f"{name}-v0")
    assert (observations, actions) == with_sticky
    assert observations.shape == (4, 42, 42)
    assert observations.dtype == np.uint8
    assert 3 <= actions.n <= 18
    assert mujoco_model(f"{name}-v0") is None


@pytest.mark.parametrize(
    ("frames", "shape"),
    [
        (FrameSettings(stacked=0), (1, 42, 42)),
        (FrameSettings(stacked=2, size=42), (2, 42, 42)),
        (FrameSettings(stacked=3, size=0, grey=False), (9, 210, 160)),
        (FrameSettings(stacked=2, size=200), (2, 200, 160)),
        (FrameSettings(stacked=1, size=300), (1, 210, 160)),
    ],
)
def test_images_have_requested_shape_with_newest_last(frames, shape):
    envs = make_games("Breakout-v0", 2, frames=frames)
    assert envs.single_observation_space.shape == shape
    rollout = take_random_steps(envs, 12)
    assert rollout["observations"].shape == (12, 2, *shape)
    channels_of_image = 1 if frames.grey else 3
    older, newer = rollout["observations"][6:-1], rollout["observations"][7:]
    np.testing.assert_array_equal(older[:, :, channels_of_image:], newer[:, :, :-channels_of_image])
    assert (older[:, :, -channels_of_image:] != newer[:, :, -channels_of_image:]).any()


def test_rollout_does_not_depend_on_number_of_threads(rule):
    rule("Breakout", max_episode_steps=12)
    one, two = (take_random_steps(make_games("Breakout-v0", 3, threads), 30) for threads in (1, 2))
    for name, column in one.items():
        np.testing.assert_array_equal(column, two[name])
    first = one["observations"][:, 0]
    assert (first != one["observations"][:, 1]).any()
    assert (first[0] != first[12]).any()  # each episode starts at another place


def test_ale_id_plays_sticky_actions():
    plain, sticky, second_sticky = (
        take_random_steps(make_games(env_id), 40)
        for env_id in ("Pong-v0", "ALE/Pong-v5", "ALE/Pong-v5")
    )
    np.testing.assert_array_equal(sticky["observations"], second_sticky["observations"])
    assert (plain["observations"] != sticky["observations"]).any()


def test_truncated_episode_resets_in_same_step(rule):
    rule("Pong", max_episode_steps=10)
    envs = make_games("Pong-v0", 2)
    envs.reset(seed=1, options={"elapsed_steps": [0, 4]})
    for _ in range(5):
        *_, infos = envs.step(np.array([2, 3]))
        assert "final_obs" not in infos
    observations, _, terminated, truncated, infos = envs.step(np.array([2, 3]))
    np.testing.assert_array_equal(truncated, [False, True])
    np.testing.assert_array_equal(infos["_final_obs"], truncated)
    assert not terminated.any()
    np.testing.assert_array_equal(infos["final_obs"][0], observations[0])
    assert (infos["final_obs"][1] != observations[1]).any()
    # Each environment numbers its own episodes: 0, 2, 4 and 1, 3, 5.
    np.testing.assert_array_equal(envs.scene_states, [[0, 6], [3, 0]])
    assert len(envs.replay_record(1)) == 6


def test_episode_terminates_below_min_lives(rule):
    rule("Breakout", min_lives=5)
    envs = make_games("Breakout-v0")
    envs.reset(seed=0)
    lives = []
    terminated = truncated = np.zeros(1, bool)
    while not terminated[0] and len(lives) < 120:
        *_, terminated, truncated, infos = envs.step(np.array([1]))
        lives.append(int(infos["lives"][0]))
    assert terminated[0]
    assert not truncated[0]
    assert lives == [5] * (len(lives) - 1) + [4]


@pytest.mark.parametrize("hidden", [False, True])
def test_lost_life_is_reported_within_episode_unless_ends_are_hidden(hidden):
    collector = Collector(make_games("Breakout-v0", 2), seed=0, hide_terminations=hidden)
    rollout = collector.collect(lambda observations: np.ones(len(observations), int), 80)
    assert not rollout.ended.any()
    if hidden:
        assert rollout.lost_life is None
    else:
        # Without moving, an agent that launches each ball at once loses a life every 25 steps.
        np.testing.assert_array_equal(rollout.lost_life.sum(0) > 1, True)
        assert rollout.lost_life.sum() == 2 * 5 - collector.venv.get_state()["lives"].sum()


# --- start points ---


def test_episode_starts_after_start_point_actions(rule):
    rule("Pong", start_points=((2,) * 6,), max_episode_steps=15)
    first, other = (make_games("Pong-v0", 1) for _ in range(2))
    for envs, ignored in ((first, 0), (other, 3)):
        _, infos = envs.reset(seed=4)
        ignores = [infos["ignores_action"][0]]
        for _ in range(6):
            _, rewards, *_, infos = envs.step(np.array([ignored]))
            ignores.append(infos["ignores_action"][0])
            assert rewards[0] == 0
        assert ignores == [True] * 6 + [False]
        np.testing.assert_array_equal(envs.scene_states, [[0, 0]])
    np.testing.assert_array_equal(first.observations, other.observations)
    rule("Pong")
    plain = make_games("Pong-v0", 1)
    plain.reset(seed=4)
    for _ in range(6):
        plain.step(np.array([2]))
    np.testing.assert_array_equal(first.observations, plain.observations)


def test_montezuma_start_point_is_foot_of_right_ladder(rule):
    rule("MontezumaRevenge", start_points=(MONTEZUMAS_LADDER,))
    envs = make_games("MontezumaRevenge-v0", 3, frames=FrameSettings(stacked=1, size=0, grey=False))
    _, infos = envs.reset(seed=11)
    while infos["ignores_action"].any():
        *_, infos = envs.step(np.zeros(3, int))
    np.testing.assert_array_equal(infos["lives"], 6)
    red, green, _ = envs.observations.astype(int).transpose(1, 0, 2, 3)
    for env in range(3):
        coat = (red[env, 46:] == 200) & (green[env, 46:] == 72)
        row, column = np.argwhere(coat).mean(0)
        assert 160 < row + 46 < 180
        assert 128 < column < 140


def test_steps_towards_start_point_are_invalid(rule):
    rule("Pong", start_points=((2, 2, 2),), max_episode_steps=4)
    collector = Collector(make_games("Pong-v0", 2), seed=0)
    rollout = collector.collect(collector.random_actions, 14)
    np.testing.assert_array_equal(rollout.is_valid[:, 0], [0, 0, 0, 1, 1, 1, 1] * 2)
    np.testing.assert_array_equal(np.flatnonzero(rollout.ended[:, 1]), [6, 13])
    np.testing.assert_array_equal(rollout.scene_states[3:7, 0, 1], [0, 1, 2, 3])
    assert rollout.num_steps == 16


# --- saving and restoring ---


def test_restored_state_with_different_episode_lengths_continues_exactly(rule):
    rule("Breakout", max_episode_steps=14, start_points=((), (1, 2, 3, 1, 2, 3)))
    envs, restored = make_games("Breakout-v0", 4), make_games("Breakout-v0", 4, num_threads=2)
    take_random_steps(envs, 23, options={"elapsed_steps": [0, 5, 9, 13]})
    assert len(set(envs.scene_states[:, 1])) > 2
    restored.set_state(envs.get_state())
    np.testing.assert_array_equal(restored.observations, envs.observations)
    expected, actual = (take_random_steps(each, 30, is_reset=False) for each in (envs, restored))
    for name, column in expected.items():
        np.testing.assert_array_equal(column, actual[name])


@pytest.mark.parametrize("num_steps", [0, 10])
def test_state_restored_at_episode_start_continues_exactly(rule, num_steps):
    rule("Pong", max_episode_steps=10)
    envs, restored = make_games("Pong-v0", 2), make_games("Pong-v0", 2)
    take_random_steps(envs, num_steps, options={"elapsed_steps": [0, 3]})
    restored.set_state(envs.get_state())
    expected, actual = (take_random_steps(each, 8, is_reset=False) for each in (envs, restored))
    np.testing.assert_array_equal(expected["now"], actual["now"])
    np.testing.assert_array_equal(expected["scenes"], actual["scenes"])


def test_replay_records_are_kept_for_keep_steps(rule):
    rule("Pong", max_episode_steps=5)
    envs, restored = make_games("Pong-v0", keep_steps=8), make_games("Pong-v0", keep_steps=8)
    take_random_steps(envs, 11)
    restored.set_state(envs.get_state())
    np.testing.assert_array_equal(restored.replay_record(1).actions, envs.replay_record(1).actions)
    take_random_steps(envs, 5, is_reset=False)
    with pytest.raises(LookupError, match="keep_steps"):
        envs.replay_record(0)


def test_state_of_other_frame_settings_is_refused():
    envs, other = make_games("Pong-v0"), make_games("Pong-v0", frames=FrameSettings(stacked=2))
    take_random_steps(envs, 1)
    with pytest.raises(CorruptCheckpoint, match="preprocessing"):
        other.set_state(envs.get_state())


# --- validation ---


def test_invalid_actions_are_refused():
    envs = make_games("Pong-v0", 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="0 to 5 are valid"):
        envs.step(np.array([0, 6]))
    with pytest.raises(ValueError, match=r"\(2,\) is needed"):
        envs.step(np.array([0]))
    with pytest.raises(BadConfig, match="at least 1"):
        make_games("Pong-v0", 0)
