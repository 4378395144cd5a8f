"""Fixtures of the tests of environments."""

import pytest

from rl_teacher.envs.atari.rules import GAME_RULES, GameRules


@pytest.fixture
def rule(monkeypatch):
    """Lets a test play an Atari game by rules of its own."""

    def play_by(name, **rules):
        monkeypatch.setitem(GAME_RULES, name, GameRules(**rules))

    return play_by
