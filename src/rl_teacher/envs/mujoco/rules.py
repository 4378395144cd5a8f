"""The functions of MuJoCo tasks: initial states, observations, rewards, terminations."""

import numpy as np
from jaxtyping import Float, Inexact, Shaped

from rl_teacher.envs.mujoco.task import DrawStart, Observe, Physics, Score, Start

FINGERTIP, TARGET = 3, 4  # Bodies of reacher.xml.

# --- initial states; noise is drawn in Gymnasium's order, so that equal seeds agree ---


def uniform_start(scale: float) -> DrawStart:
    """Draw uniform noise of +-scale on positions and velocities."""

    def draw(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> Start:
        noise = rng.uniform(-scale, scale, qpos.size + qvel.size)
        return qpos + noise[: qpos.size], qvel + noise[qpos.size :]

    return draw


def normal_velocity_start(scale: float) -> DrawStart:
    """Draw uniform noise of +-scale on positions, normal noise of that scale on velocities."""

    def draw(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> Start:
        noisy_qpos = qpos + rng.uniform(low=-scale, high=scale, size=qpos.size)
        return noisy_qpos, qvel + scale * rng.standard_normal(qvel.size)

    return draw


def reacher_start(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> Start:
    """Draw a bent arm and a target within its reach."""
    noisy_qpos = rng.uniform(low=-0.1, high=0.1, size=qpos.size) + qpos
    noisy_qpos[-2:] = rng.uniform(low=-0.2, high=0.2, size=2)
    while np.linalg.norm(noisy_qpos[-2:]) >= 0.2:  # uniform in a disc: redraw outside it
        noisy_qpos[-2:] = rng.uniform(low=-0.2, high=0.2, size=2)
    noisy_qvel = qvel + rng.uniform(low=-0.005, high=0.005, size=qvel.size)
    noisy_qvel[-2:] = 0
    return noisy_qpos, noisy_qvel


# --- tracked positions, whose change is the forward velocity ---


def root_x(physics: Physics) -> Float[np.ndarray, " env"]:
    """Return [N] the root joint's x."""
    return physics.qpos[:, 0].copy()


def torso_x(physics: Physics) -> Float[np.ndarray, " env"]:
    """Return [N] the torso's x as of the last physics step."""
    return physics.derived["xpos"][:, 1, 0].copy()


def mass_center_x(physics: Physics) -> Float[np.ndarray, " env"]:
    """Return [N] the x of the centre of mass."""
    weighted = np.einsum("b,nbj->nj", physics.body_mass, physics.derived["xipos"])
    return weighted[:, 0] / physics.body_mass.sum()


# --- observations ---


def from_position(first: int) -> Observe:
    """Observe positions from index `first` on, then velocities."""

    def observe(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
        out[:] = physics.state[:, first:]

    return observe


def observe_walker(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe positions without x, then velocities within +-10."""
    out[:] = physics.state[:, 1:]
    _clip(out[:, physics.qpos.shape[1] - 1 :], 10.0)


def observe_turning_walker(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe height, sine and cosine of the pitch, joints, then velocities within +-10."""
    # Falling does not end a suite episode, so the body may turn over any number of times. The pitch
    # itself would grow without bound, and one pose would look different after each turn.
    num_positions = physics.qpos.shape[1]
    pitch = physics.qpos[:, 2]
    out[:, 0] = physics.qpos[:, 1]
    out[:, 1] = np.sin(pitch)
    out[:, 2] = np.cos(pitch)
    # Without x, and with two numbers for the pitch, there are as many positions as in qpos.
    out[:, 3:] = physics.state[:, 3:]
    _clip(out[:, num_positions:], 10.0)


def observe_reacher(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe joint cosines and sines, target, joint velocities, fingertip minus target."""
    angles = physics.qpos[:, :2]
    out[:, 0:2] = np.cos(angles)
    out[:, 2:4] = np.sin(angles)
    out[:, 4:6] = physics.qpos[:, 2:]
    out[:, 6:8] = physics.qvel[:, :2]
    out[:, 8:10] = _fingertip_to_target(physics)[:, :2]


def observe_double_pendulum(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe cart, sines and cosines of the angles, velocities, constraint force."""
    angles = physics.qpos[:, 1:]
    out[:, 0] = physics.qpos[:, 0]
    out[:, 1:3] = np.sin(angles)
    out[:, 3:5] = np.cos(angles)
    out[:, 5:8] = physics.qvel
    out[:, 8] = physics.derived["qfrc_constraint"][:, 0]
    _clip(out[:, 5:], 10.0)


def observe_ant_v5(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe positions without x and y, velocities, contact forces within +-1."""
    out[:, :27] = physics.state[:, 2:]
    # The first 6 forces are on the world, body 0.
    out[:, 27:] = _clipped_contact_forces(physics)[:, 6:]


def observe_humanoid_v5(physics: Physics, out: Inexact[np.ndarray, "env obs"]) -> None:
    """Observe positions without x and y, velocities, inertias, motions and forces."""
    num_envs = len(out)
    derived = physics.derived
    parts = (
        physics.state[:, 2:],
        derived["cinert"][:, 1:].reshape(num_envs, -1),
        derived["cvel"][:, 1:].reshape(num_envs, -1),
        # No motor drives the 6 degrees of freedom of the root.
        derived["qfrc_actuator"][:, 6:],
        derived["cfrc_ext"][:, 1:].reshape(num_envs, -1),
    )
    np.concatenate(parts, axis=1, out=out)


def _clip(values: Inexact[np.ndarray, "env some"], limit: float) -> None:
    np.minimum(values, limit, out=values)
    np.maximum(values, -limit, out=values)


def _fingertip_to_target(physics: Physics) -> Float[np.ndarray, "env 3"]:
    xpos = physics.derived["xpos"]
    return xpos[:, FINGERTIP] - xpos[:, TARGET]


def _clipped_contact_forces(physics: Physics) -> Float[np.ndarray, "env forces"]:
    forces = physics.derived["cfrc_ext"]
    return np.clip(forces, -1.0, 1.0).reshape(len(forces), -1)


# --- Gymnasium's rules; operations are in its order, so that results are equal bit for bit ---


def _sum_of_squares(values: Shaped[np.ndarray, "env some"]) -> Inexact[np.ndarray, " env"]:
    return np.square(values).sum(axis=1)


def score_hopper_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity + 1 while upright - 1e-3 * squared torques; ends by falling."""
    height, angle = physics.qpos[:, 1], physics.qpos[:, 2]
    is_healthy = (height > 0.7) & (angle > -0.2) & (angle < 0.2)
    extremes = np.abs(physics.state[:, 2:])
    # One maximum over all environments is fast and nearly always sufficient.
    # `not <` in place of `>=`, which is False for NaN.
    if not extremes.max() < 100.0:
        is_healthy &= (extremes < 100.0).all(axis=1)
    return velocity_x + is_healthy - 1e-3 * _sum_of_squares(actions), ~is_healthy


def score_walker_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity + 1 while upright - 1e-3 * squared torques; ends by falling."""
    height, angle = physics.qpos[:, 1], physics.qpos[:, 2]
    is_healthy = (height > 0.8) & (height < 2.0) & (angle > -1.0) & (angle < 1.0)
    return velocity_x + is_healthy - 1e-3 * _sum_of_squares(actions), ~is_healthy


def score_cheetah_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity - 0.1 * squared torques."""
    return velocity_x - 0.1 * _sum_of_squares(actions), None


def score_swimmer_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity - 1e-4 * squared torques."""
    return velocity_x - 1e-4 * _sum_of_squares(actions), None


def score_reacher_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Minus the distance to the target - squared torques."""
    rewards, _ = score_reacher(physics, velocity_x, actions)
    return rewards - _sum_of_squares(actions), None


def score_ant_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity + 1 while healthy - torques, contact forces; ends by falling or flying."""
    height = physics.qpos[:, 2]
    is_healthy = np.isfinite(physics.state).all(axis=1) & (height >= 0.2) & (height <= 1.0)
    contact_cost = 5e-4 * _sum_of_squares(_clipped_contact_forces(physics))
    return velocity_x + is_healthy - (0.5 * _sum_of_squares(actions) + contact_cost), ~is_healthy


def score_humanoid_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """1.25 * forward velocity + 5 while upright - torques and contact forces; ends by falling."""
    is_healthy = (physics.qpos[:, 2] > 1.0) & (physics.qpos[:, 2] < 2.0)
    forces = physics.derived["cfrc_ext"]
    contact_cost = np.minimum(5e-7 * _sum_of_squares(forces.reshape(len(forces), -1)), 10.0)
    costs = 0.1 * _sum_of_squares(physics.ctrl) + contact_cost
    return 1.25 * velocity_x + is_healthy * 5.0 - costs, ~is_healthy


def score_pendulum_v5(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """1 while the pole stands; ends by falling."""
    is_standing = np.isfinite(physics.state).all(axis=1) & (np.abs(physics.qpos[:, 1]) <= 0.2)
    return is_standing.astype(np.float64), ~is_standing


def score_double_pendulum_v5(
    physics: Physics, velocity_x: np.ndarray, actions: np.ndarray
) -> Score:
    """10 while the poles stand - distance of the tip from its place - joint speeds."""
    terminated = physics.derived["site_xpos"][:, 0, 2] <= 1
    return 10.0 * ~terminated - _distance_penalty(physics) - _speed_penalty(physics), terminated


def _distance_penalty(physics: Physics) -> Float[np.ndarray, " env"]:
    tip = physics.derived["site_xpos"][:, 0]
    return 0.01 * tip[:, 0] ** 2 + (tip[:, 2] - 2) ** 2


def _speed_penalty(physics: Physics) -> Float[np.ndarray, " env"]:
    return 1e-3 * physics.qvel[:, 1] ** 2 + 5e-3 * physics.qvel[:, 2] ** 2


# --- the suite's rules: no torque penalty, no early termination ---
# Source: rl-teacher's environments, on Gymnasium 0.9's rewards. Where that reward had a torque
# penalty, rl-teacher added it back, so the terms cancel; here both are left out.


def score_hopper(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity + height: (velocity + 1) + (height - 1)."""
    return velocity_x + physics.qpos[:, 1], None


def score_walker(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity + height - 1: (velocity + 1) + (height - 2)."""
    return velocity_x + physics.qpos[:, 1] - 1.0, None


def score_forward(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity."""
    return velocity_x, None


def score_reacher(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Minus the distance from the fingertip to the target, after the step."""
    offset = _fingertip_to_target(physics)
    return -np.sqrt(np.vecdot(offset, offset)), None


def score_ant(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Forward velocity + height of the torso - 1.2."""
    return velocity_x + physics.qpos[:, 2] - 1.2, None


def score_humanoid(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """1.25 * forward velocity of the centre of mass + 5 * (height of the torso - 1)."""
    return 1.25 * velocity_x + 5.0 * (physics.qpos[:, 2] - 1.0), None


def score_pendulum(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """1 - angle squared."""
    return 1.0 - physics.qpos[:, 1] ** 2, None


def score_double_pendulum(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """10 - distance of the tip - joint speeds + 10 * (height of the tip - 1)."""
    height = physics.derived["site_xpos"][:, 0, 2]
    upright = 10.0 + 10.0 * (height - 1.0)
    return upright - _distance_penalty(physics) - _speed_penalty(physics), None
