"""Opening the user's browser without letting it near the streams that a client listens to."""

import subprocess
import sys
from typing import Final

from gateway.cli.failure import say

_OPEN: Final = "import sys, webbrowser; webbrowser.open(sys.argv[1])"


def open_page(address: str) -> None:
    """Show it, and say where it is: that a browser was started does not mean that somebody sees it."""
    say(f"to sign in, visit {address}")
    # In a process of its own: what a browser writes would be taken for messages, and some stay until they are closed.
    subprocess.Popen(  # noqa: S603 - no shell, and the address was checked
        [sys.executable, "-I", "-c", _OPEN, address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
