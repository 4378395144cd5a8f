# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.mujoco.physics import load_model
from rl_teacher.envs.mujoco.suite import SUITE
from rl_teacher.teachers import tasks
from rl_teacher.teachers.registry import teacher_named
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


def test_task_teacher_errs_as_often_as_its_strength_says():
    flip, stand = hopper(-np.linspace(0, 3, 50)), hopper(np.zeros(50))
    teacher = teacher_named("backflip", 0.25)
    context = TeacherContext(0.0, 1.0, np.random.default_rng(0))
    answers = [teacher(flip, stand, context) for _ in range(1000)]
    assert answers.count(Answer.RIGHT) == pytest.approx(250, abs=40)
    assert answers.count(Answer.EQUAL) == 0


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
    with pytest.raises(BadInput, match="ShortHopper-v1, but the environment is Swimmer-v1"):
        TASKS["backflip"](clip, clip, CONTEXT)


def test_turns_are_counted_in_whole_episodes():
    measure = TASKS["backflip"].measure
    assert measure(hopper(-np.linspace(0, 4 * np.pi, 100))) == 2
    assert measure(hopper(-np.linspace(0, 3.9 * np.pi, 100))) == 1
    assert measure(hopper(np.linspace(0, 4 * np.pi, 100))) == 0


def posed(env_id, observations):
    num = len(observations)
    return Segment(
        env_id,
        np.asarray(observations, np.float32),
        np.zeros((num, 6), np.float32),
        np.zeros(num, np.float32),
        np.zeros((num, 0)),
    )


def reacher(target, fingertip):
    row = np.zeros(10)
    row[4:6], row[8:10] = target, np.subtract(fingertip, target)
    return posed("Reacher-v1", [row] * 3)


def test_stretched_arm_away_from_target_has_largest_distance():
    measure = TASKS["opposite"].measure
    assert measure(reacher([0.1, 0.0], [-0.21, 0.0])) == pytest.approx(1.0)
    assert measure(reacher([0.1, 0.0], [0.1, 0.0])) == 0


def walker(height=1.25, pitch=0.0, right=(0, 0, 0), left=(0, 0, 0), velocity=0.0):
    row = np.zeros(18)
    row[:3] = height, np.sin(pitch), np.cos(pitch)
    row[3:6], row[6:9], row[9] = right, left, velocity
    return posed("Walker-v1", [row] * 5)


WALKER_POSES = {
    "on one leg": walker(left=(-1.0, -np.pi / 2, 0)),
    "on two legs": walker(),
    "kneeling, one leg raised": walker(0.75, right=(0, -np.pi / 2, 0), left=(0, -2.5, 0)),
    "sitting, one leg raised": walker(0.3, right=(-np.pi / 2, 0, 0), left=(-2.5, 0, 0)),
    "on its back, one leg raised": walker(0.06, -np.pi / 2, left=(-np.pi / 2, 0, 0)),
}
"""Poses from the best to the worst."""


def test_ballerina_ranks_one_leg_above_two_above_lying():
    scores = [tasks.one_leg_balance(pose) for pose in WALKER_POSES.values()]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(3.0)
    assert scores[1] == pytest.approx(1.0)
    assert scores[-1] == pytest.approx(0, abs=1e-6)


def test_raising_a_foot_a_little_scores_more_than_standing_still():
    # The feet differ by 9 cm: knee and hip are bent by 0.3 and 0.6 rad.
    lifted = walker(left=(-0.3, -0.6, 0))
    lower, higher = tasks._walker_feet(lifted)
    assert 0.05 < (higher - lower)[0] < 0.15
    gap = (higher - lower)[0]
    assert tasks.one_leg_balance(lifted) == pytest.approx(1.0 + 2 * np.sqrt(gap / 0.4))


def test_walking_on_one_leg_scores_less_than_standing():
    still, moving = (walker(left=(0, -np.pi / 2, 0), velocity=v) for v in (0.0, 2.0))
    assert tasks.one_leg_balance(moving) == pytest.approx(tasks.one_leg_balance(still) - 0.2)


def test_ballerina_finds_clips_that_hardly_differ_equal():
    teacher = TASKS["ballerina"]
    slow, slower, still = (walker(velocity=v) for v in (0.15, 0.06, 0.0))
    assert teacher(slower, slow, CONTEXT) == teacher(slow, slower, CONTEXT) == Answer.EQUAL
    assert teacher(still, slow, CONTEXT) == Answer.LEFT


def test_only_standing_on_one_leg_is_measured_as_such():
    shares = {name: tasks.share_on_one_leg(pose) for name, pose in WALKER_POSES.items()}
    assert shares.pop("on one leg") == 1.0
    assert not any(shares.values())
    assert tasks.share_on_one_leg(walker(1.8, left=(0, -np.pi / 2, 0))) == 0  # in the air


def cheetah(z=0.0, pitch=0.0, hind=(0, 0, 0), front=(0, 0, 0), velocity=0.0):
    row = np.zeros(17)
    row[:2] = z, pitch
    row[2:5], row[5:8], row[8] = hind, front, velocity
    return posed("Cheetah-v1", [row] * 5)


CHEETAH_POSES = {
    "on its hind leg": cheetah(0.3, -1.0, hind=(1.0, 0, 0)),
    "on both legs": cheetah(),
    "sitting upright": cheetah(-0.1, -np.pi / 2),
    "lying": cheetah(-0.6),
    "on its back": cheetah(-0.6, np.pi),
    "on its head": cheetah(0.0, np.pi / 2),
}
"""Poses from the best to the worst."""


def test_tapdance_ranks_hind_leg_above_both_above_lying():
    scores = [tasks.hind_leg_stand(pose) for pose in CHEETAH_POSES.values()]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 2 * scores[1] > 4 * scores[2] > 0
    assert scores[-2:] == pytest.approx([0, 0], abs=1e-6)


def test_leaning_back_scores_more_than_standing_on_both_legs():
    assert tasks.hind_leg_stand(cheetah(0.05, -0.2)) > 1.2 * tasks.hind_leg_stand(cheetah())


def test_running_on_hind_leg_scores_less_than_standing():
    still, moving = (cheetah(0.3, -1.0, velocity=v) for v in (0.0, 3.0))
    assert tasks.hind_leg_stand(moving) == pytest.approx(tasks.hind_leg_stand(still) / 10)


def test_only_standing_on_hind_leg_is_measured_as_such():
    shares = {name: tasks.share_on_hind_leg(pose) for name, pose in CHEETAH_POSES.items()}
    assert shares.pop("on its hind leg") == 1.0
    assert not any(shares.values())


def simulated(env_id, qpos):
    """Return MuJoCo's geoms at the positions, as (name -> both ends of the capsule, radius)."""
    model = load_model(SUITE[env_id])
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)

    def lowest_end(name):
        geom = model.geom(name).id
        axis = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1]
        ends = data.geom_xpos[geom, 2] + np.array([axis[2], -axis[2]])
        return ends - model.geom_size[geom, 0]

    return data, lowest_end


def test_foot_heights_of_walker_are_those_of_the_simulation():
    rng = np.random.default_rng(0)
    for _ in range(20):
        qpos = rng.uniform(-1.5, 1.5, 9)
        _, ends = simulated("Walker-v1", qpos)
        pose = walker(qpos[1], qpos[2], qpos[3:6], qpos[6:9])
        heights = sorted([ends("foot_geom").min(), ends("foot_left_geom").min()])
        np.testing.assert_allclose(np.array(tasks._walker_feet(pose))[:, 0], heights, atol=1e-6)


def test_heights_of_cheetah_are_those_of_the_simulation():
    rng = np.random.default_rng(0)
    for _ in range(20):
        qpos = rng.uniform(-1.5, 1.5, 9)
        data, ends = simulated("Cheetah-v1", qpos)
        pose = cheetah(qpos[1], qpos[2], qpos[3:6], qpos[6:9])
        # The capsule's second end is the tip of the foot.
        heights = [data.body("bthigh").xpos[2], ends("ffoot")[1]]
        np.testing.assert_allclose(np.array(tasks._cheetah_heights(pose))[:, 0], heights, atol=1e-4)
