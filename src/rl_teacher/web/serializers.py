"""Serializers of comparisons and clips."""

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer
from rl_teacher.common.errors import CorruptClip
from rl_teacher.store.records import ClaimedComparison, ClipView, ComparisonView
from rl_teacher.web.problems import NotShown
from rl_teacher.web.schemas.labelling import Comparison
from rl_teacher.web.schemas.shared import Clip


def serialize_comparison(
    view: ComparisonView, labeler: str, answer: Answer | None = None, *, is_repeat: bool = False
) -> Comparison:
    """Serialize a comparison in the order of sides that a labeler sees.

    Args:
        view: The comparison in its stored order.
        labeler: Name of the labeler.
        answer: Current answer of the labeler, in the stored order.
        is_repeat: Whether the labeler sees it again, with the sides exchanged.

    Raises:
        NotShown: A clip cannot be shown yet.
    """
    swapped = is_swapped(view.id, labeler) != is_repeat
    left, right = (view.right, view.left) if swapped else (view.left, view.right)
    return Comparison(
        id=view.id,
        number=view.number,
        experiment=view.experiment_name,
        asked_at_step=view.asked_at_step,
        left=serialize_clip(left),
        right=serialize_clip(right),
        answer=mirror_answer(answer, swapped=swapped),
    )


def comparison_if_displayable(
    view: ComparisonView, labeler: str, answer: Answer | None
) -> Comparison | None:
    """Serialize a comparison as `serialize_comparison` does; None if it cannot be shown."""
    try:
        return serialize_comparison(view, labeler, answer)
    except (NotShown, CorruptClip):
        return None


def serialize_claim(claimed: ClaimedComparison, labeler: str) -> Comparison:
    """Serialize a claimed comparison; it does not reveal repeats or gold questions."""
    is_repeat = claimed.purpose == "repeat"
    comparison = serialize_comparison(claimed.comparison, labeler, is_repeat=is_repeat)
    lease = {"lease": claimed.lease, "lease_expires_at": claimed.expires_at}
    return comparison.model_copy(update=lease)


def serialize_clip(view: ClipView) -> Clip:
    """Serialize clip metadata.

    Raises:
        NotShown: The clip cannot be shown yet.
        CorruptClip: The stored metadata is invalid.
    """
    if view.kind is None:
        raise NotShown(
            f"Clip {view.content_hash} cannot be shown yet: the training process renders it later, "
            "or never if a synthetic teacher answers. Request the next comparison."
        )
    if view.kind not in ("poses", "video") or not view.num_frames or not view.fps:
        raise CorruptClip(
            f"Clip {view.content_hash} has invalid metadata: {view.num_frames} frames of "
            f"{view.kind!r} at {view.fps} frames per second. Another version may have written it."
        )
    return Clip(
        hash=view.content_hash,
        kind=view.kind,
        url=f"/api/v1/clips/{view.content_hash}",
        scene_url=f"/api/v1/scenes/{view.scene_hash}" if view.scene_hash else None,
        num_frames=view.num_frames,
        fps=view.fps,
    )


def clip_if_displayable(view: ClipView) -> Clip | None:
    """Serialize a clip; None if it cannot be shown."""
    try:
        return serialize_clip(view)
    except (NotShown, CorruptClip):
        return None


def is_displayable(view: ComparisonView) -> bool:
    """Return whether both clips of a comparison can be shown."""
    return all(clip_if_displayable(clip) is not None for clip in (view.left, view.right))
