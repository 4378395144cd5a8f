"""Circumstances of a measurement besides the code: machine, versions, commit, date."""

import functools
import hashlib
import os
import platform
import resource
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rl_teacher

PACKAGES = (
    *("rl-teacher", "jax", "jaxlib", "equinox", "optax"),
    *("mujoco", "mujoco-warp", "warp-lang", "gymnasium", "ale-py", "numpy"),
)
ROOT = Path(__file__).parent.parent


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def circumstances() -> dict[str, Any]:
    """Return the machine, the installed versions, and the present commit and source."""
    return {**_machine(), "commit": commit(), "source": source()}


@functools.cache
def _machine() -> dict[str, Any]:
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def cpu_model() -> str:
    """Return the processor name reported by the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    return ", ".join(sorted(models)) or "unknown"


def commit() -> str:
    """Return the commit, with a + if the source differs from it."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def source(package: Path = Path(rl_teacher.__file__).parent) -> str:
    """Return a digest of the package's Python files except those of the web service.

    It identifies the code that a run depends on: commits of text, results or the page leave it as
    it is, and uncommitted changes do not.
    """
    files = sorted(package.rglob("*.py"))
    lines = [
        f"{path.relative_to(package)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
        if path.relative_to(package).parts[0] != "web"
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def digest(*files: Path) -> str:
    """Return a digest of files outside the package that a run depends on."""
    return hashlib.sha256(b"\n".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def resident_mb(pid: int | None = None) -> float:
    """Return the resident memory of a process in MB, of this one by default.

    It is 0 of a process that has ended, and the peak of this one where the kernel does not report
    it.
    """
    try:
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0.0 if pid else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return int(pages) * resource.getpagesize() / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process in Linux, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
