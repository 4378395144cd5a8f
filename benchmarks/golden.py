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
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

GOLDEN_FILE = Path(__file__).parent / "golden.json"
COMMAND = [sys.executable, "-m", "rl_teacher"]
ENVIRONMENTS = {
    "MuJoCo": "ShortHopper-v1",
    "CartPole": "CartPole-v1",
    "MovingDot": "MovingDot-v0",
    "Pong": "Pong-v0",
}
AGENTS = {
    "MuJoCo": ("ppo", "trpo", "a2c", "ga3c", "sac", "sb3:PPO", "sb3:SAC"),
    "CartPole": ("ppo", "trpo", "a2c", "ga3c", "sb3:PPO"),
    "MovingDot": ("ppo", "a2c", "ga3c"),
    "Pong": ("ppo",),
}
STEPS = {"MuJoCo": 8_192, "CartPole": 8_192, "MovingDot": 4_096, "Pong": 4_096}
STEPS_OFF_POLICY = 1_500
WALL_TIME_METRICS = ("wall_s", "training_s", "steps_per_second", "fit_s", "rollout_s", "update_s")
LABELS = ("-l", "30", "-L", "12")
VARIANTS = {
    "ppo/MuJoCo/tree": ("--queries", "tree"),
    "ppo/MuJoCo/sort": ("--queries", "sort"),
    "ppo/MuJoCo/rank": ("--objective", "rank"),
    "ppo/MuJoCo/async": ("--fit", "async"),
    "ppo/MovingDot/encoder": ("--reward.image-encoder", "small"),
}
"""Runs with labels of a synthetic teacher, and their further options."""
EQUAL_RUNS = {
    "ppo/CartPole/cluster": "ppo/CartPole/synth",
    "ppo/MuJoCo/resumed": "ppo/MuJoCo/synth",
}
"""Runs that must equal another one; nothing is recorded for them."""
COLLECTED = ("fit/MuJoCo/collected", "ppo/MuJoCo/collected")
"""Runs with labels of `rl-teacher collect`."""
WRAPPER = "wrapper/Pendulum/synth"

ASYNC_RUN = """
import sys
from concurrent.futures import Future
from rl_teacher import cli
# How far training gets during a fit depends on the machine, unless it waits whenever it looks.
Future.done = lambda future: (future.exception(), True)[1]
sys.exit(cli.main(sys.argv[1:]))
"""
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
    """Return the names of all golden runs, as agent/environment/reward source or variant."""
    runs = [
        f"{agent}/{suite}/{source}"
        for suite, agents in AGENTS.items()
        for agent in agents
        for source in ("rl", "synth")
    ]
    return [*runs, *VARIANTS, *EQUAL_RUNS, *COLLECTED, WRAPPER]


def run(name: str, compilation_cache: str) -> dict[str, Any]:
    """Execute one golden run in processes of its own.

    Returns:
        `metrics`: the last row without wall times; `agent`, `predictor`: SHA-256 digests of those
        that the run has.
    """
    agent, suite, variant = name.split("/")
    flags = [] if name == WRAPPER else [*_flags(agent, suite, variant), *VARIANTS.get(name, ())]
    with tempfile.TemporaryDirectory() as home:
        environment = {"RL_TEACHER_HOME": home, "HOME": home}
        environment["JAX_COMPILATION_CACHE_DIR"] = compilation_cache
        experiment = Path(home) / "experiments/golden"
        output = ""
        if variant == "collected":
            labels = ("-p", "synth", "-e", ENVIRONMENTS[suite], "-l", "30", "-s", "3")
            _execute([*COMMAND, "collect", *labels, "-n", "labels"], environment)
        if name == WRAPPER:
            output = _execute([sys.executable, "-c", WRAPPER_RUN], environment)
        elif agent == "fit":
            _execute([*COMMAND, "fit", "labels", "-n", "golden", "-s", "3"], environment)
        elif variant == "async":
            _execute([sys.executable, "-c", ASYNC_RUN, "teach", *flags], environment)
        else:
            teach = [*COMMAND, "teach", *flags]
            if variant == "resumed":
                _interrupt(teach, environment, experiment, STEPS[suite])
            _execute(teach, environment)
        if agent == "fit":
            metrics, arrays = {}, load_file(experiment / "predictor/predictor.safetensors")
            arrays = {f"predictor/{key}": each for key, each in arrays.items()}
        else:
            rows = output or (experiment / "metrics.jsonl").read_text()
            metrics, arrays = json.loads(rows.splitlines()[-1]), _final_arrays(experiment)
    found: dict[str, Any] = {
        "metrics": {key: each for key, each in metrics.items() if key not in WALL_TIME_METRICS}
    }
    if agent not in ("fit", "wrapper"):
        found["agent"] = digest(each for key, each in arrays.items() if key.startswith("agent/"))
    if variant != "rl":
        found["predictor"] = digest(each for key, each in arrays.items() if "predictor/" in key)
    return found


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Hash float32 arrays regardless of order and names, which a refactoring may change.

    Raises:
        ValueError: there are none.
    """
    hashes = [
        hashlib.sha256(str(each.shape).encode() + np.ascontiguousarray(each).tobytes()).digest()
        for each in arrays
        if each.dtype == np.float32 and each.ndim
    ]
    if not hashes:
        raise ValueError("the run has none of the arrays that were to be compared")
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
        f"{part} arrays: {expected.get(part, 'none')[:12]} -> {found.get(part, 'none')[:12]}"
        for part in ("agent", "predictor")
        if expected.get(part) != found.get(part)
    ]


def _flags(agent: str, suite: str, variant: str) -> list[str]:
    steps = STEPS_OFF_POLICY if agent.upper().endswith("SAC") else STEPS[suite]
    source = "rl" if variant == "rl" else "synth"
    flags = ["-e", ENVIRONMENTS[suite], "-a", agent, "-t", str(steps), "-s", "3"]
    flags += ["-n", "golden", "--no-tensorboard"]
    if variant == "collected":
        return [*flags, "--labels", "labels"]
    flags += ["-p", source]
    flags += ["-w", "1"] if suite == "MuJoCo" else []
    flags += ["--cluster", "local"] if variant == "cluster" else []
    if source == "synth":
        flags += LABELS
    # An agent that is shown early terminations cannot be reset.
    if variant in ("synth", "resumed") and suite not in ("CartPole", "Pong"):
        flags += ["--agent-reset", "0.5"]
    return flags


def _execute(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _interrupt(
    command: list[str], environment: Mapping[str, str], experiment: Path, num_steps: int
) -> None:
    """Run a command until its first checkpoint during training, then send it Ctrl-C."""
    process = subprocess.Popen(
        [*command, "--checkpoint-seconds", "0"],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None and _last_step(experiment) == 0:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.wait()
    if not 0 < _last_step(experiment) < num_steps:
        raise RuntimeError(f"the run was interrupted after {_last_step(experiment)} steps")


def _last_step(experiment: Path) -> int:
    paths = (experiment / "checkpoints").glob("*.safetensors")
    return max((int(path.name.split("-step-")[1].split("-")[0]) for path in paths), default=0)


def _final_arrays(experiment: Path) -> dict[str, np.ndarray]:
    checkpoints = (experiment / "checkpoints").glob("*.safetensors")
    return load_file(max(checkpoints, key=lambda path: path.name))


def main() -> int:
    """Run the selected golden runs, two at a time; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="replace the recorded results")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="run only those whose name contains one of the texts",
    )
    parser.add_argument("--processes", type=int, default=2, help="number of simultaneous runs")
    options = parser.parse_args()
    recorded = json.loads(GOLDEN_FILE.read_text()) if GOLDEN_FILE.exists() else {}
    selected = [name for name in names() if any(text in name for text in options.only)]
    num_different = 0
    with (
        tempfile.TemporaryDirectory() as cache,
        ThreadPoolExecutor(options.processes) as pool,
    ):
        for name, found in zip(
            selected, pool.map(lambda name: run(name, cache), selected), strict=True
        ):
            if options.renew and name not in EQUAL_RUNS:
                recorded[name] = found
                GOLDEN_FILE.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
                print(f"{name}: recorded", flush=True)
                continue
            lines = differences(recorded[EQUAL_RUNS.get(name, name)], found)
            num_different += bool(lines)
            print(
                f"{name}: {'equal' if not lines else 'DIFFERENT'}", *lines, sep="\n    ", flush=True
            )
    if not options.renew:
        print(f"{len(selected) - num_different} of {len(selected)} golden runs are equal")
    return int(num_different > 0)


if __name__ == "__main__":
    sys.exit(main())
