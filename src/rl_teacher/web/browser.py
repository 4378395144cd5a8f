"""Opening a page in the web browser."""

import os
import sys
import webbrowser


def open_in_browser(url: str) -> bool:
    """Open a page in a graphical browser and return whether that was possible.

    Without a display, a text browser would take over the terminal.
    """
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        return has_screen and webbrowser.open(url)
    except webbrowser.Error:
        return False
