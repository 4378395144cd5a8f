"""Videos of a run's episodes, rendered and written in the background of training."""

import logging
from concurrent.futures import ThreadPoolExecutor

from rl_teacher.clips.offscreen import OffscreenRenderer
from rl_teacher.envs.registry import EnvInfo, mujoco_model
from rl_teacher.runs.clip_renderer import ClipFile, SegmentRenderer, check_renderable
from rl_teacher.runs.history import EpisodeVideos

logger = logging.getLogger(__name__)


class VideoWriter:
    """A writer of the videos of one run.

    It has a thread and a rendering process of its own: a video of body poses takes seconds, for
    which the clips of comparisons cannot wait.
    """

    def __init__(self, env_info: EnvInfo, videos: EpisodeVideos) -> None:
        """Initialise.

        Args:
            env_info: the environment.
            videos: where the videos go.
        """
        self._videos = videos
        self._renderer = SegmentRenderer(env_info)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="video_writer")
        self._has_failed = False

    @property
    def steps(self) -> list[int]:
        """Steps whose videos are written, ascending."""
        return self._videos.steps

    def write(self, step: int, clip: ClipFile) -> None:
        """Write the video of an episode in the background; log the first failure and stop trying.

        Args:
            step: environment steps of training done.
            clip: all steps of the episode.
        """
        self._thread.submit(self._write, step, clip)

    def _write(self, step: int, clip: ClipFile) -> None:
        if self._has_failed:
            return
        try:
            self._videos.add(step, self._renderer.to_mp4(clip))
        # Training continues, whatever is wrong with a video.
        except Exception as error:
            self._has_failed = True
            logger.warning(
                "No video of step %s is written, and none of later steps: %s", f"{step:,}", error
            )

    def wait(self) -> None:
        """Wait until all requested videos are written."""
        self._thread.submit(int).result()

    def close(self) -> None:
        """End the thread and the rendering process after the current video."""
        self._thread.shutdown(cancel_futures=True)
        self._renderer.close()


def check_videos(env_id: str) -> None:
    """Refuse an environment of which no video can be made on this machine.

    Raises:
        BadInput: it cannot be shown, or MuJoCo finds no OpenGL.
    """
    check_renderable(env_id)
    if mujoco_model(env_id) is not None:
        OffscreenRenderer().close()
