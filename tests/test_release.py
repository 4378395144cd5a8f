"""Tests of the package metadata and of the checks before a release."""

import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[a](docs/a.md#b)", "[a](https://host/r/blob/main/docs/a.md#b)"),
        ("![a](docs/a.png)", "![a](https://host/r/raw/main/docs/a.png)"),
        ("[a](https://b.org/c)", "[a](https://b.org/c)"),
        ("[a](#b)", "[a](#b)"),
    ],
)
def test_link_of_long_description_is_absolute(link, shown):
    with_absolute_links = runpy.run_path(str(ROOT / "hatch_build.py"))["with_absolute_links"]
    assert with_absolute_links(link, "https://host/r") == shown


@pytest.mark.parametrize(
    ("address", "citation", "changes", "fault"),
    [
        ("https://host/OWNER/r", "\nversion: 1.0\n", "\n## [1.0]", "placeholder"),
        ("https://host/me/r", "\nversion: 0.9\n", "\n## [1.0]", "CITATION"),
        ("https://host/me/r", "\nversion: 1.0\n", "\n## [Unreleased]", "CHANGELOG"),
    ],
)
def test_release_with_incomplete_metadata_is_refused(address, citation, changes, fault):
    hooks = {"hooks": {"custom": {"repository": address}}}
    project = {"project": {"version": "1.0"}, "tool": {"hatch": {"metadata": hooks}}}
    faults_of = runpy.run_path(str(ROOT / ".ci" / "release_check.py"))["faults_of"]
    [found] = faults_of(project, citation, changes)
    assert fault in found


def test_address_of_repository_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    address = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    files = [*ROOT.glob("*.*"), *(ROOT / "docs").glob("*.md"), *(ROOT / ".github").rglob("*.y*ml")]
    found = [path.name for path in files if path.is_file() and address in path.read_text("utf-8")]
    assert found == ["pyproject.toml"]
