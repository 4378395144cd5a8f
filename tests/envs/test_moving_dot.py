"""MovingDot: its rules, its pictures, its names."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import gymnasium
import numpy as np
import pytest

from rl_teacher.common.errors import UnknownName
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.moving_dot import (
    CENTRE,
    HIGHEST,
    KINDS,
    LOWEST,
    NUM_MOVES,
    MovingDot,
)
from rl_teacher.envs.preprocessing import ImagePreprocessing
from rl_teacher.envs.registry import get_env_info, list_env_infos

NO_WARM_START, DOWN, RIGHT, UP, LEFT = range(5)


def at(x, y, **made_with):
    env = MovingDot(**made_with)
    env.reset(seed=0)
    env.place = (x, y)
    env._screen[:] = 0
    env._draw()
    return env


class TestRules:
    @pytest.mark.parametrize(
        ("action", "moved"),
        [(NO_WARM_START, (0, 0)), (DOWN, (0, 1)), (RIGHT, (1, 0)), (UP, (0, -1)), (LEFT, (-1, 0))],
    )
    def test_an_action_moves_one_pixel(self, action, moved):
        env = at(50, 60)
        env.step(action)
        assert env.place == (50 + moved[0], 60 + moved[1])

    @pytest.mark.parametrize(
        ("action", "reward"), [(RIGHT, 1), (DOWN, 1), (LEFT, -1), (UP, -1), (NO_WARM_START, 0)]
    )
    def test_nearer_to_the_centre_is_rewarded_and_further_away_costs(self, action, reward):
        assert at(50, 60).step(action)[1] == reward

    def test_at_an_edge_it_stays_and_that_is_worth_nothing(self):
        env = at(*LOWEST)
        assert env.step(LEFT)[1] == 0
        assert env.place == LOWEST
        env = at(*HIGHEST)
        assert env.step(DOWN)[1] == 0
        assert env.place == HIGHEST

    def test_an_episode_is_worth_the_way_to_the_centre(self):
        env = at(70, 100)
        actions = [RIGHT] * 10 + [DOWN] * 5 + [NO_WARM_START] * 20
        assert sum(env.step(each)[1] for each in actions) == 15
        assert env.place == CENTRE

    @pytest.mark.parametrize(
        ("action", "moved"),
        [([1, -1], (1, -1)), ([0.1, 0.09], (1, 0)), ([-0.1, 0], (-1, 0)), ([-0.05, 0.3], (0, 1))],
    )
    def test_a_continuous_action_moves_where_it_is_not_small(self, action, moved):
        env = at(50, 60, is_continuous=True)
        env.step(np.array(action, np.float32))
        assert env.place == (50 + moved[0], 60 + moved[1])

    def test_rules_never_end_it_but_a_time_limit_does(self):
        env = gymnasium.make("MovingDotNoFrameskip-v0")
        env.reset(seed=0)
        ends = [env.step(NO_WARM_START)[2:4] for _ in range(NUM_MOVES)]
        assert ends[-1] == (False, True)
        assert not any(terminated or truncated for terminated, truncated in ends[:-1])
        assert not get_env_info("MovingDot-v0").can_terminate

    def test_it_begins_anywhere(self):
        env = MovingDot()
        env.reset(seed=1)
        places = np.array([(env.reset(), env.place)[1] for _ in range(300)])
        assert (places >= LOWEST).all()
        assert (places <= HIGHEST).all()
        assert (np.ptp(places, axis=0) > (140, 190)).all()

    def test_the_same_seed_begins_at_the_same_place(self):
        first, second = MovingDot(), MovingDot()
        first.reset(seed=5)
        second.reset(seed=5)
        assert first.place == second.place


class TestRepeats:
    def test_an_action_is_carried_out_two_to_four_times_where_frames_are_skipped(self):
        env = gymnasium.make("MovingDot-v0").unwrapped
        env.reset(seed=0)
        moved = set()
        for _ in range(60):
            env.place = (50, 60)
            reward = env.step(RIGHT)[1]
            moved.add(env.place[0] - 50)
            assert reward == env.place[0] - 50
        assert moved == {2, 3, 4}

    def test_without_skipping_it_is_carried_out_once(self):
        env = gymnasium.make("MovingDotDiscreteNoFrameskip-v0").unwrapped
        env.reset(seed=0)
        env.place = (50, 60)
        for step in range(10):
            env.step(RIGHT)
            assert env.place == (51 + step, 60)

    def test_episodes_and_clips_last_as_long_in_either_case(self):
        each, skipping = get_env_info("MovingDotNoFrameskip-v0"), get_env_info("MovingDot-v0")
        assert (each.fps, each.max_episode_steps) == (60, 1000)
        assert (skipping.fps, skipping.max_episode_steps) == (20, 333)


class TestPictures:
    def test_a_white_dot_is_on_black(self):
        obs = at(50, 60).render()
        assert obs.shape == (210, 160, 3)
        assert np.unique(obs).tolist() == [0, 255]
        rows, columns = np.nonzero(obs[..., 0])
        assert (rows.min(), rows.max(), columns.min(), columns.max()) == (58, 61, 48, 51)

    def test_nothing_of_it_stays_behind(self):
        env = at(50, 60)
        for action in (RIGHT, DOWN, LEFT, LEFT, UP, UP):
            obs = env.step(action)[0]
            np.testing.assert_array_equal(obs, at(*env.place).render())
        env.reset()
        assert (env.render() > 0).sum() == 4 * 4 * 3

    def test_a_picture_does_not_change_after_it_was_handed_out(self):
        env = at(50, 60)
        first = env.step(RIGHT)[0]
        kept = first.copy()
        env.step(RIGHT)
        np.testing.assert_array_equal(first, kept)

    def test_shrunk_it_is_bright_and_of_the_same_light_everywhere(self):
        light = []
        for x in range(LOWEST[0], HIGHEST[0], 7):
            for y in range(LOWEST[1], HIGHEST[1], 13):
                seen, _ = shown(at(x, y))
                assert seen.max() >= 200
                light.append(seen.sum() / 255)
        # 4 x 4 of 210 x 160 pixels are 16 / 4.762 of 84 x 84.
        np.testing.assert_allclose(light, 16 * 84 * 84 / (210 * 160), atol=0.02)

    def test_shrunk_its_moves_can_be_seen(self):
        env = at(50, 60)
        before, frames = shown(env)
        assert (frames.step(RIGHT)[0][0] != before).any()


def shown(env):
    """What an agent sees of it as it is now, and the frames that show it."""
    frames = ImagePreprocessing(env, FrameSettings(stacked=1))
    return frames._push(env.render())[0], frames


class TestNames:
    def test_those_of_both_generations_are_known(self):
        listed = [each.id for each in list_env_infos()]
        for kind in ("", "Discrete", "Continuous"):
            for skip in ("", "NoFrameskip"):
                assert f"MovingDot{kind}{skip}-v0" in listed
        assert len(KINDS) == 6

    @pytest.mark.parametrize("typed", ["MovingDot", "movingdot-v0", "MOVINGDOT-V0"])
    def test_case_and_version_do_not_matter(self, typed):
        assert get_env_info(typed).id == "MovingDot-v0"

    @pytest.mark.parametrize("typed", ["MovingDott-v0", "MovngDot"])
    def test_a_misspelt_one_gets_the_nearest(self, typed):
        with pytest.raises(UnknownName, match=r"Did you mean .*MovingDot-v0"):
            get_env_info(typed)

    @pytest.mark.parametrize("env_id", KINDS)
    def test_each_is_made_with_its_actions(self, env_id):
        space = gymnasium.make(env_id).action_space
        assert space.shape == ((2,) if "Continuous" in env_id else ())
