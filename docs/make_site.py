"""Prepare the documentation for a site builder: `make docs` runs it, then Zensical.

Copies the pages to `.site/pages`. A link from there to a file that is no page, such as an example,
leads to the repository, whose address is in pyproject.toml.
"""

import re
import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / ".site" / "pages"
LINK = re.compile(r"\]\(\.\./([^)\s]+)\)")


def main() -> None:
    """Copy pages and images."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    repository = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", PAGES / "images")
    shutil.copy(ROOT / "docs" / "circus.html", PAGES)
    for page in (ROOT / "docs").glob("*.md"):
        text = LINK.sub(rf"]({repository}/blob/main/\1)", page.read_text())
        (PAGES / page.name).write_text(text)


if __name__ == "__main__":
    main()
