"""Prepare the documentation for a site builder, and check the site: `make docs` runs both.

Copies the pages to `.site/pages`. A link from there to a file that is no page, such as an example,
leads to the repository, whose address is in pyproject.toml. `--check` lists the dead links of the
site that Zensical has built from them.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / ".site" / "pages", ROOT / ".site" / "html"
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


def dead_links() -> list[str]:
    """Return the relative links of the site that lead to no file or anchor."""
    texts = {path: path.read_text() for path in SITE.glob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\bid="?([^\s">]+)', text)) for path, text in texts.items()}
    dead = []
    for path, text in texts.items():
        for link in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            target = urlsplit(link)
            file = path.parent / unquote(target.path) if target.path else path
            is_site = not target.scheme and not target.netloc
            is_anchored = not target.fragment or unquote(target.fragment) in anchors.get(file, ())
            if is_site and not (file.exists() and is_anchored):
                dead.append(f"{path.name}: {link}")
    return dead


if __name__ == "__main__":
    if "--check" not in sys.argv:
        main()
    elif dead := dead_links():
        sys.exit("\n".join(["Dead links in .site/html:", *dead]))
