import io
import threading
from contextlib import closing
from types import SimpleNamespace

import av
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.poses import unpack
from rl_teacher.clips.recorder import Recorder
from rl_teacher.clips.renderer import SegmentRenderer, check_renderable
from rl_teacher.common.errors import BadInput
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import get_env_info, make_vector
from rl_teacher.runs.clip_renderer import ClipRenderer
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from tests.envs.custom_environments import MODULE
from tests.store.comparisons import open_comparisons


@pytest.fixture
def clip_store(tmp_path, database):
    with Store.open(database) as store:
        yield SimpleNamespace(store=store, media=MediaFiles(tmp_path / "media"))


def record(env_id, num_steps=40, **options):
    """Return environments and two segments of a random policy in them."""
    venv = make_vector(env_id, 2, **options)
    collector = Collector(venv, seed=0)
    recorder = Recorder(env_id, segment_steps=10, capacity=100)
    recorder.observe(collector.collect(collector.random_actions, num_steps))
    return venv, recorder.segments(recorder.cut(2, np.random.default_rng(0)))


def make_renderer(env_id, venv, clip_store, **options):
    return ClipRenderer(get_env_info(env_id), venv, **vars(clip_store), **options)


def ask(clip_store, env_id, segments):
    experiment_id = clip_store.store.experiments.ensure("shown", env_id, {})
    hashes = tuple(segment.content_hash for segment in segments)
    clip_store.store.comparisons.add(experiment_id, [hashes], env_id, 10, 0)
    return experiment_id


@pytest.mark.parametrize("env_id", ["ShortHopper-v1", "Pusher-v5"])
def test_comparison_is_shown_once_both_pose_clips_are_stored(env_id, clip_store):
    venv, segments = record(env_id)
    experiment_id = ask(clip_store, env_id, segments)
    clip_renderer = make_renderer(env_id, venv, clip_store)
    clip_renderer.show(segments[:1])
    finish(clip_renderer)
    assert open_comparisons(clip_store.store, experiment_id, limit=5) == []
    clip_renderer.show(segments)
    finish(clip_renderer)
    (waiting,) = open_comparisons(clip_store.store, experiment_id, limit=5)
    clip_renderer.close()
    assert waiting.left.kind == "poses"
    assert waiting.left.media_key is not None
    poses, fps = unpack(clip_store.media.get(waiting.left.media_key))
    assert len(poses) == waiting.left.num_frames
    assert fps == pytest.approx(waiting.left.fps)
    assert clip_store.media.exists(f"scenes/{waiting.left.scene_hash}.json")
    venv.close()


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", pytest.param("PongNoFrameskip-v4", marks=pytest.mark.slow)]
)
def test_clip_without_mujoco_is_video(env_id, clip_store):
    check_renderable(env_id)
    venv, segments = record(env_id)
    experiment_id = ask(clip_store, env_id, segments)
    clip_renderer = make_renderer(env_id, venv, clip_store)
    clip_renderer.show(segments)
    finish(clip_renderer)
    (waiting,) = open_comparisons(clip_store.store, experiment_id, limit=5)
    clip_renderer.close()
    assert waiting.right.kind == "video"
    assert waiting.right.scene_hash is None
    assert waiting.right.media_key is not None
    assert clip_store.media.get(waiting.right.media_key)[4:8] == b"ftyp"
    venv.close()


def test_clip_of_images_ignores_preprocessing(clip_store):
    frames = FrameSettings(stacked=2, size=20)
    venv, segments = record("MovingDot-v0", frames=frames)
    experiment_id = ask(clip_store, "MovingDot-v0", segments)
    clip_renderer = make_renderer("MovingDot-v0", venv, clip_store, frames=frames)
    clip_renderer.show(segments)
    finish(clip_renderer)
    (waiting,) = open_comparisons(clip_store.store, experiment_id, limit=5)
    clip_renderer.close()
    assert segments[0].observations.shape == (10, 2, 20, 20)
    with av.open(io.BytesIO(clip_store.media.get(waiting.left.media_key)), mode="r") as file:
        pictures = [each.to_ndarray(format="rgb24") for each in file.decode(video=0)]
        assert file.streams.video[0].average_rate == 20
    assert [each.shape for each in pictures] == [(210, 160, 3)] * 10
    assert pictures[0].max() > 200
    venv.close()


def test_deleted_clip_is_rendered_again(clip_store):
    venv, segments = record("ShortHopper-v1")
    hashes = {each.content_hash for each in segments}
    clip_renderer = make_renderer("ShortHopper-v1", venv, clip_store)
    show_and_wait(clip_renderer, segments)
    assert clip_renderer.missing(hashes) == set()
    lost = clip_store.store.clips.get(segments[0].content_hash)
    clip_store.media.remove(lost.media_key)
    clip_store.media.remove(f"scenes/{lost.scene_hash}.json")
    # Both poses refer to the scene.
    assert clip_renderer.missing(hashes) == hashes
    show_and_wait(clip_renderer, segments)
    assert clip_renderer.missing(hashes) == set()
    clip_renderer.close()
    venv.close()


def test_clip_whose_episode_is_forgotten_is_hidden(clip_store):
    venv, segments = record("CartPole-v1", keep_steps=0)
    clip_renderer = make_renderer("CartPole-v1", venv, clip_store)
    collector = Collector(venv, seed=1)
    collector.collect(collector.random_actions, 200)
    show_and_wait(clip_renderer, segments)
    clip_renderer.close()
    venv.close()
    assert clip_renderer.hidden == {each.content_hash for each in segments}


@pytest.mark.slow
@pytest.mark.parametrize("is_verified", [True, False])
def test_deleted_clip_of_another_run_is_hidden_if_its_episode_is_not_that_of_this_run(
    clip_store, is_verified
):
    venv, segments = record("CartPole-v1")
    clip_renderer = make_renderer("CartPole-v1", venv, clip_store)
    show_and_wait(clip_renderer, segments[:1])
    clip_renderer.close()
    venv.close()
    lost = segments[0].content_hash
    clip_store.media.remove(clip_store.store.clips.get(lost).media_key)
    # Its episodes have the same numbers.
    other = make_vector("CartPole-v1", 2)
    collector = Collector(other, seed=7)
    collector.collect(collector.random_actions, 40)
    clip_renderer = make_renderer("CartPole-v1", other, clip_store, is_verified=is_verified)
    show_and_wait(clip_renderer, segments[:1])
    clip_renderer.close()
    other.close()
    assert clip_renderer.hidden == {lost}


def test_optional_clip_calls_back_once_stored(clip_store):
    venv, segments = record("ShortHopper-v1")
    clip_renderer = make_renderer("ShortHopper-v1", venv, clip_store)
    seen = []
    for segment in segments:
        clip_renderer.render_if_possible(
            segment, lambda clip, s=segment: seen.append((clip.kind, kind_of(clip_store, s)))
        )
    clip_renderer.submit(int).result()
    clip_renderer.close()
    venv.close()
    assert seen == [("poses", "poses"), ("poses", "poses")]


def kind_of(clip_store, segment):
    return clip_store.store.clips.get(segment.content_hash).kind


def finish(clip_renderer):
    """Wait for all requested clips, and raise the error of one that failed."""
    clip_renderer.submit(int).result()
    clip_renderer.show([])


def show_and_wait(clip_renderer, segments):
    clip_renderer.show(segments)
    finish(clip_renderer)


def test_images_of_episode_that_cannot_be_replayed_are_refused():
    env_id = f"{MODULE}:Random"
    venv, segments = record(env_id)
    with closing(SegmentRenderer(get_env_info(env_id))) as renderer, closing(venv):
        replayed = renderer.replay_record(venv, segments[0])
        with pytest.raises(BadInput, match=MODULE):
            list(renderer.images(segments[0], np.arange(3), replayed))


class FailingRenderer(ClipRenderer):
    """A renderer that fails at every clip."""

    def _render(self, segment, record):
        raise BadInput("no frame buffer")


def test_failed_required_clip_raises(clip_store):
    venv, segments = record("ShortHopper-v1")
    clip_renderer = FailingRenderer(get_env_info("ShortHopper-v1"), venv, **vars(clip_store))
    with pytest.raises(BadInput, match="no frame buffer"):
        show_and_wait(clip_renderer, segments)
    clip_renderer.close()
    venv.close()


def test_failed_optional_clip_warns_once(clip_store, caplog):
    venv, segments = record("ShortHopper-v1")
    clip_renderer = FailingRenderer(get_env_info("ShortHopper-v1"), venv, **vars(clip_store))
    are_all_requested = threading.Event()
    clip_renderer._thread.submit(are_all_requested.wait)
    for segment in segments:
        clip_renderer.render_if_possible(
            segment, lambda _: pytest.fail("the clip was not rendered")
        )
    are_all_requested.set()
    finish(clip_renderer)
    clip_renderer.close()
    clip_renderer.render_if_possible(
        segments[0], lambda _: pytest.fail("the clip was not rendered")
    )
    venv.close()
    assert caplog.text.count("no frame buffer") == 1


def test_environment_without_rendering_is_refused(monkeypatch):
    class Blind(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

    monkeypatch.setitem(
        gymnasium.registry,
        "Blind-v0",
        EnvSpec("Blind-v0", entry_point=lambda **_: Blind()),
    )
    with pytest.raises(BadInput, match="Blind-v0"):
        check_renderable("Blind-v0")
