"""How JAX computes here: settings that must be made before it first does."""

import os
from pathlib import Path

XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
"""Tiny networks are faster on one thread each, and leave the other cores to the physics."""


def prepare(cache: Path | None = None) -> None:
    """Set XLA up for small networks on a CPU; flags that the user has set are left alone.

    Args:
        cache: a folder where compiled programs are kept, so that a second start is quicker;
            JAX_COMPILATION_CACHE_DIR has precedence.
    """
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
    import jax  # noqa: PLC0415 - heavy, and reads its settings

    if cache is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if cache is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
