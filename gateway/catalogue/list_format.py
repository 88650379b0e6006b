"""How views name, page, cache and present their items."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from gateway.errors import Fault, Kind

ToolsView = Literal["list", "search", "auto"]


class CursorCodec(Protocol):
    """Encodes a page number as the cursor that clients send back."""

    def mint(self, method: str, page: int) -> str: ...

    def read(self, method: str, cursor: str) -> int:
        """Decode a cursor. Raises `Fault` if it was not issued for this method."""
        ...


@dataclass(frozen=True, slots=True)
class ListFormat:
    """How views name, page and cache their items; the same for every view."""

    max_length: int = 64
    client_prefix_budget: int = 16
    deadline: float = 60.0
    page_size: int = 100
    ttl: float = 60.0
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    task_patterns: tuple[str, ...] = ()
    """Canonical ids, or patterns of them, of tools whose calls may become tasks."""
    cursors: CursorCodec = field(default_factory=lambda: PlainCursorCodec())


@dataclass(frozen=True, slots=True)
class ToolPresentation:
    """How an endpoint presents its tools: as a list, by search, or as a list up to an estimated number of tokens."""

    view: ToolsView = "list"
    budget: int = 8000


LISTED: Final = ToolPresentation()


class PlainCursorCodec:
    """Cursors without encryption, for use without a seal key."""

    def mint(self, method: str, page: int) -> str:
        return urlsafe_b64encode(b"page:%d" % page).decode()

    def read(self, method: str, cursor: str) -> int:
        try:
            label, _, number = urlsafe_b64decode(cursor.encode("ascii")).partition(b":")
            page = int(number)
        except (BadBase64, ValueError):
            page, label = 0, b""
        if label != b"page" or page < 1:
            raise Fault(Kind.INVALID_INPUT, "The cursor is not valid. Start again without a cursor.")
        return page
