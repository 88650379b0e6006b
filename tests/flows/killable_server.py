"""A server in a process of its own that a test may kill, and start again at the same port."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.flows.process import PATIENCE, ROOT, environment


class Program:
    """`python ARGUMENTS PORT`, which listens on that port of 127.0.0.1."""

    def __init__(self, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._command = [sys.executable, *arguments, str(self.port)]
        self._process: subprocess.Popen[bytes] | None = None
        self.launch()

    def launch(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=environment())

    async def start(self) -> None:
        """Run it, and wait until it listens."""
        self.launch()
        await self.listens()

    async def listens(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self._answers():
                await asyncio.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, sign: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(sign)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def program(*arguments: str) -> Iterator[Program]:
    made = Program(*arguments)
    try:
        yield made
    finally:
        made.kill()
