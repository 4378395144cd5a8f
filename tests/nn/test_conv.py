import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.nn.conv import BatchNorm, Convolutions, _xla_convolution, convolve
from rl_teacher.nn.encoders import (
    AGENT_CNNS,
    PREDICTOR_CNNS,
    Convolution,
    Plan,
    image_layout_of,
    num_conv_features,
    plan_for,
)
from rl_teacher.nn.image_layout import ImageLayout

SIZES = [(26, 4, 8, 4), (20, 3, 4, 2), (9, 2, 3, 1), (14, 2, 5, 2), (25, 1, 7, 3), (13, 2, 4, 2)]


@pytest.mark.parametrize(("size", "inputs", "width", "stride"), SIZES)
def test_convolution_and_gradients_match_xla(size, inputs, width, stride):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, size, size + 3, inputs)), jnp.float32)
    weights = jnp.asarray(rng.normal(size=(width, width, inputs, 5)), jnp.float32)
    both = [jax.jit(f, static_argnums=2) for f in (convolve, _xla_convolution)]
    ours, theirs = (f(x, weights, stride) for f in both)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    for argument in (0, 1):
        ours, theirs = (
            jax.grad(lambda *given, f=f: (f(*given, stride) ** 2).sum(), argument)(x, weights)
            for f in both
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-1)


def test_byte_images_are_scaled_to_unit_interval():
    weights = jnp.ones((2, 2, 1, 1))
    assert convolve(jnp.full((1, 2, 2, 1), 255, jnp.uint8), weights, 2)[0, 0, 0, 0] == 4


@pytest.mark.parametrize(
    ("shape", "channel_axis", "size", "channels"),
    [
        ((4, 84, 84), 0, (84, 84), 4),
        ((210, 160, 3), 2, (210, 160), 3),
        ((96, 96), None, (96, 96), 1),
        ((1, 40, 30), 0, (40, 30), 1),
        ((12, 12, 12), 2, (12, 12), 12),
    ],
)
def test_channel_axis_is_detected(shape, channel_axis, size, channels):
    import gymnasium as gym

    layout = image_layout_of(gym.spaces.Box(0, 255, shape, np.uint8))
    assert layout is not None
    assert (layout.channel_axis, layout.size, layout.num_channels) == (channel_axis, size, channels)
    image = np.arange(np.prod(shape)).reshape(shape) % 251
    last = layout.channels_last(image.reshape(1, -1))
    assert last.shape == (1, *size, channels)
    first = image[None] if channel_axis is None else np.moveaxis(image, channel_axis, 0)
    np.testing.assert_array_equal(np.moveaxis(last[0], -1, 0), first)


@pytest.mark.parametrize("shape", [(17,), (84, 84, 20), (4, 4, 3), (2, 3, 84, 84)])
def test_non_image_space_has_no_layout(shape):
    import gymnasium as gym

    assert image_layout_of(gym.spaces.Box(0, 255, shape, np.uint8)) is None
    assert image_layout_of(gym.spaces.Box(0, 1, (4, 84, 84), np.float32)) is None


@pytest.mark.parametrize("plan", [*AGENT_CNNS.values(), *PREDICTOR_CNNS.values()])
@pytest.mark.parametrize("pixels", [8, 43, 84])
def test_number_of_features_matches_plan_for_any_image_size(plan, pixels):
    layout = ImageLayout((3, pixels, pixels + 5), 0)
    plan = plan_for(layout, plan)
    network = Convolutions(layout, plan, "relu", np.random.default_rng(0))
    features = jax.eval_shape(network, jnp.zeros((2, layout.num_bytes), jnp.uint8))
    assert features.shape == (2, num_conv_features(plan, layout))


def test_paper_predictor_has_published_layers():
    layout = ImageLayout((4, 84, 84), 0)
    plan, rng = PREDICTOR_CNNS["paper"], np.random.default_rng(0)
    network = Convolutions(layout, plan, "leaky_relu", rng, batch_norm=True)
    shapes = [(7, 7, 4, 16), (5, 5, 16, 16), (3, 3, 16, 16), (3, 3, 16, 16)]
    assert [each.shape for each in network.filters] == shapes
    assert network.strides == (3, 2, 1, 1)
    assert len(network.norms) == 4


def test_batch_norm_uses_real_rows_in_training_and_running_statistics_afterwards():
    x = jnp.asarray([[1.0], [3.0], [9.0]])
    y, updated = BatchNorm(1).train(x, jnp.asarray([True, True, False]))
    # mean 2, variance 1: (1 - 2) / sqrt(1 + 0.001)
    np.testing.assert_allclose(y[:2, 0], [-0.9995, 0.9995], atol=1e-4)
    np.testing.assert_allclose([updated.mean[0], updated.variance[0]], [0.2, 1.0], atol=1e-6)
    # (3 - 0.2) / sqrt(1.001)
    np.testing.assert_allclose(updated(x)[1], 2.7986, atol=1e-3)


def test_dropout_follows_every_convolution():
    layout = ImageLayout((1, 12, 12), 0)
    plan = Plan((Convolution(2, 3, 1), Convolution(2, 3, 2)), 8)
    network = Convolutions(layout, plan, "relu", np.random.default_rng(0))
    layers = []

    def drop(x, layer):
        layers.append(layer)
        return 0 * x

    features, _ = network.train(jnp.zeros((1, 144), jnp.uint8), jnp.ones(1, bool), drop)
    assert layers == [0, 1]
    assert not features.any()


def test_number_of_conv_features_matches_papers():
    layout = ImageLayout((4, 84, 84), 0)
    assert num_conv_features(PREDICTOR_CNNS["paper"], layout) == 7 * 7 * 16
    assert num_conv_features(PREDICTOR_CNNS["small"], layout) == 9 * 9 * 16
    assert num_conv_features(AGENT_CNNS["small"], layout) == 9 * 9 * 32
