"""The player: makes the episodes that the page plays, one ahead of whoever watches."""

import hashlib
import multiprocessing
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from functools import cached_property

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.drawing import frame_steps
from rl_teacher.clips.poses import body_poses, pack
from rl_teacher.clips.scene import build_scene, scene_bytes
from rl_teacher.clips.video import encode_mp4
from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.episode_replay import ReplayRecord
from rl_teacher.envs.registry import camera_settings
from rl_teacher.envs.rendering import render_steps
from rl_teacher.play.actors import Actor
from rl_teacher.play.episodes import RecordedEpisode, per_frame, record_episode
from rl_teacher.play.options import PlayOptions
from rl_teacher.web.schemas.experiments import Clip
from rl_teacher.web.schemas.fields import Number
from rl_teacher.web.schemas.play import (
    ClipContent,
    PlayedAgent,
    PlayedEpisode,
    PlayedSide,
    PlaySession,
)

CLIPS_PATH = "/api/v1/play/clips/"
SCENES_PATH = "/api/v1/play/scenes/"
DECIMALS = 4


class Player:
    """Plays episodes in their order, in a thread of its own; what was played stays in memory."""

    def __init__(self, actors: Sequence[Actor], options: PlayOptions) -> None:
        """Begin with the first episode.

        Args:
            actors: one, or two of one environment.
            options: how many episodes, and how they begin.
        """
        self._actors = actors
        self._options = options
        self._pictures: dict[str, ClipContent] = {}
        self._begun: list[Future[PlayedEpisode]] = []
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="play")
        self._begin_until(0)

    def session(self) -> PlaySession:
        """Who plays."""
        return PlaySession(
            players=[
                PlayedAgent(
                    name=actor.name,
                    env_id=actor.env_info.id,
                    agent=actor.kind,
                    step=actor.step,
                    checkpoint=actor.checkpoint,
                    is_training=actor.is_training,
                    notes=list(actor.notes),
                )
                for actor in self._actors
            ],
            num_episodes=self._options.episodes,
            seed=self._options.seed,
            is_exploring=self._options.explore,
        )

    def episode(self, number: int, timeout_s: float) -> PlayedEpisode | None:
        """An episode; the one after it is begun too. None while it is not ready.

        Raises:
            RlTeacherError: it could not be made.
        """
        self._begin_until(number + 1)
        try:
            return self._begun[number].result(timeout_s)
        except TooSlow:
            return None

    def clip(self, content_hash: str) -> ClipContent | None:
        """A clip of one of them."""
        return self._pictures.get(content_hash)

    def scene(self, scene_hash: str) -> bytes | None:
        """What its poses move."""
        return self._scene[1] if scene_hash == self._scene[0] else None

    def close(self) -> None:
        """Let go of threads, processes and environments."""
        self._thread.shutdown(cancel_futures=True)
        if "_renderers" in vars(self):
            self._renderers.shutdown(cancel_futures=True)
        for actor in self._actors:
            actor.venv.close()

    def _begin_until(self, number: int) -> None:
        """Note: in their order, so that the same seed plays the same, exploring too."""
        with self._lock:
            for each in range(len(self._begun), min(number + 1, self._options.episodes)):
                self._begun.append(self._thread.submit(self._play, each))

    def _play(self, number: int) -> PlayedEpisode:
        seed = self._options.seed + number
        try:
            episode = [
                record_episode(each, seed, explore=self._options.explore) for each in self._actors
            ]
            sides = [
                self._side(actor, each) for actor, each in zip(self._actors, episode, strict=True)
            ]
        except RlTeacherError:
            raise
        except Exception as error:
            raise BadInput(
                f"Episode {number} of {self._actors[0].env_info.id} cannot be played: "
                f"{type(error).__name__}: {error}. `rl-teacher check` tries the environment."
            ) from error
        return PlayedEpisode(number=number, seed=seed, sides=sides)

    def _side(self, actor: Actor, episode: RecordedEpisode) -> PlayedSide:
        steps, fps = frame_steps(len(episode.segment), actor.env_info.fps)
        picture = self._image_layout_of(actor, episode, steps, fps)
        content_hash = hashlib.sha256(picture.content).hexdigest()
        self._pictures[content_hash] = picture
        has_poses = picture.kind == "poses"
        true = episode.true_rewards
        return PlayedSide(
            clip=Clip(
                hash=content_hash,
                kind=picture.kind,
                url=f"{CLIPS_PATH}{content_hash}",
                scene_url=f"{SCENES_PATH}{self._scene[0]}" if has_poses else None,
                num_frames=len(steps),
                fps=fps,
                seconds=len(steps) / fps,
            ),
            num_steps=len(episode.segment),
            end=episode.end,
            predicted_rewards=_curve(episode.predicted_rewards, steps),
            true_rewards=_curve(true, steps),
            predicted_return=_total(episode.predicted_rewards),
            true_return=_total(true),
        )

    def _image_layout_of(
        self, actor: Actor, episode: RecordedEpisode, steps: np.ndarray, fps: float
    ) -> ClipContent:
        if episode.replay_record is None:
            poses = body_poses(actor.model, episode.segment.scene_states[steps])
            return ClipContent("poses", pack(poses, fps))
        lived_before = episode.segment.observations[steps]
        rendering = self._renderers.submit(
            rendered,
            actor.env_info.id,
            actor.frames,
            episode.replay_record,
            steps,
            lived_before,
            fps,
        )
        return ClipContent("video", rendering.result())

    @cached_property
    def _renderers(self) -> ProcessPoolExecutor:
        # Note: a process, so that the page is answered meanwhile; see the clip_renderer.
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    @cached_property
    def _scene(self) -> tuple[str, bytes]:
        """Of the one environment, and its hash."""
        actor = self._actors[0]
        if actor.model is None:
            return "", b""
        scene = scene_bytes(build_scene(actor.model, camera_settings(actor.env_info.id)))
        return hashlib.sha256(scene).hexdigest(), scene


def rendered(
    env_id: str,
    frames: FrameSettings,
    record: ReplayRecord,
    steps: np.ndarray,
    observations: np.ndarray,
    fps: float,
) -> bytes:
    """In another process: the video of some steps of an episode."""
    return encode_mp4(render_steps(env_id, record, steps, observations, frames), fps)


def _curve(rewards: Float32[np.ndarray, " time"] | None, steps: np.ndarray) -> list[Number] | None:
    if rewards is None:
        return None
    return np.round(per_frame(rewards, steps), DECIMALS).tolist()


def _total(rewards: Float32[np.ndarray, " time"] | None) -> Number:
    return None if rewards is None else float(rewards.sum(dtype=np.float64))
