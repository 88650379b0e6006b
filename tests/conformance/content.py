"""Minimal content of each kind that the suite accepts."""

import base64
import struct
import zlib
from typing import Final

from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """One silent sample, 8 kHz mono."""
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    data = b"data" + struct.pack("<I", 2) + b"\x80\x80"
    return b"RIFF" + struct.pack("<I", 4 + len(form) + len(data)) + b"WAVE" + form + data


PNG: Final = base64.b64encode(_png()).decode()
WAV: Final = base64.b64encode(_wav()).decode()


def text_result(content: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=content)])


def image() -> ImageContent:
    return ImageContent(data=PNG, mime_type="image/png")


def embedded(uri: str, content: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=content))


def blob(uri: str) -> BlobResourceContents:
    return BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
