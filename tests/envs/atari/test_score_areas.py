"""Score areas, which are hidden from the agent."""

import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig
from rl_teacher.envs.atari.rules import SCORE_AREAS, Area, blank

PAPER_GAMES = {"BeamRider", "Breakout", "Pong", "Qbert", "Seaquest", "SpaceInvaders", "Enduro"}


def test_scaled_area_covers_every_touched_pixel():
    # 160 * 84 / 210 is 64; 15 * 84 / 210 is 6, 28 * 84 / 160 is 14.7, 74 * 84 / 160 is 38.85.
    assert Area(160, 210).within(84, 84) == (slice(64, 84), slice(0, 84))
    assert Area(4, 15, 28, 74).within(84, 84) == (slice(1, 6), slice(14, 39))
    assert Area(4, 15, 28, 74).within(210, 160) == (slice(4, 15), slice(28, 74))


def test_blank_blackens_only_score_areas():
    images = np.full((2, 3, 210, 160), 9, np.uint8)
    blank(images, "BeamRider")
    assert not images[:, :, :31].any()
    assert not images[:, :, 31:42, :80].any()
    assert (images[:, :, 31:42, 80:] == 9).all()
    assert (images[:, :, 42:] == 9).all()


def test_own_area_is_blanked(monkeypatch):
    monkeypatch.setitem(SCORE_AREAS, "MsPacman", (Area(170, 190), Area(190, 210, 0, 60)))
    images = np.full((1, 210, 160), 9, np.uint8)
    blank(images, "MsPacman")
    assert (images == 0).sum() == 20 * 160 + 20 * 60


@pytest.mark.parametrize("corners", [(5, 5), (0, 211), (0, 10, 20, 10), (0, 10, -1, 10)])
def test_area_off_screen_is_refused(corners):
    with pytest.raises(BadConfig, match="is not on the screen"):
        Area(*corners)
