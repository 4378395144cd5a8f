import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.teachers.tasks import TASKS, backward_rotation, target_distance
from rl_teacher.teachers.teacher import TeacherContext

CONTEXT = TeacherContext(0.0, 1.0, np.random.default_rng(0))


def hopper(pitch, height=1.25, env_id="ShortHopper-v1"):
    observations = np.zeros((len(pitch), 12), np.float32)
    observations[:, 0] = height
    observations[:, 1], observations[:, 2] = np.sin(pitch), np.cos(pitch)
    num = len(pitch)
    return Segment(
        env_id,
        observations,
        np.zeros((num, 3), np.float32),
        np.zeros(num, np.float32),
        np.zeros((num, 0)),
    )


def test_backward_rotation_scores_angle():
    assert backward_rotation(hopper(-np.linspace(0, 2 * np.pi, 50))) == pytest.approx(
        2 * np.pi, rel=1e-4
    )


def test_rotation_score_is_independent_of_start():
    pitch = 2.5 - np.linspace(0, 4 * np.pi, 80)
    assert backward_rotation(hopper(pitch)) == pytest.approx(4 * np.pi, rel=1e-4)


def test_forward_rotation_has_negative_score():
    assert backward_rotation(hopper(np.linspace(0, 3, 50))) == pytest.approx(-3, rel=1e-4)


def test_rolling_on_floor_scores_less_than_flip():
    pitch = -np.linspace(0, 3, 50)
    assert backward_rotation(hopper(pitch, 0.3)) < 0.3 * backward_rotation(hopper(pitch))


def test_backflip_teacher_prefers_backward_rotation():
    flip, stand = hopper(-np.linspace(0, 3, 50)), hopper(np.zeros(50))
    assert TASKS["backflip"](stand, flip, CONTEXT) is Answer.RIGHT
    assert TASKS["backflip"](flip, stand, CONTEXT) is Answer.LEFT
    assert TASKS["backflip"](stand, stand, CONTEXT) is Answer.EQUAL


def test_target_distance_is_mean_over_steps():
    segment = hopper(np.zeros(2))
    observations = np.zeros((2, 10), np.float32)
    observations[:, 8:10] = [[3, 4], [0, 1]]
    reacher = Segment(
        "Reacher-v1", observations, segment.actions, segment.rewards, segment.scene_states
    )
    assert target_distance(reacher) == pytest.approx(3.0)


def test_task_in_wrong_environment_is_refused():
    clip = hopper(np.zeros(3), env_id="Swimmer-v1")
    with pytest.raises(BadInput, match="suite's Hopper, but the environment is Swimmer-v1"):
        TASKS["backflip"](clip, clip, CONTEXT)
