"""Rendering of poses at the expected pixels."""

from dataclasses import dataclass

import numpy as np
import pytest

from tests.browser.experiments import in_shown_order

pytestmark = pytest.mark.browser

RADIUS = 0.12
HALF_LENGTH = 0.5
HALF_FOV = np.radians(45) / 2
LOOKAT, DISTANCE, ELEVATION, AZIMUTH = np.array([0.0, 0.0, 0.6]), 4.0, -20.0, 90.0

BALLS = {
    "first": np.array([[0.3, 0.0, 0.9], [-0.4, 0.2, 0.5], [0.0, -0.3, 0.7]]),
    "second": np.array([[-0.2, 0.3, 0.4], [0.4, 0.0, 1.0], [0.1, 0.1, 0.3]]),
}
ROD = np.array([0.0, 0.0, 1.3])
UPRIGHT, LYING = np.array([1.0, 0, 0, 0]), np.array([0.5**0.5, 0, 0.5**0.5, 0])
"""Quaternions w x y z: the identity, and a quarter turn about y, which maps z to x."""


def geom(kind, body, size, rgba):
    return {
        "type": kind,
        "body": body,
        "size": size,
        "pos": [0, 0, 0],
        "quat": [1, 0, 0, 0],
        "rgba": rgba,
        "mesh": None,
        "hfield": None,
    }


SCENE = {
    "version": 1,
    "bodies": ["ball", "rod"],
    "geoms": [
        geom("plane", -1, [0, 0, 1], [0.5, 0.5, 0.5, 1]),
        geom("sphere", 0, [RADIUS, 0, 0], [0.9, 0.05, 0.05, 1]),
        geom("capsule", 1, [0.06, HALF_LENGTH, 0], [0.05, 0.1, 0.9, 1]),
    ],
    "meshes": [],
    "hfields": [],
    "camera": {
        "distance": DISTANCE,
        "elevation_deg": ELEVATION,
        "azimuth_deg": AZIMUTH,
        "lookat": LOOKAT.tolist(),
        "tracks": None,
    },
    "extent": 3.0,
    "ground_z": 0.0,
}


def clip_of(ball_places):
    """Return poses [T, 2, 7]: a moving ball, and a rod that is upright in the first frame only."""
    poses = np.zeros((len(ball_places), 2, 7))
    poses[:, 0, :3], poses[:, 0, 3:] = ball_places, UPRIGHT
    poses[:, 1, :3], poses[:, 1, 3:] = ROD, LYING
    poses[0, 1, 3:] = UPRIGHT
    return poses


@dataclass(frozen=True)
class Camera:
    """Independent implementation of MuJoCo's free camera."""

    width: float
    height: float

    def project(self, point):
        """Return column and row of a point in world coordinates, and the pixels per metre there."""
        azimuth, elevation = np.radians(AZIMUTH), np.radians(ELEVATION)
        forward = np.array(
            [
                np.cos(elevation) * np.cos(azimuth),
                np.cos(elevation) * np.sin(azimuth),
                np.sin(elevation),
            ]
        )
        right = np.cross(forward, [0, 0, 1])
        right /= np.linalg.norm(right)
        up = np.cross(right, forward)
        # The page moves the camera back in a narrow pane.
        distance = DISTANCE * max(1, 1.25 * self.height / self.width)
        seen = np.asarray(point) - (LOOKAT - distance * forward)
        depth = seen @ forward
        per_metre = self.height / 2 / (np.tan(HALF_FOV) * depth)
        column = self.width / 2 + per_metre * (seen @ right)
        row = self.height / 2 - per_metre * (seen @ up)
        return np.array([column, row]), per_metre


def is_red(image):
    red, green, blue = np.moveaxis(image.astype(int), -1, 0)
    return (red > 50) & (red > 2 * green) & (red > 2 * blue)


def is_blue(image):
    red, green, blue = np.moveaxis(image.astype(int), -1, 0)
    return (blue > 50) & (blue > 2 * green) & (blue > 2 * red)


def is_set(mask, place):
    column, row = np.floor(place).astype(int)
    return bool(mask[row, column])


@pytest.fixture
def shown(open_page, experiment):
    """Page at the first frame of two clips, with the positions of the ball in shown order."""
    first, second = (
        experiment.add_pose_clip(clip_of(each), SCENE, fps=10.0) for each in BALLS.values()
    )
    [comparison_id] = experiment.ask_about([(first, second)])
    opened = open_page(experiment.name, reduced_motion="reduce")
    opened.wait_for_comparison(comparison_id)
    assert opened.hook("time_s") == 0
    return opened, in_shown_order(comparison_id, (BALLS["first"], BALLS["second"]))


def go_to_frame(opened, frame):
    for _ in range(frame):
        opened.press(".")
    opened.wait_until("Math.abs(hooks.time_s - given) < 1e-6", frame / 10)
    opened.wait_until(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_ball_is_drawn_at_its_position_on_both_sides(shown, frame):
    opened, balls = shown
    go_to_frame(opened, frame)
    for side in (0, 1):
        left, top, width, height = opened.pane(side)
        red = is_red(opened.screenshot(side))
        place, per_metre = Camera(width, height).project(balls[side][frame])
        rows, columns = np.nonzero(red)
        middle = np.array([columns.mean(), rows.mean()]) + 0.5
        np.testing.assert_allclose(middle, place, atol=2)
        assert np.sqrt(red.sum() / np.pi) == pytest.approx(RADIUS * per_metre, abs=2)
        located = opened.page.evaluate(
            "([side, point]) => window.__rlTeacher.locate(side, point)",
            [side, balls[side][frame].tolist()],
        )
        np.testing.assert_allclose(np.array(located) - (left, top), place, atol=1)


@pytest.mark.parametrize(("frame", "along"), [(0, (0, 0, 1)), (1, (1, 0, 0))])
def test_rod_is_drawn_in_its_orientation(shown, frame, along):
    opened, _ = shown
    go_to_frame(opened, frame)
    across = np.array(along)[::-1]
    for side in (0, 1):
        *_, width, height = opened.pane(side)
        blue, camera = is_blue(opened.screenshot(side)), Camera(width, height)
        for reach in (-0.9, 0.0, 0.9):
            assert is_set(blue, camera.project(ROD + reach * HALF_LENGTH * np.array(along))[0])
        for reach in (-0.5, 0.5):
            assert not is_set(blue, camera.project(ROD + reach * HALF_LENGTH * across)[0])
