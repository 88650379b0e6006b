"""Kills the child processes of servers when the gateway ends, even if the gateway itself is killed.

The kernel kills a direct child with its parent (`child_launcher.py`), but not the children of that child, which
launchers such as npx have.
"""

import subprocess
import sys
from contextlib import suppress
from typing import Final

from gateway.upstream.stdio import orphan_reaper_main

CLOSE_SECONDS: Final = 2.0


class OrphanReaper:
    """Controls the reaper process, which starts with the first registered server."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def register(self, group: int) -> None:
        """Kill that process group when the gateway ends."""
        self._groups.add(group)
        if self._process is None or not self._write_line(b"+%d\n" % group):
            self._start()

    def unregister(self, group: int) -> None:
        """Remove a process group that has ended: the system may reuse its number."""
        if group in self._groups:
            self._groups.discard(group)
            self._write_line(b"-%d\n" % group)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = subprocess.Popen(  # noqa: S603  # no external input
            [sys.executable, "-I", "-S", orphan_reaper_main.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for group in self._groups:
            self._write_line(b"+%d\n" % group)

    def _write_line(self, line: bytes) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            return False
        return True
