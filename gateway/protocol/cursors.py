"""Cursors of the lists, sealed: a client can bring back only what it was given, for the list it was given for."""

from typing import Final

from gateway.errors import Fault, Kind
from gateway.protocol.seal import Seal, Unsealed

_PURPOSE: Final = "cursor"


class SealedCursors:
    """`gateway.catalogue.view.Cursors`."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def mint(self, method: str, page: int) -> str:
        return self._seal.seal(_PURPOSE, b"%d" % page, method.encode())

    def read(self, method: str, cursor: str) -> int:
        try:
            return int(self._seal.open(_PURPOSE, cursor, method.encode()))
        except (Unsealed, ValueError) as exc:
            message = "That cursor is not one of ours; start again without a cursor."
            raise Fault(Kind.INVALID_INPUT, message) from exc
