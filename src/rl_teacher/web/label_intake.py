"""Validation and storage of submitted labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.clips.segment import playback_speed
from rl_teacher.common.errors import BadInput, ComparisonNotFound, RlTeacherError, StoreUnavailable
from rl_teacher.store.database import versions
from rl_teacher.store.leases import KEPT_AFTER_EXPIRY
from rl_teacher.store.records import (
    ClipView,
    ComparisonWithLease,
    Identity,
    NewLabel,
    NewRanking,
)
from rl_teacher.store.store import Store
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.problems import (
    AlreadyAnswered,
    NotLeased,
    RequestReused,
    problem_from_error,
)
from rl_teacher.web.schemas.labelling import (
    LabelReceipt,
    LabelSubmission,
    RankingReceipt,
    RankingSubmission,
    RejectedLabel,
    Submission,
)
from rl_teacher.web.serializers import serialize_comparison

MIN_SHARE_SEEN = 0.5
"""Share of the longer clip that must have been played before an answer is not marked too fast."""

HIGHER_SPEEDS = (2, 4)
"""Speeds above the normal one that the page offers."""

TOO_FAST = (
    "This answer came before half of the clips had played, and is marked as too fast. Please watch "
    "both clips before you answer."
)


@dataclass(frozen=True)
class LabelUpload:
    """Labels of one request.

    Attributes:
        labeler: The labeler.
        submitted: Unvalidated labels.
    """

    labeler: Identity
    submitted: Sequence[Any]


def store_uploads(store: Store, uploads: Sequence[LabelUpload]) -> list[LabelReceipt]:
    """Store the valid labels of several requests and return a receipt for each request.

    Raises:
        StoreUnavailable: No label was stored.
    """
    check_schema_version(store)
    parsed = [[parse(each) for each in upload.submitted] for upload in uploads]
    # All comparisons in one query, and all labels in one transaction.
    comparisons = store.leases.find(
        {
            (upload.labeler.name, label.comparison_id)
            for upload, labels in zip(uploads, parsed, strict=True)
            for label in labels
            if isinstance(label, LabelSubmission)
        }
    )
    checked = [
        [check(each, comparisons, upload.labeler) for each in labels]
        for upload, labels in zip(uploads, parsed, strict=True)
    ]
    valid = [each for labels in checked for each in labels if isinstance(each, NewLabel)]
    try:
        refused = store.labels.add_many(valid)
    except ComparisonNotFound:
        # Deleted since it was read. No label was stored, and now those of it are rejected.
        return store_uploads(store, uploads)
    return [receipt(labels, refused) for labels in checked]


def parse(submitted: Any) -> LabelSubmission | RejectedLabel:
    """Validate the schema of a label."""
    try:
        return LabelSubmission.model_validate(submitted)
    except ValidationError as error:
        return rejection(request_id_of(submitted), error)


def check(
    label: LabelSubmission | RejectedLabel,
    comparisons: Mapping[tuple[str, int], ComparisonWithLease],
    labeler: Identity,
) -> NewLabel | RejectedLabel:
    """Check a label against its comparison.

    Args:
        label: A label with a valid schema, or one that is rejected already.
        comparisons: Comparisons by the name of the labeler and their id.
        labeler: The labeler.
    """
    if isinstance(label, RejectedLabel):
        return label
    about = comparisons.get((labeler.name, label.comparison_id))
    try:
        if about is None or not labeler.sees(about.comparison.experiment_name):
            raise ComparisonNotFound([label.comparison_id])
        check_lease(label, about, labeler)
        return in_stored_order(label, about, labeler.name)
    except RlTeacherError as error:
        return rejection(label.request_id, error)


def rejection(request_id: UUID | None, error: Exception) -> RejectedLabel:
    """Build the rejection of a label."""
    return RejectedLabel(request_id=request_id, problem=problem_from_error(error))


def receipt(
    labels: Sequence[NewLabel | RejectedLabel], refused: Mapping[UUID, Answer | None]
) -> LabelReceipt:
    """Build the receipt of a request.

    Args:
        labels: Checked labels.
        refused: Result of `Labels.add_many`.
    """
    accepted: list[UUID] = []
    rejected: list[RejectedLabel] = []
    for label in labels:
        if isinstance(label, RejectedLabel):
            rejected.append(label)
        elif label.request_id in refused:
            rejected.append(refusal(label, refused[label.request_id]))
        else:
            accepted.append(label.request_id)
    is_too_fast = any(isinstance(each, NewLabel) and each.is_too_fast for each in labels)
    return LabelReceipt(
        accepted=accepted, rejected=rejected, warning=TOO_FAST if is_too_fast else None
    )


def check_schema_version(store: Store) -> str:
    """Return the schema version of the database.

    The database is migrated when it is opened, but another release or a restored backup may change
    it while the service runs.

    Raises:
        StoreUnavailable: The version belongs to another release or cannot be read.
    """
    found, needed = store.schema_version(), versions()[0]
    if found != needed:
        text = (
            f"The database has version {found}, but this service needs version {needed}: another "
            "release or a restored backup changed it. Nothing was written. Restart the service "
            "with the newest release of rl-teacher in use."
        )
        raise StoreUnavailable(text, public=text)
    return found


def check_lease(label: LabelSubmission, about: ComparisonWithLease, labeler: Identity) -> None:
    """Check that a comparison was leased to the labeler who answers it.

    The lease may have expired. Owners may answer any comparison, and everybody may change an
    earlier answer.

    Raises:
        NotLeased: The comparison was never leased to them, or under another token.
    """
    if is_owner(labeler) or about.is_labelled:
        return
    if about.lease is None or label.lease not in (None, about.lease):
        raise NotLeased(
            # Without its id, because the page shows its number in the experiment beside this text.
            "The comparison was not given to you to answer, or was given more than "
            f"{KEPT_AFTER_EXPIRY.days} days ago. Request the next comparisons and answer those.",
        )


def in_stored_order(label: LabelSubmission, about: ComparisonWithLease, labeler: str) -> NewLabel:
    """Convert a label to the stored order of its comparison.

    Raises:
        BadInput: `left_hash` is neither clip.
        NotShown: The labeler cannot have seen the clips.
        CorruptClip: The stored metadata of a clip that the labeler cannot have seen is invalid.
    """
    view = about.comparison
    is_repeat = about.purpose == "repeat" and label.lease == about.lease
    if about.lease is None and not about.is_labelled:
        # It was not given to the labeler. Otherwise the clips were shown, even if they are hidden
        # or damaged by now.
        serialize_comparison(view, labeler)
    shown_left = view.right if is_swapped(view.id, labeler) != is_repeat else view.left
    left = label.left_hash or shown_left.content_hash
    if left not in (view.left.content_hash, view.right.content_hash):
        raise BadInput(
            f"left_hash: {left} is not a clip of comparison {view.id}. Send the hash of the clip "
            "shown on the left, or omit the field."
        )
    swapped = left != view.left.content_hash
    answer = None if label.answer is None else Answer(label.answer)
    # Without a lease, the labeler revises an answer and has seen the clips before.
    is_first = label.lease is not None and answer is not None
    return NewLabel(
        comparison_id=label.comparison_id,
        answer=mirror_answer(answer, swapped=swapped),
        labeler=labeler,
        request_id=label.request_id,
        is_swapped=swapped,
        response_ms=label.response_ms,
        details=label.details,
        lease=label.lease,
        is_too_fast=is_first and is_too_fast((view.left, view.right), label),
    )


def is_too_fast(clips: Iterable[ClipView], submitted: Submission) -> bool:
    """Return whether an answer came before half of the longest clip could have been played.

    Clips whose duration is not known, because they are hidden or damaged by now, do not count.
    """
    known_s = [clip.num_frames / clip.fps for clip in clips if clip.num_frames and clip.fps]
    if submitted.response_ms is None or not known_s:
        return False
    longest_s = max(known_s)
    # A lower speed may have been chosen only after the clips had played.
    speed = (submitted.details or {}).get("speed")
    chosen_speed = speed if speed in HIGHER_SPEEDS else 1
    played_s = longest_s / (playback_speed(longest_s) * chosen_speed)
    return submitted.response_ms / 1000 < MIN_SHARE_SEEN * played_s


def store_ranking(
    store: Store, experiment_id: int, labeler: str, submitted: RankingSubmission
) -> RankingReceipt:
    """Store a ranking.

    Raises:
        BadRanking: Its clips are wrong; see `Rankings.add`.
        MediaNotFound: A clip does not exist.
        StoreUnavailable: The ranking was not stored.
    """
    check_schema_version(store)
    hashes = [*chain.from_iterable(submitted.groups), *submitted.left_out]
    clips = [store.clips.get(each) for each in hashes]
    ranking = NewRanking(
        labeler,
        submitted.request_id,
        submitted.groups,
        submitted.left_out,
        submitted.response_ms,
        submitted.details,
        is_too_fast(clips, submitted),
    )
    comparison_ids = store.rankings.add(experiment_id, ranking)
    warning = TOO_FAST if ranking.is_too_fast else None
    return RankingReceipt(comparison_ids=comparison_ids, warning=warning)


def refusal(label: NewLabel, stored: Answer | None) -> RejectedLabel:
    """Build the rejection of a label that the store has refused; see `Labels.add_many`."""
    answer = mirror_answer(stored, swapped=label.is_swapped)
    if answer is None:
        error = RequestReused(
            "Another label has this request_id, so this one was not stored. Send it with a new "
            "UUID."
        )
    else:
        error = AlreadyAnswered(
            f"You answered this comparison with {answer} in another tab, so this answer was not "
            "stored. Open the comparison again to change it."
        )
    return rejection(label.request_id, error).model_copy(update={"stored_answer": answer})


def request_id_of(label: Any) -> UUID | None:
    """Return the request id of an invalid label; None if it is invalid as well."""
    try:
        return TypeAdapter(UUID).validate_python(label["request_id"])
    except (ValidationError, TypeError, KeyError):
        return None
