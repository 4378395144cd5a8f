"""Static HTML pages for errors and API documentation; they need no script."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape

from fastapi.responses import HTMLResponse

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 12vh auto; max-width: 60ch; padding: 0 1.5rem; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { overflow-x: auto; }
"""

STYLE_HASH = f"'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
"""Source expression with which a Content-Security-Policy allows exactly this style."""


def page(title: str, body: str, status: int, headers: Mapping[str, str]) -> HTMLResponse:
    """Build an HTML page.

    Args:
        title: Plain text.
        body: HTML; untrusted text must be escaped.
        status: HTTP status.
        headers: HTTP headers.
    """
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} - rl-teacher</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>",
        status,
        {"Cache-Control": "no-store", **headers},
    )


def unauthorized_page(why: str) -> HTMLResponse:
    """Return the page for requests without a valid credential."""
    body = (
        f"<p>{escape(why)}</p><p>Open the link that you were given, or that <code>rl-teacher teach"
        "</code> or <code>rl-teacher serve</code> printed in its terminal: it brings the key "
        "along, and this browser keeps it.</p>"
    )
    headers = {"WWW-Authenticate": 'Bearer realm="rl-teacher"'}
    return page("This page needs its key", body, 401, headers)


def rate_limited_page(wait_s: str) -> HTMLResponse:
    """Return the page for rate-limited requests, which reloads itself.

    Args:
        wait_s: Seconds to wait, as an integer.
    """
    body = (
        f"<p>More was asked for from here than is answered. This page tries again in {wait_s} s, "
        "by itself.</p>"
    )
    headers = {"Retry-After": wait_s, "Refresh": wait_s}
    return page("One moment", body, 429, headers)


def missing_build_page() -> HTMLResponse:
    """Return the page for a checkout in which the labelling page was not built."""
    body = (
        "<p>This is a checkout of rl-teacher in which the page was not built yet. Run "
        "<code>make page</code> there, and load this page again. An installed rl-teacher brings "
        "the page along.</p>"
    )
    return page("The page has not been built", body, 503, {})
