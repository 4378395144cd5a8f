"""What a person sees while it runs."""

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rl_teacher.report.progress import LINE_EVERY_S, Progress

ROW = {
    "step": 412_345,
    "steps_per_second": 18_903.2,
    "true_return": 812.44,
    "predicted_return": 3.21,
    "labels_asked": 230,
    "labels_answered": 212,
    "held_out_accuracy": 0.873,
}


def output(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class RunTimer:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return RunTimer()


def make(clock, *, is_terminal, width=100):
    console = Console(
        file=io.StringIO(), force_terminal=is_terminal, width=width, height=30, no_color=True
    )
    return Progress("syn-1400", "ShortHopper-v1", 1_000_000, console=console, now=clock)


def seen(progress):
    """What the panel shows, without the terminal's control codes."""
    console = Console(file=io.StringIO(), width=progress.console.width, height=30)
    console.print(progress.panel())
    return output(console)


def lines(progress):
    return output(progress.console).splitlines()


class TestPanel:
    def test_it_shows_every_figure(self, clock):
        progress = make(clock, is_terminal=True)
        progress.update(ROW)
        clock.now_s += 22
        text = seen(progress)
        for words in (
            "syn-1400 · ShortHopper-v1",
            "41 %",
            "412,345 of 1,000,000 steps",
            "18,903 steps/s · 22 s gone · 31 s left",
            "812.4",
            "3.2",
            "212 of 230 asked",
            "87 %",
        ):
            assert words in text

    def test_before_the_first_figures_it_shows_dashes(self, clock):
        text = seen(make(clock, is_terminal=True))
        assert "0 of 1,000,000 steps" in text
        assert "- steps/s · 0 s gone · - left" in text

    def test_a_row_without_some_figures_leaves_the_earlier_ones(self, clock):
        progress = make(clock, is_terminal=True)
        progress.update(ROW)
        progress.update({"step": 500_000})
        assert "500,000 of" in seen(progress)
        assert "812.4" in seen(progress)

    def test_it_says_what_it_waits_for_and_since_when(self, clock):
        progress = make(clock, is_terminal=True)
        progress.status("waiting for labels, 37 of 175")
        assert "> waiting for labels, 37 of 175 " in seen(progress)
        clock.now_s += 95
        progress.status("waiting for labels, 37 of 175")
        assert "> waiting for labels, 37 of 175 (1 min 35 s)" in seen(progress)

    def test_a_new_status_starts_its_time_anew(self, clock):
        progress = make(clock, is_terminal=True)
        progress.status("compiling")
        clock.now_s += 95
        progress.status("training")
        assert "> training " in seen(progress)

    @pytest.mark.parametrize("width", [20, 40, 60, 200])
    def test_it_is_never_wider_than_the_terminal(self, clock, width):
        progress = make(clock, is_terminal=True, width=width)
        progress.update(ROW)
        progress.status("a long story " * 20)
        assert max(len(line) for line in seen(progress).splitlines()) <= width

    def test_brackets_in_a_status_are_text_and_not_markup(self, clock):
        progress = make(clock, is_terminal=True)
        progress.status("teacher [bold]said[/nonsense] x")
        assert "teacher [bold]said[/nonsense] x" in seen(progress)

    @given(
        step=st.none() | st.integers(0, 10**12),
        figure=st.none() | st.floats(),
        total_steps=st.integers(0, 10**12),
    )
    def test_no_figure_breaks_it(self, step, figure, total_steps):
        console = Console(file=io.StringIO(), force_terminal=True, width=80)
        progress = Progress("x", "E", total_steps, console=console)
        progress.update({**dict.fromkeys(ROW, figure), "step": step})
        assert "steps/s" in seen(progress)

    def test_the_live_display_leaves_its_last_state_on_the_screen(self, clock):
        progress = make(clock, is_terminal=True)
        with progress:
            progress.update(ROW)
        assert "812.4" in output(progress.console)

    def test_it_is_drawn_at_most_four_times_a_second(self):
        progress = make(time.monotonic, is_terminal=True)
        began_s = time.monotonic()
        with progress:
            while time.monotonic() < began_s + 0.6:
                progress.update(ROW)
                progress.status("training")
        took_s = time.monotonic() - began_s
        drawn = output(progress.console).count("syn-1400")
        assert 2 <= drawn <= 3 + 4 * took_s


class TestLines:
    def test_a_line_has_every_figure(self, clock):
        progress = make(clock, is_terminal=False)
        progress.update(ROW)
        assert lines(progress) == [
            "412,345/1,000,000 steps | 18,903/s | 31 s left | true return 812.4 | predicted 3.2 | "
            "labels 212/230 | accuracy 87 % | starting"
        ]

    def test_there_is_one_line_in_ten_seconds(self, clock):
        progress = make(clock, is_terminal=False)
        for _ in range(300):
            progress.update(ROW)
            clock.now_s += 0.1
        assert len(lines(progress)) == 30 / LINE_EVERY_S

    def test_each_change_of_what_it_waits_for_is_one_line(self, clock):
        progress = make(clock, is_terminal=False)
        for text in ("compiling", "waiting for labels", "waiting for labels", "training"):
            progress.status(text)
            clock.now_s += 0.1
        assert [line.split(" | ")[-1] for line in lines(progress)] == [
            "compiling",
            "waiting for labels",
            "training",
        ]

    def test_whoever_waits_long_is_told_so_again(self, clock):
        progress = make(clock, is_terminal=False)
        for _ in range(25):
            progress.status("waiting for labels")
            clock.now_s += 1
        assert lines(progress)[-1].endswith("waiting for labels (20 s)")

    def test_the_last_line_is_how_it_ended(self, clock):
        with make(clock, is_terminal=False) as progress:
            progress.update({"step": 0})
            progress.update({"step": 1_000_000})
        assert lines(progress)[-1].startswith("1,000,000/1,000,000 steps")

    def test_a_line_is_never_broken_in_two(self, clock):
        progress = make(clock, is_terminal=False, width=40)
        progress.update(ROW)
        assert len(lines(progress)) == 1
