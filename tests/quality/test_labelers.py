import math

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.labelers import GivenLabel, Share, activity, labeler_reports, votes_of

LEFT, RIGHT, EQUAL, CANNOT_TELL = Answer
ANN, BOB, CY = 1, 2, 3


def given(comparison, labeler, answer, **more):
    return GivenLabel(comparison, labeler, answer, more.pop("at_s", 0.0), **more)


def test_wilson_interval_of_8_in_10_matches_hand_computation():
    share = Share.of([True] * 8 + [False] * 2)
    assert (share.share, share.num) == (0.8, 10)
    assert (share.low, share.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_newest_answer_counts_unless_withdrawn():
    labels = [given(0, ANN, LEFT), given(0, ANN, RIGHT), given(1, ANN, LEFT), given(1, ANN, None)]
    votes = votes_of(labels)
    assert votes.comparison.tolist() == [0]
    assert labeler_reports(labels)[ANN].num_answers == 1


def test_repeat_counts_for_consistency_only():
    labels = [
        given(0, ANN, LEFT),
        given(1, ANN, RIGHT),
        given(0, ANN, LEFT, is_repeat=True),
        given(1, ANN, LEFT, is_repeat=True),
    ]
    report = labeler_reports(labels)[ANN]
    assert report.num_answers == 2
    assert report.self_consistency.share == 0.5
    assert len(votes_of(labels)) == 2


def test_withdrawn_repeat_is_ignored_and_newest_one_counts():
    labels = [
        given(0, ANN, LEFT),
        given(1, ANN, RIGHT),
        given(0, ANN, RIGHT, is_repeat=True),
        given(0, ANN, None, is_repeat=True),
        given(1, ANN, LEFT, is_repeat=True),
        given(1, ANN, None, is_repeat=True),
        given(1, ANN, RIGHT, is_repeat=True),
    ]
    consistency = labeler_reports(labels)[ANN].self_consistency
    assert (consistency.share, consistency.num) == (1.0, 1)


def test_side_bias_refers_to_side_shown():
    """A swapped right answer was shown left; ties and rankings are ignored: two of three."""
    labels = [
        given(0, ANN, LEFT),
        given(1, ANN, RIGHT, is_swapped=True),
        given(2, ANN, LEFT, is_swapped=True),
        given(3, ANN, EQUAL),
        given(4, ANN, RIGHT, is_ranked=True),
    ]
    shown = labeler_reports(labels)[ANN].left_shown
    assert shown.share == pytest.approx(2 / 3)
    assert shown.num == 3


def test_median_time_ignores_unknown_times():
    labels = [
        given(i, ANN, LEFT, response_ms=each) for i, each in enumerate((1000, 2000, 9000, None))
    ]
    assert labeler_reports(labels)[ANN].median_seconds == 2.0
    assert math.isnan(labeler_reports([given(0, BOB, LEFT)])[BOB].median_seconds)


def test_answers_are_compared_with_gold_and_other_labelers():
    labels = [
        given(0, ANN, LEFT),
        given(0, BOB, LEFT),
        given(1, ANN, RIGHT),
        given(1, BOB, LEFT),
        given(2, ANN, CANNOT_TELL),
        given(2, BOB, LEFT),
    ]
    reports = labeler_reports(labels, gold={0: LEFT, 1: LEFT})
    assert reports[ANN].gold_accuracy.share == 0.5
    assert reports[BOB].gold_accuracy.share == 1.0
    assert reports[ANN].agreement.share == reports[BOB].agreement.share == 0.5
    assert reports[ANN].agreement.num == 2
    assert reports[BOB].reliability.estimate > reports[ANN].reliability.estimate


def test_excluded_labeler_is_compared_with_others_but_not_they_with_them():
    labels = [given(i, BOB, LEFT) for i in range(4)]
    labels += [given(i, ANN, RIGHT) for i in range(4)]
    labels += [given(i, CY, LEFT) for i in range(2)]
    reports = labeler_reports(labels, excluded={ANN})
    assert (reports[BOB].agreement.share, reports[BOB].agreement.num) == (1.0, 2)
    assert (reports[ANN].agreement.share, reports[ANN].agreement.num) == (0.0, 6)
    without = labeler_reports([each for each in labels if each.labeler != ANN])
    # As text: since Python 3.13, data classes with NaN are never equal.
    assert str({who: reports[who] for who in (BOB, CY)}) == str(without)


def test_activity_counts_labels_in_periods_of_equal_length():
    labels = [given(i, BOB, LEFT, at_s=float(i)) for i in range(10)]
    labels += [given(0, ANN, LEFT, at_s=0.0), given(1, ANN, LEFT, at_s=9.0)]
    assert activity(labels, 3) == {BOB: [3, 3, 4], ANN: [1, 0, 1]}
    assert sum(activity(labels[:1], 3)[BOB]) == 1


def test_no_labels_yield_no_reports():
    assert labeler_reports([]) == activity([], 5) == {}
