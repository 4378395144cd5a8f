import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

from rl_teacher import PreferenceWrapper
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.registry import env_spaces
from rl_teacher.wrappers.observations import ObservationConverter
from tests.envs.custom_environments import Blank, Cameras, ManyMoves, ManyStates, Mission, Words

PARTS = gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (2,), np.float32), b=gym.spaces.Discrete(3))


def test_box_is_copied_as_float32():
    converter = ObservationConverter(gym.spaces.Box(-1, 1, (2,), np.float64), None, None)
    observation = np.array([0.5, -0.5])
    converted = converter.one(observation)
    observation[:] = 9
    np.testing.assert_array_equal(converted, [0.5, -0.5])
    assert converted.dtype == np.float32


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "CartPole-v1"])
def test_space_of_a_box_is_that_of_the_environment_in_other_data_sets(env_id):
    """Otherwise, labels of a wrapper cannot be merged with those of `rl-teacher teach`."""
    observation_space, _ = env_spaces(env_id)
    converter = ObservationConverter(observation_space, None, None)
    assert converter.space == observation_space
    assert converter.one(observation_space.sample()).dtype == np.float32


def test_image_keeps_uint8():
    converter = ObservationConverter(gym.spaces.Box(0, 255, (2, 2, 3), np.uint8), None, None)
    assert converter.space.dtype == np.uint8
    assert converter.one(np.full((2, 2, 3), 255, np.uint8)).dtype == np.uint8


def test_image_of_floats_becomes_bytes():
    space = gym.spaces.Box(0, 1, (12, 10, 3), np.float32)
    converter = ObservationConverter(space, gym.vector.utils.batch_space(space, 2), None)
    assert (converter.space.dtype, converter.space.shape) == (np.uint8, (12, 10, 3))
    image = np.full(space.shape, 0.5, np.float32)
    np.testing.assert_array_equal(converter.one(image), np.full(space.shape, 128, np.uint8))
    assert converter.many(np.stack([image, image])).dtype == np.uint8


def test_image_and_numbers_become_a_row_for_one_and_many():
    space = gym.spaces.Tuple(
        [gym.spaces.Discrete(2), gym.spaces.Box(0, 1, (9, 8), np.float32), PARTS]
    )
    converter = ObservationConverter(space, gym.vector.utils.batch_space(space, 2), None)
    image = np.full((9, 8), 0.5, np.float32)
    observation = (1, image, {"a": np.array([0.5, -0.5], np.float32), "b": 2})
    row = converter.one(observation)
    np.testing.assert_array_equal(row[: 9 * 8], 128)
    np.testing.assert_array_equal(row[9 * 8 :].view(np.float32), [0, 1, 0.5, -0.5, 0, 0, 1])
    both = gym.vector.utils.concatenate(
        space, [observation] * 2, gym.vector.utils.create_empty_array(space, 2)
    )
    np.testing.assert_array_equal(converter.many(both), [row, row])


@pytest.mark.parametrize("shape", [(7, 12), (12,), (2, 12, 12, 3)])
def test_floats_that_are_no_image_stay_floats(shape):
    space = gym.spaces.Box(0, 1, shape, np.float32)
    assert ObservationConverter(space, None, None).space == space


def test_dict_is_flattened_with_one_hot_discrete():
    converter = ObservationConverter(PARTS, None, None)
    converted = converter.one({"a": np.array([0.5, -0.5], np.float32), "b": 1})
    np.testing.assert_array_equal(converted, [0.5, -0.5, 0, 1, 0])
    assert converter.space.shape == (5,)


def test_discrete_observations_are_one_hot():
    converter = ObservationConverter(gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([3, 3]), None)
    np.testing.assert_array_equal(converter.many(np.array([2, 0])), [[0, 0, 1], [1, 0, 0]])


def test_transform_sets_space_and_keeps_random_state():
    PARTS.seed(0)
    expected = flatten(PARTS, PARTS.sample())
    PARTS.seed(0)
    converter = ObservationConverter(PARTS, None, lambda observation: observation["a"][:1])
    np.testing.assert_array_equal(flatten(PARTS, PARTS.sample()), expected)
    assert converter.space.shape == (1,)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Words, "it cannot be flattened .* Give observation_transform"),
        (Mission, r"part \['mission'\] cannot be flattened .*, such as observation\['place'\]"),
        (Cameras, r"parts \['front'\] and \['rear'\] are images.* such as observation\['front'\]"),
        (Blank, "it has no numbers"),
        (ManyStates, r"Discrete\(2147483648\) .* one-hot vectors of 2,147,483,648 numbers"),
    ],
)
def test_unsupported_observations_are_refused(kind, message):
    with pytest.raises(BadInput, match=message):
        ObservationConverter(kind.observation_space, None, None)


def test_too_many_actions_are_refused():
    with pytest.raises(BadInput, match=r"Discrete\(2147483648\).* 2,147,483,648 numbers"):
        PreferenceWrapper(ManyMoves())


def test_failing_transform_is_refused():
    with pytest.raises(BadInput, match="KeyError"):
        ObservationConverter(PARTS, None, lambda observation: observation["nothing"])


def test_transform_without_numbers_is_refused():
    with pytest.raises(BadInput, match="numbers are needed"):
        ObservationConverter(PARTS, None, lambda observation: np.array("word"))


def test_changed_shape_is_refused():
    converter = ObservationConverter(gym.spaces.Box(-1, 1, (2,), np.float32), None, None)
    with pytest.raises(BadInput, match=r"\(3,\)"):
        converter.one(np.zeros(3))
