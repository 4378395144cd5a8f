"""Warnings for the person who labels, derived from the metrics of the reward learner."""

from collections.abc import Mapping

MIN_ANSWERS = 10
"""Answers after which a run without a single preference is pointed out."""
NEAR_CHANCE = 0.65
"""Accuracy below which the predictor hardly knows what is preferred; chance is 0.5."""
ENOUGH_ACCURACY = 0.85
"""Accuracy on fresh labels from which further labels change little."""

REMEDIES = (
    "What helps: more labels, longer clips (-c), judging every comparison by the same goal, and "
    "`equal` or `can't tell` where you are not sure."
)


def label_warnings(metrics: Mapping[str, float | int]) -> dict[str, str]:
    """Return the warnings that apply, by kind: of an accuracy, those that its interval supports.

    Fresh labels are those that the predictor was not fitted to when they were read.

    Args:
        metrics: those of `RewardLearner.metrics`.
    """
    answered = metrics.get("labels_answered", 0)
    fresh, num_fresh = metrics.get("fresh_accuracy", 0.0), metrics.get("fresh_labels", 0)
    held_out = metrics.get("held_out_accuracy", 0.0)
    warnings = {}
    if answered >= MIN_ANSWERS and not metrics.get("labels_decided", 0):
        warnings["undecided"] = (
            f"None of the {answered} answers prefers a clip, so there is nothing to learn from. "
            "Prefer the clip that is even slightly better; if all clips look alike, start another "
            "experiment with longer clips (-c)."
        )
    elif metrics.get("fresh_accuracy_high", 1.0) < NEAR_CHANCE:
        warnings["disagreement"] = (
            f"The reward predictor agreed with only {fresh:.0%} of the latest {num_fresh} "
            "answers before it was fitted to them; chance is 50 %. The agent may learn something "
            f"else than you want, even if its predicted return rises. {REMEDIES}"
        )
    elif metrics.get("held_out_accuracy_high", 1.0) < NEAR_CHANCE:
        warnings["held_out"] = (
            f"The reward predictor is right about only {held_out:.0%} of the labels that are held "
            f"out from its fits; chance is 50 %. {REMEDIES}"
        )
    elif metrics.get("fresh_accuracy_low", 0.0) >= ENOUGH_ACCURACY:
        warnings["enough"] = (
            f"The reward predictor agreed with {fresh:.0%} of the latest {num_fresh} answers "
            "before it was fitted to them. More labels of this kind will change little: you may "
            "lower their number and let the agent train."
        )
    return warnings
