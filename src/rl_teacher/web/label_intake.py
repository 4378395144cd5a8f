"""Validation and storage of submitted labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from rl_teacher.clips.answer import Answer, mirror_answer
from rl_teacher.clips.segment import SHORT_S
from rl_teacher.common.errors import ComparisonNotFound
from rl_teacher.store.records import ComparisonWithLease, Identity, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.web.problems import (
    ALREADY_ANSWERED,
    NOT_VALID,
    Problem,
    ProblemError,
    problem,
    problem_from_error,
)
from rl_teacher.web.schemas.labelling import LabelReceipt, LabelSubmission, RejectedLabel
from rl_teacher.web.serializers import serialize_comparison
from rl_teacher.web.versions import check_schema_version

MIN_SHARE_SEEN = 0.5
"""Share of the longer clip that must have been played before an answer is not marked too fast."""

TOO_FAST = (
    "This answer came before half of the clips had played, and is marked as too fast. Please watch "
    "both clips before you answer."
)


@dataclass(frozen=True)
class LabelUpload:
    """Labels from one request.

    Attributes:
        by: The labeler.
        labels: Unvalidated labels.
    """

    by: Identity
    labels: Sequence[Any]


def store_uploads(store: Store, sent: Sequence[LabelUpload]) -> list[LabelReceipt]:
    """Store the valid labels of several requests and return a receipt for each request.

    Raises:
        StoreUnavailable: No label was stored.
    """
    check_schema_version(store)
    parcels = [opened(each) for each in sent]
    comparisons = store.leases.find(
        {(parcel.by.name, label.comparison_id) for parcel in parcels for label in parcel.read}
    )
    for parcel in parcels:
        parcel.sort_out(comparisons)
    labels = [label for parcel in parcels for label in parcel.good]
    too_fast = {label.labeler for label in labels if label.is_too_fast}
    newly_fast = too_fast - store.labels.with_too_fast(too_fast)
    gone, answered = keep(store, labels)
    return [
        parcel.receipt(gone, answered, TOO_FAST if parcel.by.name in newly_fast else None)
        for parcel in parcels
    ]


@dataclass
class Parcel:
    """Labels of one request during validation.

    Attributes:
        by: The labeler.
        read: Labels with a valid schema.
        good: Labels that can be stored.
        refused: Rejected labels.
    """

    by: Identity
    read: list[LabelSubmission] = field(default_factory=list)
    good: list[NewLabel] = field(default_factory=list)
    refused: list[RejectedLabel] = field(default_factory=list)

    def sort_out(self, comparisons: Mapping[tuple[str, int], ComparisonWithLease]) -> None:
        """Check each label against its comparison."""
        for label in self.read:
            try:
                about = comparisons.get((self.by.name, label.comparison_id))
                if about is None or not self.by.sees(about.comparison.experiment_name):
                    raise ComparisonNotFound([label.comparison_id])
                self.good.append(in_stored_order(label, about, self.by.name))
            except (ComparisonNotFound, ProblemError) as error:
                self.refused.append(refused(label.request_id, problem_from_error(error)))

    def receipt(
        self, gone: Mapping[int, Problem], answered: Mapping[UUID, Answer], warning: str | None
    ) -> LabelReceipt:
        """Build the receipt.

        Args:
            gone: Problems of comparisons that were deleted meanwhile, by id.
            answered: Answers from another tab, by the request id of the refused label.
            warning: Warning for the labeler.
        """
        accepted: list[UUID] = []
        rejected = list(self.refused)
        for label in self.good:
            if label.comparison_id in gone:
                rejected.append(refused(label.request_id, gone[label.comparison_id]))
            elif label.request_id in answered:
                rejected.append(refused_in_favour_of(label, answered[label.request_id]))
            else:
                accepted.append(label.request_id)
        return LabelReceipt(accepted=accepted, rejected=rejected, warning=warning)


def opened(sent: LabelUpload) -> Parcel:
    """Validate the schema of each label."""
    parcel = Parcel(sent.by)
    for each in sent.labels:
        try:
            parcel.read.append(LabelSubmission.model_validate(each))
        except ValidationError as error:
            parcel.refused.append(refused(request_id_of(each), problem_from_error(error)))
    return parcel


def in_stored_order(label: LabelSubmission, about: ComparisonWithLease, labeler: str) -> NewLabel:
    """Convert a label to the stored order of its comparison.

    Raises:
        ProblemError: The clips cannot be shown yet, or `left_hash` is neither of them.
    """
    view = about.comparison
    is_repeat = about.purpose == "repeat" and label.lease == about.lease
    shown = serialize_comparison(view, labeler, is_repeat=is_repeat)
    left = label.left_hash or shown.left.hash
    if left not in (view.left.content_hash, view.right.content_hash):
        raise ProblemError(
            NOT_VALID,
            f"left_hash: {left} is not a clip of comparison {view.id}. Send the hash of the clip "
            "shown on the left, or omit the field.",
        )
    swapped = left != view.left.content_hash
    answer = None if label.answer is None else Answer(label.answer)
    # Without a lease, the labeler revises an answer and has seen the clips before.
    is_first = label.lease is not None and answer is not None
    # The page slows clips under SHORT_S down to that duration.
    playing_s = max(shown.left.seconds, shown.right.seconds, SHORT_S)
    response_s = math.inf if label.response_ms is None else label.response_ms / 1000
    return NewLabel(
        comparison_id=label.comparison_id,
        answer=mirror_answer(answer, swapped=swapped),
        labeler=labeler,
        request_id=label.request_id,
        is_swapped=swapped,
        response_ms=label.response_ms,
        details=label.details,
        lease=label.lease,
        is_too_fast=is_first and response_s < MIN_SHARE_SEEN * playing_s,
    )


def keep(store: Store, labels: Sequence[NewLabel]) -> tuple[dict[int, Problem], dict[UUID, Answer]]:
    """Store labels.

    Returns:
        The problem of each comparison that was deleted meanwhile, and the result of
        `Labels.add_many`.
    """
    try:
        return {}, store.labels.add_many(labels)
    except ComparisonNotFound as error:
        gone = {label.comparison_id for label in labels}.intersection(error.ids)
        if not gone:
            raise
        rest = [label for label in labels if label.comparison_id not in gone]
        problems, answered = keep(store, rest)
        return problems | dict.fromkeys(gone, problem_from_error(error)), answered


def refused(request_id: UUID | None, problem: Problem) -> RejectedLabel:
    """Build a rejected label."""
    return RejectedLabel(request_id=request_id, problem=problem)


def refused_in_favour_of(label: NewLabel, stored: Answer) -> RejectedLabel:
    """Build the rejection of a label whose comparison was answered in another tab."""
    answer = mirror_answer(stored, swapped=label.is_swapped)
    details = problem(
        ALREADY_ANSWERED,
        f"You answered this comparison with {answer} in another tab, so this answer was not "
        "stored. Open the comparison again to change it.",
    )
    return RejectedLabel(request_id=label.request_id, problem=details, stored_answer=answer)


def request_id_of(label: Any) -> UUID | None:
    """Return the request id of an invalid label; None if it is invalid as well."""
    try:
        return TypeAdapter(UUID).validate_python(label["request_id"])
    except (ValidationError, TypeError, KeyError):
        return None
