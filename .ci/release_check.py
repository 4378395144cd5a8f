"""Build wheel and sdist, and try the wheel in an empty environment without Node.

`make release-check` keeps them in dist. It refuses to build while there is a fault, such as a
placeholder for the address of the repository, or a version without an entry in the changelog.
`make wheel-check` keeps nothing, and such faults are only printed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATIC = "rl_teacher/web/static/"
SHORT_RUN = "-p synth -e ShortHopper-v1 -l 30 -t 8192 -n short --seed 1"
TAUGHT = "-p human -e ShortHopper-v1 -l 200 -L 25 -n mine --no-browser --port 0"


def main() -> int:
    """Run all checks; return 1 if there are faults."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    faults = faults_of(project, (ROOT / "CITATION.cff").read_text(), changelog())
    for fault in faults:
        print(f"fault: {fault}")
    is_release = "--keep-nothing" not in sys.argv
    if is_release and faults:
        print("No release was built.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "dist")
        run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", built)
        (sdist,) = built.iterdir()
        # From the sdist, so that this is tried, too.
        run(*pip(sys.executable), "wheel", "--no-deps", "--no-build-isolation", "-w", built, sdist)
        (wheel,) = built.glob("*.whl")
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
        assert not relative_links(wheel), relative_links(wheel)
        try_wheel(wheel, Path(folder))
        if is_release:
            shutil.copytree(built, ROOT / "dist", dirs_exist_ok=True)
            print(f"release: {wheel.name} and {sdist.name} in dist")
    return 0


def changelog() -> str:
    """Return the changelog."""
    return (ROOT / "CHANGELOG.md").read_text()


def faults_of(project: dict, citation: str, changes: str) -> list[str]:
    """Return what the metadata still needs before a release."""
    version = project["project"]["version"]
    address = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    faults = []
    if "OWNER" in address:
        faults.append(
            f"{address} is a placeholder. Write the address of the repository to pyproject.toml."
        )
    if f"\nversion: {version}\n" not in citation:
        faults.append(f"CITATION.cff has another version than pyproject.toml, {version}.")
    if f"\n## [{version}]" not in changes:
        faults.append(f"CHANGELOG.md has no heading [{version}]. Rename [Unreleased].")
    return faults


def relative_links(wheel: Path) -> list[str]:
    """Return the links of the long description that work only in the repository."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    return re.findall(r"\]\((?!\w+:|#)([^)\s]*)", text)


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install a wheel into an empty environment without Node, run it, and open all of its page."""
    home, python = folder / "home", folder / "venv" / "bin" / "python"
    environment = {
        "PATH": str(python.parent),
        "HOME": str(folder),
        "RL_TEACHER_HOME": str(home),
        # Where pip finds packages and certificates.
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }
    run(sys.executable, "-m", "venv", folder / "venv")
    seconds = run(*pip(python), "install", wheel, env=environment)
    size = sum(path.lstat().st_size for path in (folder / "venv").rglob("*") if path.is_file())
    print(f"installed in {seconds:.0f} s, {size / 1e9:.2f} GB")
    program = python.with_name("rl-teacher")
    names = [each for each in zipfile.ZipFile(wheel).namelist() if each.startswith(STATIC)]
    assets = [name.removeprefix(STATIC) for name in names if not name.endswith((".gz", ".html"))]
    seconds = first_comparison_s(program, environment, assets)
    print(f"first comparison after {seconds:.1f} s; {len(assets)} assets opened")
    print(f"short run: {run(program, 'teach', *SHORT_RUN.split(), env=environment):.1f} s")


def first_comparison_s(program: Path, environment: dict[str, str], assets: list[str]) -> float:
    """Return the seconds from the start of a run to its first comparison; open the whole page."""
    start_s, home = time.monotonic(), Path(environment["RL_TEACHER_HOME"])
    with subprocess.Popen(
        [program, "teach", *TAUGHT.split()], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            found = (re.search(r"https?://[\w.]+:\d+", line) for line in lines)
            address = next(match[0] for match in found if match)
            token = (home / "access-token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{address}/api/v1/experiments/mine/comparisons/next"
            while not json.loads(get(url, headers))["comparisons"]:
                time.sleep(0.05)
            seconds = time.monotonic() - start_s
            for path in ("", *assets):
                assert get(f"{address}/{path}", headers)
        finally:
            process.terminate()
            process.communicate()
    return seconds


def get(url: str, headers: dict[str, str]) -> bytes:
    """Return the content of an address."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
        return response.read()


def pip(python: Path | str) -> list[Path | str]:
    """Return the command of pip of an interpreter."""
    return [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def run(*command: Path | str, env: dict[str, str] | None = None) -> float:
    """Run a command; return its seconds, or exit with its output if it fails."""
    start_s = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout.decode()}\nfault: {' '.join(map(str, command))} failed.")
    return time.monotonic() - start_s


if __name__ == "__main__":
    sys.exit(main())
