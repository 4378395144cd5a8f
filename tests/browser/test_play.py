"""Page of `rl-teacher play` with one agent, two agents and a video."""

import shutil

import pytest

from tests.browser.accessibility import assert_accessible
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.layout import assert_fits
from tests.browser.processes import Running
from tests.play.conftest import trained  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def played(browser, trained, tmp_path_factory):  # noqa: F811
    """`rl-teacher play` of an agent that learned from predicted rewards beside another."""
    home = tmp_path_factory.mktemp("played") / "home"
    shutil.copytree(trained, home)
    options = ["--compare", "rl", "--episodes", "3", "--no-browser", "--port", "0"]
    running = Running(home, "play", "play", "synth", *options)
    yield running
    assert running.end() == 0


def wait_for_episode(opened, number):
    shown = opened.page.locator(f".clip-player[data-clips='episode {number}']")
    shown.wait_for(timeout=PATIENCE_MS)


def playhead(opened, strip):
    """Return the position of the playhead as a fraction of the curve's width."""
    left = opened.page.locator(".playhead").nth(strip).evaluate("mark => mark.style.left")
    return float(left.removesuffix("%")) / 100


def test_two_agents_play_in_step_with_their_rewards(open_context, played):
    opened = LabellingPage(open_context().new_page())
    page = opened.page
    page.goto(played.printed_link())
    wait_for_episode(opened, 0)
    opened.press(" ")
    opened.wait_until("!hooks.isPlaying")
    text = page.locator("main").inner_text()
    assert "synth and rl" in text
    assert "ppo, step 1,024, latest checkpoint" in text
    assert page.locator(".pane").count() == 2
    opened.press("r")
    opened.wait_until("hooks.time_s === 0")
    for _ in range(5):
        opened.press(".")
    # Clips of the Reacher have 10 frames per second; 20 frames last 2 s.
    opened.wait_until("Math.abs(hooks.time_s - 0.5) < 1e-6")
    page.wait_for_timeout(200)
    # One agent has predicted and true rewards, the other only true ones.
    assert [playhead(opened, strip) for strip in range(3)] == pytest.approx([0.25] * 3, abs=0.001)
    track = page.get_by_role("slider", name="Position in the episode").first
    width = track.evaluate("track => track.clientWidth")
    track.click(position={"x": width / 2, "y": 10})
    opened.wait_until("Math.abs(hooks.time_s - 1) < 0.05")
    for key, number in (("n", 1), ("n", 2), ("n", 0), ("p", 2)):
        opened.press(key)
        wait_for_episode(opened, number)
    rows = page.locator("tbody tr, tfoot tr").all_inner_texts()
    cells = [[each.replace(",", "") for each in row.split("\t")] for row in rows]
    predicted = [float(row[2]) for row in cells]
    assert sum(predicted[:3]) / 3 == pytest.approx(predicted[3], abs=0.1)
    opened.press("5")
    opened.press(" ")
    wait_for_episode(opened, 0)  # The next episode follows by itself.
    page.emulate_media(reduced_motion="reduce")
    assert_accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert_fits(page)
