"""Slow clients are disconnected at the timeout while a healthy client is served."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

import httpx
import pytest

from tests.flows.process import HANDSHAKE, Served, modern, modern_headers, serving, until, write_settings

HEADER, BODY, WRITE = 0.6, 1.2, 0.6
TOLERANCE: Final = 2.0
"""Seconds for the timer resolution and a busy machine."""
CLIENTS: Final = 50
PIECE: Final = "x" * 100_000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("slow")
    bounds = {"header_timeout": HEADER, "body_timeout": BODY, "write_timeout": WRITE}
    write_settings(
        folder,
        backends={"plain": {"module": "tests.flows.fixtures.plain"}},
        limits={"calls": "1000000/minute"},
        server=bounds,
    )
    with serving(folder) as served:
        yield served


@contextmanager
def healthy_client(target: Served) -> Iterator[None]:
    """Run a client that calls continuously on one connection and gets every response within a second."""
    finished = threading.Event()
    params = {"name": "plain_echo", "arguments": {"text": "hi"}}
    headers = {"authorization": f"Bearer {target.key}", "accept": "application/json, text/event-stream"}

    def keep_calling() -> int:
        answered = 0
        with httpx.Client(
            verify=False, timeout=1, trust_env=False, headers=headers | modern_headers("tools/call", params)
        ) as http:
            while not finished.is_set():
                answer = http.post(target.url, json=modern("tools/call", params))
                assert answer.json()["result"]["structuredContent"] == {"result": "hi"}
                answered += 1
        return answered

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(keep_calling)
        try:
            yield
        finally:
            finished.set()
        assert calling.result() > 5


def connect(target: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.port), 10)


def send_slowly(target: Served, start: bytes, piece: bytes, every: float) -> tuple[bytes, float]:
    """Send `start`, then a piece at each interval, until the server closes. Returns its response and the seconds."""
    began = monotonic()
    with connect(target) as sock:
        sock.sendall(start)
        sock.settimeout(every)
        received = b""
        while monotonic() - began < 10:
            try:
                part = sock.recv(65536)
            except TimeoutError:
                if not received:
                    with suppress(ConnectionError):  # disconnected already: the answer is there to read
                        sock.sendall(piece)
                continue
            except ConnectionError:
                break
            if not part:
                break
            received += part
        return received, monotonic() - began


def post_head(target: Served, length: int) -> bytes:
    lines = (
        b"POST /mcp HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Authorization: Bearer " + target.key.encode(),
        b"Content-Type: application/json",
        b"Content-Length: %d" % length,
    )
    return b"\r\n".join(lines) + b"\r\n\r\n"


def test_threat_24_slow_headers_time_out_while_a_healthy_client_is_served(target: Served) -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
    with healthy_client(target), ThreadPoolExecutor(CLIENTS) as pool:
        disconnected = list(pool.map(lambda _: send_slowly(target, head, b"a", 0.2), range(CLIENTS)))
    assert {answer.split(b"\r\n")[0] for answer, _ in disconnected} == {b"HTTP/1.1 408 Request Timeout"}
    assert (
        max(took for _, took in disconnected) < HEADER + TOLERANCE + 2
    )  # the server may keep reading for its linger time
    assert min(took for _, took in disconnected) > HEADER / 2


def test_threat_24_slow_body_times_out_while_a_healthy_client_is_served(target: Served) -> None:
    with healthy_client(target):
        answer, took = send_slowly(target, post_head(target, 5000), b" ", 0.2)
    assert answer.startswith(b"HTTP/1.1 408")
    assert BODY / 2 < took < BODY + TOLERANCE + 2


def test_threat_24_silent_connection_is_closed(target: Served) -> None:
    with healthy_client(target):
        _, took = send_slowly(target, b"", b"", 0.2)
    assert took < HEADER + TOLERANCE


def test_threat_24_client_that_does_not_read_responses_is_disconnected(target: Served) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain_echo","arguments":{"text":"%s"}}}'
    body = body % PIECE.encode()
    session = target.initialize().encode()
    extra = b"Mcp-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n\r\n" % (HANDSHAKE.encode(), session)
    request = post_head(target, len(body)).removesuffix(b"\r\n") + extra + body
    with healthy_client(target), socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", target.port))
        sock.setblocking(False)
        sent = bytearray(request * 200)
        began = monotonic()

        def disconnected() -> bool:
            """Send more requests without reading a response."""
            try:
                del sent[: sock.send(sent)]
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
            return False

        until(disconnected, "the connection is cut", 10)
        assert monotonic() - began < WRITE + TOLERANCE + 2
