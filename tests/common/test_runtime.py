"""Settings of JAX and NumPy."""

import gc
import subprocess
import sys
import time

import jax
import pytest

from rl_teacher.common import runtime
from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.teach import teach

PROGRAM = """
import resource
import numpy as np
from rl_teacher.common.runtime import keep_freed_memory

assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(50_000_000, np.uint8)
before = faults()
for _ in range(5):
    np.ones(50_000_000, np.uint8)
print(faults() - before)
"""


def test_freed_memory_of_large_array_is_reused():
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    # Five arrays of 50 MB span 61,000 pages.
    assert int(said) < 1_000


THREADS = """
from pathlib import Path
from rl_teacher.common.runtime import prepare

prepare(num_threads=1)
import jax
jax.jit(lambda a: a @ a)(jax.numpy.ones((9, 9))).block_until_ready()
from rl_teacher.common.runtime import executor
names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
print(sum("XLAEigen" in name for name in names), executor("fit")._max_workers)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_networks_have_as_many_threads_as_given():
    said = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True
    ).stdout
    assert said.split() == ["1", "1"]


@pytest.mark.parametrize(("platforms", "changes"), [(None, ["cpu"]), ("cuda", [])])
def test_cpu_is_preferred_unless_platforms_are_set(platforms, changes, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if platforms is not None:
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
    made = []
    monkeypatch.setattr(jax.config, "update", lambda _, value: made.append(value))
    runtime.prefer_cpu()
    assert made == changes


@pytest.mark.parametrize(
    ("env_id", "physics", "calls"),
    [("Hopper-v5", "cpu", 1), ("Hopper-v5", "warp", 0), ("MovingDot-v0", "cpu", 0)],
)
def test_gpu_is_used_for_images_and_gpu_physics(env_id, physics, calls, monkeypatch):
    made = []
    monkeypatch.setattr(runtime, "prefer_cpu", lambda: made.append(None))

    def stop(*_):
        raise BadInput("far enough")

    monkeypatch.setattr("rl_teacher.preparation.check_machine", stop)
    with pytest.raises(BadInput, match="far enough"):
        teach(TeachConfig(env_id, predictor="rl", name="x", physics=physics))
    assert len(made) == calls


@pytest.mark.slow
def test_interrupt_that_python_ignores_is_repeated():
    def interrupt_once(*_):
        gc.callbacks.remove(interrupt_once)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), runtime.repeated_interrupts():  # noqa: PT012
        gc.callbacks.append(interrupt_once)
        gc.collect()
        time.sleep(10)


def test_other_ignored_exceptions_are_reported_as_before(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))

    class Faulty:
        def __del__(self):
            raise ValueError

    with runtime.repeated_interrupts():
        Faulty()
    assert reported == [ValueError]
