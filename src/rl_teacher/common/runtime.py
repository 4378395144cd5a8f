"""Process-wide set-up: JAX, memory allocation, and signals."""

import _thread
import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false"
"""Small networks are faster on one thread, and leave the other cores to the physics."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`, from malloc.h."""
KEPT_BYTES = 1 << 28
"""Freed memory that the process keeps at the top of its heap."""
LARGE_BYTES = 1 << 26
"""Larger arrays are returned to the system at once; a rollout of images takes 58 MB."""
REPEAT_AFTER_S = 0.1
"""Time after which an ignored Ctrl-C is repeated, enough for a collection of garbage to end."""


def prepare(cache: Path | None = None, num_threads: int | None = None) -> None:
    """Configure XLA for small networks on a CPU, unless the user has set XLA_FLAGS.

    Args:
        cache: folder of the compilation cache, which makes a second start faster;
            JAX_COMPILATION_CACHE_DIR has precedence.
        num_threads: threads of XLA, unless the user has set PJRT_NPROC; None: one per core.
    """
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
    if num_threads is not None:
        os.environ.setdefault("PJRT_NPROC", str(num_threads))
    keep_freed_memory()
    import jax  # noqa: PLC0415 - heavy, and reads its settings

    if cache is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if cache is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        # By default JAX caches only what takes a second to compile; small networks take less.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@functools.cache
def executor(name: str) -> ThreadPoolExecutor:
    """Return threads for compiled calls, which release the GIL: as many as XLA has."""
    num_threads = int(os.environ.get("PJRT_NPROC", os.cpu_count() or 1))
    return ThreadPoolExecutor(num_threads, thread_name_prefix=name)


def prefer_cpu() -> None:
    """Let JAX compute on the CPU even if there is a GPU, unless the user has set JAX_PLATFORMS.

    Call this before the first computation. Small networks are slower on a GPU, see
    docs/environments.md.
    """
    if "JAX_PLATFORMS" not in os.environ:
        import jax  # noqa: PLC0415 - heavy

        jax.config.update("jax_platforms", "cpu")


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for later arrays.

    The system maps and clears memory that is new to the process page by page. With this setting, a
    run on images has a fifth of the page faults.

    Returns:
        True if the setting was made; False with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES))


@contextlib.contextmanager
def handled_signals(
    handler: Callable[[int, FrameType | None], Any], *numbers: int
) -> Iterator[None]:
    """Handle signals with a function within the context; only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def repeated_interrupts() -> Iterator[None]:
    """Repeat a Ctrl-C within the context where Python ignores its KeyboardInterrupt.

    Python ignores exceptions in finalisers and in callbacks of the garbage collection. JAX has such
    a callback, and a Ctrl-C during a collection is raised in it.
    """
    earlier = sys.unraisablehook

    def on_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            earlier(unraisable)
            return
        # Later, and from another thread, because it would be ignored here, too.
        timer = threading.Timer(REPEAT_AFTER_S, _thread.interrupt_main)
        timer.daemon = True
        timer.start()

    sys.unraisablehook = on_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = earlier


@contextlib.contextmanager
def blocked_interrupts() -> Iterator[None]:
    """Block Ctrl-C in the processes and threads that are started within the context.

    It reaches all processes of a terminal, but it is for the parent to stop the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def sigterm_interrupts() -> contextlib.AbstractContextManager[None]:
    """Raise KeyboardInterrupt at SIGTERM, as at Ctrl-C, within the context."""
    return handled_signals(signal.default_int_handler, signal.SIGTERM)


@contextlib.contextmanager
def stop_requests(stop: threading.Event) -> Iterator[None]:
    """Set an event at the first Ctrl-C or SIGTERM; a second one interrupts at once."""

    def on_signal(number: int, frame: object) -> None:  # noqa: ARG001
        stop.set()
        # The next signal of this kind raises KeyboardInterrupt.
        signal.signal(number, signal.default_int_handler)

    with handled_signals(on_signal, signal.SIGINT, signal.SIGTERM):
        yield
