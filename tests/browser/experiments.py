"""Experiments in a store with displayable clips, as a training run writes them."""

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.clips.poses import body_poses, pack
from rl_teacher.clips.scene import build_scene, scene_bytes
from rl_teacher.clips.video import encode_mp4
from rl_teacher.envs.registry import camera_settings, mujoco_model
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import NewLabel, RenderedClip
from rl_teacher.store.store import Store
from tests.store.comparisons import answered_comparisons

LABELER = "owner"
FPS = 20.0
NUM_FRAMES = 30


@functools.cache
def model_and_scene(env_id: str) -> tuple[Any, Mapping[str, Any]]:
    """Return the MuJoCo model of an environment, and the scene of its clips."""
    model = mujoco_model(env_id)
    assert model is not None
    return model, build_scene(model, camera_settings(env_id))


@dataclass
class Experiment:
    """Experiment in a store.

    Attributes:
        store: Store of the experiment.
        media: Files of the clips.
        name: Name of the experiment.
        env_id: Environment id.
    """

    store: Store
    media: MediaFiles
    name: str
    env_id: str = "ShortHopper-v1"
    _num_clips: int = field(default=0)

    def __post_init__(self) -> None:
        self.id = self.store.experiments.ensure(self.name, self.env_id, {"seed": 1})
        self.store.experiments.describe(self.id, "Prefer the one that hops forward, upright.", 60)
        self.set_status("waiting", "Waiting for answers.")

    def set_status(self, phase: str, message: str, **more: Any) -> None:
        """Set the status of the run."""
        status = {"phase": phase, "message": message, "step": 10_000, "num_steps": 400_000}
        self.store.experiments.set_status(self.id, {**status, "steps_per_second": 9_500.0, **more})

    # --- clips ---

    def add_pose_clip(
        self, poses: np.ndarray, scene: Mapping[str, Any], *, fps: float = FPS
    ) -> str:
        """Store a clip of poses [T, B, 7] and return its hash."""
        packed_scene = scene_bytes(dict(scene))
        scene_hash = hashlib.sha256(packed_scene).hexdigest()
        self.media.put(f"scenes/{scene_hash}.json", packed_scene)
        packed = pack(poses.astype(np.float32), fps)
        return self._add_clip("poses", packed, scene_hash, (len(poses), fps))

    def add_video_clip(self, frames: np.ndarray, *, fps: float) -> str:
        """Store a clip of frames [T, H, W, 3] and return its hash."""
        return self._add_clip("video", encode_mp4(frames, fps), None, (len(frames), fps))

    def add_model_clip(self, seed: int) -> str:
        """Store a clip of the environment's model with sinusoidal motion and return its hash."""
        model, scene = model_and_scene(self.env_id)
        rng = np.random.default_rng(seed)
        time_s = np.arange(NUM_FRAMES)[:, None] / FPS
        pace, reach = rng.uniform(2, 8, model.nq), rng.uniform(0, 0.5, model.nq)
        scene_states = model.qpos0 + reach * np.sin(pace * time_s)
        return self.add_pose_clip(body_poses(model, scene_states), scene)

    def _add_clip(
        self, kind: str, content: bytes, scene_hash: str | None, frames: tuple[int, float]
    ) -> str:
        self._num_clips += 1
        named = f"{self.name} {self._num_clips}".encode()
        content_hash = hashlib.sha256(named + content).hexdigest()
        key = f"clips/{content_hash}.{'poses' if kind == 'poses' else 'mp4'}"
        self.media.put(key, content)
        num_frames, fps = frames
        rendered = RenderedClip(self.env_id, 60, kind, key, scene_hash, num_frames, fps)
        self.store.clips.publish({content_hash: rendered})
        return content_hash

    # --- comparisons ---

    def ask(self, count: int = 1, *, step: int = 0) -> list[int]:
        """Add comparisons of new clips and return their ids."""
        seeds = range(self._num_clips, self._num_clips + count)
        pairs = [
            (self.add_model_clip(2 * seed), self.add_model_clip(2 * seed + 1)) for seed in seeds
        ]
        return self.ask_about(pairs, step=step)

    def ask_about(self, pairs: list[tuple[str, str]], *, step: int = 0) -> list[int]:
        """Add comparisons of these pairs of clips and return their ids."""
        return self.store.comparisons.add(self.id, pairs, self.env_id, 60, step)

    def rank_clips(self, num_clips: int, labeler: str = "Ada") -> None:
        """Add clips and answers that rank them; the last answer contradicts the others."""
        clips = [self.add_model_clip(each) for each in range(num_clips)]
        rng = np.random.default_rng(1)
        pairs = [(i, int(j)) for i in range(num_clips) for j in rng.choice(num_clips, 5) if i != j]
        pairs = [*dict.fromkeys(pairs), (0, num_clips - 1)]
        answers = [Answer.LEFT if i < j else Answer.RIGHT for i, j in pairs[:-1]] + [Answer.RIGHT]
        ids = self.ask_about([(clips[i], clips[j]) for i, j in pairs])
        self.store.labels.add_many(
            [NewLabel(each, answer, labeler) for each, answer in zip(ids, answers, strict=True)]
        )

    def set_predictions(
        self, predicted: Mapping[int, tuple[float, float]], num_fits: int = 1
    ) -> None:
        """Report a fit with the predicted returns of left and right clips, by comparison id."""
        fitted = {
            "comparisons": [[each, *returns] for each, returns in predicted.items()],
            "num_fits": num_fits,
            "num_labels": len(predicted),
        }
        diagnostics = self.store.experiments.diagnostics(self.id) or {}
        self.store.experiments.set_diagnostics(self.id, {**diagnostics, **fitted})
        self.set_status("training", "training", num_fits=num_fits)

    def title_of(self, comparison_id: int) -> re.Pattern[str]:
        """Return the start of the text with which the pages name a comparison."""
        return re.compile(rf"^Comparison {self.store.comparisons.get(comparison_id).number}\b")

    def answers(self) -> dict[int, Answer]:
        """Return the current answers by comparison, in the shown order of sides."""
        answered = answered_comparisons(self.store, self.id)
        return {each.id: as_shown(each.id, each.answer) for each in answered}

    def log(self) -> list[tuple[int, Answer | None]]:
        """Return every label, including replaced and withdrawn ones."""
        return labels_given(self.store, self.id)


def labels_given(store: Store, experiment_id: int) -> list[tuple[int, Answer | None]]:
    """Return every label in the shown order of sides, oldest first; None is a withdrawal."""
    return [
        (row.comparison_id, row.answer and as_shown(row.comparison_id, row.answer))
        for row in store.labels.since(experiment_id, 0)
    ]


def as_shown(comparison_id: int, answer: Answer) -> Answer:
    """Convert an answer between the stored and the shown order of sides."""
    seen = mirror_answer(answer, swapped=is_swapped(comparison_id, LABELER))
    assert seen is not None
    return seen


def in_shown_order(comparison_id: int, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the values of the left and right clip in the shown order of sides."""
    left, right = pair
    return (right, left) if is_swapped(comparison_id, LABELER) else (left, right)
