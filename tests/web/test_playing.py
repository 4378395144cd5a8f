"""Routes and access of `rl-teacher play`."""

import contextlib
from contextlib import closing

import pytest

from rl_teacher.play.actors import load_actor
from rl_teacher.play.options import PlayOptions
from rl_teacher.play.player import Player
from rl_teacher.web.app import create_app
from rl_teacher.web.settings import Settings
from tests.play.conftest import home, trained  # noqa: F401 - fixtures
from tests.web.conftest import TOKEN, assert_problem, enter

PATHS = ("/api/v1/play", "/api/v1/play/episodes/0", "/api/v1/play/clips/x", "/api/v1/play/scenes/x")


@pytest.fixture
def open_app(home, store, media, static):  # noqa: F811
    """Return a function that creates the application that plays an experiment."""
    with contextlib.ExitStack() as stack:

        def opened(name, **options):
            actors = [load_actor(name, "latest")]
            player = stack.enter_context(closing(Player(actors, PlayOptions(name, **options))))
            return create_app(store, media, Settings(TOKEN, static=static), player)

        yield opened


@pytest.fixture
def playing_app(open_app):
    return open_app("synth", episodes=2)


@pytest.fixture
def owner(playing_app):
    return enter(playing_app, TOKEN)


class TestAccess:
    @pytest.mark.parametrize("path", PATHS)
    def test_other_service_reports_that_nothing_is_played(self, program, path):
        assert "rl-teacher play NAME" in assert_problem(program.get(path), 404)


class TestEpisodes:
    def test_session_lists_players(self, owner):
        assert owner.get("/api/v1/play").json() == {
            "players": [
                {
                    "name": "synth",
                    "env_id": "ShortReacher-v1",
                    "agent": "ppo",
                    "step": 1024,
                    "place": "latest checkpoint",
                    "is_training": False,
                    "notes": [],
                }
            ],
            "num_episodes": 2,
            "seed": 1,
            "is_exploring": False,
        }

    def test_episode_links_to_clip_and_scene(self, playing_app, owner):
        playing_app.state.services.player.episode(1, 60.0)
        episode = owner.get("/api/v1/play/episodes/1").json()
        assert (episode["number"], episode["seed"]) == (1, 2)
        [side] = episode["sides"]
        clip = owner.get(side["clip"]["url"])
        assert clip.content.startswith(b"RLTP")
        assert "immutable" in clip.headers["cache-control"]
        assert owner.get(side["clip"]["scene_url"]).json()["bodies"]

    def test_played_video_is_sent_as_mp4(self, open_app):
        app = open_app("cart")
        app.state.services.player.episode(0, 60.0)
        owner = enter(app, TOKEN)
        url = owner.get("/api/v1/play/episodes/0").json()["sides"][0]["clip"]["url"]
        clip = owner.get(url)
        assert clip.content[4:8] == b"ftyp"
        assert clip.headers["content-type"] == "video/mp4"

    def test_episode_can_be_downloaded(self, open_app):
        app = open_app("cart")
        app.state.services.player.episode(0, 60.0)
        response = enter(app, TOKEN).get("/api/v1/play/episodes/0/download?format=gif")
        assert response.headers["content-disposition"] == 'attachment; filename="episode-1.gif"'
        assert response.content.startswith(b"GIF89a")
