"""Tests of the plot of learning curves."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rl_teacher.report.plot import COLOURS, plot


def row(step, max_return, has_labels):
    metrics = {"step": step, "true_return": max_return * step / 1e5}
    if has_labels:
        metrics |= {"beats_untrained": 0.9, "held_out_accuracy": 0.8, "labels_answered": step}
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


def test_more_experiments_than_colours_are_plotted(tmp_path):
    curves = [(f"seed {seed}", rows(10.0 * seed)) for seed in range(len(COLOURS) + 2)]
    image = read(plot(curves, tmp_path / "plot.png"))
    assert all(has_colour(image, colour) for colour in COLOURS)
