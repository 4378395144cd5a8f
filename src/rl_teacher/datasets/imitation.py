"""Preferences of the library imitation, given as arrays.

imitation stores preferences in a pickle, which can run code when it is opened and is therefore
never opened here. docs/datasets.md shows how to convert it to arrays.
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
from rl_teacher.common.paths import user_path
from rl_teacher.datasets.arrays import check_size, read_npz
from rl_teacher.datasets.dataset import Dataset, with_newest_current
from rl_teacher.datasets.reading import MAX_BYTES, check_fits, read_errors
from rl_teacher.datasets.spaces import Spaces
from rl_teacher.report.label_export import SCHEMA_VERSION, Row

SIDES = ("1", "2")
KEYS = (*(f"{name}{side}" for side in SIDES for name in ("obs", "acts", "rews")), "preferences")
"""Arrays of the file: C fragments of T steps per side, and C preferences."""
LABELER = "imitation"
ANSWERS = {1.0: Answer.LEFT, 0.5: Answer.EQUAL, 0.0: Answer.RIGHT}


def from_imitation(
    path: Path | str, env_id: str, spaces: Spaces, max_bytes: int = MAX_BYTES
) -> Dataset:
    """Read imitation's preferences from an `.npz` file; see docs/datasets.md for its keys.

    Args:
        path: Path of the file.
        env_id: Environment, which the file does not contain.
        spaces: Spaces of the environment.
        max_bytes: Maximum size of all arrays.

    Raises:
        BadInput: The file is invalid, or its arrays do not fit the spaces.
    """
    path = user_path(path)
    with read_errors(path):
        check_size(path.stat().st_size, max_bytes)
        arrays = read_npz(path.read_bytes(), KEYS, max_bytes)
        check_preferences(arrays)
        moment = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        segments: dict[str, Segment] = {}
        rows = []
        for index, preference in enumerate(arrays["preferences"].tolist()):
            pair = [segment_of(arrays, side, index, env_id, spaces) for side in SIDES]
            segments |= {each.content_hash: each for each in pair}
            rows.append(row_of(index, pair, preference, moment))
        return Dataset(env_id, spaces, segments, with_newest_current(rows))


def check_preferences(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that the arrays have equal lengths and the preferences are 0, 0.5 or 1.

    Raises:
        BadInput: They are not.
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
    arrays: Mapping[str, np.ndarray], side: str, index: int, env_id: str, spaces: Spaces
) -> Segment:
    """Convert a fragment, whose last observation has no action and is dropped."""
    observations, actions, rewards = (
        arrays[f"{key}{side}"][index] for key in ("obs", "acts", "rews")
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
            raise BadInput(f"the {name} of comparison {index} have NaN or infinity in them")
    return segment


def row_of(index: int, pair: list[Segment], preference: float, moment: str) -> Row:
    """Create the label of a comparison, with a request id derived from its content."""
    left, right = (each.content_hash for each in pair)
    content = hashlib.sha256(f"{index} {left} {right} {preference}".encode()).hexdigest()
    return {
        "schema_version": SCHEMA_VERSION,
        "label_id": index + 1,
        "experiment": LABELER,
        "comparison_id": index + 1,
        "comparison_number": index + 1,
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
        "is_too_fast": False,
        "is_current": True,
        "is_excluded": False,
        "gold": None,
        "request_id": str(uuid5(NAMESPACE_URL, content)),
        "details": None,
        "is_held_out": False,
    }
