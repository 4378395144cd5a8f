"""Preferences of the library imitation, as arrays.

imitation keeps its preferences in a pickle, which can do anything when it is opened and is never
opened here. docs/datasets.md has the lines that make arrays of it.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import gymnasium as gym
import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.datasets.arrays import check_size, read_npz
from rl_teacher.datasets.dataset import Dataset
from rl_teacher.datasets.reading import MAX_BYTES, check_fits, faults_in_words
from rl_teacher.datasets.rows import Row
from rl_teacher.datasets.spaces import Spaces
from rl_teacher.report.label_export import SCHEMA_VERSION

SIDES = ("1", "2")
KEYS = (*(f"{name}{side}" for side in SIDES for name in ("obs", "acts", "rews")), "preferences")
"""Of the file: C fragments of T steps on each side, and C preferences."""
LABELER = "imitation"
ANSWERS = {1.0: Answer.LEFT, 0.5: Answer.EQUAL, 0.0: Answer.RIGHT}


def from_imitation(
    path: Path | str, env_id: str, spaces: Spaces, max_bytes: int = MAX_BYTES
) -> Dataset:
    """Read imitation's preferences from an `.npz` file; see docs/datasets.md for its keys.

    Args:
        path: of the file.
        env_id: of the environment, which the file does not name.
        spaces: of that environment.
        max_bytes: of all arrays.

    Raises:
        BadInput: it is no such file, or its arrays do not fit the spaces.
    """
    path = Path(path)
    with faults_in_words(path):
        check_size(path.stat().st_size, max_bytes)
        arrays = read_npz(path.read_bytes(), KEYS, max_bytes)
        check_preferences(arrays)
        moment = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        segments: dict[str, Segment] = {}
        rows = []
        for place, preference in enumerate(arrays["preferences"].tolist()):
            pair = [segment_of(arrays, side, place, env_id, spaces) for side in SIDES]
            segments |= {each.content_hash: each for each in pair}
            rows.append(row_of(place, pair, preference, moment))
        return Dataset(env_id, spaces, segments, tuple(rows))


def check_preferences(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays of several lengths, and preferences that are no answer.

    Raises:
        BadInput: says which.
    """
    preferences = arrays["preferences"]
    lengths = {key: arrays[key].shape[:1] for key in KEYS}
    if (
        preferences.ndim != 1
        or set(lengths.values()) != {preferences.shape}
        or not len(preferences)
    ):
        raise BadInput(
            f"the arrays have {lengths} comparisons; all must have as many, at least one"
        )
    if not np.isin(preferences, list(ANSWERS)).all():
        raise BadInput(
            "the preferences have other values in them than 1 (the first fragment is better), 0 "
            "and 0.5. Draw them (imitation's SyntheticGatherer with sample=True), or round them."
        )


def segment_of(
    arrays: Mapping[str, np.ndarray], side: str, place: int, env_id: str, spaces: Spaces
) -> Segment:
    """One fragment; imitation's has one observation more than actions, the last, which goes."""
    observations, actions, rewards = (
        arrays[f"{key}{side}"][place] for key in ("obs", "acts", "rews")
    )
    if rewards.ndim != 1 or not len(rewards) or len(actions) != len(rewards):
        raise BadInput(
            f"the fragments of rews{side} are {rewards.shape}, acts{side} {actions.shape}"
        )
    if len(observations) not in (len(rewards), len(rewards) + 1):
        raise BadInput(f"obs{side} has {len(observations)} steps, rews{side} {len(rewards)}")
    observations = observations[: len(rewards)]
    check_fits(observations, spaces.observation, f"obs{side}")
    check_fits(actions, spaces.action, f"acts{side}")
    is_float = np.issubdtype(observations.dtype, np.floating)
    is_box = isinstance(spaces.action, gym.spaces.Box)
    segment = Segment(
        env_id=env_id,
        observations=observations.astype(np.float32) if is_float else observations,
        actions=actions.astype(np.float32 if is_box else np.int64),
        rewards=rewards.astype(np.float32),
        scene_states=np.zeros((len(rewards), 0)),
    )
    for name in ("observations", "actions", "rewards"):
        if not np.isfinite(getattr(segment, name)).all():
            raise BadInput(f"the {name} of comparison {place} have NaN or infinity in them")
    return segment


def row_of(place: int, pair: list[Segment], preference: float, moment: str) -> Row:
    """The label of one comparison; its request id follows from what it says."""
    left, right = (each.content_hash for each in pair)
    said = hashlib.sha256(f"{place} {left} {right} {preference}".encode()).hexdigest()
    return {
        "schema_version": SCHEMA_VERSION,
        "label_id": place + 1,
        "experiment": LABELER,
        "comparison_id": place + 1,
        "asked_at_step": 0,
        "left_clip": left,
        "right_clip": right,
        "answer": str(ANSWERS[preference]),
        "shown_left": left,
        "is_swapped": False,
        "labeler": LABELER,
        "role": "labeler",
        "answered_at": moment,
        "response_ms": None,
        "purpose": "answer",
        "lease": "none",
        "is_current": True,
        "is_excluded": False,
        "gold": None,
        "request_id": str(uuid5(NAMESPACE_URL, said)),
        "details": None,
    }
