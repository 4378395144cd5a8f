"""How JAX and NumPy compute here: settings that must be made before they first do."""

import ctypes
import os
import sys
from pathlib import Path

XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
"""Tiny networks are faster on one thread each, and leave the other cores to the physics."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's `mallopt`."""
KEPT_BYTES = 1 << 28
"""Of freed memory, at the end of what the process has."""
LARGE_BYTES = 1 << 26
"""Larger arrays than this go back to the system at once; a rollout of pictures is 58 MB."""


def prepare(cache: Path | None = None) -> None:
    """Set XLA up for small networks on a CPU; flags that the user has set are left alone.

    Args:
        cache: a folder where compiled programs are kept, so that a second start is quicker;
            JAX_COMPILATION_CACHE_DIR has precedence.
    """
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
    keep_freed_memory()
    import jax  # noqa: PLC0415 - heavy, and reads its settings

    if cache is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if cache is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def keep_freed_memory() -> bool:
    """Let glibc keep some of what is freed, for the arrays to come.

    Memory that is new to the process is mapped and wiped by the system page by page. With this, a
    run on pictures has a fifth of the page faults.

    Returns:
        Whether it does; other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES))
