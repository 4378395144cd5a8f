"""Segments as files, named by what is in them; and the media that a page shows of them."""

import hashlib
import re
from pathlib import Path

from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput, CorruptCheckpoint, CorruptClip, MediaNotFound
from rl_teacher.store.encoding import pack, unpack
from rl_teacher.store.files import folder_failures_in_words, write_whole
from rl_teacher.store.media_backends import place_of

ARRAYS = ("observations", "actions", "rewards", "scene_states")
CONTENT_HASH = re.compile(r"[0-9a-f]{64}")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
SUFFIX = ".safetensors"

MEDIA_KEY = re.compile(r"clips/[0-9a-f]{64}\.(poses|mp4)|scenes/[0-9a-f]{64}\.json")

SEAL_HEAD = b"\x00\x00\x00\x28free"
"""A sealed file ends with 40 bytes: these 8, and the SHA-256 of what is before them.

Note: MP4 calls that a box of free space, so that any player opens a sealed video.
"""

SEAL_BYTES = len(SEAL_HEAD) + hashlib.sha256().digest_size


class SegmentFiles:
    """A folder of segments, one file each; several processes may share it.

    A file outlives SIGKILL. It is not synced to the disk, which would cost more than writing it:
    after a power cut one may be cut short, which `load` finds out and the next `save` mends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known_folders: set[Path] = set()

    def save(self, segment: Segment) -> None:
        """Write a segment, unless it is there.

        Raises:
            RunFolderUnusable: read-only or full.
        """
        content = to_bytes(segment)
        path = self._path(segment.env_id, segment.content_hash)
        with folder_failures_in_words(self.folder):
            self._make_folder(path.parent)
            if not has_size(path, len(content)):
                write_whole(path, content, is_synced=False)

    def load(self, content_hash: str) -> Segment:
        """Read a segment and check that it is the one that was saved.

        Raises:
            CorruptCheckpoint: the file is gone, cut short or altered.
        """
        path = self._find(content_hash)
        try:
            segment = from_bytes(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(damage_in_words(path, str(error))) from error
        if segment.content_hash != content_hash:
            raise CorruptCheckpoint(damage_in_words(path, "its content has another hash"))
        return segment

    def _path(self, env_id: str, content_hash: str) -> Path:
        return self.folder / slug(env_id) / f"{content_hash}{SUFFIX}"

    def _make_folder(self, folder: Path) -> None:
        if folder not in self._known_folders:
            folder.mkdir(parents=True, exist_ok=True)
            self._known_folders.add(folder)

    def _find(self, content_hash: str) -> Path:
        """Look through the environments' folders: a hash does not say which it belongs to."""
        if not CONTENT_HASH.fullmatch(content_hash):
            raise CorruptCheckpoint(
                f"{content_hash[:80]!r} is not the hash of a segment: 64 of 0-9, a-f were needed."
            )
        for path in self.folder.glob(f"*/{content_hash}{SUFFIX}"):
            return path
        raise CorruptCheckpoint(
            f"The segment {content_hash} is not in {self.folder}. "
            "Put the file back from a backup, or start over with --force-new."
        )


def to_bytes(segment: Segment) -> bytes:
    """A segment as a safetensors file."""
    arrays = {name: getattr(segment, name) for name in ARRAYS}
    return pack(arrays, {"env_id": segment.env_id})


def from_bytes(content: bytes) -> Segment:
    """The segment in a safetensors file."""
    arrays, meta = unpack(content)
    return Segment(env_id=meta["env_id"], **{name: arrays[name] for name in ARRAYS})


def has_size(path: Path, size_bytes: int) -> bool:
    """Whether a file is there and whole, as far as its length can tell."""
    try:
        return path.stat().st_size == size_bytes
    except FileNotFoundError:
        return False


def slug(env_id: str) -> str:
    """A folder name for an environment; one that had to be changed carries a hash to stay apart."""
    if PLAIN_NAME.fullmatch(env_id):
        return env_id
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", env_id).strip(".-")[:60]
    return f"{readable}-{hashlib.sha256(env_id.encode()).hexdigest()[:12]}".lstrip("-")


def damage_in_words(path: Path, why: str) -> str:
    """What is wrong with a file, and what to do."""
    return (
        f"{path} is not what was written ({why}). Put it back from a backup, or "
        "start the experiment over with --force-new."
    )


class MediaFiles:
    """Clips and scenes by key, in a folder or wherever fsspec reaches; processes may share them.

    Every file carries the SHA-256 of its content, so that damage is found when it is read. The
    first content of a key stays: a key names the segment, and whoever has seen it may keep it.
    """

    def __init__(self, url_or_path: str | Path) -> None:
        """Choose a place.

        Args:
            url_or_path: a folder, or a URL such as `s3://bucket/folder`.

        Raises:
            BadInput: nobody knows the URL's protocol, or its driver is not installed.
        """
        self._place = place_of(url_or_path)

    def put(self, key: str, content: bytes) -> None:
        """Keep content under a key, unless the key is there; a damaged one is mended.

        Raises:
            BadInput: not a key.
            RunFolderUnusable: the folder is read-only or full.
            StoreUnavailable: the remote place does not answer.
        """
        check_key(key)
        if not self._is_whole(key):
            self._place.write(key, seal(content))

    def get(self, key: str) -> bytes:
        """The content of a key.

        Raises:
            BadInput: not a key.
            MediaNotFound: it is not there.
            CorruptClip: it is not what was written.
            RunFolderUnusable: the folder cannot be read.
            StoreUnavailable: the remote place does not answer.
        """
        check_key(key)
        sealed = self._place.read(key)
        if sealed is None:
            raise MediaNotFound(
                f"{key} is not in {self._place.label}. Name the place where the trainer puts its "
                "media with --media, or put the file back from a backup."
            )
        return unseal(key, sealed)

    def exists(self, key: str) -> bool:
        """Whether a key is there; only `get` finds out whether it is whole.

        Raises:
            BadInput: not a key.
            StoreUnavailable: the remote place does not answer.
        """
        check_key(key)
        return self._place.has(key)

    def remove(self, key: str) -> None:
        """Delete a key's file; harmless if it is not there.

        Raises:
            BadInput: not a key.
            RunFolderUnusable: the folder is read-only.
            StoreUnavailable: the remote place does not answer.
        """
        check_key(key)
        self._place.remove(key)

    def _is_whole(self, key: str) -> bool:
        try:
            self.get(key)
        except (MediaNotFound, CorruptClip):
            return False
        return True


def check_key(key: str) -> None:
    """Refuse whatever could name a file outside.

    Raises:
        BadInput: not a key.
    """
    if not MEDIA_KEY.fullmatch(key):
        raise BadInput(
            f"{key[:100]!r} is not the key of a clip or a scene: clips/HASH.poses, clips/HASH.mp4 "
            "or scenes/HASH.json was needed, HASH being 64 of 0-9, a-f."
        )


def seal(content: bytes) -> bytes:
    """Content that proves itself."""
    return content + SEAL_HEAD + hashlib.sha256(content).digest()


def unseal(key: str, sealed: bytes) -> bytes:
    """The content, if it is what was sealed.

    Raises:
        CorruptClip: cut short or altered.
    """
    content = sealed[:-SEAL_BYTES]
    if sealed != seal(content):
        raise CorruptClip(
            f"{key} is not what was written: cut short or altered. Put it back from a backup, or "
            "delete it and start the trainer again, which makes it anew."
        )
    return content
