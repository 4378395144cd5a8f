"""Starts of Atari episodes, which depend on seed and place only."""

# pyright: reportAttributeAccessIssue=false

import ale_py
import numpy as np
import pytest
from ale_py import roms

from rl_teacher.envs.atari import vector
from rl_teacher.envs.atari.rules import RETAINS_MEMORY
from tests.envs.atari.rollouts import make_games, take_random_steps

FOR_TWO = {"combat", "joust", "maze_craze", "warlords"}
OTHERS = sorted(set(roms.get_all_rom_ids()) - FOR_TWO - RETAINS_MEMORY)


def seeds_and_places(envs, num_episodes):
    """Return seed and place of the first episodes of a single environment."""
    return [
        (each["seed"], each["place"])
        for each in (envs.replay_record(number).reset_state for number in range(num_episodes))
    ]


def test_consecutive_episodes_share_seed(rule, monkeypatch):
    monkeypatch.setattr(vector, "EPISODES_PER_SEED", 3)
    rule("Pong", max_episode_steps=2)
    envs = make_games("Pong-v0")
    take_random_steps(envs, 9)
    seeds, places = zip(*seeds_and_places(envs, 5), strict=True)
    assert places == (0, 1, 2, 0, 1)
    assert len(set(seeds)) == 2
    assert seeds[:3] == (seeds[0],) * 3
    envs.reset(seed=3)
    assert envs.replay_record(5).reset_state["place"] == 0


@pytest.mark.parametrize(
    ("env_id", "name"), [("ALE/Pong-v5", "Pong"), ("KungFuMaster-v0", "KungFuMaster")]
)
def test_game_that_retains_state_is_seeded_every_episode(rule, env_id, name):
    rule(name, max_episode_steps=2)
    envs = make_games(env_id)
    take_random_steps(envs, 7)
    seeds, places = zip(*seeds_and_places(envs, 3), strict=True)
    assert places == (0, 0, 0)
    assert len(set(seeds)) == 3


@pytest.mark.slow
def test_restored_state_continues_across_seed_change(rule, monkeypatch):
    monkeypatch.setattr(vector, "EPISODES_PER_SEED", 3)
    rule("Breakout", max_episode_steps=4)
    envs, restored = make_games("Breakout-v0", 2), make_games("Breakout-v0", 2)
    take_random_steps(envs, 9, options={"elapsed_steps": [0, 3]})
    restored.set_state(envs.get_state())
    expected, actual = (take_random_steps(each, 12, is_reset=False) for each in (envs, restored))
    for name, column in expected.items():
        np.testing.assert_array_equal(column, actual[name])


def ram_of_third_episode(rom, num_frames):
    """Return the RAM of a third episode, [T, 128], after two episodes of some frames."""
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
    """Play at random and return the RAM after each frame until the game is over, [T, 128]."""
    rng = np.random.default_rng(num_frames)
    ram = [console.getRAM().copy()]
    while len(ram) <= num_frames and not console.game_over():
        console.act(actions[rng.integers(len(actions))])
        ram.append(console.getRAM().copy())
    return np.array(ram)


@pytest.fixture(autouse=True)
def _quiet():
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


@pytest.mark.parametrize("rom", ["breakout", "pong", "montezuma_revenge"])
def test_reset_does_not_depend_on_previous_episodes(rom):
    np.testing.assert_array_equal(ram_of_third_episode(rom, 0), ram_of_third_episode(rom, 300))


@pytest.mark.slow
@pytest.mark.parametrize("rom", OTHERS)
def test_reset_of_every_seed_sharing_game_does_not_depend_on_previous_episodes(rom):
    for num_frames in (300, 6_000):
        np.testing.assert_array_equal(
            ram_of_third_episode(rom, 0), ram_of_third_episode(rom, num_frames)
        )


def test_reset_of_game_that_retains_memory_depends_on_previous_episodes():
    assert (
        ram_of_third_episode("haunted_house", 0) != ram_of_third_episode("haunted_house", 300)
    ).any()
