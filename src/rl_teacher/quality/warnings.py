"""Warnings for the person who labels, derived from the metrics of the reward learner."""

from collections.abc import Mapping

MIN_ANSWERS = 20
"""Answers from which a run without a single preference, or against the reward, is pointed out."""
MIN_HELD_OUT = 30
"""Held-out labels from which their accuracy is evidence."""
NEAR_CHANCE = 0.65
"""Accuracy below which the predictor hardly knows what is preferred; chance is 0.5."""
FOLLOWS_REWARD = 0.75
"""Share of labels that agree with the true reward below which they follow something else."""
NO_CORRELATION = 0.25
"""Correlation of predicted and true reward below which the agent learns something else."""
ENOUGH_ACCURACY = 0.85
"""Accuracy on fresh labels from which further labels change little."""

BY_REWARD = frozenset({"reward", "exploited"})
"""Warnings that apply only if the environment's reward is what should be learned, that is as long
as there are no instructions."""


def label_warnings(metrics: Mapping[str, float | int]) -> dict[str, str]:
    """Return the warnings that apply, by kind: those that the intervals of the metrics support.

    Agreement with fresh labels is no evidence against a predictor: comparisons are chosen where its
    members disagree, and in good runs it is 49 to 67 % too (`benchmarks/alarms.py`).

    Args:
        metrics: those of `RewardLearner.metrics`.
    """
    answered = metrics.get("labels_answered", 0)
    warnings = {}
    if answered >= MIN_ANSWERS and not metrics.get("labels_decided", 0):
        warnings["undecided"] = (
            f"None of the {answered} answers prefers a clip, so there is nothing to learn from. "
            "Prefer the clip that is even slightly better; if all clips look alike, start another "
            "experiment with longer clips (-c)."
        )
    elif answered >= MIN_ANSWERS and metrics.get("true_agreement_high", 1.0) < FOLLOWS_REWARD:
        share = metrics["true_agreement"]
        meaning = "left and right may be mixed up" if share < 0.35 else "this is close to chance"
        warnings["reward"] = (
            "The clip that you prefer has the higher reward of the environment in only "
            f"{share:.0%} of the labels: {meaning}. Look at some of them again; if you want "
            "something else than this reward, say so in the instructions."
        )
    elif metrics.get("recent_correlation_high", 1.0) < NO_CORRELATION:
        warnings["exploited"] = (
            "What the agent is rewarded for now has little to do with the reward of the "
            "environment, although your labels have: it has found something that you were hardly "
            "asked about. More labels help, also longer clips (-c); if you want something else "
            "than this reward, say so in the instructions."
        )
    # Not hidden by the two above, which do not apply once there are instructions.
    if (
        metrics.get("held_out_labels", 0) >= MIN_HELD_OUT
        and metrics.get("held_out_accuracy_high", 1.0) < NEAR_CHANCE
    ):
        warnings["held_out"] = (
            f"The reward predictor is right about only {metrics['held_out_accuracy']:.0%} of the "
            "labels that are held out from its fits; chance is 50 %. Judge every comparison by the "
            "same goal, and answer `can't tell` where you are not sure; more labels help too."
        )
    elif metrics.get("fresh_accuracy_low", 0.0) >= ENOUGH_ACCURACY:
        warnings["enough"] = (
            f"The reward predictor agreed with {metrics['fresh_accuracy']:.0%} of the latest "
            f"{metrics['fresh_labels']} answers before it was fitted to them. More labels of this "
            "kind will change little: you may lower their number and let the agent train."
        )
    return warnings
