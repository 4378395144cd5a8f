"""Record steps of dm_control's tasks for `test_dm_control`, in an environment of its own.

    python -m venv /tmp/dm && /tmp/dm/bin/pip install dm-control==1.0.50 mujoco==4.0.0
    MUJOCO_GL=disable /tmp/dm/bin/python tests/envs/mujoco/record_dm_control.py

dm_control 1.0.50 lists fields that MuJoCo 4 has removed; they are left out here, so that both sides
run on one version of MuJoCo.
"""

from pathlib import Path

import mujoco
import numpy as np
from dm_control import suite  # pyright: ignore[reportMissingImports]
from dm_control.mujoco.wrapper.mjbindings import (  # pyright: ignore[reportMissingImports]
    sizes,
)

TASKS = {
    "DMWalkerWalk-v1": ("walker", "walk"),
    "DMWalkerRun-v1": ("walker", "run"),
    "DMCheetahRun-v1": ("cheetah", "run"),
    "DMQuadrupedWalk-v1": ("quadruped", "walk"),
}
NUM_EPISODES, NUM_STEPS = 4, 25


def leave_out_removed_fields() -> None:
    """Remove the fields that this version of MuJoCo does not have."""
    model = mujoco.MjModel.from_xml_string("<mujoco/>")  # pyright: ignore
    structs = {"mjmodel": model, "mjdata": mujoco.MjData(model)}  # pyright: ignore
    for name, struct in structs.items():
        fields = sizes.array_sizes[name]
        for field in [each for each in fields if not hasattr(struct, each)]:
            del fields[field]


def flat(observation):
    return np.concatenate([np.ravel(each) for each in observation.values()])


def main():
    leave_out_removed_fields()
    recorded = {}
    for env_id, (domain, task) in TASKS.items():
        episodes = []
        for seed in range(NUM_EPISODES):
            env = suite.load(domain, task, task_kwargs={"random": seed})
            observations, rewards = [flat(env.reset().observation)], []
            qpos, qvel = env.physics.data.qpos.copy(), env.physics.data.qvel.copy()
            spec, rng = env.action_spec(), np.random.default_rng(seed)
            actions = rng.uniform(spec.minimum, spec.maximum, (NUM_STEPS, *spec.shape))
            for action in actions.astype(np.float32):
                step = env.step(action)
                observations.append(flat(step.observation))
                rewards.append(step.reward)
            steps = (np.asarray(each, np.float32) for each in (actions, observations, rewards))
            episodes.append((qpos, qvel, *steps))
        names = ("qpos", "qvel", "actions", "observations", "rewards")
        for name, values in zip(names, zip(*episodes, strict=True), strict=True):
            recorded[f"{env_id}/{name}"] = np.asarray(values)
    np.savez_compressed(Path(__file__).with_name("dm_control.npz"), **recorded)


if __name__ == "__main__":
    main()
