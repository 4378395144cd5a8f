"""Page of `rl-teacher play` with one agent, two agents and a video."""

import shutil

import pytest

from rl_teacher.store.database import default_url
from rl_teacher.store.store import Store
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import PHONE, WIDE
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.processes import Running
from tests.play.conftest import trained  # noqa: F401 - a fixture
from tests.store.credentials import issue_credential

pytestmark = pytest.mark.browser

PLAYED = {
    "alone": ["synth", "--episodes", "3"],
    "two": ["synth", "--compare", "rl", "--episodes", "2"],
    "video": ["cart", "--episodes", "2", "--explore"],
}


@pytest.fixture(scope="module")
def played(browser, trained, tmp_path_factory):  # noqa: F811
    """Return a function that starts `rl-teacher play` once for each name of `PLAYED`."""
    home = tmp_path_factory.mktemp("played") / "home"
    shutil.copytree(trained, home)
    running: dict[str, Running] = {}

    def play(name):
        if name not in running:
            arguments = ["play", *PLAYED[name], "--no-browser", "--port", "0"]
            running[name] = Running(home, name, *arguments)
        return running[name]

    yield play
    codes = {name: each.end() for name, each in running.items()}
    assert codes == dict.fromkeys(running, 0)


@pytest.fixture
def open_played(open_context, played):
    """Return a function that opens the play page in a new browser context."""

    def opened(name, **options):
        page = LabellingPage(open_context(**options).new_page())
        page.page.goto(played(name).printed_link())
        wait_for_episode(page, 0)
        return page

    return opened


def wait_for_episode(opened, number):
    shown = opened.page.locator(f".clip-player[data-clips='episode {number}']")
    shown.wait_for(timeout=PATIENCE_MS)


def pause(opened):
    opened.press(" ")
    opened.wait_until("!hooks.isPlaying")


def playhead(opened, strip=0):
    """Return the position of the playhead as a fraction of the curve's width."""
    left = opened.page.locator(".playhead").nth(strip).evaluate("mark => mark.style.left")
    return float(left.removesuffix("%")) / 100


class TestKeys:
    def test_space_pauses_and_arrows_step_frames(self, open_played):
        opened = open_played("alone")
        pause(opened)
        opened.press("r")
        opened.wait_until("hooks.time_s === 0")
        opened.press("ArrowRight")
        opened.press("ArrowRight")
        # Clips of the Reacher have 10 frames per second.
        opened.wait_until("Math.abs(hooks.time_s - 0.2) < 1e-6")
        opened.press("ArrowLeft")
        opened.wait_until("Math.abs(hooks.time_s - 0.1) < 1e-6")
        opened.press(" ")
        opened.wait_until("hooks.isPlaying")

    def test_n_and_p_cycle_through_episodes(self, open_played):
        opened = open_played("alone", reduced_motion="reduce")
        for key, number in (("n", 1), ("n", 2), ("n", 0), ("p", 2)):
            opened.press(key)
            wait_for_episode(opened, number)
            opened.page.get_by_text(f"Episode {number + 1} of 3").wait_for()

    def test_digits_set_playback_speed(self, open_played):
        opened = open_played("alone")
        opened.press("1")
        opened.page.get_by_role("button", name="0.25", pressed=True).wait_for()


class TestRewards:
    def test_playhead_follows_the_clip(self, open_played):
        opened = open_played("alone")
        pause(opened)
        opened.press("r")
        opened.wait_until("hooks.time_s === 0")
        assert playhead(opened) == 0
        for _ in range(5):
            opened.press(".")
        opened.wait_until("Math.abs(hooks.time_s - 0.5) < 1e-6")
        # 20 frames at 10 per second last 2 s.
        assert playhead(opened) == pytest.approx(0.25, abs=0.001)

    def test_click_on_curve_seeks_in_the_clip(self, open_played):
        opened = open_played("alone")
        pause(opened)
        track = opened.page.get_by_role("slider", name="Position in the episode").first
        box = track.bounding_box()
        assert box is not None
        opened.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
        opened.wait_until("Math.abs(hooks.time_s - 1) < 0.05")

    def test_table_sums_predicted_and_true_rewards(self, open_played, played):
        opened = open_played("alone", reduced_motion="reduce")
        for number in (1, 2):
            opened.press("n")
            wait_for_episode(opened, number)
        rows = opened.page.locator("tbody tr, tfoot tr").all_inner_texts()
        cells = [[each.replace(",", "") for each in row.split("\t")] for row in rows]
        steps, predicted, true = zip(*(map(float, row[1:]) for row in cells), strict=True)
        assert steps == (20,) * 4
        assert sum(predicted[:3]) / 3 == pytest.approx(predicted[3], abs=0.1)
        assert sum(true[:3]) / 3 == pytest.approx(true[3], abs=0.1)
        assert max(true) < 0


class TestEpisodes:
    def test_episodes_advance_automatically(self, open_played):
        opened = open_played("alone")
        opened.press("5")
        for number in (1, 2, 0):
            wait_for_episode(opened, number)

    def test_episodes_of_two_agents_are_synchronised(self, open_played):
        opened = open_played("two")
        pause(opened)
        text = opened.page.locator("main").inner_text()
        assert "synth and rl" in text
        assert "ppo, step 1,024, latest checkpoint" in text
        assert "The agent was trained on the true reward" in text
        assert opened.page.locator(".pane").count() == 2
        # One agent has predicted and true rewards, the other only true ones.
        assert opened.page.locator(".reward-curve").count() == 3
        opened.press(".")
        opened.wait_until("hooks.time_s > 0")
        opened.page.wait_for_timeout(300)
        assert playhead(opened, 0) == playhead(opened, 1) == playhead(opened, 2)

    def test_episodes_without_mujoco_are_videos(self, open_played):
        opened = open_played("video")
        film = "document.querySelector('video.clip-video')"
        opened.wait_until(f"{film}.readyState >= 2 && {film}.videoWidth === 600")
        opened.page.get_by_text("sampled actions").wait_for()


class TestVisitors:
    def test_visitor_without_token_sees_help(self, open_context, played):
        address = played("alone").printed_link().partition("?")[0]
        page = open_context().new_page()
        answered = page.goto(address)
        assert answered is not None
        assert answered.status == 401
        assert "Authentication required" in page.locator("body").inner_text()

    def test_labeler_is_redirected_to_experiments(self, open_context, played):
        running = played("alone")
        link = running.printed_link()
        with Store.open(default_url(running.home)) as store:
            store.labelers.add("ann")
            credential = issue_credential(store, "ann")
        page = open_context().new_page()
        page.goto(f"{link.partition('?')[0]}?token={credential}")
        page.wait_for_url(lambda url: url.endswith("/"), timeout=PATIENCE_MS)

    def test_service_without_player_shows_command(self, open_context, service):
        page = open_context().new_page()
        page.goto(service.link("/play"))
        page.get_by_text("rl-teacher play NAME").wait_for(timeout=PATIENCE_MS)

    def test_loaded_episodes_remain_after_command_ends(self, open_context, trained, tmp_path):  # noqa: F811
        home = tmp_path / "home"
        shutil.copytree(trained, home)
        running = Running(home, "play", "play", "synth", "--episodes", "3", "--no-browser")
        opened = LabellingPage(open_context().new_page())
        opened.page.goto(running.printed_link())
        wait_for_episode(opened, 0)
        opened.page.wait_for_timeout(1_000)
        assert running.end() == 0
        opened.press("n")
        opened.press("n")
        opened.page.get_by_text("Playback has ended").wait_for(timeout=PATIENCE_MS)
        opened.wait_until("hooks.isPlaying")


class TestPage:
    @pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
    @pytest.mark.parametrize("name", PLAYED)
    def test_page_fits_screen_and_loads_no_external_resources(
        self, open_context, played, name, size
    ):
        context = open_context(viewport=size, has_touch=size == PHONE)
        requests, complaints = [], []
        context.on("request", lambda request: requests.append(request.url))
        context.on("console", lambda message: complaints.append((message.type, message.text)))
        opened = LabellingPage(context.new_page())
        link = played(name).printed_link()
        opened.page.goto(link)
        wait_for_episode(opened, 0)
        assert opened.page.url == link.partition("?")[0]
        assert opened.page.evaluate("scrollY") == 0
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        own = link.partition("/play")[0]
        allowed = (f"{own}/", "data:", f"blob:{own}/")
        assert [url for url in requests if not url.startswith(allowed)] == []
        assert [text for kind, text in complaints if kind == "error"] == []

    @pytest.mark.parametrize("name", ["alone", "two"])
    def test_page_meets_accessibility_rules(self, open_played, name):
        opened = open_played(name, reduced_motion="reduce")
        assert_accessible(opened.page)
