"""Environments of other packages, from the command line.

Each group of packages that fit together has a virtual environment of its own, created on first use.
It sees the packages of the one that runs the tests behind its own. `docs/environments.md` has the
results as a table.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACTORIES = "tests.envs.package_environments"
MUJOCO_3_3, MUJOCO_3, OTHERS = "mujoco-3.3", "mujoco-3", "others"
REQUIREMENTS = {
    # Meta-World requires MuJoCo 3.3.0; the tasks of Gymnasium-Robotics fail with 3.17.
    MUJOCO_3_3: ["metaworld==3.1.1", "gymnasium-robotics==1.4.2"],
    MUJOCO_3: ["shimmy[dm-control]==2.0.1", "mujoco<4"],
    OTHERS: [
        *("flappy-bird-gymnasium==0.4.0", "gym-pusht==0.1.8", "highway-env==1.12.1"),
        *("minigrid==3.2.0", "panda-gym==3.0.7", "popgym==1.0.7", "vizdoom==1.3.2"),
    ],
}
RUN = [
    (MUJOCO_3_3, "Meta-World/button-press-v3"),
    (MUJOCO_3_3, "Meta-World/sweep-into-v3"),
    (MUJOCO_3, "dm_control/hopper-hop-v0"),
    (MUJOCO_3_3, "gymnasium_robotics:FetchReachDense-v4"),
    (OTHERS, "flappy_bird_gymnasium:FlappyBird-v0"),
    (OTHERS, "gym_pusht:gym_pusht/PushT-v0"),
    (OTHERS, "highway_env:highway-fast-v0"),
    (OTHERS, f"{FACTORIES}:minigrid"),
    (OTHERS, "panda_gym:PandaReachDense-v3"),
    (OTHERS, "popgym:popgym-RepeatPreviousEasy-v0"),
    (OTHERS, "vizdoom.gymnasium_wrapper:VizdoomBasic-v1"),
    (OTHERS, "BipedalWalker-v3"),
    (OTHERS, "CarRacing-v3"),
    (OTHERS, "LunarLander-v3"),
]
REFUSED = [
    (MUJOCO_3_3, "Hopper-v1", "needs MuJoCo 4.0 or newer"),
    (MUJOCO_3, "dm_control/walker-walk-v0", "needs MuJoCo 4.0 or newer"),
    (OTHERS, "minigrid:MiniGrid-Empty-5x5-v0", r"\['mission'\] cannot be flattened"),
]


@pytest.fixture(scope="session")
def python_of():
    """Return a function from a group to the interpreter of its environment."""

    def create(group):
        folder = ROOT / f".venv-packages-{group}"
        python, done = folder / "bin" / "python", folder / ".installed"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            (site,) = folder.glob("lib/python*/site-packages")
            seen = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
            (site / "behind.pth").write_text(seen)
            pip = [python, "-m", "pip", "install", "--quiet", *REQUIREMENTS[group]]
            installed = subprocess.run(pip, capture_output=True, text=True, check=False)
            if installed.returncode:
                skip_or_fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
                skip_or_fail(f"pip cannot install {REQUIREMENTS[group]}: {installed.stderr}")
            done.touch()
        return python

    return create


def run(python, home, *words):
    """Run a command of rl-teacher, and return its exit code and what it printed."""
    finished = subprocess.run(
        [python, "-m", "rl_teacher", *words],
        env={**os.environ, "RL_TEACHER_HOME": str(home), "PYTHONPATH": str(ROOT)},
        # ViZDoom writes _vizdoom.ini to the current folder.
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout + finished.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("group", "env_id"), RUN, ids=[env_id for _, env_id in RUN])
def test_agent_is_taught_in_environment_of_another_package(group, env_id, python_of, tmp_path):
    python = python_of(group)
    code, printed = run(python, tmp_path, "check", env_id)
    assert code == 0, printed
    options = ["-l", "8", "-L", "4", "-t", "8192", "-i", "300", "--seed", "1", "-n", "taught"]
    code, printed = run(python, tmp_path, "teach", "-p", "synth", "-e", env_id, *options)
    assert code == 0, printed
    assert re.search(r"labels answered +│ +8 ", printed), printed


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("group", "env_id", "message"), REFUSED, ids=[env_id for _, env_id, _ in REFUSED]
)
def test_environment_that_cannot_be_used_is_refused(group, env_id, message, python_of, tmp_path):
    code, printed = run(python_of(group), tmp_path, "check", env_id)
    assert code == 2
    assert re.search(message, printed), printed
    assert "Traceback" not in printed


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("group", "env_id"),
    [
        (MUJOCO_3_3, "Meta-World/button-press-v3"),
        (MUJOCO_3, "dm_control/hopper-hop-v0"),
        (MUJOCO_3_3, "gymnasium_robotics:FetchReachDense-v4"),
    ],
)
def test_clip_in_3d_has_the_poses_of_the_simulation(group, env_id, python_of):
    compared = subprocess.run(
        [python_of(group), "-W", "ignore", "-c", COMPARE, env_id],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(compared.stdout.splitlines()[-1]) < 1e-5


COMPARE = """
import sys
import mujoco
import numpy as np
from rl_teacher.clips.poses import body_poses
from rl_teacher.envs.registry import make_vector, mujoco_model
from rl_teacher.envs.snapshots import mujoco_of

venv = make_vector(sys.argv[1], 2)
gaps = []
for seeds in [1, 2], [3, 4]:
    venv.reset(seed=seeds)
    for _ in range(20):
        venv.step(venv.action_space.sample())
    poses = body_poses(mujoco_model(sys.argv[1]), venv.scene_states)
    for pose, env in zip(poses, venv.envs):
        model, data = mujoco_of(env)
        mujoco.mj_kinematics(model, data)
        gaps.append(np.abs(pose[:, :3] - data.xpos[1:]).max())
print(max(gaps))
"""
