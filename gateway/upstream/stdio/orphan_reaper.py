"""Sees to it that no server outlives the gateway, nor what a server started, even when the gateway is killed.

The kernel ends a child with its parent (`wrap.py`), but not the child's children, and launchers such as npx have some.
"""

import subprocess
import sys
from contextlib import suppress
from typing import Final

from gateway.upstream.stdio import orphan_reaper_main

CLOSE_SECONDS: Final = 2.0


class OrphanReaper:
    """One small process beside the gateway, started with the first server."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def mind(self, group: int) -> None:
        """End that process group when the gateway is gone."""
        self._groups.add(group)
        if self._process is None or not self._say(b"+%d\n" % group):
            self._start()

    def let_go(self, group: int) -> None:
        """It has ended: its number may soon be another's."""
        if group in self._groups:
            self._groups.discard(group)
            self._say(b"-%d\n" % group)

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
        self._process = subprocess.Popen(  # noqa: S603  # nothing of it comes from outside
            [sys.executable, "-I", "-S", orphan_reaper_main.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for group in self._groups:
            self._say(b"+%d\n" % group)

    def _say(self, line: bytes) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            return False
        return True
