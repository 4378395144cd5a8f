import hashlib
import time
from contextlib import ExitStack, closing

import pytest

from rl_teacher.clips.poses import unpack
from rl_teacher.common.errors import BadInput, BadObservation
from rl_teacher.play import player as module
from rl_teacher.play.actors import actor_of
from rl_teacher.play.episodes import record_episode
from rl_teacher.play.options import PlayOptions
from rl_teacher.play.player import Player

PATIENCE_S = 60.0


@pytest.fixture
def open_desk(home):
    """A function that plays experiments."""
    with ExitStack() as stack:

        def opened(*names, **options):
            actors = [actor_of(name, "latest") for name in names]
            made = Player(actors, PlayOptions(names[0], **options))
            return stack.enter_context(closing(made))

        yield opened


def test_an_episode_says_what_was_lived(open_desk):
    player = open_desk("synth", seed=9)
    [side] = player.episode(1, PATIENCE_S).sides
    with closing((actor := actor_of("synth", "latest")).venv):
        episode = record_episode(actor, 10, explore=False)
    assert side.true_return == pytest.approx(episode.segment.true_return)
    assert episode.predicted_rewards is not None
    assert side.predicted_return == pytest.approx(episode.predicted_rewards.sum(), rel=1e-5)
    assert side.num_steps == 20
    assert len(side.predicted_rewards) == len(side.true_rewards) == side.clip.num_frames


def test_a_clips_bytes_are_poses_of_its_scene_under_its_hash(open_desk):
    player = open_desk("synth")
    clip = player.episode(0, PATIENCE_S).sides[0].clip
    picture = player.clip(clip.hash)
    assert clip.hash == hashlib.sha256(picture.content).hexdigest()
    poses, fps = unpack(picture.content)
    assert (len(poses), fps) == (clip.num_frames, clip.fps)
    assert clip.scene_url.startswith("/api/v1/play/scenes/")
    assert b'"bodies"' in player.scene(clip.scene_url.rpartition("/")[2])
    assert player.clip("0" * 64) is None
    assert player.scene("0" * 64) is None


def test_without_mujoco_it_is_a_video(open_desk):
    player = open_desk("cart")
    clip = player.episode(0, PATIENCE_S).sides[0].clip
    assert clip.kind == "video"
    assert clip.scene_url is None
    assert player.scene("") == b""
    assert player.clip(clip.hash).content[4:8] == b"ftyp"


def test_two_are_played_side_by_side(open_desk):
    player = open_desk("synth", "rl")
    left, right = player.episode(0, PATIENCE_S).sides
    assert left.predicted_rewards is not None
    assert right.predicted_rewards is None
    assert right.predicted_return is None
    assert left.clip.hash != right.clip.hash
    assert [each.name for each in player.session().players] == ["synth", "rl"]


def test_one_episode_is_made_ahead_and_no_more(open_desk, monkeypatch):
    played = []

    def note(actor, seed, *, explore):
        played.append(seed)
        return record_episode(actor, seed, explore=explore)

    monkeypatch.setattr(module, "record_episode", note)
    player = open_desk("synth", episodes=5, seed=0)
    player.episode(0, PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while len(played) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert played == [0, 1]


def test_an_explored_episode_is_the_same_whichever_is_asked_for_first(open_desk):
    in_order = open_desk("synth", explore=True)
    one_by_one = [in_order.episode(number, PATIENCE_S) for number in range(3)]
    at_once = open_desk("synth", explore=True)
    assert at_once.episode(2, PATIENCE_S) == one_by_one[2]
    assert at_once.episode(0, PATIENCE_S) == one_by_one[0]


def test_an_episode_that_is_not_ready_is_none(open_desk, monkeypatch):
    monkeypatch.setattr(module, "record_episode", lambda *_, **__: time.sleep(0.5))
    assert open_desk("synth").episode(0, 0.01) is None


def test_what_is_wrong_with_the_environment_is_told(open_desk, monkeypatch):
    def fail(*_, **__):
        raise BadObservation("NaN in step 3")

    monkeypatch.setattr(module, "record_episode", fail)
    with pytest.raises(BadObservation, match="step 3"):
        open_desk("synth").episode(0, PATIENCE_S)

    def break_off(*_, **__):
        raise ZeroDivisionError("its own fault")

    monkeypatch.setattr(module, "record_episode", break_off)
    with pytest.raises(BadInput, match="ZeroDivisionError: its own fault"):
        open_desk("synth").episode(0, PATIENCE_S)
