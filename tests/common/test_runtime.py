"""Settings of JAX and NumPy."""

import subprocess
import sys

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
