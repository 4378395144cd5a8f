"""Tests of the rendering of agents with image observations."""

import io
from contextlib import closing
from typing import Any, cast

import av
import numpy as np
import pytest
from rich.console import Console

from rl_teacher.cli import main
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import get_env_info, make_vector
from rl_teacher.play.actors import Actor, load_actor
from rl_teacher.play.film import write_film
from rl_teacher.play.options import PlayOptions
from tests.envs.custom_environments import MODULE

LAMP = f"{MODULE}:Lamp"
FRAMES = FrameSettings(stacked=2, size=12)


class AlwaysOn:
    def predict(self, observations, *, deterministic):
        assert observations.shape == (1, 2, 12, 12)
        return np.ones(len(observations), np.int64)

    def load_state(self, state):
        raise NotImplementedError


@pytest.fixture
def actor():
    with closing(make_vector(LAMP, 1, 1, frames=FRAMES)) as venv:
        yield Actor(
            name="lamp",
            kind="always on",
            env_info=get_env_info(LAMP),
            agent=cast("Any", AlwaysOn()),
            rng=np.random.default_rng(0),
            predictor=None,
            venv=venv,
            step=0,
            place="latest checkpoint",
            frames=FRAMES,
            is_training=False,
        )


def test_video_shows_images_in_original_colours(actor, tmp_path):
    path = tmp_path / "lamp.mp4"
    write_film([actor], PlayOptions("lamp", episodes=1), path, Console(file=io.StringIO()))
    with av.open(str(path), mode="r") as file:
        images = [each.to_ndarray(format="rgb24") for each in file.decode(video=0)]
    assert images[0].shape[1] == 320
    green = images[0][: 320 * 24 // 20].astype(int)
    assert (green[..., 1] - green[..., 0]).max() > 100


def test_loaded_agent_gets_preprocessing_of_training():
    small = ["--ppo.num-envs", "2", "--ppo.rollout-steps", "16", "-t", "32", "--no-tensorboard"]
    assert main(["teach", "-p", "rl", "-e", "MovingDot-v0", "-n", "dot", "-f", "2", *small]) == 0
    actor = load_actor("dot", "latest")
    with closing(actor.venv) as venv:
        assert actor.frames == FrameSettings(stacked=2)
        assert venv.single_observation_space.shape == (2, 42, 42)
        observations, _ = venv.reset(seed=1)
        assert actor.policy(explore=False)(observations).shape == (1,)
