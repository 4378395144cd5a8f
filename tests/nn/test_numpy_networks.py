import numpy as np
import pytest

from rl_teacher.nn.numpy_networks import convolve


def test_convolution_matches_hand_computation():
    pixels = np.arange(20, dtype=np.uint8).reshape(1, 4, 5, 1)
    filters = np.array([[1, 10], [100, 1000]], np.float32).reshape(2, 2, 1, 1)
    # Rows 0 and 1, columns 0 and 1: 0 + 10 * 1 + 100 * 5 + 1000 * 6.
    outputs = convolve(pixels, filters, 1)
    assert outputs.shape == (1, 3, 4, 1)
    assert outputs[0, 0, 0, 0] == 6510
    np.testing.assert_array_equal(convolve(pixels, filters, 2), outputs[:, ::2, ::2])
    np.testing.assert_array_equal(convolve(pixels, filters, 3), outputs[:, ::3, ::3])


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(8, 8), (13, 20)])
def test_convolution_matches_sliding_windows(size, width, stride):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, *size, 3), np.uint8)
    filters = rng.standard_normal((width, width, 3, 4)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (width, width), axis=(1, 2))
    expected = np.einsum("bhwcyx,yxcf->bhwf", windows[:, ::stride, ::stride], filters)
    outputs = convolve(pixels, filters, stride)
    assert outputs.dtype == np.float32
    assert outputs.shape == expected.shape
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=0.05)
