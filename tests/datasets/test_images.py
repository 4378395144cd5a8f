"""Tests of data sets with image observations."""

from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.clips.recorder import Recorder
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.datasets import load
from rl_teacher.datasets.import_export import from_experiment, import_as, labels_of
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store

ENV_ID = "MovingDot-v0"
FRAMES = FrameSettings(stacked=2, size=30)
OWN = {"env_id": ENV_ID, "agent": "ppo", "stacked_frames": 2, "frame_size": 30}
DEFAULT = {"stacked_frames": 4, "frame_size": 42}


def segments_seen(frames):
    venv = make_vector(ENV_ID, 1, frames=frames)
    collector = Collector(venv, seed=0)
    recorder = Recorder(ENV_ID, segment_steps=25, capacity=100)
    recorder.observe(collector.collect(collector.random_actions, 60))
    return recorder.segments(recorder.cut(4, np.random.default_rng(0)))


@pytest.fixture
def store(make_database):
    make_database(Path(default_url(home())))
    with Store.open(default_url(home())) as opened:
        yield opened


def labelled(store, segments, config):
    """Store pairs of segments of which the left one is preferred, and return the data set."""
    files = SegmentFiles(home() / "segments")
    for each in segments:
        files.save(each)
    experiment_id = store.experiments.ensure("seen", ENV_ID, config)
    hashes = [each.content_hash for each in segments]
    pairs = list(zip(hashes[::2], hashes[1::2], strict=True))
    ids = store.comparisons.add(experiment_id, pairs, ENV_ID, dict.fromkeys(hashes, 25), 0)
    store.labels.add_many([NewLabel(each, Answer.LEFT, "zoe", uuid4()) for each in ids])
    return from_experiment(store, "seen")


def test_labels_of_images_round_trip(store, tmp_path):
    dataset = labelled(store, segments_seen(FRAMES), OWN)
    assert dataset.space.observation_shape == (2, 30, 30)
    dataset.save(tmp_path / "set.zip")
    again = load(tmp_path / "set.zip")
    assert again.content_hash == dataset.content_hash
    seen = again[0].left.observations
    assert (seen.shape, seen.dtype) == ((25, 2, 30, 30), np.uint8)
    import_as(again, "theirs")
    assert labels_of("theirs").space == dataset.space


def test_shared_frames_of_stacks_are_compressed(store, tmp_path):
    dataset = labelled(store, segments_seen(FrameSettings(stacked=4)), {**OWN, **DEFAULT})
    dataset.save(tmp_path / "set.zip")
    num_bytes = sum(each.observations.nbytes for each in dataset.segments.values())
    assert num_bytes == 4 * 25 * 4 * 42 * 42
    assert (tmp_path / "set.zip").stat().st_size < num_bytes / 50


def test_labels_are_exported_with_requested_frames(tmp_path):
    arguments = ["-p", "synth", "-e", ENV_ID, "-n", "few", "-l", "2", "-c", "0.3", "-f", "2"]
    small = ["--ppo.num-envs", "2", "--ppo.rollout-steps", "16", "--no-tensorboard"]
    assert main(["collect", *arguments, *small]) == 0
    assert main(["export", "few", "--out", str(tmp_path / "few.zip")]) == 0
    dataset = load(tmp_path / "few.zip")
    assert dataset.space.observation_shape == (2, 42, 42)
    assert {each.observations.shape for each in dataset.segments.values()} == {(6, 2, 42, 42)}
