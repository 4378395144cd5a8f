"""Throughput paired with another checkout: `python -m benchmarks.paired ../other [--rounds 5]`.

The same commands run in both checkouts, each with the interpreter of its own `.venv`, in turn.
Processor time depends less on other programs than wall time does.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]
RUNS = {
    "rl": "-p rl -e Hopper-v1 -t 400000",
    "synth -l 700": "-p synth -l 700 -e Hopper-v1 -t 400000",
    "Pong": "-p rl -e Pong-v0 -t 20000",
}


def measure(checkout: Path, flags: str, compiled: Path) -> tuple[float, float]:
    """Run `teach` in a checkout; return its processor time and wall time in seconds."""
    with tempfile.TemporaryDirectory() as home:
        command = [checkout / ".venv/bin/python", "-m", "rl_teacher", "teach", *flags.split()]
        own = {"RL_TEACHER_HOME": home, "HOME": home, "JAX_COMPILATION_CACHE_DIR": str(compiled)}
        began_s = time.perf_counter()
        process = subprocess.Popen(
            [*command, "-n", "paired", "--no-tensorboard", "-s", "1"],
            cwd=checkout,
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{checkout}: teach {flags} ended with status {status}")
        return used.ru_utime + used.ru_stime, time.perf_counter() - began_s


def main() -> None:
    """Print the processor time of both checkouts, and the medians of their ratios in pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path, help="checkout with a .venv, such as of main")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of each run")
    parser.add_argument("--only", nargs="+", default=list(RUNS), choices=RUNS, help="runs")
    options = parser.parse_args()
    sides = (HERE, options.other.resolve())
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            pairs = []
            for number in range(options.rounds + 1):
                order = sides if number % 2 else sides[::-1]
                used = {
                    side: measure(side, RUNS[name], Path(folder, str(sides.index(side))))
                    for side in order
                }
                pairs.append([used[side] for side in sides])
            # The first pair compiles.
            cpu, wall = (median(ours[i] / other[i] for ours, other in pairs[1:]) for i in (0, 1))
            print(f"{name}: {cpu:.3f}x the processor time, {wall:.3f}x the wall time")


if __name__ == "__main__":
    main()
