"""Virtual environments of the peers, created on first use.

`peers/<name>.txt` lists the requirements. Each paragraph is one call of pip, so that build
dependencies are installed first.
"""

import fcntl
import hashlib
import subprocess
import venv
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE / "peers"
ENVIRONMENTS = HERE.parent / ".venv-peers"


def peer_command(name: str, script: str) -> list[str]:
    """Return the command that runs a script of `peers/`; create its environment if needed."""
    return [str(ready_python(name)), str(PEERS / script)]


def ready_python(name: str) -> Path:
    """Return the interpreter of a peer's environment with everything installed."""
    requirements = (PEERS / f"{name}.txt").read_text()
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    installed = folder / f".installed-{hashlib.sha256(requirements.encode()).hexdigest()[:12]}"
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Of simultaneous runs, by threads or processes, one installs and the others wait.
    with (ENVIRONMENTS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            print(f"setting up {folder}", flush=True)
            venv.create(folder, with_pip=True, clear=True)
            for specifiers in pip_calls(requirements):
                install(python, specifiers)
            installed.touch()
    return python


def install(python: Path, specifiers: list[str]) -> None:
    """Run pip once."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *specifiers], check=True)


def pip_calls(requirements: str) -> list[list[str]]:
    """Parse the requirements of each pip call: the paragraphs, without comments."""
    calls: list[list[str]] = [[]]
    for line in map(str.strip, requirements.splitlines()):
        if not line:
            calls.append([])
        elif not line.startswith("#"):
            calls[-1].append(line)
    return [call for call in calls if call]
