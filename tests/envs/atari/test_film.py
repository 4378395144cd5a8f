"""Atari games lived again in colour."""

# pyright: reportAttributeAccessIssue=false

import numpy as np
import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari import film as film_module
from rl_teacher.envs.atari.film import EpisodeReplayer, frames_of
from rl_teacher.envs.atari.names import resolve_game
from rl_teacher.envs.atari.score_areas import SCORE_AREAS
from rl_teacher.envs.rendering import iterate_frames, render_steps
from tests.envs.atari.rollouts import games, lived


@pytest.mark.parametrize("env_id", ["Breakout-v0", "ALE/Breakout-v5"])
def test_a_film_shows_what_was_lived_in_colour(rule, env_id):
    rule("Breakout", max_episode_steps=25, start_points=((1, 2, 2),))
    envs = games(env_id, 2)
    life = lived(envs, 60)
    in_it = np.flatnonzero(life["scenes"][:, 1, 0] == life["scenes"][40, 1, 0])[4::3]
    assert len(in_it) > 5
    steps = life["scenes"][in_it, 1, 1]
    record = envs.replay_record(int(life["scenes"][40, 1, 0]))
    frames = render_steps(env_id, record, steps, life["observations"][in_it, 1])
    assert frames.shape == (len(steps), 210, 160, 3)
    assert frames.dtype == np.uint8
    assert (frames[..., 0] != frames[..., 2]).any()
    assert frames[:, 0:16].any()  # the person sees the score


def test_the_person_sees_the_pictures_that_the_agent_sees_small_and_grey():
    colour = FrameSettings(stacked=1, size=0, grey=False)
    envs = games("Pong-v0", frames=colour)
    life = lived(envs, 8)
    frames = render_steps("PongNoFrameskip-v4", envs.replay_record(0), np.arange(8))
    seen = life["observations"][:, 0].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(frames[:, 22:], seen[:, 22:])
    assert frames_of(envs.replay_record(0)) == colour


def test_pictures_of_another_life_are_refused():
    envs = games("Pong-v0")
    life = lived(envs, 30)
    with pytest.raises(BadInput, match="gave other observations"):
        render_steps(
            "PongNoFrameskip-v4",
            envs.replay_record(0),
            np.array([5]),
            life["observations"][[25], 0],
        )


def test_the_module_before_a_game_is_imported_to_film_it(tmp_path, monkeypatch):
    (tmp_path / "shy_pong.py").write_text(
        "from rl_teacher.envs.atari.score_areas import Area, register_score_area\n"
        "register_score_area('Pong', Area(0, 100))\n"
    )
    monkeypatch.setitem(SCORE_AREAS, "Pong", SCORE_AREAS["Pong"])
    envs = games("Pong-v0")
    seen = lived(envs, 3)["observations"][:, 0].copy()
    seen[..., :40, :] = 0
    monkeypatch.syspath_prepend(tmp_path)
    render_steps("shy_pong:Pong-v0", envs.replay_record(0), np.arange(3), seen)
    assert SCORE_AREAS["Pong"][0].bottom == 100


def test_a_film_needs_no_observations():
    envs = games("Pong-v0")
    lived(envs, 5)
    steps = np.array([1, 4])
    filmed = list(
        iterate_frames("PongNoFrameskip-v4", envs.replay_record(0), steps, is_observed=False)
    )
    assert [seen for seen, _ in filmed] == [None, None]


def test_the_next_clip_of_an_episode_goes_on_where_the_last_one_ended(monkeypatch):
    acted = []

    class Counting(film_module.Emulators):
        def send(self, actions):
            acted.append(int(actions[0]))
            super().send(actions)

    monkeypatch.setattr(film_module, "Emulators", Counting)
    envs = games("Pong-v0")
    lived(envs, 30)
    game = resolve_game("Pong")
    assert game is not None
    kept, fresh = (EpisodeReplayer(game, None) for _ in range(2))
    list(kept.iterate_frames(envs.replay_record(0), np.array([3, 10])))
    assert len(acted) == 10
    lived(envs, 5, begins=False)
    further = [frame for _, frame in kept.iterate_frames(envs.replay_record(0), np.array([20]))]
    assert len(acted) == 20
    again = [frame for _, frame in kept.iterate_frames(envs.replay_record(0), np.array([4]))]
    assert len(acted) == 24
    for found, step in ((further, 20), (again, 4)):
        expected = [
            frame for _, frame in fresh.iterate_frames(envs.replay_record(0), np.array([step]))
        ]
        np.testing.assert_array_equal(found, expected)
