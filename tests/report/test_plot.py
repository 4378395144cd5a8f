"""Tests of the plot of learning curves."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rl_teacher.report.figures import points
from rl_teacher.report.plot import COLOURS, plot


def row(step, max_return, has_labels):
    metrics = {"step": step, "true_return": max_return * step / 1e5}
    if has_labels:
        metrics |= {"predicted_return": 1.0, "held_out_accuracy": 0.8, "labels_answered": step}
    return metrics


def rows(max_return=100.0, *, has_labels=True):
    return [row(step, max_return, has_labels) for step in range(0, 100_001, 1000)]


def read(path):
    return matplotlib.image.imread(path)[..., :3]


def has_colour(image, colour):
    return bool(np.any(np.all(np.abs(image - np.array(to_rgb(colour))) < 0.02, axis=-1)))


def test_each_experiment_has_its_own_colour(tmp_path):
    path = tmp_path / "plot.png"
    assert plot([("base-rl", rows(90.0, has_labels=False)), ("syn-1400", rows())], path) == path
    image = read(path)
    assert [has_colour(image, colour) for colour in COLOURS[:3]] == [True, True, False]


def test_plot_without_labels_has_no_small_panels(tmp_path):
    labelled = read(plot([("x", rows())], tmp_path / "labelled.png"))
    plain = read(plot([("x", rows(has_labels=False))], tmp_path / "plain.png"))
    assert plain.shape[0] < labelled.shape[0]
    assert plain.shape[1] == labelled.shape[1]


@pytest.mark.parametrize("curves", [[], [("x", [])], [("x", [{"step": 0, "true_return": None}])]])
def test_plot_without_points_is_written(tmp_path, curves):
    assert read(plot(curves, tmp_path / "plot.png")).size > 0


@pytest.mark.parametrize("name", ["_underscore", "$x", "$\\frac$", "环境", "x" * 300, "", "a\\b"])
def test_legend_accepts_any_name(tmp_path, name):
    assert read(plot([(name, rows())], tmp_path / "plot.png")).size > 0


def test_legend_with_long_names_is_complete(tmp_path):
    curves = [(f"hopper-with-labels-of-a-person-seed-{seed}-weight", []) for seed in range(5)]
    image = read(plot(curves, tmp_path / "plot.png"))
    assert all(has_colour(image, colour) for colour in COLOURS[:5])
    assert (image[:, -1] == 1.0).all()


def test_legend_of_many_experiments_leaves_room_for_curves(tmp_path):
    names = [f"hopper-with-labels-of-a-person-seed-{seed}" for seed in range(40)]
    few = read(plot([(names[0], rows())], tmp_path / "few.png"))
    many = read(plot([(name, rows()) for name in names], tmp_path / "many.png"))
    # Three columns of 14 names: 13 more lines of at least 20 pixels.
    assert many.shape[0] - few.shape[0] > 13 * 20
    assert many.shape[1] == few.shape[1]


def test_more_experiments_than_colours_are_plotted(tmp_path):
    curves = [(f"seed {seed}", rows(10.0 * seed)) for seed in range(len(COLOURS) + 2)]
    image = read(plot(curves, tmp_path / "plot.png"))
    assert all(has_colour(image, colour) for colour in COLOURS)


def test_points_skips_rows_without_metric():
    incomplete_rows = [{"step": 1, "loss": 0.5}, {"step": 2}, {"step": 3, "loss": float("nan")}]
    assert points(incomplete_rows, "loss") == ([1], [0.5])
