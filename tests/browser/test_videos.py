"""Synchronised videos of environments without MuJoCo."""

import itertools
from contextlib import closing

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.recorder import Recorder
from rl_teacher.envs.registry import get_env_info, make_rendered_env, make_vector
from rl_teacher.runs.clip_renderer import ClipRenderer, ClipStore
from tests.browser.experiments import Experiment, in_shown_order
from tests.browser.labelling_page import PATIENCE_MS
from tests.browser.processes import media_of

pytestmark = pytest.mark.browser

FPS = 25.0
NUM_FRAMES = 40

SHOWN = "[...document.querySelectorAll('video.clip-video:not(.preloaded)')]"

PLAYS_ANOTHER = """known => {
  const film = document.querySelector('.thumbnail video')
  return film !== null && !known.includes(film.getAttribute('src')) && film.currentTime > 0
}"""

READ_FRAMES = f"""
() => {SHOWN}.map((film) => {{
  const canvas = document.createElement('canvas')
  canvas.width = 60
  canvas.height = 40
  const surface = canvas.getContext('2d')
  surface.drawImage(film, 0, 0, 60, 40)
  return [...surface.getImageData(0, 0, 60, 40).data]
}})
"""


def record_frames(env_id, seed):
    """Return frames [T, H, W, 3] of random actions, with resets at episode ends."""
    with closing(make_rendered_env(env_id)) as env:
        env.reset(seed=seed)
        env.action_space.seed(seed)
        frames = []
        for _ in range(NUM_FRAMES):
            frames.append(env.render())
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()
    return np.stack(frames)


def downscale(frames):
    """Return greyscale block means, [T, 40, 60]."""
    num_frames, height, width, _ = frames.shape
    rows, columns = height // 40, width // 60
    blocks = frames[:, : 40 * rows, : 60 * columns].reshape(num_frames, 40, rows, 60, columns, 3)
    return blocks.mean(axis=(2, 4, 5))


def shown_frames_in_colour(opened):
    """Return the current frames of both videos, [2, 40, 60, 3]."""
    return np.array(opened.page.evaluate(READ_FRAMES)).reshape(2, 40, 60, 4)[..., :3]


def shown_frames(opened):
    """Return the current frames of both videos in greyscale, [2, 40, 60]."""
    return shown_frames_in_colour(opened).mean(axis=-1)


def step_to(opened, frame):
    opened.press("r")
    opened.wait_until("hooks.time_s === 0")
    for _ in range(frame):
        opened.press(".")
    opened.wait_until("Math.abs(hooks.time_s - given) < 1e-6", frame / FPS)
    opened.wait_until(
        f"{SHOWN}.every((film) => film.paused && !film.seeking && film.readyState >= 2"
        " && Math.floor(film.currentTime * given.fps) === given.frame)",
        {"fps": FPS, "frame": frame},
    )


def run_on_one_clock(opened):
    """Wait until both videos play and loop, in step with each other."""
    opened.wait_until(f"{SHOWN}.every((film) => !film.paused && film.currentTime > 0.2)")
    apart = f"const [left, right] = {SHOWN}; return Math.abs(left.currentTime - right.currentTime)"
    together = f"(() => {{ {apart} < 0.1 }})()"
    opened.wait_until(together)
    opened.wait_until(f"{SHOWN}.every((film) => film.currentTime < 0.2)")
    opened.wait_until(together)


@pytest.fixture(params=["CartPole-v1", pytest.param("LunarLander-v3", marks=pytest.mark.slow)])
def shown(request, open_page, experiment):
    """Page with two videos, and their frames in shown order."""
    first, second = (record_frames(request.param, seed) for seed in (1, 2))
    hashes = (experiment.add_video_clip(first, fps=FPS), experiment.add_video_clip(second, fps=FPS))
    [comparison_id] = experiment.ask_about([hashes])
    opened = open_page(experiment.name)
    opened.wait_for_comparison(comparison_id)
    opened.wait_until(f"{SHOWN}.length === 2 && {SHOWN}.every((film) => film.readyState >= 2)")
    return opened, in_shown_order(comparison_id, (first, second))


def test_videos_are_synchronised(shown):
    opened, _ = shown
    run_on_one_clock(opened)


def test_step_shows_exact_frame_on_both_sides(shown):
    opened, videos = shown
    opened.press(" ")
    opened.wait_until("!hooks.isPlaying")
    for frame in (0, 1, 17, 30):
        step_to(opened, frame)
        for side, frame_shown in enumerate(shown_frames(opened)):
            differences = np.abs(downscale(videos[side]) - frame_shown).mean(axis=(1, 2))
            assert differences[frame] < 6
            assert differences[frame] <= differences.min() + 0.3


@pytest.fixture
def games_of_pong(open_page, store, service):
    """Page with two clips of Pong."""
    experiment = Experiment(store, media_of(service.home), "pong", "Pong-v0")
    with closing(make_vector("Pong-v0", 2)) as venv:
        collector = Collector(venv, seed=0)
        recorder = Recorder("Pong-v0", segment_steps=22, capacity=150)
        recorder.observe(collector.collect(collector.random_actions, 100))
        segments = recorder.segments(recorder.cut(2, np.random.default_rng(0)))
        clip_renderer = ClipRenderer(
            get_env_info("Pong-v0"), venv, ClipStore(store, experiment.media)
        )
        clip_renderer.show(segments)
        clip_renderer.close(finish=True)
    first, second = (segment.content_hash for segment in segments)
    [comparison_id] = experiment.ask_about([(first, second)])
    opened = open_page("pong")
    opened.wait_for_comparison(comparison_id)
    opened.wait_until(f"{SHOWN}.length === 2 && {SHOWN}.every((film) => film.readyState >= 2)")
    return opened


def test_thumbnail_plays_the_latest_of_two_episodes(open_context, service, experiment):
    rng = np.random.default_rng(1)
    page = open_context().new_page()
    sources = []
    for step in (1, 2):
        frames = rng.integers(0, 255, (NUM_FRAMES, 48, 48, 3), dtype=np.uint8)
        clip = experiment.add_video_clip(frames, fps=FPS)
        experiment.store.experiments.set_latest_episode(experiment.id, {"clip": clip, "step": step})
        if step == 1:
            page.goto(f"{service.address.url}/?search={experiment.name}&token={service.token}")
        page.wait_for_function(PLAYS_ANOTHER, arg=sources, timeout=PATIENCE_MS)
        sources.append(page.locator(".thumbnail video").get_attribute("src"))


def test_game_is_shown_in_original_colours(games_of_pong):
    """Pong has 210 x 160 pixels with a brown background at 15 frames per second."""
    opened = games_of_pong
    sizes = f"{SHOWN}.map((film) => [film.videoWidth, film.videoHeight])"
    assert opened.page.evaluate(f"() => {sizes}") == [[160, 210], [160, 210]]
    durations = opened.page.evaluate(f"() => {SHOWN}.map((film) => film.duration)")
    assert durations == pytest.approx([22 / 15] * 2, abs=0.05)
    ground = np.median(shown_frames_in_colour(opened), axis=(1, 2))
    np.testing.assert_allclose(ground, [[144, 72, 17]] * 2, atol=12)
    run_on_one_clock(opened)


def test_buttons_on_phone_do_not_cover_the_game(games_of_pong):
    page = games_of_pong.page
    page.set_viewport_size({"width": 390, "height": 844})
    games_of_pong.wait_until("document.querySelectorAll('.prefer').length === 2")
    videos = page.evaluate(f"() => {SHOWN}.map((film) => film.getBoundingClientRect().toJSON())")
    lefts = "() => [...document.querySelectorAll('.prefer, .clip-tag')].map((it) => it.offsetLeft)"
    for film, left in itertools.product(videos, page.evaluate(lefts)):
        # In portrait the game fills the height and is aligned to the left.
        assert left >= film["height"] * 160 / 210
    positions = f"{SHOWN}.map((film) => getComputedStyle(film).objectPosition)"
    assert page.evaluate(f"() => {positions}") == ["0% 50%"] * 2
