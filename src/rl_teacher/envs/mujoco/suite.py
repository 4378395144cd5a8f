"""The MuJoCo tasks: nine bodies, each under three sets of rules.

* `Hopper-v5` and the other plain ids: Gymnasium's own observations, rewards and terminations.
* `Hopper-v1` and the other suite ids: rewards that a person can judge from a clip. There is no
  torque penalty (torque is invisible) and episodes never end early (an early end reveals something
  about the true reward, Christiano et al. 2017, section 2.1).
* `ShortHopper-v1` and so on: the suite's rules, in short episodes.
"""

from dataclasses import replace
from functools import partial

from rl_teacher.envs.mujoco import rules
from rl_teacher.envs.mujoco.dm_control_suite import DM_CONTROL
from rl_teacher.envs.mujoco.task import Body, Task, View

# --- bodies ---

HOPPER = Body(
    "hopper.xml",
    frame_skip=4,
    fps=40.0,
    draw_start=rules.uniform_start(5e-3),
    track=rules.root_x,
    camera={"trackbodyid": 2, "distance": 3.0, "elevation": -20.0},
)
WALKER = replace(HOPPER, model_file="walker2d_v5.xml", fps=30.0)
CHEETAH = Body(
    "half_cheetah.xml",
    frame_skip=5,
    fps=20.0,
    draw_start=rules.normal_velocity_start(0.1),
    track=rules.root_x,
    camera={"distance": 4.0},
)
SWIMMER = Body(
    "swimmer.xml", frame_skip=4, fps=40.0, draw_start=rules.uniform_start(0.1), track=rules.root_x
)
ANT = Body(
    "ant.xml",
    frame_skip=5,
    fps=20.0,
    draw_start=rules.normal_velocity_start(0.1),
    track=rules.torso_x,
    derived=("xpos",),
    camera={"distance": 4.0},
)
HUMANOID = Body(
    "humanoid.xml",
    frame_skip=5,
    fps=40.0,
    draw_start=rules.uniform_start(1e-2),
    track=rules.mass_center_x,
    derived=("xipos",),
    camera={"trackbodyid": 1, "distance": 4.0, "elevation": -20.0},
)
REACHER = Body(
    "reacher.xml",
    frame_skip=2,
    fps=10.0,
    draw_start=rules.reacher_start,
    derived=("xpos",),
    camera={"trackbodyid": 0},
)
PENDULUM = Body(
    "inverted_pendulum.xml",
    frame_skip=2,
    fps=10.0,
    draw_start=rules.uniform_start(0.01),
    camera={"trackbodyid": 0, "distance": 2.04},
)
DOUBLE_PENDULUM = Body(
    "inverted_double_pendulum.xml",
    frame_skip=5,
    fps=10.0,
    draw_start=rules.normal_velocity_start(0.1),
    derived=("site_xpos",),
)


# --- observations ---

# Positions from 1 or 2 on leave out x, or x and y: behaviour must not depend on the place.
REACHER_VIEW = View(10, rules.observe_reacher)
HOPPER_VIEW = View(12, rules.observe_turning_walker)
WALKER_VIEW = View(18, rules.observe_turning_walker)
HOPPER_V5_VIEW = View(11, rules.observe_walker)
WALKER_V5_VIEW = View(17, rules.observe_walker)
CHEETAH_VIEW = View(17, rules.from_position(1))
SWIMMER_VIEW = View(8, rules.from_position(2))
PENDULUM_VIEW = View(4, rules.from_position(0))
DOUBLE_PENDULUM_VIEW = View(9, rules.observe_double_pendulum, ("qfrc_constraint",))

# The suite observes positions and velocities, which are the whole state. Gymnasium adds values that
# follow from these and the action: inertias (cinert), the bodies' velocities (cvel), the motors'
# forces (qfrc_actuator), and contact forces (cfrc_ext), zero most of the time.
ANT_VIEW = View(27, rules.from_position(2))
HUMANOID_VIEW = View(45, rules.from_position(2))
ANT_V5_VIEW = View(105, rules.observe_ant_v5, ("cfrc_ext",))
HUMANOID_V5_VIEW = View(
    348, rules.observe_humanoid_v5, ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
)


# --- tasks ---


SHORT_STEPS = {"Reacher": 20, "InvertedPendulum": 20, "InvertedDoublePendulum": 25}

_SUITE = (
    Task("Reacher", REACHER, REACHER_VIEW, rules.score_reacher, 50),
    Task("Hopper", HOPPER, HOPPER_VIEW, rules.score_hopper),
    Task("Walker", WALKER, WALKER_VIEW, rules.score_walker),
    Task("Cheetah", CHEETAH, CHEETAH_VIEW, rules.score_forward),
    Task("Swimmer", SWIMMER, SWIMMER_VIEW, rules.score_forward),
    Task("Ant", ANT, ANT_VIEW, rules.score_ant),
    Task("Humanoid", HUMANOID, HUMANOID_VIEW, rules.score_humanoid),
    Task("InvertedPendulum", PENDULUM, PENDULUM_VIEW, rules.score_pendulum, 25),
    Task(
        "InvertedDoublePendulum",
        DOUBLE_PENDULUM,
        DOUBLE_PENDULUM_VIEW,
        rules.score_double_pendulum,
        50,
    ),
)

# Common alternative names of the suite's bodies.
ALIASES = {
    "Walker2d": "Walker",
    "HalfCheetah": "Cheetah",
    "DoublePendulum": "InvertedDoublePendulum",
    "Pendulum": "InvertedPendulum",
}


def _by_id(*tasks: Task) -> dict[str, Task]:
    return {task.id: task for task in tasks}


SUITE = _by_id(
    *(
        variant
        for task in _SUITE
        for variant in (
            replace(task, id=f"{task.id}-v1"),
            replace(task, id=f"Short{task.id}-v1", max_episode_steps=SHORT_STEPS.get(task.id, 300)),
        )
    )
)
_plain = partial(Task, is_suite=False)
_falling = partial(_plain, can_terminate=True)
PLAIN = _by_id(
    _plain("Reacher-v5", REACHER, REACHER_VIEW, rules.score_reacher_v5, 50),
    _plain("HalfCheetah-v5", CHEETAH, CHEETAH_VIEW, rules.score_cheetah_v5),
    _plain("Swimmer-v5", SWIMMER, SWIMMER_VIEW, rules.score_swimmer_v5),
    _falling("Hopper-v5", HOPPER, HOPPER_V5_VIEW, rules.score_hopper_v5),
    _falling("Walker2d-v5", WALKER, WALKER_V5_VIEW, rules.score_walker_v5),
    _falling("Ant-v5", ANT, ANT_V5_VIEW, rules.score_ant_v5),
    _falling("Humanoid-v5", HUMANOID, HUMANOID_V5_VIEW, rules.score_humanoid_v5),
    _falling("InvertedPendulum-v5", PENDULUM, PENDULUM_VIEW, rules.score_pendulum_v5),
    _falling(
        "InvertedDoublePendulum-v5",
        DOUBLE_PENDULUM,
        DOUBLE_PENDULUM_VIEW,
        rules.score_double_pendulum_v5,
    ),
)
TASKS = SUITE | _by_id(*DM_CONTROL.values()) | PLAIN
