"""Declining an upgrade: the request goes on as plain HTTP/1.1, as RFC 9110 has it."""

from typing import Final

from gateway.edge.bounds import RawHeaders

_OF_THE_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings", b"connection"})


def plain_head(method: bytes, url: bytes, version: str, headers: RawHeaders) -> bytes:
    """The same head without its upgrade. The parser ends a message at an upgrade, whatever body it announced."""
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    lines += [name + b": " + value for name, value in headers if name not in _OF_THE_UPGRADE]
    if any(name == b"connection" and b"close" in value.lower() for name, value in headers):
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])
