"""Check of a page by the rules of axe-core."""

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).parents[2] / "web-ui" / "node_modules" / "axe-core" / "axe.min.js"


def assert_accessible(page: Page) -> None:
    """Assert that a page, light and dark, violates no rule whose impact is serious or critical."""
    if not AXE.is_file():
        skip_or_fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        skip_or_fail(f"There is no axe-core ({AXE} is not there): cd web-ui && npm ci")
    page.evaluate(AXE.read_text())
    page.emulate_media(color_scheme="light")
    light = serious_violations(page, {})
    assert light == [], light
    # The schemes differ only in their colours.
    page.emulate_media(color_scheme="dark")
    dark = serious_violations(page, {"runOnly": ["color-contrast", "link-in-text-block"]})
    assert dark == [], dark


def serious_violations(page: Page, options: dict[str, Any]) -> list[str]:
    """Return the violations whose impact is serious or critical."""
    found = page.evaluate(
        "options => axe.run(document, { resultTypes: ['violations'], ...options })", options
    )
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
        if rule["impact"] in ("serious", "critical")
    ]
