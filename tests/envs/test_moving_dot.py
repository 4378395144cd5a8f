"""MovingDot: rules, images and names."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import gymnasium
import numpy as np
import pytest

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.moving_dot import (
    CENTRE,
    HIGHEST,
    LOWEST,
    NUM_MOVES,
    MovingDot,
)
from rl_teacher.envs.preprocessing import ImagePreprocessing
from rl_teacher.envs.registry import get_env_info

NOOP, DOWN, RIGHT, UP, LEFT = range(5)


def env_at(x, y, **settings):
    env = MovingDot(**settings)
    env.reset(seed=0)
    env.place = (x, y)
    env._screen[:] = 0
    env._draw()
    return env


class TestRules:
    @pytest.mark.parametrize(
        ("action", "displacement"),
        [(NOOP, (0, 0)), (DOWN, (0, 1)), (RIGHT, (1, 0)), (UP, (0, -1)), (LEFT, (-1, 0))],
    )
    def test_action_moves_one_pixel(self, action, displacement):
        env = env_at(50, 60)
        env.step(action)
        assert env.place == (50 + displacement[0], 60 + displacement[1])

    @pytest.mark.parametrize(
        ("action", "reward"), [(RIGHT, 1), (DOWN, 1), (LEFT, -1), (UP, -1), (NOOP, 0)]
    )
    def test_reward_is_one_towards_centre_and_minus_one_away(self, action, reward):
        assert env_at(50, 60).step(action)[1] == reward

    def test_move_beyond_edge_has_no_effect_and_no_reward(self):
        env = env_at(*LOWEST)
        assert env.step(LEFT)[1] == 0
        assert env.place == LOWEST
        env = env_at(*HIGHEST)
        assert env.step(DOWN)[1] == 0
        assert env.place == HIGHEST

    def test_return_is_distance_to_centre(self):
        env = env_at(70, 100)
        actions = [RIGHT] * 10 + [DOWN] * 5 + [NOOP] * 20
        assert sum(env.step(each)[1] for each in actions) == 15
        assert env.place == CENTRE

    @pytest.mark.parametrize(
        ("action", "displacement"),
        [([1, -1], (1, -1)), ([0.1, 0.09], (1, 0)), ([-0.1, 0], (-1, 0)), ([-0.05, 0.3], (0, 1))],
    )
    def test_continuous_action_moves_beyond_threshold(self, action, displacement):
        env = env_at(50, 60, is_continuous=True)
        env.step(np.array(action, np.float32))
        assert env.place == (50 + displacement[0], 60 + displacement[1])

    def test_episode_ends_only_by_time_limit(self):
        env = gymnasium.make("MovingDotNoFrameskip-v0")
        env.reset(seed=0)
        ends = [env.step(NOOP)[2:4] for _ in range(NUM_MOVES)]
        assert ends[-1] == (False, True)
        assert not any(terminated or truncated for terminated, truncated in ends[:-1])
        assert not get_env_info("MovingDot-v0").can_terminate

    def test_start_positions_cover_image(self):
        env = MovingDot()
        env.reset(seed=1)
        positions = np.array([(env.reset(), env.place)[1] for _ in range(300)])
        assert (positions >= LOWEST).all()
        assert (positions <= HIGHEST).all()
        assert (np.ptp(positions, axis=0) > (140, 190)).all()


class TestRepeats:
    def test_frameskip_repeats_action_two_to_four_times(self):
        env = gymnasium.make("MovingDot-v0").unwrapped
        env.reset(seed=0)
        displacement = set()
        for _ in range(60):
            env.place = (50, 60)
            reward = env.step(RIGHT)[1]
            displacement.add(env.place[0] - 50)
            assert reward == env.place[0] - 50
        assert displacement == {2, 3, 4}

    def test_frameskip_keeps_duration_of_episode(self):
        each, skipped = get_env_info("MovingDotNoFrameskip-v0"), get_env_info("MovingDot-v0")
        assert (each.fps, each.max_episode_steps) == (60, 1000)
        assert (skipped.fps, skipped.max_episode_steps) == (20, 333)


class TestImages:
    def test_image_shows_white_dot_on_black(self):
        obs = env_at(50, 60).render()
        assert obs.shape == (210, 160, 3)
        assert np.unique(obs).tolist() == [0, 255]
        rows, columns = np.nonzero(obs[..., 0])
        assert (rows.min(), rows.max(), columns.min(), columns.max()) == (58, 61, 48, 51)

    def test_dot_leaves_no_trace(self):
        env = env_at(50, 60)
        for action in (RIGHT, DOWN, LEFT, LEFT, UP, UP):
            obs = env.step(action)[0]
            np.testing.assert_array_equal(obs, env_at(*env.place).render())
        env.reset()
        assert (env.render() > 0).sum() == 4 * 4 * 3

    def test_resized_dot_has_constant_brightness(self):
        brightness = []
        for x in range(LOWEST[0], HIGHEST[0], 7):
            for y in range(LOWEST[1], HIGHEST[1], 13):
                image, _ = preprocessed(env_at(x, y))
                assert image.max() >= 50
                brightness.append(image.sum() / 255)
        # 4 x 4 of 210 x 160 pixels are 16 / 19.05 of 42 x 42.
        np.testing.assert_allclose(brightness, 16 * 42 * 42 / (210 * 160), atol=0.01)


def preprocessed(env):
    """Return the preprocessed current image and the preprocessing wrapper."""
    frames = ImagePreprocessing(env, FrameSettings(stacked=1))
    return frames._push(env.render())[0], frames


class TestNames:
    @pytest.mark.parametrize("typed", ["MovingDot", "movingdot-v0", "MOVINGDOT-V0"])
    def test_name_ignores_case_and_version(self, typed):
        assert get_env_info(typed).id == "MovingDot-v0"
