"""Where the browser comes back to: one page on a loopback address, for as long as somebody signs in.

Opening the user's browser without letting it near the streams that a client listens to.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

from gateway.cli.failure import say

_HOST: Final = "127.0.0.1"

_PATH: Final = "/callback"

_HEAD: Final = 16 * 1024

_HEAD_SECONDS: Final = 10.0

_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Gatehouse</title>"
    "<p>{words}</p><p>You can close this window.</p></html>"
)


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """What the authorization server sent the browser back with."""

    state: str
    code: str = ""
    error: str = ""
    iss: str | None = None


class CallbackServer:
    """Listens once entered by `listening`. Knows nobody before `expect`."""

    def __init__(self) -> None:
        self.address = ""
        self._state = ""
        self._came: asyncio.Future[CallbackResult] = asyncio.get_running_loop().create_future()

    def expect(self, state: str) -> None:
        """From now on a return with this state is the one waited for; any other is sent away."""
        self._state = state
        if self._came.done():
            self._came = asyncio.get_running_loop().create_future()

    async def returned(self) -> CallbackResult:
        return await asyncio.shield(self._came)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer(head))
            await writer.drain()
        writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or target.path != _PATH:
            return _response("404 Not Found", "There is nothing here.")
        # A parameter that is there twice was put there by somebody else.
        query = {name: values[0] for name, values in parse_qs(target.query).items() if len(values) == 1}
        back = CallbackResult(query.get("state", ""), query.get("code", ""), query.get("error", ""), query.get("iss"))
        if not self._state or back.state != self._state or not (back.code or back.error):
            return _response("400 Bad Request", "Nobody waits for this.")
        if not self._came.done():
            self._came.set_result(back)
        # Whether it worked is known only when the code is redeemed.
        return _response("200 OK", "Gatehouse has taken over from here." if back.code else "You are not signed in.")


@asynccontextmanager
async def listening(ports: tuple[int, ...]) -> AsyncGenerator[CallbackServer]:
    """On the first of these ports that is free; 0 is any. Raises `OSError` when none is."""
    callback = CallbackServer()
    server = await _server(callback, ports)
    callback.address = f"http://{_HOST}:{server.sockets[0].getsockname()[1]}{_PATH}"
    try:
        yield callback
    finally:
        server.close()


async def _server(callback: CallbackServer, ports: tuple[int, ...]) -> asyncio.Server:
    *some, last = ports
    for port in some:
        with suppress(OSError):
            return await asyncio.start_server(callback.serve, _HOST, port, limit=_HEAD)
    return await asyncio.start_server(callback.serve, _HOST, last, limit=_HEAD)


def _response(status: str, words: str) -> bytes:
    body = _PAGE.format(words=words).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


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
