import hashlib
from contextlib import ExitStack, closing

import pytest

from rl_teacher.clips.poses import unpack
from rl_teacher.common.errors import BadInput, BadObservation
from rl_teacher.play import player as module
from rl_teacher.play.actors import load_actor
from rl_teacher.play.episodes import record_episode
from rl_teacher.play.options import PlayOptions
from rl_teacher.play.player import Player

TIMEOUT_S = 60.0


@pytest.fixture
def open_player(home):
    """Return a function that plays experiments."""
    with ExitStack() as stack:

        def opened(*names, **options):
            actors = [load_actor(name, "latest") for name in names]
            made = Player(actors, PlayOptions(names[0], **options))
            return stack.enter_context(closing(made))

        yield opened


def test_episode_reports_returns_and_curves_of_record(open_player):
    player = open_player("synth", seed=9)
    [side] = player.episode(1, TIMEOUT_S).sides
    with closing((actor := load_actor("synth", "latest")).venv):
        episode = record_episode(actor, 10, explore=False)
    assert side.true_return == pytest.approx(episode.segment.true_return)
    assert episode.predicted_rewards is not None
    assert side.predicted_return == pytest.approx(episode.predicted_rewards.sum(), rel=1e-5)
    assert side.num_steps == 20
    assert len(side.predicted_rewards) == len(side.true_rewards) == side.clip.num_frames


def test_episode_without_rewards_has_return_of_zero_but_no_curve(open_player, monkeypatch):
    def play_for_nothing(actor, seed, *, explore):
        episode = record_episode(actor, seed, explore=explore)
        episode.segment.rewards[:] = 0
        return episode

    monkeypatch.setattr(module, "record_episode", play_for_nothing)
    [side] = open_player("synth").episode(0, TIMEOUT_S).sides
    assert side.true_rewards is None
    assert side.true_return == 0


def test_pose_clip_is_served_by_hash_with_scene(open_player):
    player = open_player("synth")
    clip = player.episode(0, TIMEOUT_S).sides[0].clip
    picture = player.clip(clip.hash)
    assert clip.hash == hashlib.sha256(picture.content).hexdigest()
    poses, fps = unpack(picture.content)
    assert (len(poses), fps) == (clip.num_frames, clip.fps)
    assert clip.scene_url.startswith("/api/v1/play/scenes/")
    assert b'"bodies"' in player.scene(clip.scene_url.rpartition("/")[2])
    assert player.clip("0" * 64) is None
    assert player.scene("0" * 64) is None


def test_clip_without_mujoco_is_video(open_player):
    player = open_player("cart")
    clip = player.episode(0, TIMEOUT_S).sides[0].clip
    assert clip.kind == "video"
    assert clip.scene_url is None
    assert player.scene("") is None
    assert player.clip(clip.hash).content[4:8] == b"ftyp"


def test_two_actors_are_played_side_by_side(open_player):
    player = open_player("synth", "rl")
    left, right = player.episode(0, TIMEOUT_S).sides
    assert left.predicted_rewards is not None
    assert right.predicted_rewards is None
    assert right.predicted_return is None
    assert left.clip.hash != right.clip.hash
    assert [each.name for each in player.session().players] == ["synth", "rl"]


def test_exploring_episodes_do_not_depend_on_request_order(open_player):
    in_order = open_player("synth", explore=True)
    one_by_one = [in_order.episode(number, TIMEOUT_S) for number in range(3)]
    at_once = open_player("synth", explore=True)
    assert at_once.episode(2, TIMEOUT_S) == one_by_one[2]
    assert at_once.episode(0, TIMEOUT_S) == one_by_one[0]


def test_error_of_environment_is_raised_to_caller(open_player, monkeypatch):
    def fail(*_, **__):
        raise BadObservation("NaN in step 3")

    monkeypatch.setattr(module, "record_episode", fail)
    with pytest.raises(BadObservation, match="step 3"):
        open_player("synth").episode(0, TIMEOUT_S)

    def break_off(*_, **__):
        raise ZeroDivisionError("broken step")

    monkeypatch.setattr(module, "record_episode", break_off)
    with pytest.raises(BadInput, match="ZeroDivisionError: broken step"):
        open_player("synth").episode(0, TIMEOUT_S)
