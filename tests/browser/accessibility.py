"""Check of a page by the rules of axe-core."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).parents[2] / "web-ui" / "node_modules" / "axe-core" / "axe.min.js"


def assert_accessible(page: Page) -> None:
    """Assert that a page violates no rule whose impact is serious or critical."""
    if not AXE.is_file():
        skip_or_fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        skip_or_fail(f"There is no axe-core ({AXE} is not there): cd web-ui && npm ci")
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert serious == []
