"""Lines out of pieces of bytes, in time linear in the bytes however they are cut, none longer than the limit."""


class LineTooLong(Exception):
    """A line outgrew the limit; the stream cannot be read any further."""


class LineReader:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without their ends. Raises `Oversize`."""
        *ended, rest = piece.split(b"\n")
        lines: list[bytes] = []
        for part in ended:
            self._grow(part)
            lines.append(self._begun[0] if len(self._begun) == 1 else b"".join(self._begun))
            self._begun.clear()
            self._size = 0
        if rest:
            self._grow(rest)
        return lines

    def _grow(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._begun.clear()
            raise LineTooLong
        self._begun.append(part)


class ClippedLineReader(LineReader):
    """The same for text that is only shown: a line that outgrows the limit is cut there instead."""

    def _grow(self, part: bytes) -> None:
        self._begun.append(part[: max(0, self._limit - self._size)])
        self._size += len(part)
