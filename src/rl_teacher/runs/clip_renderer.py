"""The clips of a run: rendered and stored in the background of training.

A comparison is not shown before both its clips are stored, so the page never shows a blank clip.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from rl_teacher.clips.renderer import ClipFile, ClipKind, SegmentRenderer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput, CorruptClip, MediaNotFound, StoreUnavailable
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.episode_replay import ReplayRecord
from rl_teacher.envs.registry import EnvInfo
from rl_teacher.store.media import MediaFiles, keys_of, scene_key
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.store.waiting import Wait

logger = logging.getLogger(__name__)

RETRY_S, MAX_RETRY_S = 0.5, 30.0
"""Time between two attempts to store a clip, at first and at most."""


@dataclass
class ClipRenderer:
    """A background renderer that stores the clips of one environment.

    Attributes:
        env_info: the environment.
        venv: the environments that the segments come from; videos are replayed from its records.
        store: rows of the clips.
        media: files of the clips.
        frames: preprocessing of image observations in the segments; None if there is none.
        is_verified: whether replays are compared with the segments, which is impossible if their
            observations were converted.
        episode_s: time that the latest episode took.
    """

    env_info: EnvInfo
    venv: object
    store: Store
    media: MediaFiles
    frames: FrameSettings | None = None
    is_verified: bool = True
    episode_s: float = 0.0
    _pending: dict[str, Future[object]] = field(default_factory=dict)
    _hidden: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)
    _has_failed: bool = False

    def __post_init__(self) -> None:
        self._renderer = SegmentRenderer(self.env_info, self.is_verified)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clip_renderer")
        self._wait = Wait("storage of the media", math.inf, RETRY_S, MAX_RETRY_S)

    @property
    def waiting_since(self) -> datetime | None:
        """Time since which clips wait for a storage that does not answer; None while it does."""
        return self._wait.since

    @property
    def kind(self) -> ClipKind:
        """The kind of its clips."""
        return self._renderer.kind

    @property
    def shows_others(self) -> bool:
        """Whether it can render segments of other experiments: a video replays an own episode."""
        return self.kind == "poses"

    @property
    def hidden(self) -> Set[str]:
        """Content hashes of the clips that were to be shown and cannot be."""
        return self._hidden

    def show(self, segments: Iterable[Segment], *, is_recent: bool = True) -> None:
        """Render and store the clips of segments in the background, unless they are stored.

        Clips that cannot be rendered, because the environment has forgotten the episode, are added
        to `hidden`.

        Args:
            segments: steps of this environment.
            is_recent: whether the environment has taken these steps itself, so that a replay must
                reproduce them.

        Raises:
            RlTeacherError: an earlier clip could not be rendered.
        """
        by_hash = {segment.content_hash: segment for segment in segments}
        # An earlier run, or another experiment, may have stored some of the clips.
        missing = self.missing(by_hash) - self._hidden
        for content_hash in [each for each in by_hash if each in missing]:
            segment = by_hash[content_hash]
            try:
                record = self._renderer.replay_record(self.venv, segment)
            except LookupError:
                self._hide(content_hash, "the environment has forgotten the episode")
                continue
            is_new = is_recent and not self._media_keys(content_hash)
            work = self._render if is_new else self._try_to_render
            self._pending[content_hash] = self._thread.submit(work, segment, record)
        # Errors of the background thread surface here, where the caller can handle them.
        for content_hash in [each for each, work in self._pending.items() if work.done()]:
            self._pending.pop(content_hash).result()

    def missing(self, content_hashes: Iterable[str]) -> set[str]:
        """Return the hashes of clips that are neither stored nor about to be.

        The file of a clip may have been deleted, or be in another storage.
        """
        others = (each for each in content_hashes if each not in self._pending)
        return {each for each in others if not self._is_stored(each)}

    def stored(self, content_hash: str) -> ClipFile | None:
        """Return the file of a clip; None if it is not stored, or damaged."""
        try:
            clip = self.store.clips.get(content_hash)
            if clip.media_key is None or clip.num_frames is None or clip.fps is None:
                return None
            content = self.media.get(clip.media_key)
        except (MediaNotFound, CorruptClip):
            return None
        return ClipFile(self.kind, content, clip.num_frames, clip.fps)

    def _is_stored(self, content_hash: str) -> bool:
        """Return whether both the row and the files of a clip exist."""
        keys = self._media_keys(content_hash)
        try:
            return keys != [] and all(map(self._exists, keys))
        except StoreUnavailable as error:
            if not error.is_transient:
                raise
            # The row says that it exists. The files are looked for again later.
            return True

    def _exists(self, key: str) -> bool:
        """Return whether a file exists; in a remote storage, look for it once in a run."""
        exists = key in self._known or self.media.exists(key)
        if exists and self.media.is_remote:
            self._known.add(key)
        return exists

    def _media_keys(self, content_hash: str) -> list[str]:
        """Return the keys of a clip's files; none if it was never stored."""
        try:
            return keys_of(self.store.clips.get(content_hash))
        except MediaNotFound:
            return []

    def _hide(self, content_hash: str, reason: str) -> None:
        self._hidden.add(content_hash)
        logger.warning(
            "A clip of %s cannot be shown, so comparisons with it are not asked: %s.",
            self.env_info.id,
            reason,
        )

    def render_if_possible(
        self, segment: Segment, then: Callable[[ClipFile], None], venv: object = None
    ) -> bool:
        """Render a clip that nothing depends on; log the first failure and stop trying.

        It is left out while the storage does not answer.

        Args:
            segment: recent steps of this environment.
            then: called with the clip, in the background, once it is stored.
            venv: another environment in which they were taken.

        Returns:
            False if the clip is left out.
        """
        if self._has_failed or self.waiting_since is not None:
            return False
        try:
            record = self._renderer.replay_record(self.venv if venv is None else venv, segment)
        except LookupError:
            return False

        def render() -> None:
            # Requests that were made before the first failure are skipped, too.
            if self._has_failed:
                return
            began_s = time.monotonic()
            try:
                then(self._render(segment, record))
                self.episode_s = time.monotonic() - began_s
            except Exception as error:
                is_transient = isinstance(error, StoreUnavailable) and error.is_transient
                if is_transient or self._wait.is_over:
                    return
                self._has_failed = True
                logger.warning("The agent's episodes are not shown: %s", error)

        self._thread.submit(render)
        return True

    def forget(self, content_hash: str) -> None:
        """Delete the clip of an episode, unless a comparison or another experiment uses it."""
        # The row goes before the file, so that no row ever refers to a missing file.
        media_key = self.store.clips.delete_unused(content_hash)
        if media_key is not None:
            self.media.remove(media_key)

    def to_mp4(self, clip: ClipFile) -> bytes:
        """Convert a clip to a video; see `SegmentRenderer.to_mp4`."""
        return self._renderer.to_mp4(clip)

    def submit(self, work: Callable[[], object]) -> Future[object]:
        """Call a function in the background, after all clips requested so far."""
        return self._thread.submit(work)

    def close(self) -> None:
        """Release threads and processes after the current clip."""
        self._wait.end()
        self._thread.shutdown(cancel_futures=True)
        self._renderer.close()

    def _try_to_render(self, segment: Segment, record: ReplayRecord | None) -> None:
        """Render and store the clip of an old segment; hide it if the episode is another one.

        Episodes are numbered from 0 in each run, so that another one may have its number.
        """
        if record is not None and not self.is_verified:
            self._hide(segment.content_hash, "its episode cannot be verified")
            return
        try:
            self._render(segment, record)
        except (BadInput, IndexError):
            self._hide(segment.content_hash, "its episode cannot be replayed")

    def _render(self, segment: Segment, record: ReplayRecord | None) -> ClipFile:
        """Render and store a clip; wait until the storage answers."""
        clip = self._renderer.render(segment, record, self.frames)
        media_key = f"clips/{segment.content_hash}.{'mp4' if clip.kind == 'video' else 'poses'}"
        # The file comes before the row, so that no row ever refers to a missing file.
        self._wait.repeat(self.media.put, media_key, clip.content)
        row = RenderedClip(
            env_id=segment.env_id,
            num_steps=len(segment),
            kind=clip.kind,
            media_key=media_key,
            scene_hash=self._wait.repeat(self._store_scene),
            num_frames=clip.num_frames,
            fps=clip.fps,
        )
        self.store.clips.publish({segment.content_hash: row})
        if self.media.is_remote:
            self._known.add(media_key)
        return clip

    def _store_scene(self) -> str | None:
        """Store the scene unless it exists, and return its hash; None where videos are made."""
        if self._renderer.scene is None:
            return None
        scene_hash, content = self._renderer.scene
        if not self.media.exists(scene_key(scene_hash)):
            self.media.put(scene_key(scene_hash), content)
        return scene_hash
