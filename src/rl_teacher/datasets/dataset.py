"""A label data set in memory: segments, comparisons and labels."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from rl_teacher.clips.answer import TARGETS
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.report.label_export import Row

Pair = tuple[str, str]


@dataclass(frozen=True)
class LabelledComparison:
    """A comparison with its aggregated labels.

    Attributes:
        left: Left segment.
        right: Right segment.
        target: Share of the labels that prefer left; ties count one half.
        labeler: Name of the labeler; None if there are several.
        num_labels: Number of labels.
        asked_at_step: Environment steps of training when it was asked.
        answered_at: Time of the newest label, as ISO 8601.
        is_held_out: Whether it is never trained on, only used to evaluate a predictor.
    """

    left: Segment
    right: Segment
    target: float
    labeler: str | None
    num_labels: int
    asked_at_step: int
    answered_at: str
    is_held_out: bool = False

    @property
    def pair(self) -> Pair:
        """Content hashes of the segments."""
        return self.left.content_hash, self.right.content_hash


@dataclass(frozen=True)
class Dataset:
    """A sequence of labelled comparisons of one environment.

    Labels that were withdrawn or replaced, labels of excluded labelers, and `cannot_tell` are kept
    in `rows`, but are not part of the sequence.

    Attributes:
        env_id: Environment in which the segments were recorded.
        space: Observations and actions of that environment, as a predictor gets them.
        segments: Segments by content hash.
        rows: Every label.
    """

    env_id: str
    space: InputSpace
    segments: Mapping[str, Segment]
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[LabelledComparison]:
        """Iterate over the comparisons that have a training target."""
        return iter(self._comparisons)

    def __len__(self) -> int:
        return len(self._comparisons)

    def __getitem__(self, place: int) -> LabelledComparison:
        return self._comparisons[place]

    @cached_property
    def _rows_of(self) -> dict[Pair, list[Row]]:
        """Rows by comparison, in the order of the first row."""
        rows_of: dict[Pair, list[Row]] = {}
        for row in self.rows:
            rows_of.setdefault(pair_of(row), []).append(row)
        return rows_of

    @cached_property
    def _held_out_pairs(self) -> set[frozenset[str]]:
        """Clips of the held-out comparisons, whatever their sides."""
        return held_out_pairs(self.rows)

    @cached_property
    def _comparisons(self) -> list[LabelledComparison]:
        """Comparisons with at least one label that has a training target."""
        informative_of = {
            pair: [row for row in rows if counts(row) and row["answer"] in TARGETS]
            for pair, rows in self._rows_of.items()
        }
        return [
            LabelledComparison(
                left=self.segments[pair[0]],
                right=self.segments[pair[1]],
                target=sum(TARGETS[row["answer"]] for row in informative) / len(informative),
                labeler=informative[0]["labeler"] if len(labelers) == 1 else None,
                num_labels=len(informative),
                asked_at_step=informative[0]["asked_at_step"],
                answered_at=max(informative, key=answer_time)["answered_at"],
                is_held_out=frozenset(pair) in self._held_out_pairs,
            )
            for pair, informative in informative_of.items()
            if (labelers := {row["labeler"] for row in informative})
        ]

    @property
    def content_hash(self) -> str:
        """SHA-256 over environment, spaces, and comparisons with targets, in order."""
        learned = [[*each.pair, each.target, each.is_held_out] for each in self]
        content = json.dumps([self.env_id, self.space.to_json(), learned])
        return hashlib.sha256(content.encode()).hexdigest()

    def save(self, path: Path | str) -> None:
        """Write the data set; see `datasets.writing.save`."""
        from rl_teacher.datasets.writing import save  # noqa: PLC0415 - imports this module

        save(self, path)

    def subset(self, comparisons: Iterable[LabelledComparison]) -> "Dataset":
        """Return some of the comparisons, in the given order, with all their labels."""
        # Marks are copied to all rows of two clips: those that have them may be left out.
        rows = marked_rows(
            (row for each in comparisons for row in self._rows_of[each.pair]), self._held_out_pairs
        )
        return replace(self, rows=rows, segments=used(self.segments, rows))

    # --- the held-out part ---

    @property
    def training(self) -> "Dataset":
        """The comparisons that a predictor is fitted to: all but the held-out ones."""
        return self.subset(each for each in self if not each.is_held_out)

    @property
    def held_out(self) -> "Dataset":
        """The held-out comparisons."""
        return self.subset(each for each in self if each.is_held_out)

    def hold_out(self, fraction: float, seed: int = 0) -> "Dataset":
        """Return the same comparisons, of which a random part is held out from training.

        At least one clip of each comparison held out is in none of the others.

        Args:
            fraction: Fraction of the comparisons, above 0 and at most 1; their number is rounded,
                and exceeded where clips are compared several times.
            seed: Seed of the random choice.

        Raises:
            BadInput: The fraction is out of range or leaves nothing to hold out, or a part is held
                out already.
        """
        if self._held_out_pairs:
            raise BadInput(
                f"{len(self.held_out)} of the {len(self)} comparisons are held out already, and a "
                "second choice would train on some of them. Keep that part."
            )
        if not 0 < fraction <= 1:
            raise BadInput(
                f"A fraction of {fraction:g} was given; a number above 0, up to 1, is needed."
            )
        num = round(fraction * len(self))
        if not num:
            raise BadInput(
                f"A fraction of {fraction} of {len(self)} comparisons is none. Give a larger one."
            )
        pairs_of: dict[str, list[frozenset[str]]] = {}
        for each in self:
            for clip in each.pair:
                pairs_of.setdefault(clip, []).append(frozenset(each.pair))
        pairs: set[frozenset[str]] = set()
        clips = list(pairs_of)
        for place in np.random.default_rng(seed).permutation(len(clips)).tolist():
            if len(pairs) < num:
                pairs.update(pairs_of[clips[place]])
        return replace(self, rows=marked_rows(self.rows, pairs))

    def all_held_out(self) -> "Dataset":
        """Return the same comparisons, all of them held out from training."""
        return replace(self, rows=tuple({**row, "is_held_out": True} for row in self.rows))

    @staticmethod
    def merged(datasets: Iterable["Dataset"]) -> "Dataset":
        """Merge data sets without duplicates.

        A comparison is identified by its clips, a label by its request id. If a labeler answered a
        comparison in several data sets, the newest answer is current; an answer that is withdrawn
        or excluded in one of them is so. A comparison that is held out in one of them is held out.

        Raises:
            BadInput: None was given, or their environments, spaces or scene states differ.
        """
        given = list(datasets)
        if not given:
            raise BadInput("No data sets were given; at least one is needed.")
        first = given[0]
        for other in given[1:]:
            check_compatible(first, other)
        segments = {name: each for dataset in given for name, each in dataset.segments.items()}
        pairs = held_out_pairs(row for dataset in given for row in dataset.rows)
        return replace(first, segments=segments, rows=marked_rows(merged_rows(given), pairs))


def counts(row: Row) -> bool:
    """Return True if a label is used for training: current, an answer, and not excluded."""
    return (
        row["is_current"]
        and not row["is_excluded"]
        and row["answer"] is not None
        and row["purpose"] == "answer"
    )


def pair_of(row: Row) -> Pair:
    """Return the left and the right clip of a label."""
    return row["left_clip"], row["right_clip"]


def held_out_pairs(rows: Iterable[Row]) -> set[frozenset[str]]:
    """Return the clips of the comparisons that rows mark as held out."""
    return {frozenset(pair_of(row)) for row in rows if row["is_held_out"]}


def marked_rows(rows: Iterable[Row], pairs: Set[frozenset[str]]) -> tuple[Row, ...]:
    """Return rows of which those about the given clips are marked as held out."""
    return tuple({**row, "is_held_out": frozenset(pair_of(row)) in pairs} for row in rows)


def answer_time(row: Row) -> datetime:
    """Return when a label was given; as text, times of different zones have another order."""
    return datetime.fromisoformat(row["answered_at"])


def used(segments: Mapping[str, Segment], rows: Iterable[Row]) -> dict[str, Segment]:
    """Return the segments that labels refer to."""
    return {clip: segments[clip] for row in rows for clip in pair_of(row)}


def check_compatible(first: Dataset, other: Dataset) -> None:
    """Check that two data sets can be merged.

    Raises:
        BadInput: Their environments, spaces or scene states differ.
    """
    if first.env_id != other.env_id:
        raise BadInput(
            f"The data sets have labels of {first.env_id} and of {other.env_id}. Merge those of "
            "one environment only."
        )
    if first.space != other.space:
        raise BadInput(
            f"The data sets of {first.env_id} have {first.space.description}, and "
            f"{other.space.description}. Merge those that were recorded with the same "
            "preprocessing only."
        )
    widths = {
        segment.scene_states.shape[1] for d in (first, other) for segment in d.segments.values()
    }
    if len(widths) > 1:
        raise BadInput(
            f"The segments' scene states have {sorted(widths)} numbers a step, so they were "
            "recorded in other ways. Merge those that were recorded in one way only."
        )


def merged_rows(datasets: Sequence[Dataset]) -> tuple[Row, ...]:
    """Merge labels; of a labeler's answers to a comparison the newest is current."""
    by_request: dict[tuple[Pair, str], Row] = {}
    for row in (row for dataset in datasets for row in dataset.rows):
        key = pair_of(row), row["request_id"]
        known = by_request.setdefault(key, row)
        if known is not row:
            by_request[key] = {
                **known,
                # The copy that is not current was exported after a later answer or a withdrawal.
                "is_current": known["is_current"] and row["is_current"],
                "is_excluded": known["is_excluded"] or row["is_excluded"],
            }
    return with_newest_current([*by_request.values()])


def with_newest_current(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return rows in which one answer of a labeler to a comparison is current: the newest.

    A file may have several, and so may an experiment with labels of a person and imported ones of
    the same name.
    """
    newest: dict[tuple[Pair, str], tuple[datetime, str, int]] = {}
    for place, row in enumerate(rows):
        if row["is_current"] and row["purpose"] == "answer":
            key = pair_of(row), row["labeler"]
            # The request id decides ties, whatever the order of the rows.
            stamp = answer_time(row), row["request_id"], place
            newest[key] = max(newest.get(key, stamp), stamp)
    places = {place for _, _, place in newest.values()}
    return tuple(
        row
        if place in places or row["purpose"] != "answer" or not row["is_current"]
        else {**row, "is_current": False}
        for place, row in enumerate(rows)
    )
