"""Golden runs: short seeded runs whose metrics and final arrays a refactoring must not change.

    python -m benchmarks.golden                    # compare with golden.json
    python -m benchmarks.golden --renew            # replace golden.json
    python -m benchmarks.golden --only ppo/MuJoCo  # runs whose name contains the text

The exit code is 1 where a run differs.

The digests are exact for one set of library versions on one kind of processor: record them on the
commit before a change, and compare on the same machine.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

GOLDEN_FILE = Path(__file__).parent / "golden.json"
COMMAND = [sys.executable, "-m", "rl_teacher"]
ENVIRONMENTS = {"MuJoCo": "ShortHopper-v1", "CartPole": "CartPole-v1", "MovingDot": "MovingDot-v0"}
AGENTS = {
    "MuJoCo": ("ppo", "trpo", "a2c", "ga3c", "sac", "sb3:PPO", "sb3:SAC"),
    "CartPole": ("ppo", "trpo", "a2c", "ga3c", "sb3:PPO"),
    "MovingDot": ("ppo", "a2c", "ga3c"),
}
STEPS = {"MuJoCo": 8_192, "CartPole": 8_192, "MovingDot": 4_096}
STEPS_OFF_POLICY = 1_500
WALL_TIME_METRICS = ("wall_s", "steps_per_second", "fit_s", "rollout_s", "update_s")
LABELS = ("-l", "30", "-L", "12")

WRAPPER_RUN = """
import json, sys
import gymnasium as gym
import numpy as np
from rl_teacher.wrappers import PreferenceWrapper
env = PreferenceWrapper(
    gym.make("Pendulum-v1"), name="golden", n_labels=30, pretrain_labels=12,
    steps_between_labels=100, fit="sync", seed=3,
)
env.action_space.seed(3)
rewards = []
env.reset(seed=3)
for _ in range(4_000):
    _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    rewards.append(reward)
    if terminated or truncated:
        env.reset()
env.close()
print(json.dumps({"rewards_sum": float(np.sum(rewards)), "rewards_last": float(rewards[-1])}))
"""


def names() -> list[str]:
    """Return the names of all golden runs, as agent/environment/reward source."""
    runs = [
        f"{agent}/{suite}/{source}"
        for suite, agents in AGENTS.items()
        for agent in agents
        for source in ("rl", "synth")
    ]
    return [*runs, "wrapper/Pendulum/synth"]


def run(name: str) -> dict[str, Any]:
    """Execute one golden run in processes of its own.

    Returns:
        `metrics`: the last row without wall times; `agent` and `predictor`: SHA-256 digests.
    """
    agent, suite, source = name.split("/")
    with tempfile.TemporaryDirectory() as folder:
        if agent == "wrapper":
            output = _execute([sys.executable, "-c", WRAPPER_RUN], folder)
            metrics = json.loads(output.splitlines()[-1])
        else:
            _execute([*COMMAND, "teach", *_flags(agent, suite, source)], folder)
            rows = (Path(folder) / "experiments/golden/metrics.jsonl").read_text().splitlines()
            metrics = json.loads(rows[-1])
        arrays = _final_arrays(Path(folder) / "experiments/golden/checkpoints")
    is_agent = {key: each for key, each in arrays.items() if key.startswith("agent/")}
    is_predictor = {key: each for key, each in arrays.items() if "predictor/" in key}
    return {
        "metrics": {key: each for key, each in metrics.items() if key not in WALL_TIME_METRICS},
        "agent": digest(is_agent.values()),
        "predictor": digest(is_predictor.values()),
    }


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Hash float32 arrays regardless of order and names, which a refactoring may change."""
    hashes = [
        hashlib.sha256(str(each.shape).encode() + np.ascontiguousarray(each).tobytes()).digest()
        for each in arrays
        if each.dtype == np.float32 and each.ndim
    ]
    return hashlib.sha256(b"".join(sorted(hashes))).hexdigest()


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """List what differs between two records of one run."""
    metrics = sorted({*expected["metrics"], *found["metrics"]})
    lines = [
        f"{key}: {expected['metrics'].get(key)} -> {found['metrics'].get(key)}"
        for key in metrics
        if expected["metrics"].get(key, "absent") != found["metrics"].get(key, "absent")
    ]
    return lines + [
        f"{part} arrays: {expected[part][:12]} -> {found[part][:12]}"
        for part in ("agent", "predictor")
        if expected[part] != found[part]
    ]


def _flags(agent: str, suite: str, source: str) -> list[str]:
    steps = STEPS_OFF_POLICY if agent.upper().endswith("SAC") else STEPS[suite]
    flags = ["-p", source, "-e", ENVIRONMENTS[suite], "-a", agent, "-t", str(steps), "-s", "3"]
    flags += ["-n", "golden", "--no-tensorboard"]
    flags += ["-w", "1"] if suite == "MuJoCo" else []
    if source == "synth":
        # An agent that is shown early terminations cannot be reset.
        flags += [*LABELS, *(("--agent-reset", "0.5") if suite != "CartPole" else ())]
    return flags


def _execute(command: list[str], home: str) -> str:
    environment = {**os.environ, "RL_TEACHER_HOME": home, "HOME": home}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _final_arrays(folder: Path) -> dict[str, np.ndarray]:
    newest = max(folder.glob("*.safetensors"), key=lambda path: path.name)
    return load_file(newest)


def main() -> int:
    """Run the selected golden runs, two at a time; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="replace the recorded results")
    parser.add_argument("--only", default="", help="run only those whose name contains this text")
    parser.add_argument("--processes", type=int, default=2, help="number of simultaneous runs")
    options = parser.parse_args()
    recorded = json.loads(GOLDEN_FILE.read_text()) if GOLDEN_FILE.exists() else {}
    selected = [name for name in names() if options.only in name]
    num_different = 0
    with ThreadPoolExecutor(options.processes) as pool:
        for name, found in zip(selected, pool.map(run, selected), strict=True):
            if options.renew:
                recorded[name] = found
                print(f"{name}: recorded", flush=True)
                continue
            lines = differences(recorded[name], found)
            num_different += bool(lines)
            print(
                f"{name}: {'equal' if not lines else 'DIFFERENT'}", *lines, sep="\n    ", flush=True
            )
    if options.renew:
        GOLDEN_FILE.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
        return 0
    print(f"{len(selected) - num_different} of {len(selected)} golden runs are equal")
    return int(num_different > 0)


if __name__ == "__main__":
    sys.exit(main())
