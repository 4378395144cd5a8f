"""Page of `rl-teacher circus`, opened from its file."""

import io
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from rl_teacher.clips.renderer import SegmentRenderer
from rl_teacher.clips.segment import Segment
from rl_teacher.envs.registry import get_env_info
from rl_teacher.play import circus
from rl_teacher.play.circus import ACTS
from tests.browser.accessibility import assert_accessible
from tests.browser.labelling_page import PATIENCE_MS
from tests.browser.layout import assert_fits

pytestmark = pytest.mark.browser

NUM_STEPS = 100
DESKTOP = {"width": 1280, "height": 900}
SCALE = 0.25
"""Pixels per CSS pixel; the fewer there are, the sooner eight clips are drawn."""


def swinging_clip(act, period):
    """Return the clip of a body whose last joint swings."""
    with closing(SegmentRenderer(get_env_info(act.env_id))) as renderer:
        assert renderer.model is not None
        states = np.tile(renderer.model.qpos0, (NUM_STEPS, 1))
        joint = 1 if act.task == "opposite" else -1  # Reacher's last joint is its target's
        states[:, joint] += np.sin(np.arange(NUM_STEPS) * 2 * np.pi / period)
        zeros = np.zeros(NUM_STEPS, np.float32)
        segment = Segment(act.env_id, zeros[:, None], zeros[:, None], zeros, states)
        return circus.encode_clip(renderer, segment)


@pytest.fixture(scope="module")
def page_file(browser, tmp_path_factory):
    acts = [
        {
            "title": act.title,
            "task": act.task,
            "env_id": act.env_id,
            "sentence": act.sentence,
            "measure": act.teacher.measure_name,
            "is_share": act.teacher.is_share,
            "taught": {"mean": 0.83},
            "true_reward": {"mean": 0.02},
            "clips": [swinging_clip(act, 20), swinging_clip(act, 33)],
        }
        for act in ACTS
    ]
    data = {"steps": 1_000_000, "labels": 700, "seed": 1, "episodes": 10, "acts": acts}
    path = tmp_path_factory.mktemp("circus") / "circus.html"
    path.write_text(circus.fill_page(circus.PAGE.read_text(), data))
    return path


def wait_for(page, condition):
    """Wait until a condition on the page holds."""
    for _ in range(PATIENCE_MS // 200):
        if condition():
            return
        page.wait_for_timeout(200)
    pytest.fail("The page did not get there.")


def scaled_corners(x, y, width, height):
    """Return the corners of a box at `SCALE`."""
    return SCALE * x, SCALE * y, SCALE * (x + width), SCALE * (y + height)


def images(page):
    """Return the pixels of all panes of a page at `SCALE`, from one screenshot."""
    boxes = [pane.bounding_box() for pane in page.locator(".pane").all()]
    with Image.open(io.BytesIO(page.screenshot(full_page=True))) as whole:
        return [whole.crop(scaled_corners(**box)).convert("RGB").tobytes() for box in boxes]


def test_page_alone_moves_eight_clips_until_space_pauses_them(open_context, page_file):
    context = open_context(viewport=DESKTOP, offline=True, device_scale_factor=SCALE)
    requests, complaints = [], []
    context.on("request", lambda request: requests.append(request.url))
    context.on("console", lambda message: complaints.append((message.type, message.text)))
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.locator(".pane").nth(7).wait_for(timeout=PATIENCE_MS)
    first = images(page)
    assert len(first) == 8
    moved = np.zeros(8, bool)

    def all_moved():
        moved[:] |= [now != then for now, then in zip(images(page), first, strict=True)]
        return moved.all()

    wait_for(page, all_moved)
    page.keyboard.press(" ")
    wait_for(page, lambda: images(page) == images(page))
    assert page.get_by_role("button", name="Play").count() == 1

    cards = page.locator("section").all_inner_texts()
    assert [act.title in card for act, card in zip(ACTS, cards, strict=True)] == [True] * 4
    assert [("83 %" in card, "2 %" in card) for card in cards[:2]] == [(True, True)] * 2
    assert "700 comparisons" in page.locator("main").inner_text()
    page.emulate_media(reduced_motion="reduce")
    assert_accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert_fits(page)
    assert [url for url in requests if not url.startswith(("data:", page_file.as_uri()))] == []
    assert [text for kind, text in complaints if kind == "error"] == []
