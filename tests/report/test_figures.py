"""Tests of the formatting of metrics."""

import pytest

from rl_teacher.report.figures import duration, number, percent, reward


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3600, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (None, "-"),
        (float("inf"), "-"),
    ],
)
def test_duration_has_at_most_two_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(1234567), "1,234,567"),
        (number(0.8712, digits=2), "0.87"),
        (number(None), "-"),
        (percent(0.873), "87 %"),
        (percent(float("nan")), "-"),
        (reward(12.34), "12.3"),
        (reward(-2345.6), "-2,346"),
        (reward(None), "-"),
        (reward("12"), "-"),
        (number([3]), "-"),
        (percent(10**400), "-"),
    ],
)
def test_number_is_formatted_for_display(text, expected):
    assert text == expected
