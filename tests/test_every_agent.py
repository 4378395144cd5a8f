"""End-to-end tests of every agent: teach, kill, resume and play."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import pytest

from tests.test_teach import curve, saved_step, wait_for_checkpoint

COMMAND = str(Path(sys.executable).with_name("rl-teacher"))
STEPS = {"sac": 6_000, "sb3:SAC": 3_000}
"""Fewer steps for off-policy agents, which fit many batches per step."""
OWN = "custom_agent:CrossEntropy"


def environment():
    """Return environment variables without a display and with the examples importable."""
    hidden = {"DISPLAY", "WAYLAND_DISPLAY"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    found = [str(Path(__file__).parents[1] / "examples"), os.environ.get("PYTHONPATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, found))}


def start(agent, name):
    """Start `rl-teacher teach` in a process."""
    flags = {
        "-p": "synth",
        "-e": "ShortReacher-v1",
        "-l": "40",
        "--agent-reset": "0.5",
        "-t": str(STEPS.get(agent, 40_000)),
        "-a": agent,
        "-n": name,
        "--checkpoint-seconds": "0.3",
    }
    arguments = [word for pair in flags.items() for word in pair]
    return subprocess.Popen(
        [COMMAND, "teach", *arguments, "--no-tensorboard"],
        env=environment(),
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent", ["ppo", "trpo", "a2c", "ga3c", "sac", "sb3:PPO", "sb3:TRPO", "sb3:SAC", OWN]
)
def test_killed_run_resumes_exactly_and_plays_without_display(agent, tmp_path):
    assert start(agent, "whole").wait(timeout=600) == 0
    rng = random.Random(0)
    for _ in range(2):
        before, process = saved_step("killed"), start(agent, "killed")
        wait_for_checkpoint("killed", before)
        time.sleep(rng.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run finished before it was killed"
    assert start(agent, "killed").wait(timeout=600) == 0
    assert curve("killed") == curve("whole")

    path = tmp_path / "played.mp4"
    play = [COMMAND, "play", "killed", "--video", str(path), "--episodes", "1"]
    subprocess.run(play, env=environment(), check=True, timeout=300)
    with av.open(str(path), mode="r") as file:
        frames = [each.to_ndarray(format="rgb24").astype(int) for each in file.decode(video=0)]
    assert len(frames) > 20
    assert abs(frames[0] - frames[-1]).max() > 60
