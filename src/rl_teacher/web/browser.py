"""Opening a page in the web browser."""

import os
import sys
import webbrowser


def open_in_browser(url: str) -> bool:
    """Open a page where a person sits in front of a screen; whether that was done.

    Note: without a screen, a browser for terminals would take this terminal over.
    """
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        return has_screen and webbrowser.open(url)
    except webbrowser.Error:
        return False
