"""Tests of the live progress."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rl_teacher.report.progress import LINE_EVERY_S, Progress

PATIENCE_S = 60.0

ROW = {
    "step": 412_345,
    "steps_per_second": 18_903.2,
    "true_return": 812.44,
    "beats_untrained": 0.931,
    "labels_asked": 230,
    "labels_answered": 212,
    "held_out_accuracy": 0.873,
}


def output(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class FakeClock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return FakeClock()


def make(clock, *, is_terminal, width=100):
    console = Console(
        file=io.StringIO(), force_terminal=is_terminal, width=width, height=30, no_color=True
    )
    return Progress("syn-1400", "ShortHopper-v1", 1_000_000, console=console, now=clock)


def panel_text(progress):
    """Return the text of the panel without control codes of the terminal."""
    console = Console(file=io.StringIO(), width=progress.console.width, height=30)
    console.print(progress.panel())
    return output(console)


def lines(progress):
    return output(progress.console).splitlines()


def test_text_that_looks_like_an_emoji_code_is_printed_as_it_is(clock):
    progress = make(clock, is_terminal=False)
    progress.page("http://127.0.0.1:8765/e/:bug:")
    assert lines(progress) == ["page: http://127.0.0.1:8765/e/:bug:"]


class TestPanel:
    def test_panel_shows_every_metric(self, clock):
        progress = make(clock, is_terminal=True)
        progress.update(ROW)
        clock.now_s += 22
        text = panel_text(progress)
        for part in (
            "syn-1400 · ShortHopper-v1",
            "41 %",
            "412,345 of 1,000,000 steps",
            "18,903 steps/s · 22 s elapsed · 31 s left",
            "812.4",
            "93 %",
            "212 of 230 asked",
            "87 %",
        ):
            assert part in text

    def test_panel_and_line_show_clips_beside_labels_where_clips_are_sorted(self, clock):
        progress = make(clock, is_terminal=True)
        progress.update(ROW | {"clips_sorted": 40})
        assert re.search(r"clips +40 ", panel_text(progress))
        progress.update({"clips_wanted": 1_200})
        assert "40 of 1,200" in panel_text(progress)
        line = make(clock, is_terminal=False)
        line.update(ROW | {"clips_sorted": 40, "clips_wanted": 1_200})
        assert "| labels 212/230 | clips 40/1,200 | accuracy" in lines(line)[0]

    def test_panel_shows_status_and_its_duration(self, clock):
        progress = make(clock, is_terminal=True)
        progress.status("waiting for labels, 37 of 175")
        assert "> waiting for labels, 37 of 175 " in panel_text(progress)
        clock.now_s += 95
        progress.status("waiting for labels, 37 of 175")
        assert "> waiting for labels, 37 of 175 (1 min 35 s)" in panel_text(progress)

    @pytest.mark.parametrize("width", [40, 60, 70, 80])
    def test_narrow_panel_shows_labels_and_accuracy(self, clock, width):
        progress = make(clock, is_terminal=True, width=width)
        progress.update(ROW | {"clips_sorted": 5_200})
        text = panel_text(progress)
        assert "212 of 230 asked" in text
        assert "5,200" in text
        assert "87 %" in text

    @pytest.mark.parametrize("width", [20, 40, 60, 200])
    def test_panel_is_never_wider_than_terminal(self, clock, width):
        progress = make(clock, is_terminal=True, width=width)
        progress.update(ROW)
        progress.status("a long story " * 20)
        assert max(len(line) for line in panel_text(progress).splitlines()) <= width

    @given(
        step=st.none() | st.integers(0, 10**12),
        value=st.none() | st.floats(),
        total_steps=st.integers(1, 10**12),
    )
    def test_panel_renders_any_metric_values(self, step, value, total_steps):
        console = Console(file=io.StringIO(), force_terminal=True, width=80)
        progress = Progress("x", "E", total_steps, console=console)
        progress.update({**dict.fromkeys(ROW, value), "step": step})
        assert " elapsed" in panel_text(progress)

    def test_run_without_training_shows_labels_but_no_steps(self, clock):
        for is_terminal in (True, False):
            console = make(clock, is_terminal=is_terminal).console
            progress = Progress("collected", "ShortHopper-v1", 0, console=console, now=clock)
            progress.update(ROW)
            text = panel_text(progress) if is_terminal else lines(progress)[0]
            assert re.search("212( of |/)230", text)
            assert "steps" not in text
            assert " left" not in text


class TestLines:
    def test_line_has_every_metric(self, clock):
        progress = make(clock, is_terminal=False)
        progress.update(ROW)
        assert lines(progress) == [
            "412,345/1,000,000 steps | 18,903/s | 31 s left | true return 812.4 | "
            "beats untrained agent 93 % | labels 212/230 | accuracy 87 % | starting"
        ]

    def test_one_line_is_printed_in_ten_seconds(self, clock):
        progress = make(clock, is_terminal=False)
        for _ in range(300):
            progress.update(ROW)
            clock.now_s += 0.1
        assert len(lines(progress)) == 30 / LINE_EVERY_S

    def test_last_line_has_final_step(self, clock):
        with make(clock, is_terminal=False) as progress:
            progress.update({"step": 0})
            progress.update({"step": 1_000_000})
        assert lines(progress)[-1].startswith("1,000,000/1,000,000 steps")

    def test_resumed_run_shows_metrics_so_far(self, clock):
        console = Console(file=io.StringIO(), width=200)
        progress = Progress("syn-1400", "Hopper-v1", 1_000_000, ROW, console, clock)
        progress.status("setting up")
        assert lines(progress)[0].startswith("412,345/1,000,000 steps")
