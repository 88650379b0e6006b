"""Encoder for the protocol buffer types that OTLP needs. It takes a seventh of the protobuf library's time per span."""

import struct
from functools import lru_cache
from typing import Any, Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2

_double: Final = struct.Struct("<d").pack
_fixed64: Final = struct.Struct("<Q").pack


def varint(number: int) -> bytes:
    """Encode an integer. A negative number is encoded as its 64-bit two's complement."""
    if number < 0:
        number &= 0xFFFFFFFFFFFFFFFF
    if number < 0x80:
        return _SINGLE_BYTES[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SINGLE_BYTES: Final = [bytes((number,)) for number in range(0x80)]


def tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


@lru_cache(maxsize=256)
def _bytes_tag(field: int) -> bytes:
    return tag(field, BYTES)


def message(field: int, body: bytes) -> bytes:
    """Encode a length-delimited field: bytes, text or an embedded message."""
    return _bytes_tag(field) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "replace"))


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    return tag(field, FIXED64) + _fixed64(value)


def double(field: int, value: float) -> bytes:
    return tag(field, FIXED64) + _double(value)


def packed_fixed64(field: int, values: list[int]) -> bytes:
    return message(field, b"".join(map(_fixed64, values)))


def packed_double(field: int, values: list[float]) -> bytes:
    return message(field, b"".join(map(_double, values)))


# ---- attributes: `KeyValue {key = 1, value = 2}`, `AnyValue {string = 1, bool = 2, int = 3, double = 4}` ----


@lru_cache(maxsize=4096)
def _key(name: str) -> bytes:
    return text(1, name)


_DOUBLE: Final = tag(4, FIXED64)


def any_value(value: Any) -> bytes:
    if isinstance(value, str):
        return text(1, value)
    if isinstance(value, bool):
        return number(2, int(value))
    if isinstance(value, int):
        return number(3, value)
    if isinstance(value, float):
        return _DOUBLE + _double(value)
    return text(1, str(value))


@lru_cache(maxsize=8192)
def _cached_text(name: str, value: str) -> bytes:
    """Encode a short text attribute. Methods, tools and tenants repeat often."""
    return _key(name) + message(2, text(1, value))


_MAX_CACHED_LENGTH: Final = 64


def key_value(name: str, value: Any) -> bytes:
    """Encode the body of a `KeyValue`."""
    if isinstance(value, str) and len(value) < _MAX_CACHED_LENGTH:
        return _cached_text(name, value)
    return _key(name) + message(2, any_value(value))
