"""The clip_renderer: makes what a person sees of segments, off the training path.

A comparison waits in the store until both its clips can be shown; so no screen is ever blank.
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import hashlib
import logging
import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import mujoco
import numpy as np

from rl_teacher.clips import poses
from rl_teacher.clips.drawing import frame_steps
from rl_teacher.clips.scene import build_scene, scene_bytes
from rl_teacher.clips.segment import Segment
from rl_teacher.clips.video import encode_mp4
from rl_teacher.common.errors import MediaNotFound
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.episode_replay import ReplayRecord, SupportsReplay
from rl_teacher.envs.registry import EnvInfo, camera_settings, make_rendered_env, mujoco_model
from rl_teacher.envs.rendering import render_steps
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClipStore:
    """Where clips are hung.

    Attributes:
        store: which clips can be shown, and how.
        media: their bytes.
    """

    store: Store
    media: MediaFiles


@dataclass
class ClipRenderer:
    """Makes the clips of one environment: body poses with MuJoCo, video without.

    Attributes:
        env_info: the environment.
        venv: where the segments are lived; without MuJoCo it has `record`, how a video is replayed.
        clip_store: where the clips go.
        frames: what is seen of an environment that shows pictures, in the segments too; None: these
            as they are.
    """

    env_info: EnvInfo
    venv: object
    clip_store: ClipStore
    frames: FrameSettings | None = None
    _asked_for: set[str] = field(default_factory=set)
    _work: list[Future[None]] = field(default_factory=list)
    _is_out_of_order: bool = False

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clip_renderer")

    @cached_property
    def _model(self) -> mujoco.MjModel | None:
        return mujoco_model(self.env_info.id)

    @cached_property
    def _renderers(self) -> ProcessPoolExecutor:
        # Note: rendering needs no lock of ours there, and forking after MuJoCo began is unsafe.
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    @property
    def kind(self) -> Literal["poses", "video"]:
        """What its clips are."""
        return "poses" if self._model is not None else "video"

    def show(self, segments: Iterable[Segment]) -> None:
        """Make the clips of segments in the background; those made already cost nothing.

        Raises:
            RlTeacherError: one that was to be made earlier could not be.
        """
        for segment in segments:
            if segment.content_hash in self._asked_for:
                continue
            self._asked_for.add(segment.content_hash)
            if self._is_shown(segment):
                continue
            try:
                record = self._replay_record_of(segment)
            except LookupError:
                logger.warning(
                    "One clip is left out, and the comparison with it: %s has forgotten how its "
                    "episode went.",
                    self.env_info.id,
                )
                continue
            self._work.append(self._thread.submit(self._make, segment, record))
        self._raise_failures()

    def render_if_possible(self, segment: Segment, then: Callable[[], None]) -> None:
        """Make a clip that is not needed: what goes wrong is a warning, and the end of it.

        Args:
            segment: lived in this environment, lately.
            then: called in the background once it can be shown.
        """
        if self._is_out_of_order:
            return
        try:
            record = self._replay_record_of(segment)
        except LookupError:
            return
        self._thread.submit(self._try_to_make, segment, record, then)

    def _try_to_make(
        self, segment: Segment, record: ReplayRecord | None, then: Callable[[], None]
    ) -> None:
        try:
            self._make(segment, record)
            then()
        except Exception as error:
            self._is_out_of_order = True
            logger.warning("The agent's episodes are not shown: %s", error)

    def forget(self, content_hash: str) -> None:
        """Delete a clip of an episode, unless a comparison, or another experiment, shows it.

        Note: the row goes before the file, so that no row ever promises a file that is gone.
        """
        media_key = self.clip_store.store.clips.delete_unused(content_hash)
        if media_key is not None:
            self.clip_store.media.remove(media_key)

    def _is_shown(self, segment: Segment) -> bool:
        """Whether an earlier run, or another experiment, has made the clip."""
        try:
            return self.clip_store.store.clips.get(segment.content_hash).kind is not None
        except MediaNotFound:
            return False

    def _replay_record_of(self, segment: Segment) -> ReplayRecord | None:
        """How a video is replayed; asked for here, before the environment forgets it."""
        if self._model is not None or not isinstance(self.venv, SupportsReplay):
            return None
        return self.venv.replay_record(int(segment.scene_states[0, 0]))

    def _make(self, segment: Segment, record: ReplayRecord | None) -> None:
        steps, fps = frame_steps(len(segment), self.env_info.fps)
        if self._model is not None:
            shown = self._poses(segment, self._model, steps, fps)
        else:
            assert record is not None  # noqa: S101 - only MuJoCo has no record
            shown = self._video(segment, record, steps, fps)
        self.clip_store.store.clips.publish({segment.content_hash: shown})

    def _poses(
        self, segment: Segment, model: mujoco.MjModel, steps: np.ndarray, fps: float
    ) -> RenderedClip:
        packed = poses.pack(poses.body_poses(model, segment.scene_states[steps]), fps)
        key = f"clips/{segment.content_hash}.poses"
        self.clip_store.media.put(key, packed)
        return self._shown("poses", segment, key, self._scene_hash, (len(steps), fps))

    def _video(
        self, segment: Segment, record: ReplayRecord, steps: np.ndarray, fps: float
    ) -> RenderedClip:
        first = int(segment.scene_states[0, 1])
        lived = segment.observations[steps]
        rendering = self._renderers.submit(
            _rendered, self.env_info.id, self.frames, record, first + steps, lived, fps
        )
        key = f"clips/{segment.content_hash}.mp4"
        self.clip_store.media.put(key, rendering.result())
        return self._shown("video", segment, key, None, (len(steps), fps))

    def _shown(
        self,
        kind: str,
        segment: Segment,
        key: str,
        scene_hash: str | None,
        frames: tuple[int, float],
    ) -> RenderedClip:
        num_frames, fps = frames
        return RenderedClip(
            env_id=segment.env_id,
            num_steps=len(segment),
            kind=kind,
            media_key=key,
            scene_hash=scene_hash,
            num_frames=num_frames,
            fps=fps,
        )

    @cached_property
    def _scene_hash(self) -> str:
        """Of the scene's file, which is made and kept once."""
        scene = scene_bytes(build_scene(self._model, camera_settings(self.env_info.id)))
        scene_hash = hashlib.sha256(scene).hexdigest()
        self.clip_store.media.put(f"scenes/{scene_hash}.json", scene)
        return scene_hash

    def wait(self) -> None:
        """Until everything that was asked for can be shown."""
        for work in self._work:
            work.result()
        self._work.clear()

    def _raise_failures(self) -> None:
        """What went wrong in the background is told where somebody listens."""
        done = [work for work in self._work if work.done()]
        self._work = [work for work in self._work if not work.done()]
        for work in done:
            work.result()

    def close(self, *, finish: bool = False) -> None:
        """Let go of threads and processes, once the clip that is being made is done, or all."""
        self._thread.shutdown(cancel_futures=not finish)
        if "_renderers" in vars(self):
            self._renderers.shutdown(cancel_futures=True)


def _rendered(
    env_id: str,
    frames: FrameSettings | None,
    record: ReplayRecord,
    steps: np.ndarray,
    observations: np.ndarray,
    fps: float,
) -> bytes:
    """In another process: the video of some steps of an episode."""
    return encode_mp4(render_steps(env_id, record, steps, observations, frames), fps)


def check_renderable(env_id: str) -> None:
    """Refuse an environment that nobody could look at.

    Raises:
        BadInput: it is not MuJoCo's, and draws no pictures.
    """
    if mujoco_model(env_id) is None:
        make_rendered_env(env_id).close()
