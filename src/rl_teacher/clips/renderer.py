"""Rendering of segments: body poses or videos that a person can watch, and images for videos."""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import mujoco
import numpy as np
from jaxtyping import Float32, Int64

from rl_teacher.clips import poses
from rl_teacher.clips.offscreen import (
    OffscreenRenderer,
    View,
    end_with_parent,
    report_killed_process,
    spawn_pool,
)
from rl_teacher.clips.scene import Poses, aim_camera, build_scene, scene_bytes
from rl_teacher.clips.segment import Segment, frame_steps, playback_speed
from rl_teacher.clips.video import Frame, decode_mp4, encode_mp4
from rl_teacher.common.errors import BadInput
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.check import find_rendering_faults
from rl_teacher.envs.episode_replay import ReplayRecord, SupportsReplay
from rl_teacher.envs.registry import EnvInfo, camera_settings, mujoco_model
from rl_teacher.envs.rendering import check_replayed, iterate_frames, render_steps

ClipKind = Literal["poses", "video"]

POSES_SIZE = 480, 360
"""Width and height of images of body poses."""


@dataclass(frozen=True)
class ClipFile:
    """The file of a clip.

    Attributes:
        kind: type of the file.
        content: its bytes.
        num_frames: number of frames.
        fps: frames per second.
    """

    kind: ClipKind
    content: bytes
    num_frames: int
    fps: float


@dataclass
class SegmentRenderer:
    """A renderer for the segments of one environment: body poses with MuJoCo, video without.

    Attributes:
        env_info: the environment.
        is_verified: whether replayed observations are compared with those of the segment.
    """

    env_info: EnvInfo
    is_verified: bool = True

    @cached_property
    def model(self) -> mujoco.MjModel | None:
        """The MuJoCo model whose bodies are posed; None where videos are made."""
        return mujoco_model(self.env_info.id)

    @property
    def kind(self) -> ClipKind:
        """The kind of its clips."""
        return "video" if self.model is None else "poses"

    @cached_property
    def scene(self) -> tuple[str, bytes] | None:
        """The scene file that poses refer to, with its SHA-256; None where videos are made."""
        if self.model is None:
            return None
        content = scene_bytes(build_scene(self.model, camera_settings(self.env_info.id)))
        return hashlib.sha256(content).hexdigest(), content

    @cached_property
    def _offscreen(self) -> OffscreenRenderer:
        return OffscreenRenderer()

    @cached_property
    def _pool(self) -> ProcessPoolExecutor:
        # Another process, because pygame holds the GIL while it draws. Forking is unsafe once
        # MuJoCo has started threads, so it is spawned.
        return spawn_pool(end_with_parent)

    def replay_record(self, venv: object, segment: Segment) -> ReplayRecord | None:
        """Return the record that a video of a segment is replayed from; None for poses.

        Call it soon after the segment: environments forget old episodes.

        Raises:
            LookupError: the environment has forgotten the episode.
        """
        if self.model is not None or not isinstance(venv, SupportsReplay):
            return None
        return venv.replay_record(int(segment.scene_states[0, 0]))

    def render(
        self,
        segment: Segment,
        record: ReplayRecord | None,
        frames: FrameSettings | None = None,
    ) -> ClipFile:
        """Render a segment.

        Args:
            segment: steps of this environment.
            record: the replay of its episode; needed where `kind` is "video".
            frames: preprocessing of image observations in the segment; None if there is none.

        Raises:
            BadInput: the replay does not reproduce the segment, or nothing is drawn.
            RendererKilled: the rendering process was killed.
        """
        steps, fps = frame_steps(len(segment), self.env_info.fps)
        if self.model is not None:
            content = poses.pack(poses.body_poses(self.model, segment.scene_states[steps]), fps)
            return ClipFile("poses", content, len(steps), fps)
        assert record is not None  # noqa: S101 - only MuJoCo needs no replay
        episode_steps = int(segment.scene_states[0, 1]) + steps
        observations = segment.observations[steps] if self.is_verified else None
        with report_killed_process():
            video = self._pool.submit(
                _render_video, self.env_info.id, record, episode_steps, observations, frames, fps
            ).result()
        return ClipFile("video", video, len(steps), fps)

    def images(
        self,
        segment: Segment,
        steps: Int64[np.ndarray, " frame"],
        record: ReplayRecord | None,
        frames: FrameSettings | None = None,
        beside: Sequence[Segment] = (),
    ) -> Iterator[Frame]:
        """Yield the images of some steps of a segment.

        Bodies are drawn as on the page, `POSES_SIZE` large; other environments draw themselves.

        Args:
            segment: steps of this environment, from the start of an episode.
            steps: [F] ascending steps.
            record: the replay of its episode; needed where `kind` is "video".
            frames: preprocessing of image observations in the segment; None if there is none.
            beside: segments shown next to it, which share the camera's height and distance.

        Raises:
            BadInput: nothing can be rendered on this machine, or the replay differs.
            RendererKilled: the rendering process was killed.
        """
        if self.model is None:
            assert record is not None  # noqa: S101 - only MuJoCo needs no replay
            env_id = self.env_info.id
            replayed = iterate_frames(env_id, record, steps, frames)
            for step, (observation, frame) in zip(steps, replayed, strict=True):
                if self.is_verified:
                    check_replayed(env_id, observation, segment.observations[step])
                yield frame
            return
        shown = poses.body_poses(self.model, segment.scene_states[steps])
        others = [poses.body_poses(self.model, each.scene_states) for each in beside]
        yield from self._draw(shown, others)

    def to_mp4(self, clip: ClipFile) -> bytes:
        """Convert a clip to a video of the speed at which the page plays it.

        Raises:
            BadInput: nothing can be rendered on this machine.
            RendererKilled: the rendering process was killed.
        """
        speed = playback_speed(clip.num_frames / clip.fps)
        if clip.kind == "poses":
            shown, _ = poses.unpack(clip.content)
            return encode_mp4(self._draw(shown), clip.fps * speed)
        # Encoding it once more would lose quality.
        return (
            clip.content if speed == 1 else encode_mp4(decode_mp4(clip.content), clip.fps * speed)
        )

    def _draw(
        self, shown: Poses, beside: Sequence[Float32[np.ndarray, "_ body 7"]] = ()
    ) -> Iterator[Frame]:
        """Yield images of body poses; other poses share the camera's height and distance."""
        assert self.scene is not None  # noqa: S101 - only MuJoCo has poses
        scene, (width, height) = self.scene[1], POSES_SIZE
        targets, distance = aim_camera(json.loads(scene), shown, width / height, beside)
        yield from self._offscreen.draw(View(scene, distance, width, height), shown, targets)

    def close(self) -> None:
        """End the rendering processes."""
        if "_pool" in vars(self):
            self._pool.shutdown(cancel_futures=True)
        if "_offscreen" in vars(self):
            self._offscreen.close()


def _render_video(
    env_id: str,
    record: ReplayRecord,
    steps: np.ndarray,
    observations: np.ndarray | None,
    frames: FrameSettings | None,
    fps: float,
) -> bytes:
    """Replay and encode steps of an episode. Runs in the rendering process."""
    return encode_mp4(render_steps(env_id, record, steps, observations, frames), fps)


def check_renderable(env_id: str) -> None:
    """Refuse an environment that cannot be shown to a person.

    Raises:
        BadInput: it has neither a MuJoCo model nor images to render.
    """
    for fault in find_rendering_faults(env_id, is_shown=True):
        raise BadInput(f"{env_id}: {fault.text}")


def check_videos(env_id: str) -> None:
    """Refuse an environment of which no video can be made on this machine.

    Raises:
        BadInput: it cannot be shown, or MuJoCo finds no OpenGL.
    """
    check_renderable(env_id)
    if mujoco_model(env_id) is not None:
        OffscreenRenderer().close()
