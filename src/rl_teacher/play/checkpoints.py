"""Choosing among the checkpoints that an experiment keeps."""

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
LOOKS = 5
"""A run that is training may have taken a file away that was just listed: then look again."""


@dataclass(frozen=True)
class Chosen:
    """A checkpoint that was chosen.

    Attributes:
        checkpoint: what is in it.
        place: `latest`, `previous`, or how old it is in words.
        note: what the person should know; None for nothing.
    """

    checkpoint: Checkpoint
    place: str
    note: str | None = None


def choose(name: str, folder: Path, wanted: str) -> Chosen:
    """One of the checkpoints that are kept.

    Args:
        name: of the experiment.
        folder: where its checkpoints are.
        wanted: `latest`, `previous`, or a step.

    Raises:
        BadInput: there is none, or not this one; the text says which there are.
        CorruptCheckpoint: it is damaged.
    """
    for _ in range(LOOKS):
        kept = list_checkpoints(folder)
        if not kept:
            raise BadInput(
                f"{name} has no checkpoint yet, so there is no agent to load. One is written when "
                "training begins, and every 20 seconds from then on; let it train for a while."
            )
        try:
            return _latest(name, kept) if wanted == LATEST else _exactly(name, kept, wanted)
        except FileNotFoundError:
            continue
    raise CorruptCheckpoint(f"The checkpoints in {folder} change faster than they can be read.")


def _latest(name: str, kept: Sequence[CheckpointFile]) -> Chosen:
    """The newest that is whole."""
    note = None
    for place, file in enumerate(kept):
        try:
            return Chosen(read_checkpoint(file), place_in_words(place), note)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            note = f"The checkpoint of step {file.step:,} is damaged ({error}); this one is older."
    raise CorruptCheckpoint(
        f"None of the {len(kept)} checkpoints of {name} is what was written. Put one back from a "
        f"backup: {kept[0].path.parent}."
    )


def _exactly(name: str, kept: Sequence[CheckpointFile], wanted: str) -> Chosen:
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
    """A step, also spelt 1e6, 20_480 or 20,480."""
    try:
        return float(wanted.replace("_", "").replace(",", ""))
    except ValueError as error:
        raise BadInput(
            f"--checkpoint {wanted} was given; latest, previous or a step is needed. Kept are: "
            f"{in_words(kept)}."
        ) from error


def place_in_words(place: int) -> str:
    """How old a checkpoint is among those that are kept."""
    return (LATEST, PREVIOUS)[place] if place < 2 else f"{place} before the latest"


def in_words(kept: Sequence[CheckpointFile]) -> str:
    """The checkpoints there are, newest first."""
    return ", ".join(
        f"step {file.step:,} ({place_in_words(place)})" for place, file in enumerate(kept)
    )
