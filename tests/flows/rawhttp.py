"""A raw HTTP client that can send malformed requests."""

import json
import socket
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]
Headers = list[tuple[bytes, bytes]]

TIMEOUT: Final = 10.0


@dataclass(frozen=True)
class Answer:
    """A response; `status` is None when the server closed the connection without one."""

    status: int | None
    headers: dict[str, str]
    body: bytes

    def messages(self) -> list[Any]:
        """The JSON messages of the response: its body, or the data of each event."""
        if not self.body:
            return []
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line[5:].strip() for line in self.body.split(b"\n") if line.startswith(b"data:")]
            return [json.loads(line) for line in lines if line]
        return [json.loads(self.body)] if "json" in self.headers.get("content-type", "") else []


def request(verb: bytes, path: bytes, headers: Headers, body: bytes = b"") -> bytes:
    head = b"%s %s HTTP/1.1\r\n" % (verb, path)
    return head + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n" + body


def exchange(port: int, sent: bytes, *, whole: bool = True) -> Answer:
    """Send the bytes and read the first response. If they are not a `whole` request, close the sending side."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as sock:
        try:
            sock.sendall(sent)
            if not whole:
                sock.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # rejected before everything was sent; the response can still be read
        status, headers, body = _read(sock, bodiless=sent.startswith(b"HEAD "))
    return Answer(status, headers, body)


def _read(sock: socket.socket, *, bodiless: bool) -> tuple[int | None, dict[str, str], bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        part = _receive(sock)
        if not part:
            assert not received, f"half a head: {received!r}"
            return None, {}, b""
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in map(_header, lines)}
    status = int(first.split(b" ")[1])
    if bodiless:
        return status, headers, b""
    if "content-length" in headers:
        while len(body) < int(headers["content-length"]):
            part = _receive(sock)
            assert part, "half a body"
            body += part
    elif headers.get("content-type", "").startswith("text/event-stream"):
        # A stream may never end: read only its first event.
        while b"\n\n" not in body.replace(b"\r\n", b"\n") and (part := _receive(sock)):
            body += part
        body = _unchunked(body)
    return status, headers, body


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.strip()


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionError:
        return b""


def _unchunked(body: bytes) -> bytes:
    """Keep only event lines, which removes the chunk sizes."""
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    return b"\n".join(line for line in lines if line.startswith((b"data:", b"event:", b"id:", b":", b"retry:")))
