"""Tasks of dm_control's suite on batched physics (Tassa et al. 2018, DeepMind Control Suite).

Observations, rewards and the distribution of initial states are dm_control's. Rewards lie between 0
and 1 per step, and episodes end after 1,000 steps only. The models are dm_control's files.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Inexact, Int

from rl_teacher.envs.mujoco.task import (
    Body,
    DrawStart,
    Physics,
    Score,
    Start,
    Task,
    View,
)

MODELS = Path(__file__).parent / "dm_control"

POSITION_STAGE = 1
"""MuJoCo's mjSTAGE_POS: kinematics and collisions."""
TORSO = 1
"""Body of the torso in all models."""
XX, XZ, ZZ = 0, 2, 8
"""Elements of a flattened rotation matrix."""

# --- initial states ---

WALKER_RANGES_DEG = ((-180.0, 180.0), *((-20.0, 100.0), (-150.0, 0.0), (-45.0, 45.0)) * 2)
"""Pitch, which has no limits, and the limits of hip, knee and ankle of both legs."""
CHEETAH_RANGES_DEG = (
    *((-30.0, 60.0), (-50.0, 50.0), (-230.0, 50.0)),
    *((-57.0, 0.4), (-70.0, 50.0), (-28.0, 28.0)),
)
"""Limits of thigh, shin and foot, back and front."""
CHEETAH_SETTLING_STEPS = 200


def uniform_joints(ranges_deg: Sequence[tuple[float, float]]) -> DrawStart:
    """Draw the last joints uniformly within their limits."""
    low, high = np.deg2rad(ranges_deg).T

    def draw(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> Start:
        drawn = qpos.copy()
        drawn[-len(low) :] = rng.uniform(low, high)
        return drawn, qvel

    return draw


def random_orientation(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> Start:
    """Draw a uniform orientation of the free root joint, at height 0."""
    drawn, quaternion = qpos.copy(), rng.standard_normal(4)
    drawn[2], drawn[3:7] = 0.0, quaternion / np.linalg.norm(quaternion)
    return drawn, qvel


def let_fall(batch: Any, ids: Int[np.ndarray, " some"]) -> None:
    """Simulate 2 s without control, so that the body comes to rest on the ground."""
    batch.step(ids, nstep=CHEETAH_SETTLING_STEPS)
    batch.bind("time")[ids] = 0.0


def lift_off(batch: Any, ids: Int[np.ndarray, " some"]) -> None:
    """Raise each body by whole centimetres until nothing touches the ground."""
    heights, num_contacts = batch.bind("qpos")[:, 2], batch.bind("ncon")
    batch.forward(ids, stage=POSITION_STAGE)
    while len(ids := ids[num_contacts[ids] > 0]):
        heights[ids] += 0.01
        batch.forward(ids, stage=POSITION_STAGE)


# --- observations ---


def observe_walker(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe the orientation of each body in the plane, the torso's height, velocities."""
    orientations = physics.derived["xmat"][:, TORSO:, [XX, XZ]]
    out[:, :14] = orientations.reshape(len(out), -1)
    out[:, 14] = physics.derived["xpos"][:, TORSO, 2]
    out[:, 15:] = physics.qvel


def observe_cheetah(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe positions without x, then velocities."""
    out[:] = physics.state[:, 1:]


def observe_quadruped(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe joints, motors, the torso's velocity, uprightness and acceleration, toe forces."""
    sensors = physics.derived["sensordata"]
    parts = (
        physics.qpos[:, 7:],
        physics.qvel[:, 6:],
        physics.derived["act"],
        _local_velocity(physics),
        physics.derived["xmat"][:, TORSO, ZZ, None],
        sensors[:, :6],  # accelerometer and gyroscope
        np.arcsinh(sensors[:, 9:33]),  # forces and torques at the toes
    )
    np.concatenate(parts, axis=1, out=out)


def _local_velocity(physics: Physics) -> Float[np.ndarray, "env 3"]:
    return physics.derived["sensordata"][:, 6:9]


# --- rewards ---


def score_walker_walk(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Standing, times forward velocity up to 1 m/s; from 0 to 1."""
    return _standing_and_moving(physics, 1.0), None


def score_walker_run(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Standing, times forward velocity up to 8 m/s; from 0 to 1."""
    return _standing_and_moving(physics, 8.0), None


def _standing_and_moving(physics: Physics, speed: float) -> Float[np.ndarray, " env"]:
    height = physics.derived["xpos"][:, TORSO, 2]
    # A Gaussian of the missing height that is 0.1 where half of 1.2 m is missing.
    missing = np.maximum(1.2 - height, 0.0) / 0.6
    standing = np.exp(np.log(0.1) * missing**2)
    upright = (1 + physics.derived["xmat"][:, TORSO, ZZ]) / 2
    # The velocity of the centre of mass.
    moving = np.clip(physics.derived["sensordata"][:, 0] / speed, 0.0, 1.0)
    return (3 * standing + upright) / 4 * (5 * moving + 1) / 6


def score_cheetah(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity over 10 m/s, from 0 to 1."""
    return np.clip(physics.derived["sensordata"][:, 0] / 10.0, 0.0, 1.0), None


def score_quadruped(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Upright, times 0.5 + the torso's own forward velocity up to 0.5 m/s; from 0 to 1."""
    upright = (1 + physics.derived["xmat"][:, TORSO, ZZ]) / 2
    return upright * np.clip(0.5 + _local_velocity(physics)[:, 0], 0.0, 1.0), None


# --- tasks ---

WALKER = Body(
    str(MODELS / "walker.xml"),
    frame_skip=10,
    fps=40.0,
    draw_start=uniform_joints(WALKER_RANGES_DEG),
    derived=("xpos", "xmat", "sensordata"),
    is_current=True,
)
CHEETAH = Body(
    str(MODELS / "cheetah.xml"),
    frame_skip=1,
    fps=100.0,
    draw_start=uniform_joints(CHEETAH_RANGES_DEG),
    settle=let_fall,
    derived=("sensordata",),
    is_current=True,
)
QUADRUPED = Body(
    str(MODELS / "quadruped.xml"),
    frame_skip=4,
    fps=50.0,
    draw_start=random_orientation,
    settle=lift_off,
    derived=("xmat", "sensordata", "act", "ncon"),
    is_current=True,
)

WALKER_VIEW = View(24, observe_walker)

DM_CONTROL = {
    "dm_control/walker-walk-v0": Task("DMWalkerWalk-v1", WALKER, WALKER_VIEW, score_walker_walk),
    "dm_control/walker-run-v0": Task("DMWalkerRun-v1", WALKER, WALKER_VIEW, score_walker_run),
    "dm_control/cheetah-run-v0": Task(
        "DMCheetahRun-v1", CHEETAH, View(17, observe_cheetah), score_cheetah
    ),
    "dm_control/quadruped-walk-v0": Task(
        "DMQuadrupedWalk-v1", QUADRUPED, View(78, observe_quadruped), score_quadruped
    ),
}
"""Tasks by the id that Farama's Shimmy gives them."""
