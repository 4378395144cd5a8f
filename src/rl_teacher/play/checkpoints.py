"""Selection of a checkpoint of an experiment."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_teacher.common.errors import BadInput, CorruptCheckpoint
from rl_teacher.store.checkpoints import (
    Checkpoint,
    CheckpointFile,
    list_checkpoints,
    read_checkpoint,
)

LATEST, PREVIOUS = "latest", "previous"
MAX_ATTEMPTS = 5
"""A running experiment may delete a file after it was listed; then list again."""


@dataclass(frozen=True)
class Chosen:
    """A selected checkpoint.

    Attributes:
        checkpoint: its content.
        place: `latest`, `previous`, or a description of its age.
        note: a remark for the viewer, or None.
    """

    checkpoint: Checkpoint
    place: str
    note: str | None = None


def choose(name: str, folder: Path, wanted: str) -> Chosen:
    """Select one of the kept checkpoints.

    Args:
        name: name of the experiment.
        folder: folder of its checkpoints.
        wanted: `latest`, `previous`, or a step.

    Raises:
        BadInput: there is no such checkpoint; the message lists the existing ones.
        CorruptCheckpoint: the checkpoint is damaged.
    """
    for _ in range(MAX_ATTEMPTS):
        kept = list_checkpoints(folder)
        if not kept:
            raise BadInput(
                f"{name} has no checkpoint yet, so there is no agent to load. One is written when "
                "training begins, and every 20 seconds from then on; let it train for a while."
            )
        try:
            return _select_latest(name, kept) if wanted == LATEST else _select(name, kept, wanted)
        except FileNotFoundError:
            continue
    raise CorruptCheckpoint(f"The checkpoints in {folder} change faster than they can be read.")


def _select_latest(name: str, kept: Sequence[CheckpointFile]) -> Chosen:
    """Return the newest undamaged checkpoint."""
    note = None
    for place, file in enumerate(kept):
        try:
            return Chosen(read_checkpoint(file), place_in_words(place), note)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            note = f"The checkpoint of step {file.step:,} is damaged ({error}); this one is older."
    raise CorruptCheckpoint(
        f"None of the {len(kept)} checkpoints of {name} is intact. Restore one from a "
        f"backup: {kept[0].path.parent}."
    )


def _select(name: str, kept: Sequence[CheckpointFile], wanted: str) -> Chosen:
    step = None if wanted == PREVIOUS else _step(wanted, kept)
    for place, file in enumerate(kept):
        if place == 1 if step is None else file.step == step:
            try:
                return Chosen(read_checkpoint(file), place_in_words(place))
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                raise CorruptCheckpoint(
                    f"The checkpoint of step {file.step:,} is damaged: {error} ({file.path}). "
                    f"Kept are: {in_words(kept)}."
                ) from error
    raise BadInput(
        f"{name} has no checkpoint {wanted}. Only the last ones are kept: {in_words(kept)}."
    )


def _step(wanted: str, kept: Sequence[CheckpointFile]) -> float:
    """Parse a step, also 1e6, 20_480 or 20,480."""
    try:
        return float(wanted.replace("_", "").replace(",", ""))
    except ValueError as error:
        raise BadInput(
            f"--checkpoint {wanted} was given; latest, previous or a step is needed. Kept are: "
            f"{in_words(kept)}."
        ) from error


def place_in_words(place: int) -> str:
    """Describe the age of a checkpoint among the kept ones."""
    return (LATEST, PREVIOUS)[place] if place < 2 else f"{place} before the latest"


def in_words(kept: Sequence[CheckpointFile]) -> str:
    """List checkpoints in one line, newest first."""
    return ", ".join(
        f"step {file.step:,} ({place_in_words(place)})" for place, file in enumerate(kept)
    )
