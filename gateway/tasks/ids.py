"""Task ids that clients carry: sealed for their owner, visible ASCII, at most 512 bytes.

They are also the `Mcp-Name` header of 2026-07-28. `TaskService` mints and opens them.
"""

from typing import Final, NamedTuple

import msgspec

from gateway.protocol.sealed_tokens import InvalidSeal, TokenSeal

MAX_TASK_ID_CHARS: Final = 512
_PURPOSE: Final = "task"


class TaskReference(NamedTuple):
    """The content of a task id."""

    id: str
    """Primary key of the row."""
    namespace: str
    tool: str
    """Canonical id of the tool; empty if it is too long for the id."""
    session: str
    """Digest of the server's session in which the task runs; empty for a task of the gateway."""


class TaskIds:
    """Mints and opens task ids. Only the principal that an id was minted for can open it."""

    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def mint(self, principal: str, reference: TaskReference) -> str:
        for candidate in (reference, reference._replace(tool=""), reference._replace(tool="", session="")):
            text = self._seal.seal(_PURPOSE, msgspec.json.encode(candidate), principal.encode())
            if len(text) <= MAX_TASK_ID_CHARS:
                return text
        raise ValueError("The namespace is too long for a task id.")

    def open(self, principal: str, text: str) -> TaskReference | None:
        """Return the content; None if the id is invalid or belongs to another principal."""
        if len(text) > MAX_TASK_ID_CHARS:
            return None
        try:
            return msgspec.json.decode(self._seal.open(_PURPOSE, text, principal.encode()), type=TaskReference)
        except (InvalidSeal, msgspec.DecodeError, UnicodeEncodeError):
            return None
