"""Preprocessing of image observations: resizing, grey scale and stacking."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TransformObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_teacher.agents.collector import Collector
from rl_teacher.common.errors import BadConfig, BadInput, BadObservation
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.preprocessing import (
    AreaResize,
    AreaWeights,
    ImagePreprocessing,
    ImageRows,
    describe_preprocessing,
    grey,
    is_image_space,
    is_viewable,
)
from rl_teacher.envs.registry import (
    env_spaces,
    get_env_info,
    make_rendered_env,
    make_single_env,
    make_vector,
)
from rl_teacher.envs.rendering import iterate_frames, render_steps
from rl_teacher.nn.encoders import image_layout_of
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.predictor.inputs import InputSpace
from tests.envs.custom_environments import MODULE
from tests.envs.steps import take_random_steps

ONE = FrameSettings(stacked=1, size=0, grey=False)
LAMP = f"{MODULE}:Lamp"
SMALL = FrameSettings(stacked=3, size=10)


class Shows(gymnasium.Env):
    """Environment that returns given images in order, the first at each reset."""

    action_space = Discrete(2)

    def __init__(self, *images, space=None):
        self.images = [np.asarray(each) for each in images]
        first = self.images[0]
        self.observation_space = space or Box(0, 255, first.shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        self.step_number = 0
        return self.images[0], {}

    def step(self, action):
        self.step_number += 1
        return self.images[self.step_number], 0.0, False, False, {}


def of(number, shape=(2, 2)):
    return np.full(shape, number, np.uint8)


@pytest.mark.parametrize(
    ("shape", "settings", "expected"),
    [
        ((10, 10, 4), FrameSettings(stacked=4), ImageLayout((16, 10, 10), 0)),
        ((12, 12, 3), FrameSettings(stacked=4, grey=False), ImageLayout((12, 12, 12), 0)),
        ((8, 8, 3), FrameSettings(stacked=4, grey=False), ImageLayout((12, 8, 8), 0)),
    ],
)
def test_stacked_image_keeps_its_channel_axis_in_agent_and_predictor(shape, settings, expected):
    env = ImagePreprocessing(Shows(of(1, shape)), settings)
    space = env.observation_space
    assert image_layout_of(space) == expected
    assert InputSpace.from_spaces(space, env.action_space).image == expected


class TestImageWithNumbers:
    SPACE = gymnasium.spaces.Dict(
        goal=gymnasium.spaces.Tuple([Discrete(3), Box(-1, 1, (2,), np.float64)]),
        camera=Box(0, 255, (8, 9), np.uint8),
        is_held=gymnasium.spaces.MultiBinary(1),
    )

    @staticmethod
    def seen(brightness, number=0.25):
        return {
            "goal": (1, np.array([number, -1e-3])),
            "camera": of(brightness, (8, 9)),
            "is_held": np.array([1], np.int8),
        }

    def shows(self, *observations, frames):
        env = Shows(of(0), space=self.SPACE)
        env.images, rows = observations, ImageRows(self.SPACE)
        return ImagePreprocessing(TransformObservation(env, rows, rows.space), frames)

    def test_row_is_stacked_images_then_float32_vector_of_latest_observation(self):
        env = self.shows(self.seen(3), self.seen(4, 0.5), frames=FrameSettings(2, size=8))
        env.reset()
        row = env.step(0)[0]
        layout = image_layout_of(env.observation_space)
        assert layout == ImageLayout((2, 8, 8), 0, vector_size=6)
        assert row.shape == env.observation_space.shape == (2 * 8 * 8 + 4 * 6,)
        np.testing.assert_array_equal(row[:128], [3] * 64 + [4] * 64)
        numbers = np.frombuffer(row[128:].tobytes(), np.float32)
        # The parts in the order of the Dict, without the image.
        np.testing.assert_array_equal(numbers, np.float32([0, 1, 0, 0.5, -1e-3, 1]))

    def test_description_counts_numbers(self):
        described = describe_preprocessing(ImageRows(self.SPACE).space.layout, FrameSettings())
        assert described.startswith(
            "images of 8 x 9 pixels, 1 channel, with a vector of size 6; prep"
        )

    @pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
    def test_numbers_that_are_not_finite_or_too_large_are_refused(self, number):
        with pytest.raises(BadObservation, match="with a vector"):
            ImageRows(self.SPACE)(self.seen(3, number))

    def test_image_of_other_size_is_refused(self):
        with pytest.raises(BadObservation, match="size and type of images"):
            ImageRows(self.SPACE)({**self.seen(3), "camera": of(3, (9, 9))})

    def test_frames_too_small_for_convolutions_are_refused(self):
        with pytest.raises(BadConfig, match="at least 8"):
            self.shows(self.seen(3), frames=FrameSettings(2, size=7))


class TestImageSpace:
    @pytest.mark.parametrize(
        "space",
        [
            Box(0, 255, (5, 6), np.uint8),
            Box(0, 255, (5, 6, 3), np.uint8),
            Box(0, 7, (2, 5, 6), np.uint8),
            Box(0.0, 1.0, (5, 6), np.float32),
            Box(0.0, 1.0, (5, 6, 1), np.float64),
        ],
    )
    def test_uint8_and_unit_floats_with_2_or_3_axes_are_images(self, space):
        assert is_image_space(space)

    @pytest.mark.parametrize(
        "space",
        [
            Box(0, 255, (128,), np.uint8),
            Box(-1.0, 1.0, (5, 6), np.float32),
            Box(0.0, 2.0, (5, 6), np.float32),
            Box(0, 255, (5, 6), np.int64),
            Box(0, 255, (4, 5, 6, 3), np.uint8),
            Discrete(3),
        ],
    )
    def test_other_spaces_are_no_images(self, space):
        assert not is_image_space(space)

    @pytest.mark.parametrize(
        ("shape", "height", "width", "channels"),
        [
            ((210, 160), 210, 160, 1),
            ((210, 160, 3), 210, 160, 3),
            ((7, 7, 3), 7, 7, 3),
            ((3, 96, 96), 96, 96, 3),
            ((4, 84, 8), 84, 8, 4),
            ((96, 96, 16), 96, 96, 16),
            ((20, 96, 90), 96, 90, 20),
        ],
    )
    def test_guessed_channel_axis_is_last_if_short_else_first(self, shape, height, width, channels):
        layout = ImageLayout.guess(shape)
        assert (*layout.size, layout.num_channels) == (height, width, channels)

    def test_tables_are_flattened(self):
        heights = make_single_env(f"{MODULE}:Heights")
        shape = heights.unwrapped.observation_space.shape
        assert shape is not None
        assert len(shape) == 2
        assert env_spaces(f"{MODULE}:Heights", SMALL)[0].shape == (shape[0] * shape[1],)
        assert not get_env_info(f"{MODULE}:Heights").has_image_observations


class TestResizing:
    def test_halving_averages_pairs_of_pixels(self):
        resize = AreaResize.of(ImageLayout.guess((2, 4)), 2)
        np.testing.assert_array_equal(
            resize(np.array([[0, 10, 20, 40], [1, 1, 1, 1]], np.uint8)), [[5, 30], [1, 1]]
        )

    def test_pixel_on_border_is_shared_by_area(self):
        # Each output row covers 1.5 of three rows: 0 and half of 90, then half of 90 and 30.
        resize = AreaResize.of(ImageLayout.guess((3, 2)), 2)
        np.testing.assert_allclose(
            resize(np.array([[0, 0], [90, 90], [30, 30]], np.uint8)), [[30, 30], [50, 50]]
        )

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 40), st.integers(1, 40))
    def test_area_weights_cover_every_pixel_equally(self, one, other):
        n, m = max(one, other), min(one, other)
        averaging = AreaWeights.of(n, m)
        share = np.zeros(n)
        np.add.at(share, averaging.indices, averaging.weights.astype(np.float64))
        np.testing.assert_allclose(averaging.weights.sum(0), 1, atol=1e-6)
        np.testing.assert_allclose(share, m / n, atol=1e-6)

    def test_all_channels_are_resized(self):
        image = np.zeros((4, 4, 2), np.uint8)
        image[:2, :2, 1] = 80
        env = ImagePreprocessing(Shows(image), FrameSettings(stacked=1, size=2))
        obs, _ = env.reset()
        np.testing.assert_array_equal(obs, [[[0, 0], [0, 0]], [[80, 0], [0, 0]]])


class TestColours:
    def test_grey_weights_colours_by_luma(self):
        colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]], np.uint8)
        np.testing.assert_allclose(
            grey(colours.T.reshape(3, 2, 2)).ravel(), [76.245, 149.685, 29.07, 255], rtol=1e-5
        )

    def test_colour_setting_keeps_three_channels(self):
        image = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
        obs, _ = ImagePreprocessing(Shows(image), ONE).reset()
        np.testing.assert_array_equal(obs, image.transpose(2, 0, 1))

    @pytest.mark.parametrize(("side", "num_channels"), [(7, 3), (8, 1)])
    def test_three_channels_of_tiny_grids_are_not_converted_to_grey(self, side, num_channels):
        settings, grid = FrameSettings(stacked=1), of(9, (side, side, 3))
        obs, _ = ImagePreprocessing(Shows(grid), settings).reset()
        assert obs.shape == (num_channels, side, side)
        described = describe_preprocessing(ImageLayout.guess(grid.shape), settings)
        assert described.endswith("grey, not stacked") == (num_channels == 1)

    def test_unit_floats_become_bytes(self):
        image = np.array([[0.0, 1.0], [0.5, 0.25]], np.float32)
        space = Box(0, 1, (2, 2), np.float32)
        obs, _ = ImagePreprocessing(Shows(image, space=space), ONE).reset()
        assert obs.dtype == np.uint8
        assert obs[0].tolist() == [[0, 255], [128, 64]]


class TestStacking:
    def test_stack_starts_black_with_newest_image_last(self):
        env = ImagePreprocessing(Shows(of(1), of(2), of(3)), FrameSettings(stacked=2))
        obs, _ = env.reset()
        assert obs[:, 0, 0].tolist() == [0, 1]
        assert env.step(0)[0][:, 0, 0].tolist() == [1, 2]
        assert env.step(0)[0][:, 0, 0].tolist() == [2, 3]

    def test_channels_of_one_image_are_adjacent_in_stack(self):
        images = [np.stack([of(n, (4, 4)), of(n + 1, (4, 4))], -1) for n in (10, 20)]
        env = ImagePreprocessing(Shows(*images), FrameSettings(stacked=2))
        env.reset()
        assert env.step(0)[0][:, 0, 0].tolist() == [10, 11, 20, 21]

    @pytest.mark.parametrize("stacked", [0, 1])
    def test_stack_of_zero_equals_stack_of_one(self, stacked):
        env = ImagePreprocessing(Shows(of(1), of(2)), FrameSettings(stacked=stacked))
        env.reset()
        assert env.step(0)[0].tolist() == [[[2, 2], [2, 2]]]


class TestChangedImages:
    def test_image_of_other_size_is_refused(self):
        env = ImagePreprocessing(Shows(of(1, (8, 8, 3)), of(1, (8, 9, 3))), ONE)
        env.reset()
        with pytest.raises(
            BadObservation, match=r"Shows returned .*uint8 \(8, 9, 3\).*\(8, 8, 3\)"
        ):
            env.step(0)

    def test_image_of_other_type_is_refused(self):
        env = ImagePreprocessing(Shows(of(1), np.ones((2, 2))), ONE)
        env.reset()
        with pytest.raises(BadObservation, match=r"float64 \(2, 2\): observation_space declares"):
            env.step(0)

    @pytest.mark.parametrize("number", [-0.5, 1.5, np.nan])
    def test_float_image_out_of_range_is_refused(self, number):
        space = Box(0, 1, (2, 2), np.float32)
        env = ImagePreprocessing(Shows(np.full((2, 2), number, np.float32), space=space), ONE)
        with pytest.raises(BadObservation, match="declares 0 to 1"):
            env.reset()


class TestVectorEnvironment:
    def test_vector_environment_returns_stacks(self):
        venv = make_vector(LAMP, 2, frames=SMALL)
        collector = Collector(venv, seed=0)
        rollout = collector.collect(collector.random_actions, 6)
        assert rollout.observations.shape == (6, 2, 3, 10, 10)
        assert rollout.observations.dtype == np.uint8
        np.testing.assert_array_equal(
            rollout.observations[3, :, :2], rollout.observations[2, :, 1:]
        )

    def test_final_observation_is_kept_at_reset(self):
        venv = make_vector(LAMP, 1, frames=SMALL)
        collector = Collector(venv, seed=0)
        rollout = collector.collect(lambda observations: np.ones(1, np.int64), 40)
        end = int(np.flatnonzero(rollout.ended[:, 0])[0])
        assert rollout.next_observations[end, 0, 0].any()
        assert not rollout.observations[end + 1, 0, :2].any()
        assert rollout.observations[end + 1, 0, 2].any()


class TestRendering:
    def test_environment_without_rgb_array_renders_observations(self):
        venv = make_vector(LAMP, 1, frames=SMALL)
        observations, _ = take_random_steps(venv, 8)
        images = render_steps(LAMP, venv.replay_record(0), np.arange(8), observations[:, 0], SMALL)
        assert images.shape == (8, 24, 20, 3)
        assert images[:, :, :, 1].max(axis=(1, 2)).tolist() == [200] * 8
        assert not images[..., 0].any()

    def test_grey_observations_are_rendered(self):
        env = make_rendered_env(f"{MODULE}:FaintLamp")
        env.reset(seed=0)
        image = np.asarray(env.render())
        assert set(image.ravel().tolist()) == {0, 255}
        assert image.shape == (24, 20, 3)

    def test_unviewable_images_are_refused(self):
        assert not is_viewable(Box(0, 255, (24, 20, 7), np.uint8))
        with pytest.raises(BadInput, match="render mode rgb_array"):
            make_rendered_env(f"{MODULE}:ManyColours")


def test_image_environment_replays_exactly():
    frames = FrameSettings(stacked=2, size=48, grey=False)
    assert env_spaces("CarRacing-v3", frames)[0] == Box(0, 255, (6, 48, 48), np.uint8)
    venv = make_vector("CarRacing-v3", 1, frames=frames)
    observations, _ = take_random_steps(venv, 3)
    restored = make_vector("CarRacing-v3", 1, frames=frames)
    restored.set_state(venv.get_state())
    np.testing.assert_array_equal(restored.observations, venv.observations)
    [[observation, image]] = iterate_frames(
        "CarRacing-v3", venv.replay_record(0), np.array([2]), frames
    )
    np.testing.assert_array_equal(observation, observations[2, 0])
    assert image.shape == (400, 600, 3)
