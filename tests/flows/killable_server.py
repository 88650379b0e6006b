"""A server process that a test can kill and restart on the same port."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.flows.process import ROOT, TIMEOUT, environment


class KillableServer:
    """Runs `python ARGUMENTS PORT`, which must listen on that port of 127.0.0.1."""

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
        """Launch the process and wait until it listens."""
        self.launch()
        await self.wait_until_listening()

    async def wait_until_listening(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not self._is_listening():
                await asyncio.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def killable_server(*arguments: str) -> Iterator[KillableServer]:
    server = KillableServer(*arguments)
    try:
        yield server
    finally:
        server.kill()
