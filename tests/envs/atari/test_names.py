"""Names of Atari games."""

import ale_py  # noqa: F401 - registers its own ids with Gymnasium, which must not get in the way
import pytest

from rl_teacher.common.errors import UnknownName
from rl_teacher.envs.atari.names import game_of, games, resolve_game
from rl_teacher.envs.registry import get_env_info, list_atari_infos


@pytest.mark.parametrize(
    ("spelling", "full_id"),
    [
        ("Pong-v0", "PongNoFrameskip-v4"),
        ("Pong-v4", "PongNoFrameskip-v4"),
        ("PongNoFrameskip-v4", "PongNoFrameskip-v4"),
        ("PongDeterministic-v0", "PongNoFrameskip-v4"),
        ("Pong", "PongNoFrameskip-v4"),
        ("pONG-V0", "PongNoFrameskip-v4"),
        ("space_invaders", "SpaceInvadersNoFrameskip-v4"),
        ("spaceinvaders-v4", "SpaceInvadersNoFrameskip-v4"),
        ("MontezumaRevenge-v0", "MontezumaRevengeNoFrameskip-v4"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("ale/pong-v5", "ALE/Pong-v5"),
        ("ALE/Pong", "ALE/Pong-v5"),
    ],
)
def test_spelling_of_game_resolves_to_full_id(spelling, full_id):
    assert get_env_info(spelling).id == full_id


def test_every_game_has_plain_and_sticky_id():
    names = [game.name for game in games()]
    assert len(names) == len(set(names)) > 100
    for game in games():
        assert game_of(game.id) == game
        sticky = resolve_game(f"ALE/{game.name}-v5")
        assert sticky is not None
        assert (sticky.rom, sticky.is_sticky, game.is_sticky) == (game.rom, True, False)


def test_misspelt_game_is_refused_with_nearest_names():
    with pytest.raises(UnknownName, match="Did you mean Breakout-v0, Breakout-v4"):
        get_env_info("Braekout-v0")
    with pytest.raises(UnknownName, match="ALE/MontezumaRevenge-v5"):
        get_env_info("ALE/MontezumasRevenge-v5")


@pytest.mark.parametrize("spelling", ["Pong-v5", "ALE/Pong-v4", "Pong-v1", "Combat"])
def test_unknown_version_and_game_for_two_players_are_refused(spelling):
    with pytest.raises(UnknownName, match=spelling):
        get_env_info(spelling)


def test_other_environments_are_no_games():
    assert game_of("Hopper-v5") is None
    assert resolve_game("CartPole-v1") is None
    assert get_env_info("hopper-v4").backend == "gymnasium"
    assert get_env_info("hopper").id == "Hopper-v1"


def test_env_info_describes_game():
    pong = get_env_info("Pong-v0")
    assert (pong.fps, pong.max_episode_steps, pong.backend) == (15.0, 27_000, "atari")
    assert pong.can_terminate
    enduro = get_env_info("Enduro-v0")
    assert (enduro.max_episode_steps, enduro.can_terminate) == (750, False)
    assert len(list_atari_infos()) == 2 * len(list(games()))


def test_module_prefix_is_kept_in_id(tmp_path, monkeypatch):
    (tmp_path / "my_pong.py").write_text(
        "from rl_teacher.envs.atari.rules import GAME_RULES, GameRules\n"
        "GAME_RULES['Pong'] = GameRules(max_episode_steps=99)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from rl_teacher.envs.atari.rules import GAME_RULES

    monkeypatch.setattr("rl_teacher.envs.atari.rules.GAME_RULES", dict(GAME_RULES))
    info = get_env_info("my_pong:Pong-v0")
    assert (info.id, info.max_episode_steps) == ("my_pong:PongNoFrameskip-v4", 99)
