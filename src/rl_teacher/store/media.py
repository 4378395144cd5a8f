"""Segments and their media as files, named by the hash of the segment.

Media are in a local folder, or in any file system that fsspec supports.
"""

import hashlib
import os
import re
from pathlib import Path

from rl_teacher.clips.segment import SEGMENT_ARRAYS, Segment
from rl_teacher.common.errors import (
    INVALID_CONTENT,
    BadInput,
    CorruptCheckpoint,
    CorruptClip,
    MediaNotFound,
)
from rl_teacher.common.files import (
    TEMPORARY_SUFFIX,
    folder_errors,
    pack,
    unpack,
    write_atomically,
)
from rl_teacher.store.media_backends import RemoteFolder, open_backend
from rl_teacher.store.records import ClipView

CONTENT_HASH = re.compile(r"[0-9a-f]{64}")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
SUFFIX = ".safetensors"

MEDIA_KEY = re.compile(r"clips/[0-9a-f]{64}\.(poses|mp4)|scenes/[0-9a-f]{64}\.json")

SEAL_HEAD = b"\x00\x00\x00\x28free"
"""A sealed file ends with 40 bytes: these 8, and the SHA-256 of the content before them.

They form an MP4 box of type `free`, so that any player opens a sealed video.
"""

SEAL_BYTES = len(SEAL_HEAD) + hashlib.sha256().digest_size


class SegmentFiles:
    """A folder of segments, one file each; processes may share it.

    A file survives SIGKILL. It is not synced to disk, which would cost more than writing it: after
    a power failure it may be truncated, which `load` detects and the next `save` repairs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known_folders: set[Path] = set()

    def save(self, segment: Segment) -> None:
        """Write a segment, unless it exists.

        Raises:
            RunFolderUnusable: The folder is read-only or full.
        """
        content = to_bytes(segment)
        path = self.folder / slug(segment.env_id) / f"{segment.content_hash}{SUFFIX}"
        with folder_errors(self.folder):
            if path.parent not in self._known_folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._known_folders.add(path.parent)
            if not has_size(path, len(content)):
                write_atomically(path, content, is_synced=False)

    def load(self, content_hash: str) -> Segment:
        """Read a segment and verify its hash.

        Raises:
            CorruptCheckpoint: The file is missing, truncated or altered.
        """
        if not CONTENT_HASH.fullmatch(content_hash):
            raise CorruptCheckpoint(
                f"{content_hash[:80]!r} is not the hash of a segment: 64 of 0-9, a-f were needed."
            )
        # The folder of the environment is unknown here.
        path = next(self.folder.glob(f"*/{content_hash}{SUFFIX}"), None)
        if path is None:
            raise CorruptCheckpoint(
                f"The segment {content_hash} is not in {self.folder}. "
                "Put the file back from a backup, or delete the experiment with `rl-teacher "
                "delete` to start over."
            )
        try:
            segment = from_bytes(path.read_bytes())
            found_hash = segment.content_hash
        except (OSError, *INVALID_CONTENT) as error:
            raise CorruptCheckpoint(damage_message(path, f"{error!s:.200}")) from error
        if found_hash != content_hash:
            raise CorruptCheckpoint(damage_message(path, "its content has another hash"))
        return segment


def to_bytes(segment: Segment) -> bytes:
    """Encode a segment as a safetensors file."""
    arrays = {name: getattr(segment, name) for name in SEGMENT_ARRAYS}
    return pack(arrays, {"env_id": segment.env_id})


def from_bytes(content: bytes) -> Segment:
    """Decode a segment from a safetensors file."""
    arrays, meta = unpack(content)
    return Segment(env_id=meta["env_id"], **{name: arrays[name] for name in SEGMENT_ARRAYS})


def has_size(path: Path, size_bytes: int) -> bool:
    """Return True if a file exists with this size; a truncated one is written again."""
    try:
        return path.stat().st_size == size_bytes
    except FileNotFoundError:
        return False


def slug(env_id: str) -> str:
    """Return a folder name for an environment; a hash keeps altered names distinct."""
    if PLAIN_NAME.fullmatch(env_id) and not env_id.endswith(TEMPORARY_SUFFIX):
        return env_id
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", env_id).strip(".-")[:60]
    return f"{readable}-{hashlib.sha256(env_id.encode()).hexdigest()[:12]}".lstrip("-")


def damage_message(path: Path, why: str) -> str:
    """Return the error text for a damaged file."""
    return (
        f"{path} is not what was written ({why}). Put it back from a backup, or delete the "
        "experiment with `rl-teacher delete` to start over."
    )


class MediaFiles:
    """Clips and scenes by key, in a local folder or behind an fsspec URL; processes may share them.

    Every file ends with the SHA-256 of its content, so that damage is detected when it is read. The
    first content of a key stays, because a key identifies the segment and clients may cache it.
    """

    def __init__(self, url_or_path: str | Path) -> None:
        """Open a folder.

        Args:
            url_or_path: Local folder, or a URL such as `s3://bucket/folder`.

        Raises:
            BadInput: The protocol of the URL is unknown, or its driver is not installed.
        """
        self._backend = open_backend(url_or_path)

    @property
    def label(self) -> str:
        """Path of the folder, or URL without a password."""
        return self._backend.label

    @property
    def is_remote(self) -> bool:
        """True for an object store or another server, False for a local folder."""
        return isinstance(self._backend, RemoteFolder)

    def check(self) -> None:
        """Check that a remote storage can be read; a local folder is created by the first write.

        Raises:
            StoreUnavailable: It does not answer, the bucket does not exist, or access is denied.
        """
        if self.is_remote:
            self._backend.read(scene_key("0" * 64))

    def put(self, key: str, content: bytes) -> None:
        """Write the content of a key, unless it exists; a damaged file is replaced.

        Raises:
            BadInput: The key is invalid.
            RunFolderUnusable: The folder is read-only or full.
            StoreUnavailable: The remote file system does not answer.
        """
        try:
            self.get(key)
        except (MediaNotFound, CorruptClip):
            self._backend.write(key, seal(content))

    def get(self, key: str) -> bytes:
        """Read the content of a key.

        Raises:
            BadInput: The key is invalid.
            MediaNotFound: The file does not exist.
            CorruptClip: The file is damaged.
            RunFolderUnusable: The folder cannot be read.
            StoreUnavailable: The remote file system does not answer.
        """
        check_key(key)
        sealed = self._backend.read(key)
        if sealed is None:
            raise MediaNotFound(
                f"{key} is not in the storage of the media. Name the storage where the trainer "
                "puts them with RL_TEACHER_MEDIA_URL, or put the file back from a backup."
            )
        return unseal(key, sealed)

    def exists(self, key: str) -> bool:
        """Return True if a key exists; only `get` detects damage.

        Raises:
            BadInput: The key is invalid.
            StoreUnavailable: The remote file system does not answer.
        """
        check_key(key)
        return self._backend.exists(key)

    def remove(self, key: str) -> None:
        """Delete the file of a key, if it exists.

        Raises:
            BadInput: The key is invalid.
            RunFolderUnusable: The folder is read-only.
            StoreUnavailable: The remote file system does not answer.
        """
        check_key(key)
        self._backend.remove(key)


def default_media(home: Path) -> str:
    """Return RL_TEACHER_MEDIA_URL, or the path of the folder in the home folder."""
    return os.environ.get("RL_TEACHER_MEDIA_URL") or str(home / "media")


def keys_of(clip: ClipView) -> list[str]:
    """Return the keys of a clip's files; none if it is not rendered."""
    scene_keys = [] if clip.scene_hash is None else [scene_key(clip.scene_hash)]
    return [] if clip.media_key is None else [clip.media_key, *scene_keys]


def scene_key(scene_hash: str) -> str:
    """Return the key of a scene."""
    return f"scenes/{scene_hash}.json"


def check_key(key: str) -> None:
    """Check that a key cannot name a file outside the folder.

    Raises:
        BadInput: The key is invalid.
    """
    if not MEDIA_KEY.fullmatch(key):
        raise BadInput(
            f"{key[:100]!r} is not the key of a clip or a scene: clips/HASH.poses, clips/HASH.mp4 "
            "or scenes/HASH.json was needed, HASH being 64 of 0-9, a-f."
        )


def seal(content: bytes) -> bytes:
    """Append a checksum to content."""
    return content + SEAL_HEAD + hashlib.sha256(content).digest()


def unseal(key: str, sealed: bytes) -> bytes:
    """Verify and remove the checksum.

    Raises:
        CorruptClip: The content is truncated or altered.
    """
    content = sealed[:-SEAL_BYTES]
    if sealed != seal(content):
        raise CorruptClip(
            f"{key} is not what was written: cut short or altered. Put it back from a backup, or "
            "delete it and start the trainer again, which renders it again."
        )
    return content
