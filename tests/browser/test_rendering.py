"""Rendering of poses at the expected pixels, and of videos in step."""

from dataclasses import dataclass

import numpy as np
import pytest

from tests.browser.experiments import in_shown_order
from tests.browser.layout import NEXT_FRAMES

pytestmark = pytest.mark.browser

FPS = 25.0
NUM_FRAMES = 40
SHOWN = "[...document.querySelectorAll('video.clip-video:not(.preloaded)')]"
READ_FRAMES = f"""
() => {SHOWN}.map((film) => {{
  const canvas = document.createElement('canvas')
  canvas.width = canvas.height = 48
  const surface = canvas.getContext('2d')
  surface.drawImage(film, 0, 0, 48, 48)
  return [...surface.getImageData(0, 0, 48, 48).data]
}})
"""

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


def test_bodies_are_drawn_at_their_poses_on_both_sides(shown):
    opened, balls = shown
    for frame, along in ((0, (0, 0, 1)), (1, (1, 0, 0))):
        if frame > 0:
            opened.press(".")
        opened.wait_until("Math.abs(hooks.time_s - given) < 1e-6", frame / 10)
        opened.page.evaluate(NEXT_FRAMES)
        for side in (0, 1):
            *_, width, height = opened.pane(side)
            image, camera = opened.screenshot(side), Camera(width, height)
            place, per_metre = camera.project(balls[side][frame])
            red, blue = is_red(image), is_blue(image)
            rows, columns = np.nonzero(red)
            middle = np.array([columns.mean(), rows.mean()]) + 0.5
            np.testing.assert_allclose(middle, place, atol=2)
            assert np.sqrt(red.sum() / np.pi) == pytest.approx(RADIUS * per_metre, abs=2)
            for reach in (-0.9, 0.0, 0.9):
                rod = ROD + reach * HALF_LENGTH * np.array(along)
                assert is_set(blue, camera.project(rod)[0])


def test_videos_play_in_step_and_stop_at_exact_frames(open_page, experiment):
    rng = np.random.default_rng(1)
    # Blocks survive the compression.
    blocks = rng.integers(0, 255, (2, NUM_FRAMES, 6, 6, 3), dtype=np.uint8)
    films = blocks.repeat(16, axis=2).repeat(16, axis=3)
    hashes = tuple(experiment.add_video_clip(film, fps=FPS) for film in films)
    [comparison_id] = experiment.ask_about([hashes])
    opened = open_page(experiment.name)
    opened.wait_for_comparison(comparison_id)
    opened.wait_until(f"{SHOWN}.every((film) => !film.paused && film.currentTime > 0.2)")
    apart = f"const [left, right] = {SHOWN}; return Math.abs(left.currentTime - right.currentTime)"
    opened.wait_until(f"(() => {{ {apart} < 0.1 }})()")
    opened.press(" ")
    opened.press("r")
    for _ in range(17):
        opened.press(".")
    opened.wait_until(
        f"{SHOWN}.every((film) => film.paused && !film.seeking"
        " && Math.floor(film.currentTime * given.fps) === given.frame)",
        {"fps": FPS, "frame": 17},
    )
    drawn = np.array(opened.page.evaluate(READ_FRAMES)).reshape(2, 48, 48, 4)[..., :3]
    for side, film in enumerate(in_shown_order(comparison_id, tuple(films))):
        differences = np.abs(film[:, ::2, ::2].astype(float) - drawn[side]).mean(axis=(1, 2, 3))
        assert differences.argmin() == 17
