import time

from rl_teacher.clock import Clock


def test_time_that_stands_still_is_no_training():
    clock = Clock()
    clock.begin_training()
    with clock.standing_still():
        time.sleep(0.2)
    assert clock.training_s < 0.2
    assert clock.whole_s >= 0.2


def test_standing_still_before_training_takes_nothing_away_from_it():
    clock = Clock()
    with clock.standing_still():
        time.sleep(0.01)
    assert clock.training_s == 0.0
