"""The effect of a labeler's labels on the reward predictor, without bias to their next labels."""

from collections.abc import Mapping, Sequence

from rl_teacher.clips.answer import Answer
from rl_teacher.predictor.diagnostics import MAX_RANKED
from rl_teacher.store.records import ClipView, LabelView
from rl_teacher.store.store import Store
from rl_teacher.web.schemas.labelling import LabelEffect
from rl_teacher.web.serializers import is_displayable, serialize_clip, serialize_comparison

MAX_LABELS = 200
"""Newest labels of a labeler whose clips are ranked."""
MAX_COMPARED = 25
"""Newest labels that prefer a clip, with which the predictor is compared."""

PredictedReturns = Mapping[int, tuple[float, float]]
"""Predicted returns of the left and the right clip, by comparison id."""


def label_effect(store: Store, experiment_id: int, labeler: str) -> LabelEffect:
    """Compare the predictions of the latest fit with a labeler's own labels."""
    diagnostics = store.experiments.diagnostics(experiment_id) or {}
    predicted: PredictedReturns = {
        comparison_id: (left, right)
        for comparison_id, left, right in diagnostics.get("comparisons", ())
    }
    labels = [
        each
        for each in unbiased_labels(store, experiment_id, labeler)
        if each.comparison.id in predicted
    ]
    decided = [each for each in labels if each.answer in (Answer.LEFT, Answer.RIGHT)][:MAX_COMPARED]
    contradicted = [each for each in decided if not agrees(each, predicted)]
    ranked = rank_clips(labels, predicted)
    num_ranked = min(MAX_RANKED, len(ranked) // 2)
    return LabelEffect(
        num_fits=diagnostics.get("num_fits", 0),
        num_labels=diagnostics.get("num_labels", 0),
        num_compared=len(decided),
        num_agreed=len(decided) - len(contradicted),
        disagreements=[
            serialize_comparison(each.comparison, labeler, each.answer) for each in contradicted
        ],
        highest=[serialize_clip(each) for each in ranked[:num_ranked]],
        lowest=[serialize_clip(each) for each in ranked[::-1][:num_ranked]],
    )


def unbiased_labels(store: Store, experiment_id: int, labeler: str) -> Sequence[LabelView]:
    """Return the labeler's newest labels about which a prediction may be shown.

    The prediction for a comparison that others have labelled too would reveal their labels, and the
    prediction for a clip that the labeler may still be asked about would bias the next label.
    """
    labels = store.labels.of_labeler(experiment_id, labeler, MAX_LABELS)
    if not labels:
        return []
    votes = store.labels.votes(each.comparison.id for each in labels)
    own_id = store.labelers.id_of(labeler)
    pending = store.leases.pending_clips(experiment_id, labeler)
    return [
        each
        for each in labels
        if votes.get(each.comparison.id, {}).keys() <= {own_id}
        and is_displayable(each.comparison)
        and all(clip.content_hash not in pending for clip in clips_of(each))
    ]


def agrees(label: LabelView, predicted: PredictedReturns) -> bool:
    """Return whether the preferred clip has the higher predicted return."""
    left, right = predicted[label.comparison.id]
    return left > right if label.answer is Answer.LEFT else right > left


def rank_clips(labels: Sequence[LabelView], predicted: PredictedReturns) -> list[ClipView]:
    """Return the labelled clips, each once, by decreasing predicted return."""
    returns = {
        clip: value
        for each in labels
        for clip, value in zip(clips_of(each), predicted[each.comparison.id], strict=True)
    }
    return sorted(returns, key=lambda clip: (-returns[clip], clip.content_hash))


def clips_of(label: LabelView) -> tuple[ClipView, ClipView]:
    """Return both clips of a labelled comparison."""
    return label.comparison.left, label.comparison.right
