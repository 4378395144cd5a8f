"""The picture of the curves."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rl_teacher.report.plot import COLOURS, plot, points


def row(step, height, is_taught):
    figures = {"step": step, "true_return": height * step / 1e5}
    if is_taught:
        figures |= {"predicted_return": 1.0, "held_out_accuracy": 0.8, "labels_answered": step}
    return figures


def rows(height=100.0, *, is_taught=True):
    return [row(step, height, is_taught) for step in range(0, 100_001, 1000)]


def read(path):
    return matplotlib.image.imread(path)[..., :3]


def has_colour(image, colour):
    return bool(np.any(np.all(np.abs(image - np.array(to_rgb(colour))) < 0.02, axis=-1)))


def test_each_experiment_is_drawn_in_a_colour_of_its_own(tmp_path):
    path = tmp_path / "plot.png"
    assert plot([("base-rl", rows(90.0, is_taught=False)), ("syn-1400", rows())], path) == path
    image = read(path)
    assert [has_colour(image, colour) for colour in COLOURS[:3]] == [True, True, False]


def test_without_labels_there_are_no_small_pictures(tmp_path):
    taught = read(plot([("x", rows())], tmp_path / "taught.png"))
    plain = read(plot([("x", rows(is_taught=False))], tmp_path / "plain.png"))
    assert plain.shape[0] < taught.shape[0]
    assert plain.shape[1] == taught.shape[1]


@pytest.mark.parametrize("curves", [[], [("x", [])], [("x", [{"step": 0, "true_return": None}])]])
def test_with_nothing_to_draw_there_is_still_a_picture(tmp_path, curves):
    assert read(plot(curves, tmp_path / "plot.png")).size > 0


@pytest.mark.parametrize("name", ["_underscore", "$x", "$\\frac$", "环境", "x" * 300, "", "a\\b"])
def test_any_name_can_be_in_the_legend(tmp_path, name):
    assert read(plot([(name, rows())], tmp_path / "plot.png")).size > 0


def test_more_experiments_than_colours_are_drawn(tmp_path):
    curves = [(f"seed {seed}", rows(10.0 * seed)) for seed in range(len(COLOURS) + 2)]
    image = read(plot(curves, tmp_path / "plot.png"))
    assert all(has_colour(image, colour) for colour in COLOURS)


def test_a_row_without_the_figure_is_no_point():
    three = [{"step": 1, "loss": 0.5}, {"step": 2}, {"step": 3, "loss": float("nan")}]
    assert points(three, "loss") == ([1], [0.5])
