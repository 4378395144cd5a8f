"""Rendering of replayed Atari episodes."""

# pyright: reportAttributeAccessIssue=false

from contextlib import closing

import gymnasium
import numpy as np
import pytest

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari import emulators
from rl_teacher.envs.atari.emulators import EpisodeReplayer
from rl_teacher.envs.atari.names import resolve_game
from rl_teacher.envs.atari.rules import blank
from rl_teacher.envs.rendering import render_steps
from tests.envs.atari.rollouts import make_games, take_random_steps


@pytest.mark.parametrize("env_id", ["Breakout-v0", "ALE/Breakout-v5"])
def test_frames_show_replayed_episode_in_colour(rule, env_id):
    rule("Breakout", max_episode_steps=25, start_points=((1, 2, 2),))
    envs = make_games(env_id, 2)
    rollout = take_random_steps(envs, 60)
    rows = np.flatnonzero(rollout["scenes"][:, 1, 0] == rollout["scenes"][40, 1, 0])[4::3]
    assert len(rows) > 5
    steps = rollout["scenes"][rows, 1, 1]
    record = envs.replay_record(int(rollout["scenes"][40, 1, 0]))
    game = resolve_game(env_id)
    assert game is not None
    images = np.stack([*EpisodeReplayer(game, FrameSettings()).iterate_images(record, steps)])
    blank(images, game.name)
    np.testing.assert_array_equal(images, rollout["observations"][rows, 1])
    frames = render_steps(env_id, record, steps)
    assert frames.shape == (len(steps), 210, 160, 3)
    assert frames.dtype == np.uint8
    assert (frames[..., 0] != frames[..., 2]).any()
    assert frames[:, 0:16].any()  # people see the score


def test_frames_have_the_size_of_the_games_screen():
    envs = make_games("Klax-v0")
    take_random_steps(envs, 2)
    [frame] = render_steps("KlaxNoFrameskip-v4", envs.replay_record(0), np.zeros(1, np.int64))
    with closing(gymnasium.make("ALE/Klax-v5", render_mode="rgb_array")) as env:
        env.reset(seed=0)
        screen = np.asarray(env.render())
    assert frame.shape == screen.shape == (250, 160, 3)
    # Resized images would have mixtures of the game's colours.
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) < 20


def test_replayer_continues_from_last_rendered_step(monkeypatch):
    actions_sent = []

    class CountingEmulators(emulators.Emulators):
        def send(self, actions):
            actions_sent.append(int(actions[0]))
            super().send(actions)

    monkeypatch.setattr(emulators, "Emulators", CountingEmulators)
    envs = make_games("Pong-v0")
    take_random_steps(envs, 30)
    game = resolve_game("Pong")
    assert game is not None
    kept, fresh = (EpisodeReplayer(game) for _ in range(2))
    list(kept.iterate_images(envs.replay_record(0), np.array([3, 10])))
    assert len(actions_sent) == 10
    take_random_steps(envs, 5, is_reset=False)
    later = [*kept.iterate_images(envs.replay_record(0), np.array([20]))]
    assert len(actions_sent) == 20
    earlier = [*kept.iterate_images(envs.replay_record(0), np.array([4]))]
    assert len(actions_sent) == 24
    for found, step in ((later, 20), (earlier, 4)):
        expected = [*fresh.iterate_images(envs.replay_record(0), np.array([step]))]
        np.testing.assert_array_equal(found, expected)
