"""OAuth callback on a loopback address, and opening of the user's browser."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

from gateway.cli.failure import print_stderr

_HOST: Final = "127.0.0.1"
_PATH: Final = "/callback"
_MAX_HEAD: Final = 16 * 1024
_HEAD_SECONDS: Final = 10.0

_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Gatehouse</title>"
    "<p>{text}</p><p>You can close this window.</p></html>"
)


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """Parameters of the redirect from the authorization server."""

    state: str
    code: str = ""
    error: str = ""
    iss: str | None = None


class CallbackServer:
    """Receives one redirect. It rejects every redirect before `expect`."""

    def __init__(self) -> None:
        self.url = ""
        self._state = ""
        self._result: asyncio.Future[CallbackResult] = asyncio.get_running_loop().create_future()

    def expect(self, state: str) -> None:
        """Accept the redirect with this state; reject all others."""
        self._state = state
        if self._result.done():
            self._result = asyncio.get_running_loop().create_future()

    async def wait(self) -> CallbackResult:
        return await asyncio.shield(self._result)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._handle(head))
            await writer.drain()
        writer.close()

    def _handle(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or target.path != _PATH:
            return _response("404 Not Found", "Not found.")
        # A repeated parameter is a sign of manipulation and is ignored.
        query = {name: values[0] for name, values in parse_qs(target.query).items() if len(values) == 1}
        result = CallbackResult(query.get("state", ""), query.get("code", ""), query.get("error", ""), query.get("iss"))
        if not self._state or result.state != self._state or not (result.code or result.error):
            return _response("400 Bad Request", "No sign-in is waiting for this response.")
        if not self._result.done():
            self._result.set_result(result)
        # The page cannot report success: the code is exchanged later.
        return _response("200 OK", "Gatehouse received the sign-in." if result.code else "You are not signed in.")


@asynccontextmanager
async def serve_callback(ports: tuple[int, ...]) -> AsyncGenerator[CallbackServer]:
    """Run a callback server on the first free port; 0 is any. Raises `OSError` if no port is free."""
    callback = CallbackServer()
    server = await _server(callback, ports)
    callback.url = f"http://{_HOST}:{server.sockets[0].getsockname()[1]}{_PATH}"
    try:
        yield callback
    finally:
        server.close()


async def _server(callback: CallbackServer, ports: tuple[int, ...]) -> asyncio.Server:
    *preferred, last = ports
    for port in preferred:
        with suppress(OSError):
            return await asyncio.start_server(callback.serve, _HOST, port, limit=_MAX_HEAD)
    return await asyncio.start_server(callback.serve, _HOST, last, limit=_MAX_HEAD)


def _response(status: str, text: str) -> bytes:
    body = _PAGE.format(text=text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


_OPEN: Final = "import sys, webbrowser; webbrowser.open(sys.argv[1])"


def open_browser(address: str) -> None:
    """Open the browser and print the URL, in case no browser appears."""
    print_stderr(f"to sign in, visit {address}")
    # A separate process: output of the browser must not reach our streams, and some browsers do not return.
    subprocess.Popen(  # noqa: S603 - no shell, and the address was checked
        [sys.executable, "-I", "-c", _OPEN, address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
