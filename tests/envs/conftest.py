"""Fixtures of the environment tests."""

import pytest

from rl_teacher.envs.atari.rules import GAME_RULES, GameRules


@pytest.fixture
def rule(monkeypatch):
    """Function that replaces the rules of an Atari game during a test."""

    def set_rules(name, **rules):
        monkeypatch.setitem(GAME_RULES, name, GameRules(**rules))

    return set_rules
