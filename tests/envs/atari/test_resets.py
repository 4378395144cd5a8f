"""Where episodes of Atari games begin: at a place after a seed, whatever was played before."""

# pyright: reportAttributeAccessIssue=false

import ale_py
import numpy as np
import pytest
from ale_py import roms

from rl_teacher.envs.atari import vector
from rl_teacher.envs.atari.rules import RETAINS_MEMORY
from tests.envs.atari.rollouts import games, lived

FOR_TWO = {"combat", "joust", "maze_craze", "warlords"}
OTHERS = sorted(set(roms.get_all_rom_ids()) - FOR_TWO - RETAINS_MEMORY)


def warm_start(envs, num_episodes):
    """Seed and place of the first episodes of the only environment."""
    return [
        (each["seed"], each["place"])
        for each in (envs.replay_record(number).reset_state for number in range(num_episodes))
    ]


def test_some_episodes_share_a_seed_until_another_is_drawn(rule, monkeypatch):
    monkeypatch.setattr(vector, "EPISODES_PER_SEED", 3)
    rule("Pong", max_episode_steps=2)
    envs = games("Pong-v0")
    lived(envs, 9)
    seeds, places = zip(*warm_start(envs, 5), strict=True)
    assert places == (0, 1, 2, 0, 1)
    assert len(set(seeds)) == 2
    assert seeds[:3] == (seeds[0],) * 3
    envs.reset(seed=3)
    assert envs.replay_record(5).reset_state["place"] == 0


@pytest.mark.parametrize(
    ("env_id", "name"), [("ALE/Pong-v5", "Pong"), ("KungFuMaster-v0", "KungFuMaster")]
)
def test_where_play_changes_what_comes_after_it_every_episode_has_a_seed(rule, env_id, name):
    rule(name, max_episode_steps=2)
    envs = games(env_id)
    lived(envs, 7)
    seeds, places = zip(*warm_start(envs, 3), strict=True)
    assert places == (0, 0, 0)
    assert len(set(seeds)) == 3


def test_an_episode_goes_on_when_a_seed_is_drawn_next(rule, monkeypatch):
    monkeypatch.setattr(vector, "EPISODES_PER_SEED", 3)
    rule("Breakout", max_episode_steps=4)
    envs, restored = games("Breakout-v0", 2), games("Breakout-v0", 2)
    lived(envs, 9, options={"elapsed_steps": [0, 3]})
    restored.set_state(envs.get_state())
    expected, found = (lived(each, 12, begins=False) for each in (envs, restored))
    for name, column in expected.items():
        np.testing.assert_array_equal(column, found[name])


def memories(rom, num_frames):
    """[T, 128] the console's memory in a third episode, after two of so many frames."""
    console = ale_py.ALEInterface()
    console.setFloat("repeat_action_probability", 0.0)
    console.setInt("random_seed", 7)
    console.loadROM(str(roms.get_rom_path(rom)))
    actions = console.getMinimalActionSet()
    for _ in range(2):
        console.reset_game()
        play(console, actions, num_frames)
    console.reset_game()
    return play(console, actions, 200)


def play(console, actions, num_frames):
    """[T, 128] the memory after each frame, until the game is over."""
    rng = np.random.default_rng(num_frames)
    seen = [console.getRAM().copy()]
    while len(seen) <= num_frames and not console.game_over():
        console.act(actions[rng.integers(len(actions))])
        seen.append(console.getRAM().copy())
    return np.array(seen)


@pytest.fixture(autouse=True)
def _quiet():
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


@pytest.mark.parametrize("rom", ["breakout", "pong", "montezuma_revenge"])
def test_a_game_begins_alike_however_it_was_played_before(rom):
    np.testing.assert_array_equal(memories(rom, 0), memories(rom, 300))


@pytest.mark.slow
@pytest.mark.parametrize("rom", OTHERS)
def test_every_game_that_shares_seeds_begins_alike_however_it_was_played_before(rom):
    for num_frames in (300, 6_000):
        np.testing.assert_array_equal(memories(rom, 0), memories(rom, num_frames))


def test_a_game_that_remembers_begins_otherwise_after_it_was_played():
    assert (memories("haunted_house", 0) != memories("haunted_house", 300)).any()
